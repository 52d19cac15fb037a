import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Readiness } from "#infrastructure/platform/Readiness"
import { Clock, Context, Effect, Layer, Option, Schedule } from "effect"
import { SqlClient } from "effect/sql"

/** The interval between measurements, in milliseconds. A difference is corrected over at least this time. */
const INTERVAL_MS = 30_000
/** How often to check whether this machine's wall clock was set, in milliseconds. */
const TICK_MS = 1_000
const ROUND_TRIPS = 5
/**
 * A difference of more milliseconds than this counts as a jump, which means that a clock was set. A smaller difference
 * counts as drift.
 */
const JUMP_MS = 1_000
/** Measurements with an error bound of more milliseconds than this are discarded. */
const MAX_UNCERTAINTY_MS = 500
/** How many measurements in a row must agree before a jump is accepted. They are made one tick apart. */
const MIN_AGREEING_READINGS = 3
const READ_TIMEOUT = "5 seconds"

/**
 * A wall clock that is computed from a monotonic clock. It never goes back. It approaches a new offset gradually, and
 * runs at least at half the normal speed. Only a large correction forward is applied at once.
 */
export class SteeredTime {
  private from: number
  private to: number
  private began = 0
  private span = 0
  private last = 0

  constructor(offset: number) {
    this.from = offset
    this.to = offset
  }

  /** The offset to add to the monotonic time. */
  offset(monotonic: number): number {
    const passed = monotonic - this.began
    return passed >= this.span ? this.to : this.from + (this.to - this.from) * (passed / this.span)
  }

  at(monotonic: number): number {
    this.last = Math.max(this.last, monotonic + this.offset(monotonic))
    return this.last
  }

  steer(monotonic: number, offset: number): void {
    const from = this.offset(monotonic)
    const leap = offset - from > JUMP_MS
    this.from = leap ? offset : from
    this.to = offset
    this.began = monotonic
    this.span = leap ? 0 : Math.max(INTERVAL_MS, 2 * (from - offset))
  }
}

/**
 * How far the database's clock is ahead of this process's monotonic clock, and the error bound, both in milliseconds.
 */
interface Measured {
  readonly offset: number
  readonly error: number
}

const seconds = (ms: number): string =>
  `${Math.abs(ms) < 10_000 ? (Math.abs(ms) / 1_000).toFixed(1) : Math.round(Math.abs(ms) / 1_000)} s`

/**
 * Makes a clock that follows a remote clock. `asks` opens a connection and returns an effect that reads the remote time
 * in milliseconds. The offset is measured now and every 30 seconds, from the fastest of a few round trips. If the
 * machine's wall clock agrees within the error of that round trip, the wall clock is used instead. When the wall clock
 * is set, or the remote clock jumps, this node is not ready until several measurements in a row agree.
 */
