import { Cause, Clock, Effect, Metric, Option } from "effect"
import type { SqlError } from "effect/sql"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { Readiness } from "../platform/Readiness.ts"
import { sqlState } from "./Sql.ts"

/**
 * What became of one item. `Failed` is not "nothing happened": a connection that
 * broke during the commit leaves open whether it did; asking again with the same key tells.
 */
export type Settled<Out> =
  | { readonly _tag: "Done"; readonly value: Out }
  | { readonly _tag: "Failed" }

const failed: Settled<never> = { _tag: "Failed" }

export interface GroupCommit<In, Out> {
  /**
   * Queues an item; `settle` runs exactly once, in the order of the commits, after
   * the commit and never inside this call. Items of one lane are committed in the order
   * of their submission, and one batch of a lane is in flight at a time.
   */
  readonly submit: (item: In, settle: (settled: Settled<Out>) => void) => void
  /** Items that wait or are being committed. */
  readonly size: () => number
  /** Completes once nothing waits and nothing is being committed. */
  readonly idle: Effect.Effect<void>
}

interface Waiting<In, Out> {
  readonly item: In
  readonly settle: (settled: Settled<Out>) => void
  readonly since: number
}

interface Lane<In, Out> {
  queue: Array<Waiting<In, Out>>
  running: boolean
  /** Since when the oldest of those waits that are being committed. */
  since: number | undefined
}

/** Insufficient resources, errors of its system, a read-only transaction: no fault of what was to be committed. */
const OUT_OF_ROOM = /^(?:53|58|25006)/

/** Whoever waits for longer than this waits on a node that makes no progress. */
const OLD_MS = 10_000

/** Deadlock (40P01), serialisation failure (40001), a unique key that somebody else took meanwhile (23505): the same batch may succeed. */
const mayPass = (error: SqlError.SqlError): boolean => {
  const { _tag } = error.reason
  return _tag === "DeadlockError" || _tag === "SerializationError" || _tag === "UniqueViolation"
}

