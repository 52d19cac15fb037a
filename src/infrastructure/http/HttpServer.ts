import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { refusals } from "#infrastructure/platform/Metrics"
import { listeningUrl, listensOn } from "#infrastructure/platform/PublicUrl"
import { Readiness } from "#infrastructure/platform/Readiness"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { countFailures } from "#infrastructure/wire/WireErrors"
import { Context, Effect, Layer, Scope } from "effect"
import type { AddressInfo } from "node:net"
import { BufferedBytes } from "./BufferedBytes.ts"
import { addressKey, clientAddress } from "./ClientAddress.ts"
import { clientConnections } from "./Connections.ts"
import { listen } from "./Listening.ts"
import { makeNodeServer } from "./NodeServer.ts"
import { makePipelining } from "./Pipelining.ts"
import type { Protocol } from "./Protocol.ts"
import { makeRequestHandler } from "./RequestHandler.ts"
import { makeRequestsInFlight } from "./RequestsInFlight.ts"
import { type DeclaredEndpoint, makeRouteTable } from "./RouteTable.ts"
import { makeRouting } from "./Routing.ts"
import type { ServerRequest } from "./ServerRequest.ts"
import { type ServerTimeouts, timeoutsOf } from "./ServerTimeouts.ts"
import { BeforeClosing, shutDown } from "./Shutdown.ts"
import { UpgradeHandler } from "./UpgradeHandler.ts"
import { makeUpgrades } from "./Upgrades.ts"

/** The code in the response to a probe while the node is not ready (wire.md C.13). It does not count as a refusal. */
const NOT_READY = "NOT_READY"

/** The endpoints and protocols of a server, and its options. */
export interface Served<E, R> {
  /** The endpoints whose annotations (EndpointOptions.ts) give the routes their options. */
  readonly endpoints?: ReadonlyArray<DeclaredEndpoint>
  /** The protocols to which the paths belong. If several protocols include a path, the first protocol counts. */
  readonly protocols?: (config: Settings) => ReadonlyArray<Protocol>
  /** Completes when the server may listen. */
  readonly ready?: Effect.Effect<unknown, E, R>
  readonly timeouts?: Partial<ServerTimeouts>
}

/**
 * The HTTP server of this process. It uses `node:http` directly so that a WebSocket costs no fiber. Requests go to the
 * routes, and upgrades of the WebSocket's path go to the UpgradeHandler. Requests that are refused earlier also get the
 * wire's error body and a request id.
 *
 * On shutdown the server drains. Readiness turns false, and new WebSockets are closed at once. After `linger` and
 * `BeforeClosing` the port closes. Requests in flight then have `drain` milliseconds to finish. Finally the open
 * WebSockets are closed, and requests that have not finished are interrupted. A commit for which such a request waits
 * still completes (`LAST_COMMITS`).
 */
export class HttpServer extends Context.Service<HttpServer, {
  readonly port: number
  /** The base of absolute URLs: PUBLIC_URL, or the address on which the server listens. */
  readonly url: string
}>()("parley/http/HttpServer") {
  /** Builds `routes`, waits for `ready`, and then listens. */
  static readonly layer = <A, E, R, E2 = never, R2 = never>(
    routes: Layer.Layer<A, E, R>,
    served: Served<E2, R2> = {}
  ) => Layer.effect(HttpServer, serve(routes, served))
}

const serve = <A, E, R, E2, R2>(routes: Layer.Layer<A, E, R>, served: Served<E2, R2>) =>
  Effect.gen(function*() {
    const config = yield* Config
    const ids = yield* Ids
    const upgrades = yield* UpgradeHandler
    const readiness = yield* Readiness
    const stallGuard = yield* StallGuard
    const held = yield* BufferedBytes
    const beforeClosing = yield* BeforeClosing
    const scope = yield* Effect.scope
    const requestScope = yield* Scope.fork(scope, "parallel")
    const timeouts = { ...timeoutsOf(config), ...served.timeouts }
    countFailures((code) => {
      if (code !== NOT_READY) refusals.at("http", code).add()
    })

    const table = makeRouteTable(config, served.endpoints ?? [], served.protocols?.(config) ?? [])
    const handle = yield* makeRouting(routes, config, table, requestScope)
    const inFlight = yield* makeRequestsInFlight
    const serving = { draining: false, held, peerOf: peerOf(config) }
    const isStalled = () => stallGuard.stalledLately("http")
    const queueBehind = makePipelining()
    const onRequest = makeRequestHandler({ config, handle, ids, inFlight, isStalled, queueBehind, serving, table })
    const onUpgrade = makeUpgrades({ config, ids, table, upgrades })
    const server = makeNodeServer(timeouts, ids, { isHidden: table.isHidden, onRequest, onUpgrade, queueBehind })

    // The server listens only after everything that it depends on is ready.
    yield* served.ready ?? Effect.void
    stallGuard.listensOn("http")
    const connections = yield* clientConnections(config, timeouts.firstByte)
    connections.guardRequests(server)
    const stopListening = yield* listen(server, config)
    const { port } = server.address() as AddressInfo
    listensOn(config, port)
    const log = Effect.runForkWith(yield* Effect.context<never>())
    server.on("error", (error) => log(Effect.logError("The HTTP server failed", error)))

    const beginDraining = () => {
      serving.draining = true
    }
    yield* Scope.addFinalizer(
      scope,
      shutDown({
        beforeClosing,
        beginDraining,
        inFlight,
        readiness,
        requestScope,
        server,
        stopListening,
        timeouts,
        upgrades
      })
    )
    return HttpServer.of({ port, url: config.PUBLIC_URL ?? listeningUrl(config) })
  })

/** Returns the peer to which the bytes of a request are charged: its agent, or the key of its IP address. */
const peerOf = (config: Settings) => ({ agentId, headers, socket }: ServerRequest): string => {
  if (agentId !== undefined) return agentId
  const forwarded = headers["x-forwarded-for"]
  return addressKey(
    clientAddress(socket.remoteAddress, typeof forwarded === "string" ? forwarded : undefined, config.TRUST_PROXY)
  )
}
