import { type Charge, type RateCount, RateRefusal, type RateRule, type RateState, type RateWindow } from "./RateRule.ts"

/**
 * True sliding windows in the memory of this process. For each key they store the times of accepted requests, which are
 * lost on restart. Every call is one synchronous step. `now` returns monotonic milliseconds.
 */
export class SlidingWindows {
  private readonly tables = new Map<string, KeyTable>()
  private readonly now: () => number

  constructor(now: () => number) {
    this.now = now
  }

  /** Takes a place in the window, or returns the refusal. */
  take(rule: RateRule, key: string): RateState | RateRefusal {
    const taken = this.takeAll([{ rule, key }])
    return taken instanceof RateRefusal ? taken : taken[0]!
  }

  /**
   * Takes a place in every window. If a window is full, takes no place and returns the refusal with the longest wait.
   * Each rule may occur once.
   */
  takeAll(charges: ReadonlyArray<Charge>): ReadonlyArray<RateState> | RateRefusal {
    const held = this.hold(charges)
    if (held instanceof RateRefusal) return held
    const now = this.now()
    return held.map((place) => place.settle(now, now))
  }

  /**
   * Reserves a place in every window, or in none, for a request that Redis decides on. A reserved place counts towards
   * the limit, and must be settled or released.
   */
  hold(charges: ReadonlyArray<Charge>): ReadonlyArray<HeldPlace> | RateRefusal {
    const now = this.now()
    const logs = charges.map(({ key, rule }) => this.table(rule).log(key, rule.windowMs, now))
    return refusalOf(charges, logs, now) ?? charges.map(({ rule }, i) => new HeldPlace(rule, logs[i]!))
  }

  /** Frees a place that was taken. */
  refund(rule: RateRule, key: string, { at }: RateState): void {
    this.tables.get(rule.name)?.logs.get(key)?.remove(at)
  }

  /** Returns the windows of a key that are not empty, each with its number of requests. */
  countsOf(key: string): ReadonlyArray<RateCount> {
    const now = this.now()
    return [...this.tables.values()].flatMap(({ logs, rule }) => {
      if (rule.hidden === true) return []
      const log = logs.get(key)
      log?.prune(rule.windowMs, now)
      return log === undefined || log.count === 0 ? [] : [{ rule, count: log.count }]
    })
  }

  /**
   * Returns all windows of the wanted keys that are not empty, one after the other. There may be millions of windows.
   * After every 5,000, it returns undefined, so that the caller can let other work run.
   */
  *windows(isWanted: (key: string) => boolean): Generator<RateWindow | undefined> {
    let seen = 0
    for (const { logs, rule } of this.tables.values()) {
      if (rule.hidden === true) continue
      for (const [key, log] of logs) {
        if (++seen % PAUSE_AFTER === 0) yield undefined
        if (!isWanted(key)) continue
        log.prune(rule.windowMs, this.now())
        if (log.count > 0) yield { rule, key, count: log.count }
      }
    }
  }

  private table(rule: RateRule): KeyTable {
    let table = this.tables.get(rule.name)
    if (table === undefined) this.tables.set(rule.name, table = new KeyTable(rule))
    return table
  }
}

const PAUSE_AFTER = 5_000

const refusalOf = (
  charges: ReadonlyArray<Charge>,
  logs: ReadonlyArray<WindowLog>,
  now: number
): RateRefusal | undefined => {
  let refusal: RateRule | undefined
  let longest = 0
  for (const [i, { rule }] of charges.entries()) {
    const waitMs = logs[i]!.wait(rule, now)
    if (waitMs > longest) [refusal, longest] = [rule, waitMs]
  }
  return refusal === undefined ? undefined : new RateRefusal(refusal, longest)
}

/** A place in a window that is reserved until the request is decided. */
export class HeldPlace {
  private readonly rule: RateRule
  private readonly log: WindowLog

  constructor(rule: RateRule, log: WindowLog) {
    this.rule = rule
    this.log = log
    log.held++
  }

  /** Turns the reservation into a taken place with the time `at`, which is not later than `now`. */
  settle(at: number, now: number): RateState {
    const { log, rule: { limit, windowMs } } = this
    log.held--
    log.prune(windowMs, now)
    log.add(this.rule, at)
    return { limit, remaining: limit - log.count - log.held, resetMs: log.resetMs(windowMs, at), at, sharedAt: null }
  }

