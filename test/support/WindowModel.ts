import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { RateRule } from "#infrastructure/rates/RateRule"

/**
 * A model of a sliding window of one key, simple and slow, to compare implementations with. If the clock goes back,
 * time stands still until it has caught up; if that would take longer than a window or 30 s, the window is emptied. A
 * request that has left the window does not come back with the clock.
 */
export class WindowModel {
  private readonly accepted: Array<number> = []
  private kept: Array<number> = []
  private readonly rule: RateRule

  constructor(rule: RateRule) {
    this.rule = rule
  }

  /** The milliseconds until a request is accepted; 0 if it is accepted now. */
  wait(at: number): number {
    const { limit, windowMs } = this.rule
    const { now, within } = this.look(at)
    return within.length < limit ? 0 : within[within.length - limit]! + windowMs - now
  }

  add(at: number): { readonly limit: number; readonly remaining: number; readonly resetMs: number } {
    const { limit, windowMs } = this.rule
    const { now, within } = this.look(at)
    this.accepted.push(now)
    this.kept.push(now)
    return { limit, remaining: limit - within.length - 1, resetMs: (within[0] ?? now) + windowMs - now }
  }

  remove(at: number): void {
    for (const times of [this.accepted, this.kept]) {
      const i = times.lastIndexOf(at)
      if (i >= 0) times.splice(i, 1)
    }
  }

  /** The most requests that were accepted in any window. */
  busiest(): number {
    const { windowMs } = this.rule
    return Math.max(
      0,
      ...this.accepted.map((at) => this.accepted.filter((other) => other >= at && other < at + windowMs).length)
    )
  }

  private look(at: number): { readonly now: number; readonly within: ReadonlyArray<number> } {
    const newest = this.kept.at(-1) ?? 0
    const latest = at + Math.min(this.rule.windowMs, SET_BACK_MS)
    if (newest > latest) this.kept = []
    const now = newest > at && newest <= latest ? newest : at
    this.kept = this.kept.filter((time) => time > now - this.rule.windowMs)
    // A copy, because `add` changes `kept` afterwards.
    return { now, within: [...this.kept] }
  }
}
