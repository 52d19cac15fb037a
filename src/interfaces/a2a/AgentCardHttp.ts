import { AgentNotFound, type Card } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Skills } from "#domain/agents/Skills"
import { type ApiCalls, makeApiCalls, path, query } from "#domain/auth/ApiCalls"
import { Budgets } from "#domain/auth/Budgets"
import type { DirectoryEntry } from "#domain/directory/DirectoryApi"
import { refusing as refused } from "#infrastructure/http/Routing"
import { Config } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { isKnown } from "#infrastructure/wire/Conditional"
import { HandleInput } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { toResponse } from "#infrastructure/wire/WireErrors"
import { Effect, Schema } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { agentCard, type Profile } from "./AgentCard.ts"
import { type Failure, refusing, restRefusal } from "./Failure.ts"

const CARD = "/.well-known/agent-card.json"

/** Whether a path below /a2a is the path of an agent's card, or a path where clients look for a card. */
export const isCard = (path: string): boolean => /^\/a2a\/[^/]+\/(?:\.well-known\/)?agent(?:-card)?\.json$/.test(path)

/** Paths where clients look for a card of the whole server. The server has no card, because each agent has its own. */
const ofServer = [CARD, "/.well-known/agent.json"] as const
export const isCardOfServer = (path: string): boolean => ofServer.some((one) => one === path)

/** Refuses the paths where clients look for a card, except the path of an agent's card. The refusal names that path. */
export const noCardRoutes = [
  ...ofServer.flatMap((path) => [
    HttpRouter.route("GET", path, Effect.sync(() => toResponse(noCard()))),
    HttpRouter.route("GET", `/a2a${path}`, Effect.sync(() => restRefusal(noCard())))
  ]),
  ...(["/.well-known/agent.json", "/agent-card.json", "/agent.json"] as const).map((path) =>
    HttpRouter.route("GET", `/a2a/:handle${path}`, Effect.sync(() => restRefusal(noCard())))
  )
].map(refused)

/**
 * The directory entry of an agent, as an anonymous caller sees it. The directory lists neither suspended nor deleted
 * agents.
 */
const publicEntry = (api: ApiCalls, handle: string): Effect.Effect<Omit<Profile, "skills"> | undefined, Failure> =>
  Effect.map(
    api.call<{ readonly agents: ReadonlyArray<typeof DirectoryEntry.Encoded> }>(
      "GET",
      "/v1/directory" + query({ q: handle, limit: 1 })
    ),
    ({ body }) => body.agents.find((agent) => agent.handle === handle)
  )

/** The profile of an agent as a caller with a key sees it; undefined if the agent is suspended. */
const profileForAgent = (api: ApiCalls, handle: string): Effect.Effect<Profile | undefined, Failure> =>
  Effect.map(
    api.call<typeof Card.Encoded>("GET", path`/v1/agents/${handle}`),
    ({ body }) => body.status === "suspended" ? undefined : body
  )

const noCard = () =>
  new NotFound({
    message: `Every agent has a card of its own, at /a2a/{handle}${CARD}. The server itself has no card.`
  })

/**
 * The route of an agent's card. The card is the same with a key and without one. `identify` authenticates a request
 * that has a key, and counts the request against the limit of its agent.
 */
export const makeCardRoute = (
  router: HttpRouter.HttpRouter,
  identify: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<{ readonly api: ApiCalls }, Failure>
) =>
  Effect.gen(function*() {
    const agents = yield* Agents
    const budgets = yield* Budgets
    const skills = yield* Skills
    const config = yield* Config
    const app = router.asHttpEffect()

    const cardOf = Effect.fnUntraced(function*(
      request: HttpServerRequest.HttpServerRequest,
      given: string
    ): Effect.fn.Return<HttpServerResponse.HttpServerResponse, Failure> {
      const handle = yield* Effect.mapError(Schema.decodeUnknownEffect(HandleInput)(given), () => new AgentNotFound())
      if (!/^[a-z0-9-]{3,50}$/.test(handle)) return yield* new AgentNotFound()
      let profile: Profile | undefined
      if (request.headers["authorization"] === undefined) {
        yield* budgets.ofAddress(request)
        const entry = yield* publicEntry(makeApiCalls(app, request, undefined), handle)
        const agent = yield* agents.byHandle(handle)
        profile = entry === undefined || agent === undefined
          ? undefined
          : { ...entry, skills: yield* skills.of(agent.id) }
      } else {
        profile = yield* profileForAgent((yield* identify(request)).api, handle)
      }
      if (profile === undefined) return yield* new AgentNotFound()
      const text = JSON.stringify(agentCard(profile, publicUrl(config)))
      const etag = `"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"`
      const headers = { etag, "cache-control": "max-age=60" }
      return isKnown(request.headers["if-none-match"], etag)
        ? HttpServerResponse.empty({ status: 304, headers })
        : HttpServerResponse.text(text, { contentType: "application/json", headers })
    })

    return HttpRouter.route(
      "GET",
      `/a2a/:handle${CARD}`,
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        const { handle = "" } = yield* HttpRouter.params
        return yield* refusing(cardOf(request, handle), restRefusal)
      })
    )
  })
