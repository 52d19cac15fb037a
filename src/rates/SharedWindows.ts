import { Context, Metric } from "effect"
import type { Charge, RateRule, RateState } from "./RateRule.ts"
import type { RedisChannel } from "../platform/Redis.ts"
import { readTaken, TAKE, takeArguments, takeKeys, type Taking, windowKey } from "./SlidingWindowScript.ts"
import { type HeldPlace, SlidingWindows } from "./SlidingWindows.ts"
import { RateLimited } from "../wire/WireError.ts"

type Outcome = ReadonlyArray<RateState> | RateLimited

interface Request extends Taking {
  readonly held: ReadonlyArray<HeldPlace>
  readonly decided: (outcome: Outcome) => void
}

/**
 * The windows that this process shares with others in Redis, above a count of its own.
 *
 * - A process never accepts more than a limit, whatever becomes of Redis: a request first holds
 *   its places in the own count, and is refused without a question where there are none.
 * - What one turn of the event loop asks goes in one command (in several above MOST_WINDOWS).
 * - A place that Redis refuses is free again in the own count; one that it gives is counted there under the
 *   same moment, so that the own count refuses nothing that Redis would accept.
 * - Without an answer the own count has decided, and what it has accepted stays counted in it. A question
 *   that Redis finds when its deadline is long over counts nothing there: what waited while it hung
 *   must not fill the windows of those who come when it goes on.
 */
export class SharedWindows {
  private readonly own: SlidingWindows
  private readonly redis: RedisChannel
  private readonly now: () => number
  private readonly clock = new RedisClock()
  private readonly patienceMs: number
  private gathered: Array<Request> = []

  /** `now` are milliseconds that never go back; `patienceMs` is how long the channel waits. */
  constructor(redis: RedisChannel, now: () => number, patienceMs: number) {
    this.redis = redis
    this.now = now
    this.patienceMs = patienceMs
    this.own = new SlidingWindows(now)
  }

  /**
   * Takes a place in every window, or in none; the first `alone` whatever the others say. An outcome
   * that needs no question to Redis is returned, any other is told to `decided` once.
   */
  take(charges: ReadonlyArray<Charge>, alone: number, decided: (outcome: Outcome) => void): Outcome | undefined {
    const first = alone === 0 ? [] : this.own.hold(charges.slice(0, alone))
    if (first instanceof RateLimited) return first
    const others = this.own.hold(alone === 0 ? charges : charges.slice(alone))
    if (others instanceof RateLimited) {
      // Refused, and counted all the same in what counts whatever the others say. Nobody waits for that.
      if (alone > 0) this.ask({ charges: charges.slice(0, alone), alone: 0, held: first, decided: () => undefined })
      return others
    }
    return this.ask({ charges, alone, held: alone === 0 ? others : [...first, ...others], decided })
  }

  giveBack(rule: RateRule, key: string, state: RateState): void {
    this.own.giveBack(rule, key, state)
    if (state.sharedAt !== null) this.redis.remove(windowKey({ rule, key }), state.sharedAt)
  }

  private ask(request: Request): Outcome | undefined {
    const reason = this.redis.unusable()
    if (reason !== undefined) return this.settleAlone(request, reason)
    // After the sockets of this turn were read: what they ask goes together.
    if (this.gathered.push(request) === 1) setImmediate(() => this.flush())
    return undefined
  }

  private flush(): void {
    const all = this.gathered
    this.gathered = []
    let first = 0
    let windows = 0
    for (const [i, { charges }] of all.entries()) {
      if (windows > 0 && windows + charges.length > MOST_WINDOWS) {
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
        if (one === undefined || one.refusal === "Broken") {
          request.decided(this.settleAlone(request, taken === undefined || taken.all !== undefined ? "nonsense" : "slow"))
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

  /** The own count has decided already: it holds the places. */
  private settleAlone({ held }: Request, reason: Reason): ReadonlyArray<RateState> {
    countedAlone[reason].updateUnsafe(1, none)
    const now = this.now()
    return held.map((place) => place.settle(now, now))
  }
}

/** One run of the script on so many windows takes Redis about a millisecond. */
const MOST_WINDOWS = 200

const none = Context.empty()
type Reason = "down" | "slow" | "open" | "refused" | "nonsense"

const counter = (reason: Reason) =>
  Metric.counter("rate_limits_alone_total", {
    description: "Requests on whose limits this process's own count decided alone, because Redis gave no answer",
    incremental: true,
    attributes: { reason }
  })
const countedAlone = {
  down: counter("down"),
  slow: counter("slow"),
  open: counter("open"),
  refused: counter("refused"),
  nonsense: counter("nonsense")
} satisfies Record<Reason, unknown>

/**
 * What Redis's clock shows, by what it showed in answers. Never less: an answer was given after its
 * question was asked. As close as the fastest answer was.
 */
export class RedisClock {
  /** By how many microseconds it is ahead of this process's, at the most; undefined: not known yet. */
  private aheadMicros: number | undefined

  /** Redis's time in microseconds at a moment of this process; 0: not known. */
  at(millis: number): number {
    return this.aheadMicros === undefined ? 0 : millis * 1_000 + this.aheadMicros
  }

  /** The moment of this process that was a time of Redis's, which came in answer to a question. */
  read(micros: number, askedAt: number, answeredAt: number): number {
    const most = micros - askedAt * 1_000
    if (
      this.aheadMicros === undefined || most < this.aheadMicros ||
      // One of the clocks was set: it cannot have been after the answer.
      micros - this.aheadMicros > answeredAt * 1_000
    ) this.aheadMicros = most
    return (micros - this.aheadMicros) / 1_000
  }
}
