import { Data, Effect } from "effect"
import { createServer } from "node:http"
import type { Server } from "node:net"
import { Config, type Settings } from "../platform/Config.ts"

/**
 * The listen backlog: connections that may wait to be accepted. The kernel may cap it (`net.core.somaxconn`). It drops
 * further attempts silently; the client's kernel repeats them after 1, 3, 7, 15 and 31 seconds.
 */
const UNACCEPTED = 8_192

/** The server cannot listen on its address; the message says what to do. */
export class ListenFailed extends Data.TaggedError("ListenFailed")<{ readonly message: string }> {}

/** Listens on HOST and PORT. */
export const listen = (server: Server, config: Settings): Effect.Effect<void, ListenFailed> =>
  Effect.callback((resume) => {
    const failed = (error: NodeJS.ErrnoException) => resume(Effect.fail(listenFailed(error, config.HOST, config.PORT)))
    server.once("error", failed)
    server.listen({ port: config.PORT, host: config.HOST, backlog: UNACCEPTED }, () => {
      server.off("error", failed)
      resume(Effect.void)
    })
  })

/** Fails early if the server cannot listen on its address, before the slow part of the start. */
export const addressIsFree: Effect.Effect<void, ListenFailed, Config> = Effect.gen(function*() {
  const config = yield* Config
  const server = createServer()
  yield* listen(server, config)
  yield* Effect.callback<void>((resume) => {
    server.close(() => resume(Effect.void))
  })
})

const listenFailed = (error: NodeJS.ErrnoException, host: string, port: number): ListenFailed => {
  switch (error.code) {
    case "EADDRINUSE":
      return new ListenFailed({ message: `Port ${port} on ${host} is in use: stop what listens there, or set PORT.` })
    case "EACCES":
      return new ListenFailed({ message: `Port ${port} may not be used by this user: set PORT to one above 1023.` })
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return new ListenFailed({ message: `HOST ${host} is not an address of this machine.` })
    default:
      return new ListenFailed({ message: `Cannot listen on ${host}:${port}: ${error.message}` })
  }
}
