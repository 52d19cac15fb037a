import { jobRows, jobRuns, jobSeconds } from "#infrastructure/platform/Metrics"
import { Cause, Clock, Duration, Effect, type Layer } from "effect"
import { type Sharding, Singleton } from "effect/cluster"

/** The result of one batch of a job. */
export interface Batch {
  /** How many rows the batch has removed or processed. */
  readonly rows: number
  /** Whether another batch should follow soon. It is false if no work is left for now. */
  readonly more: boolean
}

/**
 * Makes the result of a batch that processes at most `most` rows. If the batch reached that number, more rows may be
 * left.
 */
export const batchUpTo = (most: number) => (rows: number): Batch => ({ rows, more: rows >= most })

export interface Job<E, R> {
  /** The name is unique in the cluster. It is the label of the job's metrics. */
  readonly name: string
  readonly every: Duration.Input
  /**
   * A bounded piece of work. It must be safe to run twice and in two processes at once, because for a moment two nodes
   * may both run the job, and a process may die at any statement.
   */
  readonly batch: Effect.Effect<Batch, E, R>
}

/** The pause between two batches, so that a long job leaves room for requests. */
const BATCH_PAUSE = Duration.millis(10)
/** The longest pause after a failure, unless the job's period is shorter; then the period is the limit. */
const RETRY_DELAY = Duration.seconds(30)

/**
 * A background job on stored data, which one process of the cluster runs. The job runs when the process takes it over,
 * and then once in every period. Each run executes batches until no work is left. A batch that fails is logged, counted
 * and retried. Work on a process's own memory is not a job.
 */
export const job = <E, R>({ batch, every, name }: Job<E, R>): Layer.Layer<never, never, Sharding.Sharding | R> => {
  const attributes = { job: name }
  const runs = { done: jobRuns.at(name, "done"), failed: jobRuns.at(name, "failed") }
  const rowsDone = jobRows.at(name)
  const seconds = jobSeconds.at(name)
  const period = Duration.fromInputUnsafe(every)

  const timed = Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const began = clock.monotonicTimeNanosUnsafe()
    const made = yield* batch
    seconds.observe(Number(clock.monotonicTimeNanosUnsafe() - began) / 1e9)
    rowsDone.add(made.rows)
    return made
  })
  const run = Effect.gen(function*() {
    while ((yield* timed).more) yield* Effect.sleep(BATCH_PAUSE)
  })
  const pass = Effect.matchCauseEffect(run, {
    onSuccess: () =>
      Effect.sync(() => {
        runs.done.add()
        return period
      }),
    onFailure: (cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.interrupt
        : Effect.logWarning("A background job failed and will be retried", cause).pipe(
          Effect.annotateLogs(attributes),
          Effect.map(() => {
            runs.failed.add()
            return Duration.min(period, RETRY_DELAY)
          })
        )
  })
  return Singleton.make(`parley/jobs/${name}`, Effect.forever(Effect.flatMap(pass, Effect.sleep))) as Layer.Layer<
    never,
    never,
    Sharding.Sharding | R
  >
}
