import { type AgentStatus, AgentSuspended, type SendBudget } from "#domain/agents/Agent"
import { hasReadDeadline } from "#infrastructure/http/EndpointOptions"
import { withReadDeadline } from "#infrastructure/http/Endpoints"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { type HttpApiEndpoint, HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import type { unhandled } from "effect/Types"
import { Auth } from "./Auth.ts"
import { Budgets } from "./Budgets.ts"
import { CurrentPrincipal } from "./Principal.ts"

/**
 * The agent whose key the request contains. The fields are those of the account when the key was checked (`Agents`
 * documents how old they may be).
 */
export class CurrentAgent extends Context.Service<CurrentAgent, {
  readonly id: string
  readonly handle: string
  /** Null if the agent has set no name. Its handle is shown instead. */
  readonly displayName: string | null
  readonly status: AgentStatus
  /** Its own budget of messages. Absent or null if it has set none. */
  readonly budget?: SendBudget | null
}>()("parley/auth/CurrentAgent") {}

const bearer = HttpApiSecurity.bearer

/**
 * Authenticates the bearer token in the Authorization header and counts the request against the agent's budget. Never
 * accepts a token in the query string.
 */
const guard = <E>(admit: (agent: CurrentAgent["Service"]) => Effect.Effect<void, E> | undefined) =>
  Effect.gen(function*() {
    const auth = yield* Auth
    const budgets = yield* Budgets
    return {
      bearer: (
        httpEffect: Effect.Effect<HttpServerResponse.HttpServerResponse, unhandled, CurrentAgent>,
        { endpoint }: { readonly endpoint: HttpApiEndpoint.Top }
      ): Effect.Effect<
        HttpServerResponse.HttpServerResponse,
        unhandled | E | Unauthorized | Unavailable | RateLimited
      > =>
        Effect.withFiber((fiber) => {
          // Read the header instead of the credential that the middleware gets, because Effect wraps that credential
          // for each request.
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const check = fiber.getRef(CurrentPrincipal)?.check ??
            auth.authenticate(bearerOf(request.headers["authorization"]))
          const checked = hasReadDeadline(endpoint) ? withReadDeadline(check) : check
          const authenticated = Effect.catchTag(checked, "Unauthorized", () => budgets.unauthorized(request))
          return Effect.flatMapEager(authenticated, (agent) => {
            const handled = Effect.provideService(httpEffect, CurrentAgent, agent)
            const admission = admit(agent)
            return budgets.countAgent(
              agent.id,
              endpoint,
              admission === undefined ? handled : Effect.andThen(admission, handled)
            )
          })
        })
    }
  })

/** Requires a live key whose agent is not suspended (wire.md C.0, Auth and Suspended caller). */
export class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentAgent }>()(
  "parley/auth/Authorization",
  { security: { bearer }, error: [Unauthorized, AgentSuspended, RateLimited, Unavailable] }
) {
  static readonly layer = Layer.effect(
    Authorization,
    guard((agent) => agent.status === "suspended" ? Effect.fail(new AgentSuspended()) : undefined)
  )
}

/** Requires a live key. A suspended agent is also accepted, so that it can read its own status. */
export class AuthorizationEvenSuspended
  extends HttpApiMiddleware.Service<AuthorizationEvenSuspended, { provides: CurrentAgent }>()(
    "parley/auth/AuthorizationEvenSuspended",
    { security: { bearer }, error: [Unauthorized, RateLimited, Unavailable] }
  ) {
  static readonly layer = Layer.effect(AuthorizationEvenSuspended, guard(() => undefined))
}
