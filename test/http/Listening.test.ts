import { listen } from "#infrastructure/http/Listening"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit } from "effect"
import { createServer } from "node:http"
import { type AddressInfo, connect, type Server, type Socket } from "node:net"
import { setImmediate as turn } from "node:timers/promises"
import { eventually } from "../support/Eventually.ts"

const CLIENTS = 256

const config = { HOST: "127.0.0.1", PORT: 0 }
const portOf = (server: Server) => (server.address() as AddressInfo).port

/** A server that answers every request, its connections, and the clients; all end with the test. */
const listening = Effect.fnUntraced(function*(settings = config) {
  const server = createServer((_, response) => response.end("here"))
  const taken: Array<Socket> = []
  const clients: Array<Socket> = []
  server.on("connection", (connection) => taken.push(connection))
  const stop = yield* listen(server, settings)
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      stop()
      for (const socket of [...taken, ...clients]) socket.destroy()
    })
  )
  const port = portOf(server)
  const client = () => {
    const socket = connect({ host: "127.0.0.1", port })
    socket.on("error", () => {})
    clients.push(socket)
    return socket
  }
  return { server, stop, taken, client, port }
})

describe("Listening", () => {
  it.live.skipIf(process.platform !== "linux")(
    "accepts many connections in one turn of the event loop",
    () =>
      Effect.gen(function*() {
        const { client, taken } = yield* listening()
        for (let i = 0; i < CLIENTS; i++) client()
        let turns = 0
        for (; taken.length < CLIENTS; turns++) yield* Effect.promise(() => turn())
        // One for each turn would be 256. The system spreads them unevenly.
        assert.isBelow(turns, CLIENTS / 4)
      })
  )

  it.live("answers on each of its sockets, and stops on all of them", () =>
    Effect.gen(function*() {
      const { client, port, stop, taken } = yield* listening()
      const ask = (socket: Socket) =>
        Effect.promise(async () => {
          const answered = new Promise((resolve) =>
            socket.once("data", (data) => resolve(String(data).split("\r\n")[0]))
          )
          socket.write("GET / HTTP/1.1\r\nhost: here\r\n\r\n")
          return answered
        })
      const sockets = Array.from({ length: 64 }, client)
      for (const socket of sockets) assert.strictEqual(yield* ask(socket), "HTTP/1.1 200 OK")
      assert.strictEqual(taken.length, 64)
      stop()
      yield* Effect.promise(() =>
        eventually("every further connection to be refused", async () => {
          const refused = await Promise.all(Array.from({ length: 64 }, () =>
            new Promise<boolean>((resolve) => {
              const socket = connect({ host: "127.0.0.1", port }, () => {
                socket.destroy()
                resolve(false)
              })
              socket.on("error", () => resolve(true))
            })))
          return refused.every(Boolean) ? true : undefined
        })
      )
    }))

  it.live("refuses a port that another server has", () =>
    Effect.gen(function*() {
      const { port } = yield* listening()
      const second = yield* Effect.exit(listening({ ...config, PORT: port }))
      assert.isTrue(Exit.isFailure(second))
      if (Exit.isFailure(second)) assert.include(Cause.pretty(second.cause), `Port ${port} on 127.0.0.1 is in use`)
    }))
})