  release(): void {
    this.log.held--
  }
}

/**
 * How many keys one rule may have. Above this number, the oldest key is dropped. So memory stays bounded, and the limit
 * of the dropped key fails open.
 */
const MAX_KEYS = 500_000

/**
 * The logs of one rule by key. With each new key, and with every 64th request, four other keys are checked and dropped
 * if they are idle. So at most about a third of all keys are idle.
 */
class KeyTable {
  /** The rule as it was first used. */
  readonly rule: RateRule
  readonly logs = new Map<string, WindowLog>()
  private cursor = this.logs.entries()
  private ticks = 0

  constructor(rule: RateRule) {
    this.rule = rule
  }

  log(key: string, windowMs: number, now: number): WindowLog {
    if ((++this.ticks & 63) === 0) this.sweep(4, windowMs, now)
    let log = this.logs.get(key)
    if (log === undefined) {
      this.sweep(4, windowMs, now)
      if (this.logs.size >= MAX_KEYS) this.forgetFirst()
      log = new WindowLog()
      this.logs.set(key, log)
    }
    return log
  }

  private forgetFirst(): void {
    const first = this.logs.keys().next()
    if (first.done !== true) this.logs.delete(first.value)
  }

  private sweep(steps: number, windowMs: number, now: number): void {
    for (let i = 0; i < steps; i++) {
      const next = this.cursor.next()
      if (next.done === true) {
        this.cursor = this.logs.entries()
        return
      }
      const [key, log] = next.value
      log.prune(windowMs, now)
      if (log.count === 0 && log.held === 0) this.logs.delete(key)
      else log.shrink()
    }
  }
}

const SMALLEST = 4

/** The times of accepted requests within the window, oldest first, in a ring buffer that grows up to the limit. */
export class WindowLog {
  count = 0
  /** How many places are reserved. Reserved places count towards the limit. */
  held = 0
  private times = new Float64Array(SMALLEST)
  private head = 0

  /** Returns how many milliseconds remain until a place is free, rounded up. Returns 0 if a place is free now. */
  wait(rule: RateRule, now: number): number {
    this.prune(rule.windowMs, now)
    // The index, oldest first, of the entry that must leave the window before another request is accepted.
    const leaving = this.count + this.held - rule.limit
    if (leaving < 0) return 0
    return leaving < this.count ? Math.max(1, Math.ceil(this.at(leaving) + rule.windowMs - now)) : rule.windowMs
  }

  /** Adds an accepted request. */
  add(rule: RateRule, time: number): void {
    if (this.count === this.times.length)
      this.resize(Math.max(SMALLEST, this.count + 1, Math.min(this.count * 2, rule.limit)))
    // Insertion sort is fast here, because entries arrive almost in the order of their times.
    let i = this.count++
    for (; i > 0 && this.at(i - 1) > time; i--) this.times[this.indexOf(i)] = this.at(i - 1)
    this.times[this.indexOf(i)] = time
  }

  /** Removes the newest entry with this time, if there is one. */
  remove(time: number): void {
    let i = this.count - 1
    while (i >= 0 && this.at(i) > time) i--
    if (i < 0 || this.at(i) !== time) return
    for (; i < this.count - 1; i++) this.times[this.indexOf(i)] = this.at(i + 1)
    this.count--
  }

  resetMs(windowMs: number, now: number): number {
    return this.count === 0 ? 0 : Math.max(0, Math.ceil(this.at(0) + windowMs - now))
  }

  prune(windowMs: number, now: number): void {
    while (this.count > 0 && this.at(0) + windowMs <= now) {
      if (++this.head === this.times.length) this.head = 0
      this.count--
    }
  }

  shrink(): void {
    if (this.times.length > SMALLEST && this.count * 4 < this.times.length) {
      this.resize(Math.max(SMALLEST, this.count * 2))
    }
  }

  private at(i: number): number {
    return this.times[this.indexOf(i)] ?? 0
  }

  private indexOf(i: number): number {
    const index = this.head + i
    return index >= this.times.length ? index - this.times.length : index
  }

  private resize(size: number): void {
    const times = new Float64Array(size)
    for (let i = 0; i < this.count; i++) times[i] = this.at(i)
    this.times = times
    this.head = 0
  }
}
