/** After how many seconds' worth of refused frames, at the full rate, a socket is closed. */
const FLOOD_SECONDS = 10

/** How long nothing is read from a socket with too many refused frames, in milliseconds. */
export const SLOWED_MS = 500

/**
 * The frames of one socket that were answered with an error. Each takes `1 / perSecond` seconds from an
 * allowance that time restores. A socket that has used a whole second in advance is slowed; one that has
 * used ten seconds without the allowance being whole in between is closed. So a faulty client gets an
 * error for each frame, and a flood costs no more than reading it now and then, and ends. Times are
 * monotonic milliseconds.
 */
export class Refusals {
  /** When the allowance is whole again. */
  private until = 0
  private inARow = 0

  /** Counts one more refusal, where `perSecond` are allowed; returns what becomes of the socket. */
  add(perSecond: number, now: number): "stays" | "slowed" | "closed" {
    if (now >= this.until) {
      this.until = now
      this.inARow = 0
    }
    this.until += 1_000 / perSecond
    this.inARow++
    if (this.inARow >= perSecond * FLOOD_SECONDS) return "closed"
    return this.until - now >= 1_000 ? "slowed" : "stays"
  }
}
