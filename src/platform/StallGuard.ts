import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { monotonicMillis } from "./MonotonicClock.ts"

const BEAT = "500 millis"
/** Whoever asked a process that stood still for so long may have asked another one meanwhile, and have been answered. */
const STILL_MS = 5_000
/** In which a process that goes on has read all that came while it stood still. */
const AFTERMATH_MS = 1_000

/** Where others reach this process: agents, and other nodes. */
export type Door = "http" | "nodes"

/**
 * Whether what reaches this process now may be as old as a moment in which it stood still: paused,
 * moved to another machine, or busy with one thing. A change that is asked for then is refused, for who asked
 * has long asked somebody else, and perhaps taken the change back since. It counts from when there was somebody
 * to be asked: nothing can have waited at a door while that was not open.
 */
export class Pulse extends Context.Reference<{
  /** To be called when it begins to listen there. */
  readonly opens: (door: Door) => void
  readonly isLate: (door: Door) => boolean
}>("parley/platform/Pulse", {
  defaultValue: () => ({ opens: () => {}, isLate: () => false })
}) {
  static readonly layer = Layer.effect(
    Pulse,
    Effect.gen(function*() {
      const now = monotonicMillis(yield* Clock.Clock)
      let last = now()
      const doors = new Map<Door, { readonly openedAt: number; lateUntil: number }>()
      const hasStoodStill = (openedAt: number) => now() - Math.max(last, openedAt) > STILL_MS
      yield* Effect.sync(() => {
        for (const door of doors.values()) if (hasStoodStill(door.openedAt)) door.lateUntil = now() + AFTERMATH_MS
        last = now()
      }).pipe(Effect.repeat(Schedule.spaced(BEAT)), Effect.forkScoped)
      return {
        opens: (door) => {
          doors.set(door, { openedAt: now(), lateUntil: 0 })
        },
        isLate: (door) => {
          const found = doors.get(door)
          return found !== undefined && (hasStoodStill(found.openedAt) || now() < found.lateUntil)
        }
      }
    })
  )
}
