import { nodeConnections } from "#infrastructure/http/Connections"
import type { Settings } from "#infrastructure/platform/Config"
import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import { CONNECTIONS, connectionsRefused } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { Clock, Context, Data, Effect, Layer } from "effect"
import { once } from "node:events"
import { createServer, type Server, type Socket as NetSocket } from "node:net"
import { createServer as createTlsServer } from "node:tls"
import { NO_DELAY } from "./NodeDial.ts"
import { serverTls } from "./NodeSecret.ts"
import { PeerConnections } from "./PeerConnections.ts"

/** This node cannot listen on RUNNER_HOST and RUNNER_PORT. */
export class NodeListenFailed extends Data.TaggedError("NodeListenFailed")<{ readonly message: string }> {}

const listenFailed = ({ RUNNER_HOST, RUNNER_PORT }: Settings, cause: unknown): NodeListenFailed => {
  const code: unknown = Reflect.get(Object(cause), "code")
  return new NodeListenFailed({
    message: code === "EADDRINUSE"
      ? `RUNNER_PORT ${RUNNER_PORT} on ${RUNNER_HOST} is in use: stop the program that listens there, or set RUNNER_PORT.`
      : code === "EADDRNOTAVAIL" || code === "ENOTFOUND"
      ? `RUNNER_HOST ${RUNNER_HOST} is not an address of this machine.`
      : `Cannot listen for other nodes on ${RUNNER_HOST}:${RUNNER_PORT}: ${
        cause instanceof Error ? cause.message : String(cause)
      }`
  })
}

/**
 * A connection that is idle for this many milliseconds is closed. Each side of a peer connection sends a frame twice a
 * second.
 */
const SILENT_MS = 10_000
/** How long open connections may still send data after this node stops listening. */
const CLOSE_TIMEOUT = "500 millis"
/**
 * A refused secret is reported only if no connection from the same host is accepted within this time. During a rotation
 * of the secret, a node tries its other secret immediately, and again and again while this node does not respond.
 */
const SECOND_TRY = "10 seconds"
const MAX_REMEMBERED = 1_000

type Refusal = typeof CONNECTIONS[number]

const WORDS: Record<Refusal, string> = {
  secret: "it has a wrong RUNNER_SECRET",
  plain: "it does not use TLS: it has no RUNNER_SECRET, or is not a node",
  encrypted: "it uses TLS, but this node has no RUNNER_SECRET",
  silent: "it sent nothing",
  stranger: "it is not a node of this version of Parley"
}

const refusalOf = (error: NodeJS.ErrnoException): Refusal | undefined => {
  const code = error.code ?? ""
  if (code === "ERR_TLS_HANDSHAKE_TIMEOUT") return "silent"
  // The peer closed the connection itself, so it was not refused.
  if (code === "ECONNRESET" || code === "EPIPE") return undefined
  return /WRONG_VERSION|HTTP_REQUEST|UNEXPECTED_MESSAGE|UNKNOWN_PROTOCOL|PACKET_LENGTH|RECORD_LAYER|UNSUPPORTED_PROTOCOL/
      .test(code)
    ? "plain"
    : "secret"
}

/** The first byte of a TLS handshake. */
const TLS_HANDSHAKE_BYTE = 0x16

/**
 * The port on which this node listens for the other nodes. With RUNNER_PORT=0 the operating system chooses the port.
 */
export class NodePort extends Context.Service<NodePort, number>()("parley/cluster/NodePort") {}

/**
 * Listens for connections from other nodes and passes them to `PeerConnections`. Refused connections are counted, and
 * are logged once a minute for each address and reason.
 */
