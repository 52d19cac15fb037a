import { Cause, Clock, Effect, Exit, Option } from "effect"
import type { SqlError } from "effect/sql"
import { commitMeters } from "#ground/platform/Metrics"
import { monotonicMillis } from "#ground/platform/MonotonicClock"
import { isSampled, isTracing, recordSpan, type TraceContext, traceTime } from "#ground/platform/Tracing"
import { Readiness } from "#ground/platform/Readiness"
import { LogThrottle } from "#ground/platform/LogThrottle"
import { sqlState } from "./Sql.ts"
import { AnswerTimeout } from "./SqlPostgres.ts"
import { HELD_MS, Unavailable } from "#ground/wire/WireError"
import { isStatementDefect } from "#ground/wire/WireErrors"

/**
 * The result of one item. `Failed` does not prove that nothing was committed: if the connection broke during the
 * commit, only a repetition with the same key can tell. `exit` is for the caller: `Unavailable`, which is already
 * logged, or a defect, which is not.
 */
export type Settled<Out> =
  /** `at`: when its batch was committed, as `performance.now()`. */
  | { readonly _tag: "Done"; readonly value: Out; readonly at?: number }
  | { readonly _tag: "Failed"; readonly exit: Exit.Exit<never, Unavailable> }

const failed = (): Settled<never> => ({ _tag: "Failed", exit: Exit.fail(new Unavailable()) })

/** Names of rows. Items with the same first name keep their order. */
type Names = readonly [string, ...Array<string>]

/**
 * The rows that the commit of an item locks. While another session holds one of them, the item waits outside its
 * batch.
 */
export interface Locks<In> {
  /** The rows that are known before the commit. */
  readonly of: (item: In) => Names
  /** The rows of these items that are locked right now, each with the holder of the lock. Does not wait for locks. */
  readonly held: (items: ReadonlyArray<In>) => Effect.Effect<ReadonlyMap<string, string>, SqlError.SqlError>
}

export interface CommitQueue<In, Out> {
  /**
   * Queues an item. `settle` runs exactly once, after the commit, in commit order, and never inside this call. If it
   * throws, it is called once more, with its own defect. The items of a lane are committed in submission order, except
   * those that wait for a lock. Each lane has one batch in flight. `age` is how many milliseconds the item has already
   * waited. `trace` is the trace that gets a span for the commit.
   */
  readonly submit: (item: In, settle: (settled: Settled<Out>) => void, age?: number, trace?: TraceContext) => void
  /** The number of waiting items, plus one for each lane that is committing. It is 0 when the group commit is idle. */
  readonly size: () => number
  /** Commits items now that only wait for further items (`lingerMs`). */
  readonly flush: () => void
  /** Calls `flush`, and completes once no item waits or is being committed. */
  readonly idle: Effect.Effect<void>
}

/** A hash of an id, evenly spread: selects the lane for its writes. */
export const laneOf = (id: string): number => {
  let hash = 0
  for (let i = id.length - 8; i < id.length; i++) hash = (hash * 31 + id.charCodeAt(i)) >>> 0
  return hash
}

interface Waiting<In, Out> {
  readonly item: In
  readonly settle: (settled: Settled<Out>) => void
  readonly since: number
  /** Place in the order of submission. */
  readonly order: number
  /** The trace that the item belongs to, and when the item was submitted (`traceTime`). */
  readonly trace: { readonly context: TraceContext; readonly at: number } | undefined
}

interface Lane<In, Out> {
  queue: Array<Waiting<In, Out>>
  /** The batch in flight. */
  batch: ReadonlyArray<Waiting<In, Out>>
  running: boolean
}

const makeLane = <In, Out>(): Lane<In, Out> => ({ queue: [], batch: [], running: false })

/**
 * SQLSTATEs of insufficient resources (53), system errors (58) and read-only transactions (25006). The batch does not
 * cause these errors.
 */
const OUT_OF_ROOM = /^(?:53|58|25006)/

/** How often to check whether the rows of blocked items are free, in milliseconds. */
const LOOK_MS = 100
/** How long a statement of an ordinary lane waits for one lock, in milliseconds. */
const LOCK_MS = 300
/** How long a statement with blocked items waits for one lock: long enough for slow commits of other nodes. In milliseconds. */
const PATIENT_LOCK_MS = 2_000

/**
 * Why a commit failed, as the label of the metric. `system` is a problem of the database itself. `refused` is a problem
 * that the batch caused.
 */
type Reason = "connection" | "system" | "lock" | "refused" | "defect"

