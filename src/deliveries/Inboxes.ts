import { Context, type Effect } from "effect"
import type { Unavailable } from "../wire/WireError.ts"

/** The numbered inbox of each recipient, for the rooms that make or end accounts. */
export class Inboxes extends Context.Service<Inboxes, {
  /** Marks every undelivered envelope of an agent as delivered at that time (wire.md G.12); idempotent. */
  readonly closeAll: (agentId: string, at: number) => Effect.Effect<void, Unavailable>
}>()("parley/deliveries/Inboxes") {}
