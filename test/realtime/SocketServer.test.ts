import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { LiveAgents } from "#domain/push/LiveAgents"
import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { Readiness } from "#infrastructure/platform/Readiness"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { once } from "node:events"
import { tmpdir } from "node:os"
import { WebSocket } from "ws"
import * as Http from "../../src/Http.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { eventually, within } from "../support/Eventually.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

/** Called as by a node whose line to another one has ended. */
let parted = (_agentIds: ReadonlyArray<string>): void => undefined

/** Whether the notices of all other nodes arrive. */
let hearsAll = true

/** Runs after the keys of the sockets have been read. */
let keysRead: Effect.Effect<void> = Effect.void

const capturing = Layer.merge(
  Layer.effect(
    LiveAgents,
    Effect.map(LiveAgents, (liveAgents) =>
      LiveAgents.of({
        ...liveAgents,
        hearsAll: () => hearsAll,
        onParted: (listener) => {
          parted = listener
          liveAgents.onParted(listener)
        }
      }))
  ),
  Layer.effect(
    Agents,
    Effect.map(Agents, (agents) =>
      Object.assign(agents, {
        keyHashes: ((keyHashes) => (ids: Parameters<typeof keyHashes>[0]) =>
          Effect.tap(keyHashes(ids), () => keysRead))(agents.keyHashes)
      }))
  )
)

const module = Http.layer.pipe(
  Layer.provide([Readiness.layer, NodeRpc.layerAlone, capturing]),
  Layer.provideMerge(layerModules(layerPgliteTest, { PORT: 0, DATA_DIR: tmpdir(), LOG_LEVEL: "error" }))
)

layer(module, { excludeTestServices: true })((it) => {
  it.effect("a socket whose key is rotated after its check, and before the socket is attached, is closed with 1008 (wire.md C.3, E.4)", () =>
    Effect.gen(function*() {
      const { url } = yield* HttpServer
      const accounts = yield* Accounts
      const agents = yield* Agents
      const { id, key } = yield* newAgent("rotated")
      const { byKeyHash } = agents
      let rotated = false
      // The first check of the key finds the account; the key is rotated before the answer arrives.
      Object.assign(agents, {
        byKeyHash: ((hash) =>
          Effect.tap(byKeyHash(hash), () => {
            if (rotated) return Effect.void
            rotated = true
            return Effect.andThen(Effect.orDie(accounts.replaceKey(id)), accounts.keyReplaced(id))
          })) satisfies typeof byKeyHash
      })
      const frames: Array<unknown> = []
      const socket = new WebSocket(`${url.replace(/^http/, "ws")}/v1/ws`)
      socket.on("message", (data) => frames.push(JSON.parse(String(data))))
      const closed = once(socket, "close")
      socket.on("open", () => socket.send(JSON.stringify({ type: "hello", api_key: key })))
      const [code, reason] = yield* Effect.promise(() => within("the end of the socket", closed)).pipe(
        Effect.ensuring(Effect.sync(() => socket.terminate()))
      )
      assert.strictEqual(code, 1008, String(reason))
      assert.isTrue(rotated)
      assert.deepInclude(frames[0], { type: "hello.ok" })
    }))

  it.effect("after a line has ended, a socket whose key was rotated just after the first check is closed by the second", () =>
    Effect.gen(function*() {
      const { url } = yield* HttpServer
      const accounts = yield* Accounts
      const { id, key } = yield* newAgent("cached")
      const socket = new WebSocket(`${url.replace(/^http/, "ws")}/v1/ws`)
      const closed = once(socket, "close")
      const welcomed = once(socket, "message")
      socket.on("open", () => socket.send(JSON.stringify({ type: "hello", api_key: key })))
      yield* Effect.promise(() => within("hello.ok", welcomed))
      let checks = 0
      // The key is rotated on a node that could not notify this one, after the first check has read it.
      keysRead = Effect.suspend(() =>
        checks++ === 0 ? Effect.asVoid(Effect.orDie(accounts.replaceKey(id))) : Effect.void
      )
      parted([])
      const [code] = yield* Effect.promise(() => within("the end of the socket", closed)).pipe(
        Effect.ensuring(Effect.sync(() => {
          socket.terminate()
          keysRead = Effect.void
        }))
      )
      assert.strictEqual(code, 1008)
      assert.strictEqual(checks, 2)
    }))

  it.effect("a node that hears from no other node and cannot read keys closes its sockets with 1013, and keeps them while it can read keys", () =>
    Effect.gen(function*() {
      const { url } = yield* HttpServer
      const { key } = yield* newAgent("cut-off")
      const socket = new WebSocket(`${url.replace(/^http/, "ws")}/v1/ws`)
      const closed = once(socket, "close")
      const welcomed = once(socket, "message")
      socket.on("open", () => socket.send(JSON.stringify({ type: "hello", api_key: key })))
      yield* Effect.promise(() => within("hello.ok", welcomed))
      let checks = 0
      keysRead = Effect.sync(() => void checks++)
      hearsAll = false
      yield* Effect.promise(() => eventually("eight checks of the keys", () => checks >= 8 || undefined))
      assert.strictEqual(socket.readyState, WebSocket.OPEN)
      keysRead = Effect.never
      const [code, reason] = yield* Effect.promise(() => within("the end of the socket", closed)).pipe(
        Effect.ensuring(Effect.sync(() => {
          socket.terminate()
          keysRead = Effect.void
          hearsAll = true
        }))
      )
      assert.deepStrictEqual([code, String(reason)], [1013, "this server is cut off from the others: connect again"])
    }))
})