export const follow = Effect.fnUntraced(function*<E, R>(asks: Effect.Effect<Effect.Effect<number, E>, E, R>) {
  const machine = yield* Clock.Clock
  const monotonic = monotonicMillis(machine)
  const readiness = Option.getOrUndefined(yield* Effect.serviceOption(Readiness))
  const machineOffset = () => machine.currentTimeMillisUnsafe() - monotonic()

  const measure = Effect.scoped(Effect.gen(function*() {
    const ask = yield* asks
    const found: Array<Measured> = []
    for (let i = 0; i < ROUND_TRIPS; i++) {
      const before = monotonic()
      const answer = yield* ask
      const after = monotonic()
      found.push({ offset: answer - (before + after) / 2, error: (after - before) / 2 })
    }
    const best = found.reduce((a, b) => b.error < a.error ? b : a)
    // If the machine's own clock is right within the error, it is used, so that all nodes on one machine have the same
    // time.
    const own = machineOffset()
    return Math.abs(best.offset - own) <= best.error ? { ...best, offset: own } : best
  }))

  const first = yield* measure
  const time = new SteeredTime(first.offset)
  const off = machineOffset() - first.offset
  if (Math.abs(off) > JUMP_MS + first.error) {
    yield* Effect.logWarning(
      `The clock of this machine is ${seconds(off)} ${
        off > 0 ? "ahead of" : "behind"
      } the database's. This server follows the database's clock. Correct the clock of this machine.`
    )
  }

  let measured = monotonic()
  let machineWas = machineOffset()
  /** The measurements since a jump, until enough of them agree. Undefined if there was no jump. */
  let doubtful: Array<number> | undefined

  const doubt = (why: string) => {
    doubtful = []
    readiness?.set("clock", why)
    return Effect.logWarning(why)
  }

  const look = Effect.gen(function*() {
    const machineIs = machineOffset()
    const set = machineIs - machineWas
    machineWas = machineIs
    if (Math.abs(set) > JUMP_MS) {
      yield* doubt(
        `The clock of this machine was set ${set > 0 ? "forward" : "back"} by ${
          seconds(set)
        }. This node compares it with the database's clock.`
      )
    }
    if (doubtful === undefined && monotonic() - measured < INTERVAL_MS) return
    const { error, offset } = yield* measure
    const now = monotonic()
    measured = now
    if (error > MAX_UNCERTAINTY_MS) return
    const ahead = offset - time.offset(now)
    if (doubtful === undefined) {
      if (Math.abs(ahead) <= JUMP_MS) return time.steer(now, offset)
      yield* doubt(
        `The clock of the database is suddenly ${seconds(ahead)} ${
          ahead > 0 ? "ahead" : "behind"
        }. This node measures it again. If this message stays, check the clock of the database's machine.`
      )
    }
    const agree = doubtful!.every((other) => Math.abs(other - offset) <= JUMP_MS)
    doubtful = agree ? [...doubtful!, offset] : [offset]
    if (doubtful.length < MIN_AGREEING_READINGS) return
    doubtful = undefined
    time.steer(now, offset)
    readiness?.set("clock", undefined)
    yield* ahead < -JUMP_MS
      ? Effect.logWarning(
        `The database's clock stays ${seconds(ahead)} behind. This node's clock runs at half speed until both agree`
      )
      : Effect.logInfo("This node's clock agrees with the database's again")
  })
  yield* look.pipe(
    Effect.timeout(READ_TIMEOUT),
    Effect.catchCause((cause) => Effect.logDebug("The database's clock could not be read", cause)),
    Effect.repeat(Schedule.spaced(TICK_MS)),
    Effect.delay(TICK_MS),
    Effect.forkScoped
  )

  const millis = () => time.at(monotonic())
  // Everything except the wall clock comes from the machine's clock.
  return Object.assign(Object.create(machine) as Clock.Clock, {
    currentTimeMillisUnsafe: () => Math.floor(millis()),
    currentTimeMillis: Effect.sync(() => Math.floor(millis())),
    currentTimeNanosUnsafe: () => BigInt(Math.floor(millis() * 1_000)) * 1_000n,
    currentTimeNanos: Effect.sync(() => BigInt(Math.floor(millis() * 1_000)) * 1_000n)
  })
})

/**
 * Reads the database's clock on a reserved connection, so that no wait for a free connection distorts the round trip.
 */
const askDatabase = Effect.gen(function*() {
  const session = yield* (yield* SqlClient.SqlClient).reserve
  return Effect.map(
    session.executeValues("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8", []),
    ([row]) => Number(row?.[0])
  )
})

/**
 * How many milliseconds after its request a change without an idempotent id, such as a block, may still take effect.
 * The SQL statement checks this limit against the database's clock, because the statement may be delayed on its way.
 * The limit is as long as a caller waits for a call (`EntityRpc.ts`). After that time the caller may have repeated the
 * request at another node. `null` means that there is no limit, because this process does not follow the database's
 * clock.
 */
export const MadeWithin = Context.Reference<number | null>("parley/database/DatabaseClock/MadeWithin", {
  defaultValue: () => null
})

const MADE_WITHIN_MS = 5_000

/** Replaces the clock with one that follows the database's clock, so that all nodes agree on the age of a row. */
export const layer = Layer.effectContext(
  Effect.map(
    follow(askDatabase),
    (clock) => Context.make(Clock.Clock, clock).pipe(Context.add(MadeWithin, MADE_WITHIN_MS))
  )
)
