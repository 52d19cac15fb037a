import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { monotonicMillis } from "./MonotonicClock.ts"

const BEAT = "500 millis"
/**
 * How long the process must not respond to count as stalled, in milliseconds. A client that waited this long may have
 * repeated its request at another node and received a response there.
 */
const STALL_MS = 5_000
/** How long after a stall the process may still read requests that arrived before or during it, in milliseconds. */
const AFTERMATH_MS = 1_000

/** The ports of this process: one for clients and one for the other nodes. */
export type Port = "http" | "nodes"

/**
 * Reports a recent stall: this process was paused, moved to another machine, or busy with one task for 5 s. Requests
 * that are read after a stall may be stale, so the server refuses those that change something. The client has probably
 * repeated the request at another node, and may even have undone the change. Only the time since a port began to listen
 * counts for that port, because no request can have waited there earlier.
 */
export class StallGuard extends Context.Reference<{
  /** Must be called when the port begins to listen. */
  readonly listensOn: (port: Port) => void
  /** Whether the process is stalled now, or was stalled within the last second, while this port was listening. */
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
 * Counts the milliseconds for which a fiber's statements on PGlite blocked the whole process. PGlite runs inside the
 * process. Statements on PostgreSQL do not count.
 */
export const BlockedMillis = Context.Reference<{ ms: number } | undefined>("parley/platform/StallGuard/Blocked", {
  defaultValue: () => undefined
})
