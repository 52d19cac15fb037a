import { AgentSuspended } from "#domain/agents/Agent"
import { withReadDeadline } from "#infrastructure/http/Endpoints"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"
import { Auth } from "./Auth.ts"
import type { CurrentAgent } from "./Authorization.ts"
import { Budgets } from "./Budgets.ts"
import { CurrentPrincipal } from "./Principal.ts"

/** The caller of an endpoint where a key is optional. */
export class CurrentCaller extends Context.Service<CurrentCaller, {
  /** Null if the request has no key. */
  readonly agent: CurrentAgent["Service"] | null
}>()("parley/auth/CurrentCaller") {}

/**
 * Treats a request without an Authorization header as anonymous. A request with this header is authenticated as on
 * every other endpoint. So an invalid key never counts as a missing key (wire.md B4).
 */
export class OptionalAuthorization
  extends HttpApiMiddleware.Service<OptionalAuthorization, { provides: CurrentCaller }>()(
    "parley/auth/OptionalAuthorization",
    { error: [Unauthorized, AgentSuspended, RateLimited, Unavailable] }
  ) {
  static readonly layer = Layer.effect(
    OptionalAuthorization,
    Effect.gen(function*() {
      const auth = yield* Auth
      const budgets = yield* Budgets

      return (httpEffect, { endpoint }) =>
        Effect.withFiber((fiber) => {
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const handled = (agent: CurrentCaller["Service"]["agent"]) =>
            Effect.provideService(httpEffect, CurrentCaller, { agent })
          const { authorization } = request.headers
          const principal = fiber.getRef(CurrentPrincipal)
          if (principal === undefined && authorization === undefined) {
            return budgets.countAddress(request, endpoint, handled(null))
          }
          // Only searches of the directory have an optional key.
          const checked = withReadDeadline(principal?.check ?? auth.authenticate(bearerOf(authorization)))
          const authenticated = Effect.catchTag(checked, "Unauthorized", () => budgets.unauthorized(request))
          return Effect.flatMap(authenticated, (agent) =>
            budgets.countAgent(
              agent.id,
              endpoint,
              agent.status === "suspended"
                ? Effect.andThen(Effect.fail(new AgentSuspended()), handled(agent))
                : handled(agent)
            ))
        })
    })
  )
}
