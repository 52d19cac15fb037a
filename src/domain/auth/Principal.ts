import type { Agent } from "#domain/agents/Agent"
import type { Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Context, type Effect } from "effect"

/** The agent for which a request is made. Code that serves the request gets this object, never the agent's key. */
export interface Principal {
  readonly agentId: string
  /**
   * The agent's account as it is now, as `Auth.authenticate` returns it. Fails if the credential of the request is no
   * longer valid.
   */
  readonly check: Effect.Effect<Agent, Unauthorized | Unavailable>
  /**
   * Whether the credential can end without a notice to this node, as an access token of OAuth can. Then a stream checks
   * it now and then.
   */
  readonly endsUnnoticed?: boolean
  /**
   * The connection of OAuth that the request uses; undefined for a key. A subscription that the request makes ends with
   * this connection.
   */
  readonly connectionId?: string | undefined
}

/**
 * The principal of a call to this API from inside the process (ApiCalls.ts). A request over the network has a key
 * instead.
 */
export const CurrentPrincipal = Context.Reference<Principal | undefined>("parley/auth/CurrentPrincipal", {
  defaultValue: () => undefined
})
