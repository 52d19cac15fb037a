import type { Agent } from "#domain/agents/Agent"
import type { Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Context, type Effect } from "effect"

/** The agent for which a request is made. Code that serves the request gets this object, never the agent's key. */
export interface Principal {
  readonly agentId: string
  /**
   * Returns the agent's current account, like `Auth.authenticate`. Fails if the credential of the request is no longer
   * valid.
   */
  readonly check: Effect.Effect<Agent, Unauthorized | Unavailable>
  /**
   * Whether the credential can end without a notice to this node, like an OAuth access token. If so, a stream checks
   * the credential from time to time.
   */
  readonly endsUnnoticed?: boolean
  /**
   * The id of the OAuth grant that the request uses; undefined for a key. A subscription that the request creates ends
   * with this grant.
   */
  readonly connectionId?: string | undefined
}

/**
 * The principal of a call to this API from inside the process (ApiCalls.ts). A request over the network has a key or a
 * token instead.
 */
export const CurrentPrincipal = Context.Reference<Principal | undefined>("parley/auth/CurrentPrincipal", {
  defaultValue: () => undefined
})
