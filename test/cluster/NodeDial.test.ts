import { makeDial, SILENT } from "#infrastructure/cluster/NodeDial"
import { serverTls } from "#infrastructure/cluster/NodeSecret"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { once } from "node:events"
import { type AddressInfo, createServer, type Socket } from "node:net"
import { createServer as createTlsServer } from "node:tls"
import { eventually } from "../support/Eventually.ts"

it.effect("a node that does not respond to the secret after a refused one is asked with the same secret again", () =>
  Effect.gen(function*() {
    const opened: Array<Socket> = []
    const tls = createTlsServer(serverTls(Redacted.make("new"))).on("tlsClientError", (_, socket) => socket.destroy())
    // The third of the four connections that a node with two secrets tries is the first one with the right secret.
    const port = createServer((socket) => {
      socket.on("error", () => {})
      if (opened.push(socket) !== 3) tls.emit("connection", socket)
    })
    yield* Effect.acquireRelease(
      Effect.promise(() => once(port.listen(0, "127.0.0.1"), "listening")),
      () =>
        Effect.sync(() => {
          for (const socket of opened) socket.destroy()
          port.close()
        })
    )
    const dial = makeDial({ RUNNER_SECRET: Redacted.make("old, new") })
    const node = `127.0.0.1:${(port.address() as AddressInfo).port}`

    const first = yield* Effect.forkChild(Effect.flip(dial(node)))
    yield* Effect.promise(() => eventually("the third connection", () => opened.length === 3 || undefined))
    yield* TestClock.adjust("1 second")
    assert.strictEqual(yield* Fiber.join(first), SILENT)

    const connection = yield* dial(node)
    connection.destroy()
    assert.lengthOf(opened, 4)
  }).pipe(Effect.scoped))
