import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { monotonicMillis } from "./MonotonicClock.ts"

const BEAT = "500 millis"
/** A caller that waited so long for an answer may have asked another node meanwhile, and been answered there. */
const STALL_MS = 5_000
/** How long after a stall requests may still be read that came before or during it. */
const AFTERMATH_MS = 1_000

/** The ports of this process: for clients, and for the other nodes. */
export type Port = "http" | "nodes"

/**
 * True shortly after a stall of this process (paused, moved to another machine, or busy with one thing for 5 s):
 * requests that are read then may be stale, so changes are refused. Whoever asked for a change has probably asked
 * another node since, and may even have taken the change back. Each port counts from when it began to listen:
 * nothing can have waited on it before.
 */
export class StallGuard extends Context.Reference<{
  /** To be called when the port begins to listen. */
  readonly listensOn: (port: Port) => void
  /** Whether the process stalls, or stalled within the last second, while this port was listening. */
  readonly stalledLately: (port: Port) => boolean
}>("parley/platform/StallGuard", {
  defaultValue: () => ({ listensOn: () => {}, stalledLately: () => false })
}) {
  static readonly layer = Layer.effect(
    StallGuard,
    Effect.gen(function*() {
      const now = monotonicMillis(yield* Clock.Clock)
      let lastBeat = now()
      const ports = new Map<Port, { readonly listeningSince: number; refusesUntil: number }>()
      const isStalled = (listeningSince: number) => now() - Math.max(lastBeat, listeningSince) > STALL_MS
      yield* Effect.sync(() => {
        for (const port of ports.values()) if (isStalled(port.listeningSince)) port.refusesUntil = now() + AFTERMATH_MS
        lastBeat = now()
      }).pipe(Effect.repeat(Schedule.spaced(BEAT)), Effect.forkScoped)
      return {
        listensOn: (port) => {
          ports.set(port, { listeningSince: now(), refusesUntil: 0 })
        },
        stalledLately: (port) => {
          const found = ports.get(port)
          return found !== undefined && (isStalled(found.listeningSince) || now() < found.refusesUntil)
        }
      }
    })
  )
}
