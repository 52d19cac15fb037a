import { Config, type Settings } from "#infrastructure/platform/Config"
import { Data, Effect } from "effect"
import { createServer } from "node:http"
import { type AddressInfo, Server } from "node:net"

/**
 * The listen backlog: how many connections may wait to be accepted. The kernel may limit it further
 * (`net.core.somaxconn`), and silently drops attempts beyond it. The client's kernel retries after 1, 3, 7, 15 and 31
 * seconds.
 */
const LISTEN_BACKLOG = 8_192

/** The server cannot listen on its address. The message tells the operator what to do. */
export class ListenFailed extends Data.TaggedError("ListenFailed")<{ readonly message: string }> {}

/**
 * How many sockets listen on the port. In each turn of the event loop Node accepts only one connection for each socket.
 * With one socket, a thousand clients that connect again to a busy server, whose turns take 10 ms, would wait for up to
 * 10 s. Only Linux spreads connections over sockets of one port.
 */
const SOCKETS = process.platform === "linux" ? 32 : 1

type Address = Pick<Settings, "HOST" | "PORT">

const bind = (server: Server, config: Address, port: number, shared: boolean): Effect.Effect<void, ListenFailed> =>
  Effect.callback((resume) => {
    const failed = (error: NodeJS.ErrnoException) => resume(Effect.fail(listenFailed(error, config.HOST, port)))
    server.once("error", failed)
    server.listen({ port, host: config.HOST, backlog: LISTEN_BACKLOG, reusePort: shared }, () => {
      server.off("error", failed)
      resume(Effect.void)
    })
  })

/**
 * Listens on HOST and PORT. Returns a function that makes the server refuse further connections, as `server.close`
 * does.
 */
export const listen = (server: Server, config: Address): Effect.Effect<() => void, ListenFailed> =>
  Effect.gen(function*() {
    // Sockets with `reusePort` also share their port with sockets of another process. Therefore the server first checks
    // that the port is free.
    if (SOCKETS > 1) yield* isFree(config)
    yield* bind(server, config, config.PORT, SOCKETS > 1)
    const { port } = server.address() as AddressInfo
    const others = Array.from({ length: SOCKETS - 1 }, () =>
      // These are the options of a server of node:http.
      new Server({ allowHalfOpen: true, noDelay: true }, (connection) => server.emit("connection", connection)))
    for (const other of others) {
      yield* bind(other, config, port, true)
      other.on("error", (error) => server.emit("error", error))
    }
    return () => {
      for (const one of [server, ...others]) one.close()
    }
  })

const isFree = (config: Address): Effect.Effect<void, ListenFailed> =>
  Effect.suspend(() => {
    const server = createServer()
    return Effect.andThen(
      bind(server, config, config.PORT, false),
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
      })
    )
  })

/** Fails early if the server cannot listen on its address, before the slow part of the start. */
export const addressIsFree: Effect.Effect<void, ListenFailed, Config> = Effect.flatMap(Config, isFree)

const listenFailed = (error: NodeJS.ErrnoException, host: string, port: number): ListenFailed => {
  switch (error.code) {
    case "EADDRINUSE":
      return new ListenFailed({
        message: `Port ${port} on ${host} is in use: stop the program that listens there, or set PORT.`
      })
    case "EACCES":
      return new ListenFailed({ message: `Port ${port} may not be used by this user: set PORT to one above 1023.` })
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return new ListenFailed({ message: `HOST ${host} is not an address of this machine.` })
    default:
      return new ListenFailed({ message: `Cannot listen on ${host}:${port}: ${error.message}` })
  }
}
