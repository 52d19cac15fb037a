import type { Batch } from "#infrastructure/cluster/Job"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, type Effect } from "effect"

/** An account that has ended but may still have data. */
export interface Deletion {
  readonly agentId: string
  /** When the account ended, in milliseconds. */
  readonly since: number
}

/**
 * The steps that follow the end of an account (wire.md G.12). The module `accounts` implements this service, because
 * that module may import the modules that the steps need.
 */
export class Deletions extends Context.Service<Deletions, {
  /**
   * Starts the steps for an account that has just ended, and waits for them for up to 2 seconds. The job finishes the
   * steps that remain.
   */
  readonly begin: (deletion: Deletion) => Effect.Effect<void>
  /** Runs the steps for some of the accounts that are due. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/agents/Deletions") {}
