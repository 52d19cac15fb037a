/** Seconds of frames that are refused at the full rate after which a socket is given up. */
const FLOOD_SECONDS = 10

/** For how long nothing is read from a socket that has too many frames refused, in milliseconds. */
export const SLOWED_MS = 500

/**
 * The frames of one socket that were answered with an error. Each takes its part of a second from
 * an allowance that time gives back. A second's worth ahead of time the socket is to be slowed; ten
 * seconds' worth without the allowance once being whole again it is to be closed. So a
 * mistake in a client is told to it frame by frame, and a flood costs what reading it every
 * now and then costs, and ends. Times are monotonic milliseconds.
 */
export class Refusals {
  /** When the allowance is whole again. */
  private until = 0
  private inARow = 0

  /** One more, where `perSecond` are allowed; says what becomes of the socket. */
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
