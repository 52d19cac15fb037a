import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { monotonicMillis } from "./MonotonicClock.ts"

const BEAT = "500 millis"
/** A client that waited this long may have sent its request to another node meanwhile and got an answer there. */
const STALL_MS = 5_000
/** How long after a stall the process may still read requests that arrived before or during it. */
const AFTERMATH_MS = 1_000

/** The ports of this process: for clients, and for the other nodes. */
export type Port = "http" | "nodes"

/**
 * Reports a recent stall of this process (paused, moved to another machine, or busy with one thing for 5 s): requests
 * that are read then may be stale, so changes are refused. The client has probably repeated its request at another
 * node since, and may even have undone the change. For each port only the time since it began to listen counts:
 * before that no request can have waited on it.
 */
export class StallGuard extends Context.Reference<{
  /** Call this when the port begins to listen. */
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

/**
 * Counts the milliseconds for which the statements of a fiber stopped the whole process: PGlite runs in it. Of a database elsewhere
 * nothing is counted.
 */
export const Blocked = Context.Reference<{ ms: number } | undefined>("parley/platform/StallGuard/Blocked", { defaultValue: () => undefined })
