import { Context, type Effect } from "effect"
import type { Batch } from "../cluster/Job.ts"
import type { Unavailable } from "../wire/WireError.ts"

/** An account that has ended and of which something may be left. */
export interface Deletion {
  readonly agentId: string
  /** When it ended, in milliseconds. */
  readonly since: number
}

/** What is left to do once an account has ended (wire.md G.12); the room `accounts` does it, because it may import every other. */
export class Deletions extends Context.Service<Deletions, {
  /** Begins with an account that has just ended, and waits a moment for it; whatever happens, the job goes on with it. */
  readonly begin: (deletion: Deletion) => Effect.Effect<void>
  /** Takes on some of the accounts that are due. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/agents/Deletions") {}
