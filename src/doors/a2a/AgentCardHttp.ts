import { Effect, Schema } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { AgentNotFound, type Card } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Skills } from "#domain/agents/Skills"
import { type ApiCalls, makeApiCalls, path, query } from "#domain/auth/ApiCalls"
import { Budgets } from "#domain/auth/Budgets"
import type { DirectoryEntry } from "#domain/directory/DirectoryApi"
import { isKnown } from "#ground/wire/Conditional"
import { Config } from "#ground/platform/Config"
import { publicUrl } from "#ground/platform/PublicUrl"
import { HandleInput } from "#ground/wire/Text"
import { agentCard, type Profile } from "./AgentCard.ts"
import { type Failure, refusing, restRefusal } from "./Failure.ts"

/** The entry of an agent in the directory, which an anonymous caller can see. The directory has neither suspended nor deleted agents. */
const publicEntry = (api: ApiCalls, handle: string): Effect.Effect<Omit<Profile, "skills"> | undefined, Failure> =>
  Effect.map(
    api.call<{ readonly agents: ReadonlyArray<typeof DirectoryEntry.Encoded> }>("GET", "/v1/directory" + query({ q: handle, limit: 1 })),
    ({ body }) => body.agents.find((agent) => agent.handle === handle)
  )

/** The profile of an agent as a caller with a key sees it; undefined if the agent is suspended. */
const profileForAgent = (api: ApiCalls, handle: string): Effect.Effect<Profile | undefined, Failure> =>
  Effect.map(api.call<typeof Card.Encoded>("GET", path`/v1/agents/${handle}`), ({ body }) => body.status === "suspended" ? undefined : body)

/**
 * The route of an agent's card. The card is the same with a key and without one. `identify` authenticates and counts a request with a key.
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
        profile = entry === undefined || agent === undefined ? undefined : { ...entry, skills: yield* skills.of(agent.id) }
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

    return Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      const { handle = "" } = yield* HttpRouter.params
      return yield* refusing(cardOf(request, handle), restRefusal)
    })
  })
