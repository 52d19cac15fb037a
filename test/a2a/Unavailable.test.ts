import { Auth } from "#domain/auth/Auth"
import { Budgets } from "#domain/auth/Budgets"
import { Unavailable } from "#infrastructure/wire/WireError"
import { A2aHttp } from "#interfaces/a2a/A2aHttp"
import { ERROR_INFO, RPC } from "#interfaces/a2a/Failure"
import { TaskWatches } from "#interfaces/a2a/TaskWatches"
import { Waiters } from "#interfaces/realtime/Waiters"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer, type Scope } from "effect"
import { HttpEffect, HttpRouter, type HttpServerRequest, type HttpServerResponse } from "effect/http"
import { away, back } from "../support/Away.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

const info = {
  "@type": ERROR_INFO,
  reason: "UNAVAILABLE",
  domain: "parley",
  metadata: { code: "UNAVAILABLE", retry_after_ms: "2000" }
}
const { message } = new Unavailable()
const rpcBody = (id: number | null) => ({ jsonrpc: "2.0", error: { code: RPC.internal, message, data: [info] }, id })
const restBody = { error: { code: 503, status: "UNAVAILABLE", message, details: [info] } }

layer(TaskWatches.layer.pipe(
  Layer.provideMerge(Waiters.layer),
  Layer.provideMerge(Layer.mergeAll(Auth.layer, Budgets.layer)),
  Layer.provideMerge(layerModules(layerPgliteTest))
))("A2A while the database is away", (it) => {
  it.effect("164. answers 503 with Retry-After in each binding's own words, whether the key or the task cannot be read, and goes on after it", () =>
    Effect.gen(function*() {
      const app: Effect.Effect<
        HttpServerResponse.HttpServerResponse,
        unknown,
        HttpServerRequest.HttpServerRequest | Scope.Scope
      > = yield* HttpRouter.toHttpEffect(Layer.provide(A2aHttp, NodeHttpServer.layerHttpServices))
      const handle = HttpEffect.toWebHandlerWith<never, HttpServerRequest.HttpServerRequest | Scope.Scope>(
        yield* Effect.context<never>()
      )(app)
      const [alice, bob] = [yield* newAgent("alice"), yield* newAgent("bobby")]
      const ask = (path: string, init: RequestInit = {}) =>
        Effect.promise(async () => {
          const headers = { authorization: `Bearer ${alice.key}`, "A2A-Version": "1.0" }
          const response = await handle(
            new Request(`http://parley.example/a2a/${bob.handle}${path}`, { headers, ...init })
          )
          const type = response.headers.get("content-type")
          return {
            status: response.status,
            after: response.headers.get("retry-after"),
            type,
            body: await response.json() as unknown
          }
        })
      const byRpc = ask("", {
        method: "POST",
        body: JSON.stringify({ jsonrpc: "2.0", id: 7, method: "GetTask", params: { id: "msg_1" } })
      })
      const byRest = ask("/tasks/msg_1")
      const rpcRefusal = (id: number | null) => ({
        status: 503,
        after: "2",
        type: "application/json",
        body: rpcBody(id)
      })
      const restRefusal = { status: 503, after: "2", type: "application/a2a+json", body: restBody }
      yield* away("agents")
      // The body, which has the id, is read after the key.
      assert.deepStrictEqual(yield* byRpc, rpcRefusal(null))
      assert.deepStrictEqual(yield* byRest, restRefusal)
      assert.deepStrictEqual(yield* ask("/.well-known/agent-card.json"), restRefusal)
      yield* back("agents")
      yield* leap("2 seconds")
      yield* away("a2a_conversations")
      assert.deepStrictEqual(yield* byRpc, rpcRefusal(7))
      assert.deepStrictEqual(yield* byRest, restRefusal)
      yield* back("a2a_conversations")
      assert.deepStrictEqual([(yield* byRpc).status, (yield* byRest).status], [200, 404])
    }))
})
