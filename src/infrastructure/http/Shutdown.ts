import type { Readiness } from "#infrastructure/platform/Readiness"
import { Context, Effect, Exit, Schedule, Scope } from "effect"
import type { Server } from "node:http"
import type { RequestsInFlight } from "./RequestsInFlight.ts"
import type { ServerTimeouts } from "./ServerTimeouts.ts"
import type { UpgradeHandler } from "./UpgradeHandler.ts"

/** Runs when the server is asked to stop, before its port closes. A node hands over its shards here. */
export const BeforeClosing = Context.Reference<Effect.Effect<void>>("parley/http/Shutdown/BeforeClosing", {
  defaultValue: () => Effect.void
})

const every20Millis = Schedule.spaced("20 millis")

/** The parts of a server that a shutdown ends or uses. */
interface Dependencies {
  readonly server: Pick<Server, "closeAllConnections" | "closeIdleConnections">
  readonly timeouts: ServerTimeouts
  readonly upgrades: UpgradeHandler["Service"]
  readonly readiness: Readiness["Service"]
  readonly inFlight: RequestsInFlight
  readonly requestScope: Scope.Closeable
  readonly stopListening: () => void
  readonly beforeClosing: Effect.Effect<void>
  /** Makes responses close their connections from now on. */
  readonly beginDraining: () => void
}

/** Drains the server, and stops it. */
export const shutDown = (
  { beforeClosing, beginDraining, inFlight, readiness, requestScope, server, stopListening, timeouts, upgrades }:
    Dependencies
): Effect.Effect<void> =>
  Effect.gen(function*() {
    beginDraining()
    upgrades.turnAway()
    readiness.set("draining", "The server is shutting down.")
    // Load balancers get time to notice that this server is not ready before it refuses connections.
    yield* Effect.all([Effect.sleep(timeouts.linger), beforeClosing], { concurrency: 2 })
    stopListening()
    yield* Effect.suspend(() => {
      server.closeIdleConnections()
      return inFlight.count() === 0 ? Effect.void : Effect.fail("busy")
    }).pipe(
      Effect.retry(every20Millis),
      Effect.timeoutOrElse({
        duration: timeouts.drain,
        orElse: () => Effect.logWarning(`The server stops with ${inFlight.count()} requests unfinished`)
      })
    )
    yield* upgrades.drain
    yield* Scope.close(requestScope, Exit.void)
    server.closeAllConnections()
  }).pipe(Effect.ignore)
