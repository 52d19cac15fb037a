import { Context } from "effect"
import { HttpApiMiddleware, HttpApiSecurity } from "effect/http-api"
import { AgentSuspended, type AgentStatus } from "../agents/Agent.ts"
import { RateLimited, Unauthorized, Unavailable } from "../platform/WireError.ts"

/** The agent whose key came with the request. */
export class CurrentAgent extends Context.Service<CurrentAgent, {
  readonly id: string
  readonly handle: string
  readonly status: AgentStatus
}>()("parley/auth/CurrentAgent") {}

const bearer = HttpApiSecurity.bearer

/** A live key is required and its agent not suspended (wire.md C.0, Auth and Suspended caller). */
export class Authorization extends HttpApiMiddleware.Service<Authorization, { provides: CurrentAgent }>()(
  "parley/auth/Authorization",
  { security: { bearer }, error: [Unauthorized, AgentSuspended, RateLimited, Unavailable] }
) {}

/** A live key is required; a suspended agent may pass, to read its own status. */
export class AuthorizationEvenSuspended
  extends HttpApiMiddleware.Service<AuthorizationEvenSuspended, { provides: CurrentAgent }>()(
    "parley/auth/AuthorizationEvenSuspended",
    { security: { bearer }, error: [Unauthorized, RateLimited, Unavailable] }
  )
{}
