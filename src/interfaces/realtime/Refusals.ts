/** After how many seconds of refused frames at the full rate a socket is closed. */
const FLOOD_SECONDS = 10

/** How long reading from a socket with too many refused frames is paused, in milliseconds. */
export const SLOWED_MS = 500

/**
 * Counts the refused frames of one socket: the frames for which the server sent an error. The allowance is an amount of
 * time. Each refused frame uses up `1 / perSecond` seconds of it, and it refills as time passes. A socket that is a
 * whole second behind is slowed down. A socket that takes ten seconds before the allowance is full again is closed. So
 * a faulty client gets an error for each frame, while a flood is read slowly and then ends with the close. Times are
 * monotonic milliseconds.
 */
export class Refusals {
  /** When the allowance is full again. */
  private until = 0
  private inARow = 0

  /** Counts one more refused frame. `perSecond` of them are allowed each second. Returns what to do with the socket. */
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