const turn = Effect.callback<void>((resume) => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

/**
 * Group commit: while one batch commits, the next gathers. A batch that fails is
 * not an answer: it is tried again when the failure may pass, then halved until the
 * culprit stands alone, so that no item fails for its neighbour.
 */
export const makeGroupCommit = Effect.fnUntraced(function*<In, Out>(options: {
  /** Label of the metrics. */
  readonly name: string
  readonly lanes: number
  readonly laneOf: (item: In) => number
  /** What an item adds to its batch, in rows. */
  readonly rowsOf: (item: In) => number
  readonly bytesOf: (item: In) => number
  readonly maxRows: number
  readonly maxBytes: number
  /** Items that may wait in a lane; one more fails at once. */
  readonly capacity: number
  /** Gather for a turn of the event loop before each batch: pays where the database works in this very thread. */
  readonly gather: boolean
  /** One statement: all of the batch or nothing; results in the order of the items. */
  readonly commit: (items: ReadonlyArray<In>) => Effect.Effect<ReadonlyArray<Out>, SqlError.SqlError>
}): Effect.fn.Return<GroupCommit<In, Out>> {
  const context = yield* Effect.context<never>()
  const runFork = Effect.runForkWith(context)
  const lanes: Array<Lane<In, Out>> = Array.from({ length: options.lanes }, () => ({ queue: [], running: false, since: undefined }))
  const now = monotonicMillis(yield* Clock.Clock)
  const batchSize = Metric.histogram(`${options.name}_batch_size`, {
    description: `Items per commit of ${options.name}`,
    boundaries: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
  })
  const idleWaiters = new Set<() => void>()

  /** One that throws is nobody else's harm: the rest of its batch is told all the same. */
  const tell = ({ settle }: Waiting<In, Out>, settled: Settled<Out>): void => {
    try {
      settle(settled)
    } catch (error) {
      runFork(Effect.logError(`What ${options.name} committed could not be told`, Cause.die(error)))
    }
  }

  const attempt = (batch: ReadonlyArray<Waiting<In, Out>>, tries: number): Effect.Effect<void> =>
    Effect.matchCauseEffect(options.commit(batch.map((waiting) => waiting.item)), {
      onSuccess: (results) => {
        refused = undefined
        for (let i = 0; i < batch.length; i++) tell(batch[i]!, { _tag: "Done", value: results[i]! })
        return Effect.void
      },
      onFailure: (cause) => {
        const error = cause.reasons.find(Cause.isFailReason)?.error
        const state = error === undefined ? undefined : sqlState(error)
        if (state !== undefined && OUT_OF_ROOM.test(state)) refused = { state, at: now() }
        if (error !== undefined && tries < 3 && mayPass(error)) return attempt(batch, tries + 1)
        if (error === undefined || error.reason._tag === "ConnectionError" || batch.length === 1) {
          for (const waiting of batch) tell(waiting, failed)
          return Effect.logError(`A commit of ${options.name} failed`, cause)
        }
        const middle = batch.length >> 1
        return Effect.andThen(attempt(batch.slice(0, middle), 0), attempt(batch.slice(middle), 0))
      }
    })

  const take = (lane: Lane<In, Out>): Array<Waiting<In, Out>> => {
    let rows = 0
    let bytes = 0
    let n = 0
    for (; n < lane.queue.length; n++) {
      const { item } = lane.queue[n]!
      rows += options.rowsOf(item)
      bytes += options.bytesOf(item)
      if (n > 0 && (rows > options.maxRows || bytes > options.maxBytes)) break
    }
    if (n === lane.queue.length) {
      const all = lane.queue
      lane.queue = []
      return all
    }
    return lane.queue.splice(0, n)
  }

  const drain = (lane: Lane<In, Out>): Effect.Effect<void> =>
    Effect.gen(function*() {
      while (lane.queue.length > 0) {
        if (options.gather) yield* turn
        const batch = take(lane)
        lane.since = batch[0]!.since
        yield* Metric.update(batchSize, batch.length)
        yield* attempt(batch, 0)
        lane.since = undefined
      }
    })

  const start = (lane: Lane<In, Out>): void => {
    lane.running = true
    runFork(Effect.exit(drain(lane))).addObserver(() => {
      lane.running = false
      lane.since = undefined
      if (lane.queue.length > 0) start(lane)
      else if (lanes.every((other) => !other.running)) {
        // Whoever is resumed may submit and wait again, at once.
        const waiters = [...idleWaiters]
        idleWaiters.clear()
        for (const resume of waiters) resume()
      }
    })
  }

  /** When the database last could commit nothing, and nothing has been committed since. */
  let refused: { readonly state: string; readonly at: number } | undefined
  /** How long the one that waits longest has waited, in milliseconds; 0 when none does. */
  const oldest = (): number => {
    let since = Number.POSITIVE_INFINITY
    for (const lane of lanes) since = Math.min(since, lane.since ?? lane.queue[0]?.since ?? since)
    return since === Number.POSITIVE_INFINITY ? 0 : now() - since
  }
  Option.map(yield* Effect.serviceOption(Readiness), (readiness) =>
    readiness.check(() => {
      const waited = oldest()
      if (refused !== undefined && now() - refused.at < OLD_MS) {
        return `Commits of ${options.name} fail: the database has no room (disk, memory, connections) or takes no writes (SQLSTATE ${refused.state}).`
      }
      return waited < OLD_MS
        ? undefined
        : `Commits of ${options.name} do not come through: the oldest has waited for ${Math.floor(waited / 1_000)} s. Look at the database.`
    }))

  return {
    submit: (item, settle) => {
      const lane = lanes[options.laneOf(item) % lanes.length]!
      if (lane.queue.length >= options.capacity) {
        queueMicrotask(() => settle(failed))
        return
      }
      lane.queue.push({ item, settle, since: now() })
      if (!lane.running) start(lane)
    },
    size: () => lanes.reduce((sum, lane) => sum + lane.queue.length + (lane.running ? 1 : 0), 0),
    idle: Effect.callback<void>((resume) => {
      if (lanes.every((lane) => !lane.running)) return resume(Effect.void)
      const done = () => resume(Effect.void)
      idleWaiters.add(done)
      return Effect.sync(() => idleWaiters.delete(done))
    })
  }
})

