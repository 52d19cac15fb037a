import { REDIS_FALLBACK_REASONS, redisFallbacks } from "#infrastructure/platform/Metrics"
import type { RedisChannel } from "#infrastructure/platform/Redis"
import { type Charge, type RateCount, RateRefusal, type RateRule, type RateState, type RateWindow } from "./RateRule.ts"
import { type HeldPlace, SlidingWindows } from "./SlidingWindows.ts"
import { readTaken, TAKE, takeArguments, takeKeys, type Taking, windowKey } from "./SlidingWindowScript.ts"

type Outcome = ReadonlyArray<RateState> | RateRefusal

interface Request extends Taking {
  readonly held: ReadonlyArray<HeldPlace>
  readonly decided: (outcome: Outcome) => void
}

/**
 * The windows that all processes share in Redis, on top of a local count of this process.
 *
 * - Even if Redis fails, one process alone never accepts more requests than a limit allows. A request first reserves
 *   places in the local count. If no place is free there, the request is refused without a call to Redis.
 * - The requests of one iteration of the event loop share one command, or several commands if they need more than
 *   MAX_WINDOWS_PER_COMMAND windows.
 * - If Redis refuses a place, the place in the local count is released. If Redis grants a place, the local count
 *   records it with the same time. So the local count refuses nothing that Redis would accept.
 * - If Redis does not respond, the local count decides, and the places stay counted there. A command carries a
 *   deadline. If Redis runs it later, it counts nothing. So commands that were queued while Redis hung do not fill
 *   later windows.
 */
export class SharedWindows {
  private readonly own: SlidingWindows
  private readonly redis: RedisChannel
  private readonly now: () => number
  private readonly clock = new RedisClock()
  private readonly patienceMs: number
  private queued: Array<Request> = []

  /** `now` returns monotonic milliseconds. `patienceMs` is the timeout of the channel, in milliseconds. */
  constructor(redis: RedisChannel, now: () => number, patienceMs: number) {
    this.redis = redis
    this.now = now
    this.patienceMs = patienceMs
    this.own = new SlidingWindows(now)
  }

  /**
   * Takes a place in every window, or in none. The first `alone` charges count even if the other charges are refused.
   * Returns the outcome if it needs no call to Redis. Otherwise returns undefined, and calls `decided` once later.
   */
  take(charges: ReadonlyArray<Charge>, alone: number, decided: (outcome: Outcome) => void): Outcome | undefined {
    const first = alone === 0 ? [] : this.own.hold(charges.slice(0, alone))
    if (first instanceof RateRefusal) return first
    const others = this.own.hold(alone === 0 ? charges : charges.slice(alone))
    if (others instanceof RateRefusal) {
      // The request is refused, but its first `alone` charges still count. Nothing waits for the result.
      if (alone > 0) this.ask({ charges: charges.slice(0, alone), alone: 0, held: first, decided: () => undefined })
      return others
    }
    return this.ask({ charges, alone, held: alone === 0 ? others : [...first, ...others], decided })
  }

  refund(rule: RateRule, key: string, state: RateState): void {
    this.own.refund(rule, key, state)
    if (state.sharedAt !== null) this.redis.remove(windowKey({ rule, key }), state.sharedAt)
  }

  /** Returns how many requests of a key this process has accepted, by rule. */
  countsOf(key: string): ReadonlyArray<RateCount> {
    return this.own.countsOf(key)
  }

  /** Returns the windows of the wanted keys in which this process has accepted requests (`SlidingWindows.windows`). */
  windows(isWanted: (key: string) => boolean): Generator<RateWindow | undefined> {
    return this.own.windows(isWanted)
  }

  private ask(request: Request): Outcome | undefined {
    const reason = this.redis.unusable()
    if (reason !== undefined) return this.settleAlone(request, reason)
    // The flush runs after the event loop has read all sockets that are ready, so that their requests share one
    // command.
    if (this.queued.push(request) === 1) setImmediate(() => this.flush())
    return undefined
  }

  private flush(): void {
    const all = this.queued
    this.queued = []
    let first = 0
    let windows = 0
    for (const [i, { charges }] of all.entries()) {
      if (windows > 0 && windows + charges.length > MAX_WINDOWS_PER_COMMAND) {
        this.send(all.slice(first, i))
        first = i
        windows = 0
      }
      windows += charges.length
    }
    this.send(first === 0 ? all : all.slice(first))
  }

  private send(requests: ReadonlyArray<Request>): void {
    const sentAt = this.now()
    const args = takeArguments(requests, { latest: this.clock.at(sentAt + this.patienceMs) })
    this.redis.send(TAKE, takeKeys(requests), args, (failure, answer) => {
      if (failure !== undefined) {
        for (const request of requests) request.decided(this.settleAlone(request, failure.reason))
        return
      }
      const taken = readTaken(requests, answer)
      const now = this.now()
      const at = taken === undefined ? now : this.clock.read(taken.at, sentAt, now)
      for (const [i, request] of requests.entries()) {
        const one = taken?.all?.[i]
        if (one === undefined || one.refusal === "NotWindow") {
          request.decided(
            this.settleAlone(request, taken === undefined || taken.all !== undefined ? "nonsense" : "slow")
          )
          continue
        }
        const states = request.held.flatMap((held, i) => {
          const place = one.places[i]
          if (place !== undefined) return [{ ...held.settle(at, now), ...place, at, sharedAt: place.at }]
          held.release()
          return []
        })
        request.decided(one.refusal ?? states)
      }
    })
  }

  /** Accepts the request without Redis. The local count already holds its places. */
  private settleAlone({ held }: Request, reason: Reason): ReadonlyArray<RateState> {
    redisFallbacks.at(reason).add()
    const now = this.now()
    return held.map((place) => place.settle(now, now))
  }
}

/** How many windows one command may contain. Redis runs the script on this many windows in about a millisecond. */
const MAX_WINDOWS_PER_COMMAND = 200

type Reason = typeof REDIS_FALLBACK_REASONS[number]

/**
 * Estimates Redis's clock from the times in its responses. Redis reads its clock after the command was sent, so the
 * estimate is never behind Redis's clock. It is ahead by at most the delay of the fastest response.
 */
export class RedisClock {
  /**
   * An upper bound of how far Redis's clock is ahead of the clock of this process, in microseconds. Undefined until the
   * first response.
   */
  private aheadMicros: number | undefined

  /**
   * Converts a time of this process, in milliseconds, to Redis's time in microseconds. Returns 0 if Redis's clock is
   * not known yet.
   */
  at(millis: number): number {
    return this.aheadMicros === undefined ? 0 : millis * 1_000 + this.aheadMicros
  }

  /** Converts the Redis time in a response to monotonic milliseconds of this process, and improves the estimate. */
  read(micros: number, askedAt: number, answeredAt: number): number {
    const most = micros - askedAt * 1_000
    if (
      this.aheadMicros === undefined || most < this.aheadMicros ||
      // The converted time would be later than the response itself. So Redis's clock was changed, and the estimate
      // starts again.
      micros - this.aheadMicros > answeredAt * 1_000
    ) this.aheadMicros = most
    return (micros - this.aheadMicros) / 1_000
  }
}