const reasonOf = (error: SqlError.SqlError): Reason => {
  switch (error.reason._tag) {
    case "ConnectionError":
      return "connection"
    case "LockTimeoutError":
      return "lock"
    // The batch is not halved, because each half could block the lane for another full time-out.
    case "StatementTimeoutError":
      return "system"
    default:
      return OUT_OF_ROOM.test(sqlState(error) ?? "") ? "system" : "refused"
  }
}

/** If an item has waited longer than this, in milliseconds, the node makes no progress and is not ready. */
const OLD_MS = 10_000

/**
 * Whether the same batch may succeed if repeated: deadlock (40P01), serialisation failure (40001), or a unique key
 * taken concurrently (23505).
 */
const mayPass = (error: SqlError.SqlError): boolean => {
  const { _tag } = error.reason
  return _tag === "DeadlockError" || _tag === "SerializationError" || _tag === "UniqueViolation"
}

/** Waits for one turn of the event loop, so that other work that is due can run. */
export const turn = Effect.callback<void>((resume) => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

/**
 * Group commit: while one batch commits, the next gathers. A batch that is refused or meets a defect is retried if the
 * failure may be transient. Then it is halved until the culprit is alone, so that no item fails because of its
 * neighbours. A failure of the database itself fails the whole batch. Items whose rows another session has locked are
 * blocked for up to 5 s, and the others are committed at once. Once a row is free or has another holder, its items are
 * retried in a lane of their own, which waits longer for locks.
 */
export const makeCommitQueue = Effect.fnUntraced(function*<In, Out>(options: {
  /** Label of the metrics. */
  readonly name: string
  readonly lanes: number
  readonly laneOf: (item: In) => number
  /** The number of rows that an item adds to its batch. */
  readonly rowsOf: (item: In) => number
  readonly bytesOf: (item: In) => number
  readonly maxRows: number
  readonly maxBytes: number
  /** The most items that may wait in a lane. Further items fail at once. */
  readonly capacity: number
  /** Whether to wait for one turn of the event loop before each batch. This helps if the database runs in this thread (PGlite). */
  readonly batchPerTick: boolean
  /**
   * How many milliseconds to wait before each batch instead, so that items that arrive one by one are committed together.
   * It is for items whose callers do not wait.
   */
  readonly lingerMs?: number
  /**
   * Commits the batch in one statement, all or nothing; results in the order of the items. `lockMs`: the statement's lock
   * time-out (SQLSTATE 55P03) in milliseconds.
   */
  readonly commit: (items: ReadonlyArray<In>, lockMs: number) => Effect.Effect<ReadonlyArray<Out>, SqlError.SqlError>
  /** Without it, a batch that meets a lock is halved. */
  readonly locks?: Locks<In>
}): Effect.fn.Return<CommitQueue<In, Out>> {
  const context = yield* Effect.context<never>()
  const runFork = Effect.runForkWith(context)
  const lanes: Array<Lane<In, Out>> = Array.from({ length: options.lanes }, () => makeLane())
  /** The lane in which blocked items are retried. */
  const retryLane: Lane<In, Out> = makeLane()
  const now = monotonicMillis(yield* Clock.Clock)
  const meters = commitMeters(options.name)
  const idleWaiters = new Set<() => void>()

  const countFailed = (reason: Reason): Effect.Effect<void> => Effect.sync(() => meters.failed.at(reason).add())
  const lines = { failed: new LogThrottle(), full: new LogThrottle(), blocked: new LogThrottle(), late: new LogThrottle() }

  /** Settles one item. The rest of its batch is settled even if the callback throws. */
  const tell = ({ settle }: Waiting<In, Out>, settled: Settled<Out>): void => {
    try {
      settle(settled)
    } catch (error) {
      try {
        settle({ _tag: "Failed", exit: Exit.die(error) })
      } catch (another) {
        runFork(Effect.logError(`A result of ${options.name} could not be delivered to its caller`, Cause.combine(Cause.die(error), Cause.die(another))))
      }
    }
  }

  const fail = (batch: ReadonlyArray<Waiting<In, Out>>, cause: Cause.Cause<unknown>): Effect.Effect<void> => {
    for (const waiting of batch) tell(waiting, failed())
    return lines.failed.log(Effect.logError(`A commit of ${options.name} failed`, cause))
  }

  const halve = (batch: ReadonlyArray<Waiting<In, Out>>): Effect.Effect<void> => {
    const middle = batch.length >> 1
    return Effect.andThen(attempt(batch.slice(0, middle), 0), Effect.suspend(() => {
      // If items of the first half were blocked, items of the same rows must wait behind them.
      const rest = options.locks === undefined ? batch.slice(middle) : divertBatch(options.locks, batch.slice(middle))
      return rest.length === 0 ? Effect.void : attempt(rest, 0)
    }))
  }

  /**
   * Records the batch as a span of its first traced item, linked to the traces of the other items. Each traced item also
   * gets a span from its submission to the end of the batch, linked to the batch.
   */
  const traceBatch = (batch: ReadonlyArray<Waiting<In, Out>>, ms: number, failure: string | undefined): void => {
    const traced = batch.flatMap(({ trace }) => trace !== undefined && isSampled(trace.context) ? [trace] : [])
    const [first, ...others] = traced
    if (first === undefined) return
    const end = traceTime()
    const whole = recordSpan(first.context, `batch of ${options.name}`, end - ms, {
      kind: "client",
      attributes: { "db.system.name": "postgresql", "db.operation.batch.size": batch.length },
      links: others.map(({ context }) => context),
      failure
    }, end)
    const links = whole === undefined ? [] : [whole]
    for (const { at, context } of traced) recordSpan(context, "commit", at, { links, failure }, end)
  }

  const attempt = (batch: ReadonlyArray<Waiting<In, Out>>, tries: number, lockMs = LOCK_MS): Effect.Effect<void> => {
    let began = 0
    const timed = Effect.suspend(() => {
      began = now()
      return options.commit(batch.map((waiting) => waiting.item), lockMs)
    })
    return Effect.matchCauseEffect(timed, {
      onSuccess: (results) => {
        refused = undefined
        const at = performance.now()
        const ended = now()
        meters.seconds.millis(ended - began)
        for (const { since } of batch) meters.waits.millis(ended - since)
        if (isTracing()) traceBatch(batch, ended - began, undefined)
        for (let i = 0; i < batch.length; i++) tell(batch[i]!, { _tag: "Done", value: results[i]!, at })
        return Effect.void
      },
      onFailure: (cause) => {
        meters.seconds.millis(now() - began)
        if (isTracing()) traceBatch(batch, now() - began, "failed")
        const error = cause.reasons.find(Cause.isFailReason)?.error
        if (error === undefined) {
          if (Cause.hasInterruptsOnly(cause)) return fail(batch, cause)
          if (batch.length > 1) return Effect.andThen(countFailed("defect"), halve(batch))
          // The caller logs the defect, with its request id.
          tell(batch[0]!, { _tag: "Failed", exit: Exit.failCause(cause as Cause.Cause<never>) })
          return countFailed("defect")
        }
        const reason = reasonOf(error)
        const state = sqlState(error)
        if (state !== undefined && OUT_OF_ROOM.test(state)) refused = { state, at: now() }
        return Effect.andThen(countFailed(reason), afterFailure(batch, tries, error, reason, cause))
      }
    })
  }

  const afterFailure = (
    batch: ReadonlyArray<Waiting<In, Out>>,
    tries: number,
    error: SqlError.SqlError,
    reason: Reason,
    cause: Cause.Cause<unknown>
  ): Effect.Effect<void> => {
    if (reason === "connection" || reason === "system") return fail(batch, cause)
    if (reason === "lock" && options.locks !== undefined) return setAside(options.locks, batch, tries, cause)
    if (tries < 3 && mayPass(error)) return attempt(batch, tries + 1)
    if (batch.length > 1) return halve(batch)
    if (!isStatementDefect(error)) return fail(batch, cause)
    // The caller logs the defect, with its request id.
    return Effect.sync(() => tell(batch[0]!, { _tag: "Failed", exit: Exit.die(error) }))
  }

  /** Items that wait for a lock, in submission order. */
  let blocked: Array<Waiting<In, Out>> = []
  let submitted = 0
  /** First row names of the items in `aside`: later items with the same first name wait behind them. */
  let behind = new Set<string>()
  /** Rows that other sessions have locked, and their holders. */
  const holders = new Map<string, string>()
  let looking = false
  /** Row names of the items in the lane `retryLane`. */
  let retrying: ReadonlySet<string> = new Set()

  /** The locked rows. Waits no longer than an item may wait, because a dead connection may never answer. */
  const heldOf = (locks: Locks<In>, waiting: ReadonlyArray<Waiting<In, Out>>) =>
    Effect.provideService(Effect.suspend(() => locks.held(waiting.map(({ item }) => item))), AnswerTimeout, HELD_MS)

  /** Whether an item must wait for a lock, or behind an item that waits for one. */
  const isHeld = (names: Names): boolean => behind.has(names[0]) || names.some((name) => holders.has(name))

  const putAside = (waiting: Waiting<In, Out>, names: Names): void => {
    blocked.push(waiting)
    behind.add(names[0])
  }

  /** Moves the items that must wait to `aside`, and returns the rest. */
  const divert = (
    locks: Locks<In>,
    list: ReadonlyArray<Waiting<In, Out>>,
    mustWait: (names: Names) => boolean = isHeld
  ): Array<Waiting<In, Out>> =>
    list.filter((waiting) => {
      const names = locks.of(waiting.item)
      const waits = mustWait(names)
      if (waits) putAside(waiting, names)
      return !waits
    })

  /** Diverts the items of a batch in flight, and the items in the queues that must wait behind them. */
  const divertBatch = (locks: Locks<In>, batch: ReadonlyArray<Waiting<In, Out>>): Array<Waiting<In, Out>> => {
    const rest = divert(locks, batch)
    if (rest.length < batch.length) for (const lane of [...lanes, retryLane]) lane.queue = divert(locks, lane.queue)
    return rest
  }

  /** After a batch met a lock: blocks the items that need the locked rows, and commits the rest at once. */
  const setAside = (
    locks: Locks<In>,
    batch: ReadonlyArray<Waiting<In, Out>>,
    tries: number,
    cause: Cause.Cause<unknown>
  ): Effect.Effect<void> =>
    Effect.matchCauseEffect(heldOf(locks, batch), {
      onFailure: (another) => fail(batch, Cause.combine(cause, another)),
      onSuccess: (found) => {
        for (const [name, holder] of found) holders.set(name, holder)
        const rest = divertBatch(locks, batch)
        const count = batch.length - rest.length
        if (count === 0) {
          // The lock is free by now, or is on a row that `locks.of` does not name.
          if (tries < 3) return attempt(batch, tries + 1)
          return batch.length === 1 ? fail(batch, cause) : halve(batch)
        }
        look(locks)
        meters.setAside.add(count)
        return Effect.andThen(
          lines.blocked.log(Effect.logWarning(
            `Other sessions have locked rows that ${options.name} writes. Items that need these rows wait for at most 5 s`
          ).pipe(Effect.annotateLogs({ waiting: blocked.length }))),
          rest.length === 0 ? Effect.void : attempt(rest, 0)
        )
      }
    })

  const look = (locks: Locks<In>): void => {
    if (looking) return
    looking = true
    runFork(Effect.exit(Effect.gen(function*() {
      while (blocked.length > 0) {
        yield* Effect.sleep(LOOK_MS)
        const due = now() - HELD_MS
        const late = blocked.filter((waiting) => waiting.since <= due)
        if (late.length > 0) {
          blocked = blocked.filter((waiting) => waiting.since > due)
          for (const waiting of late) tell(waiting, failed())
          yield* lines.late.log(Effect.logWarning(
            `Other sessions kept rows that ${options.name} writes locked for 5 s. Look for a transaction that was left open`
          ).pipe(Effect.annotateLogs({ failed: late.length })))
        }
        const known = [...holders]
        const found = blocked.length === 0 ? new Map<string, string>() : yield* heldOf(locks, blocked)
        // If the holder of a row has changed, the items of the row are retried, and wait their turn for the lock. Only a
        // row with the same holder as before still blocks its items.
        for (const [name, holder] of known) {
          if (found.get(name) !== holder && holders.get(name) === holder) holders.delete(name)
        }
        letGo(locks)
      }
    }))).addObserver(() => {
      looking = false
      if (blocked.length > 0) return look(locks)
      holders.clear()
      behind.clear()
      whenIdle()
    })
  }

  /** Retries the items whose rows are free. */
  const letGo = (locks: Locks<In>): void => {
    if (retryLane.running) return
    const waited = blocked.sort((a, b) => a.order - b.order)
    blocked = []
    behind = new Set()
    // Earlier items with the same first name go first.
    const before = new Set(lanes.flatMap(({ batch, queue }) => [...batch, ...queue].map(({ item }) => locks.of(item)[0])))
    retryLane.queue = divert(locks, waited, (names) => before.has(names[0]) || isHeld(names))
    retrying = new Set(retryLane.queue.flatMap(({ item }) => locks.of(item)))
    if (retryLane.queue.length > 0) start(retryLane)
  }

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

  /** Functions that end the waits of `linger`. */
  const lingering = new Set<() => void>()
  const flush = (): void => {
    for (const end of lingering) end()
  }
  const linger = (millis: number): Effect.Effect<void> =>
    Effect.suspend(() => idleWaiters.size > 0 ? turn : Effect.callback<void>((resume) => {
      const end = () => {
        clearTimeout(timer)
        lingering.delete(end)
        resume(Effect.void)
      }
      const timer = setTimeout(end, millis)
      lingering.add(end)
      return Effect.sync(() => {
        clearTimeout(timer)
        lingering.delete(end)
      })
    }))

  const drain = (lane: Lane<In, Out>): Effect.Effect<void> =>
    Effect.gen(function*() {
      while (lane.queue.length > 0) {
        if (options.lingerMs !== undefined) yield* linger(options.lingerMs)
        else if (options.batchPerTick) yield* turn
        const batch = take(lane)
        // Another lane may have blocked all items meanwhile.
        if (batch.length === 0) continue
        lane.batch = batch
        meters.size.observe(batch.length)
        yield* attempt(batch, 0, lane === retryLane ? PATIENT_LOCK_MS : LOCK_MS)
        lane.batch = []
      }
    })

  const start = (lane: Lane<In, Out>): void => {
    lane.running = true
    runFork(Effect.exit(drain(lane))).addObserver(() => {
      lane.running = false
      lane.batch = []
      if (lane.queue.length > 0) return start(lane)
      // Further items may wait for the same rows by now.
      if (lane === retryLane && options.locks !== undefined) letGo(options.locks)
      whenIdle()
    })
  }

  const isIdle = (): boolean => !looking && !retryLane.running && lanes.every((lane) => !lane.running)

  const whenIdle = (): void => {
    if (!isIdle()) return
    // A resumed waiter may submit and wait again immediately, so the set is copied first.
    const waiters = [...idleWaiters]
    idleWaiters.clear()
    for (const resume of waiters) resume()
  }

  /** The last commit that failed with an SQLSTATE of OUT_OF_ROOM; undefined once a commit has succeeded since. */
  let refused: { readonly state: string; readonly at: number } | undefined
  /** How long the oldest item in the lanes has waited, in milliseconds, or 0 if none waits. Blocked items do not count. */
  const oldest = (): number => {
    let since = Number.POSITIVE_INFINITY
    for (const lane of lanes) since = Math.min(since, (lane.batch[0] ?? lane.queue[0])?.since ?? since)
    return since === Number.POSITIVE_INFINITY ? 0 : now() - since
  }
  Option.map(yield* Effect.serviceOption(Readiness), (readiness) =>
    readiness.check(() => {
      const waited = oldest()
      if (refused !== undefined && now() - refused.at < OLD_MS) {
        return `Commits of ${options.name} fail: the database has no room (disk, memory, connections) or refuses writes (SQLSTATE ${refused.state}).`
      }
      return waited < OLD_MS
        ? undefined
        : `Commits of ${options.name} do not complete: the oldest item has waited for ${Math.floor(waited / 1_000)} s. Check the database.`
    }))

  meters.queued.reads(() => [...lanes, retryLane].reduce((sum, { batch, queue }) => sum + queue.length + batch.length, blocked.length))

  return {
    submit: (item, settle, age = 0, trace) => {
      const lane = lanes[options.laneOf(item) % lanes.length]!
      const waiting = { item, settle, since: now() - age, order: submitted++, trace: trace === undefined ? undefined : { context: trace, at: traceTime() } }
      const { locks } = options
      const names = locks?.of(item)
      const held = names !== undefined && (isHeld(names) || names.some((name) => retrying.has(name)))
      if ((held ? blocked : lane.queue).length >= options.capacity) {
        queueMicrotask(() => tell(waiting, failed()))
        runFork(lines.full.log(Effect.logWarning(`The commit queue of ${options.name} is full: an item is refused`)))
        return
      }
      if (held && locks !== undefined) {
        putAside(waiting, names)
        look(locks)
        return
      }
      lane.queue.push(waiting)
      if (!lane.running) start(lane)
    },
    size: () => [...lanes, retryLane].reduce((sum, lane) => sum + lane.queue.length + (lane.running ? 1 : 0), blocked.length),
    flush,
    idle: Effect.callback<void>((resume) => {
      if (isIdle()) return resume(Effect.void)
      const done = () => resume(Effect.void)
      idleWaiters.add(done)
      flush()
      return Effect.sync(() => idleWaiters.delete(done))
    })
  }
})

