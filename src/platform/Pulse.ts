import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { monotonicMillis } from "./RateLimits.ts"

const BEAT = "500 millis"
/** Whoever asked a process that stood still for so long may have asked another one meanwhile, and have been answered. */
const STILL_MS = 5_000
/** In which a process that goes on has read all that came while it stood still. */
const AFTERMATH_MS = 1_000

/**
 * Whether what reaches this process now may be as old as a moment in which it stood still: paused,
 * moved to another machine, or busy with one thing. A change that is asked for then is refused, for who asked
 * has long asked somebody else, and perhaps taken the change back since.
 */
export class Pulse extends Context.Reference<{ readonly isLate: () => boolean }>("parley/platform/Pulse", {
  defaultValue: () => ({ isLate: () => false })
}) {
  static readonly layer = Layer.effect(
    Pulse,
    Effect.gen(function*() {
      const now = monotonicMillis(yield* Clock.Clock)
      let last = now()
      let lateUntil = 0
      const isStill = () => now() - last > STILL_MS
      yield* Effect.sync(() => {
        if (isStill()) lateUntil = now() + AFTERMATH_MS
        last = now()
      }).pipe(Effect.repeat(Schedule.spaced(BEAT)), Effect.forkScoped)
      return { isLate: () => isStill() || now() < lateUntil }
    })
  )
}