export const layer = (config: Settings, silentMs = SILENT_MS) =>
  Layer.effect(
    NodePort,
    Effect.gen(function*() {
      const nodes = yield* PeerConnections
      const now = monotonicMillis(yield* Clock.Clock)
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const scope = yield* Effect.scope
      const stallGuard = yield* StallGuard
      const warnings = new LogThrottle(MINUTE_MS)
      const lastAccepted = new Map<string, number>()

      const report = (host: string, refusal: Refusal): void => {
        connectionsRefused.at(refusal).add()
        fork(
          warnings.log(
            Effect.logWarning(`Refused a connection from ${host} on RUNNER_PORT: ${WORDS[refusal]}`),
            `${refusal} ${host}`
          )
        )
      }
      const refuse = (host: string, refusal: Refusal | undefined): void => {
        if (refusal === undefined) return
        if (refusal !== "secret") return report(host, refusal)
        const at = now()
        fork(
          Effect.sleep(SECOND_TRY).pipe(
            Effect.andThen(Effect.sync(() => {
              if ((lastAccepted.get(host) ?? Number.NEGATIVE_INFINITY) < at) report(host, refusal)
            })),
            Effect.forkIn(scope)
          )
        )
      }

      /** The open connections, by the address and port of the other side. */
      const open = new Map<string, NetSocket>()
      const nameOf = ({ remoteAddress, remotePort }: NetSocket): string => `${remoteAddress} ${remotePort}`
      const connections = yield* nodeConnections(config)
      const accept = (connection: NetSocket, host: string): void => {
        if (lastAccepted.size >= MAX_REMEMBERED) lastAccepted.clear()
        lastAccepted.set(host, now())
        connection.pause()
        // With TLS, `connection` is not the socket that was accepted.
        connections.began(open.get(nameOf(connection)) ?? connection)
        fork(Effect.forkIn(
          Effect.catch(nodes.accept(connection), (refusal) =>
            Effect.sync(() => {
              if (refusal === "refused") return
              // A peer that has closed the connection without sending a byte was not refused.
              if (connection.bytesRead > 0) refuse(host, refusal)
              connection.destroy()
            })),
          scope
        ))
      }
      const hostOf = ({ remoteAddress }: NetSocket): string => remoteAddress ?? "an unknown address"

      const plain = (): Server =>
        createServer(NO_DELAY).on("connection", (connection) => {
          const host = hostOf(connection)
          endSilent(connection)
          connection.once("readable", () => {
            const first = connection.read() as Buffer | null
            if (first === null) return connection.destroy()
            if (first[0] === TLS_HANDSHAKE_BYTE) {
              refuse(host, "encrypted")
              return connection.destroy()
            }
            connection.unshift(first)
            accept(connection, host)
          })
        })
      const encrypted = (secret: NonNullable<Settings["RUNNER_SECRET"]>): Server =>
        createTlsServer({ ...serverTls(secret), ...NO_DELAY, handshakeTimeout: silentMs })
          .on("secureConnection", (connection) => {
            endSilent(connection)
            accept(connection, hostOf(connection))
          })
          .on("tlsClientError", (error, connection) => {
            refuse(hostOf(connection), refusalOf(error))
            connection.destroy()
          })
      const endSilent = (connection: NetSocket): void => {
        const host = hostOf(connection)
        connection.setTimeout(silentMs, () => {
          if (connection.bytesRead === 0) refuse(host, "silent")
          connection.destroy()
        })
      }

      const listener = config.RUNNER_SECRET === undefined ? plain() : encrypted(config.RUNNER_SECRET)
      listener.on("connection", (connection: NetSocket) => {
        const name = nameOf(connection)
        open.set(name, connection)
        connection.once("close", () => {
          // Another connection from the same address and port may have been accepted before this event.
          if (open.get(name) === connection) open.delete(name)
        })
        // The reader, if there is one yet, handles errors. Without any listener an error would end the process.
        connection.on("error", () => {})
      })
      connections.guard(listener)
      stallGuard.listensOn("nodes")
      yield* Effect.acquireRelease(
        Effect.callback<void, NodeListenFailed>((resume) => {
          listener.once("error", (cause) => resume(Effect.fail(listenFailed(config, cause))))
          listener.listen({ host: config.RUNNER_HOST, port: config.RUNNER_PORT }, () => resume(Effect.void))
        }),
        () =>
          Effect.gen(function*() {
            const closed = once(listener, "close")
            listener.close()
            yield* Effect.timeoutOption(Effect.promise(() => closed), CLOSE_TIMEOUT)
            for (const connection of open.values()) connection.destroy()
          })
      )

      const bound = listener.address()
      if (bound === null || typeof bound === "string") return yield* Effect.die("the port of nodes has no address")
      return bound.port
    })
  )
