import { Context, type Effect } from "effect"
import type { Batch } from "../cluster/Job.ts"
import type { Unavailable } from "../wire/WireError.ts"

/** An account that has ended, and of which data may be left. */
export interface Deletion {
  readonly agentId: string
  /** When it ended, in milliseconds. */
  readonly since: number
}

/**
 * The work that is left once an account has ended (wire.md G.12); the room `accounts` does it, because it
 * may import every other room.
 */
export class Deletions extends Context.Service<Deletions, {
  /**
   * Starts on an account that has just ended, and waits a moment for it; whatever happens, the job
   * continues with it.
   */
  readonly begin: (deletion: Deletion) => Effect.Effect<void>
  /** Works on some of the accounts that are due. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/agents/Deletions") {}
