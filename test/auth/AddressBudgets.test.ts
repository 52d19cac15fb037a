import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { Readiness } from "#infrastructure/platform/Readiness"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { tmpdir } from "node:os"
import * as Http from "../../src/Http.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { layerModules } from "../support/Modules.ts"
import { PROBES } from "../support/Probes.ts"
import { recordRoutes } from "../support/Routes.ts"

/** Paths without an endpoint that say where cards of A2A are. Unknown paths count for nobody. */
const REFUSED = [
  "/.well-known/agent-card.json",
  "/.well-known/agent.json",
  "/a2a/.well-known/agent-card.json",
  "/a2a/.well-known/agent.json",
  "/a2a/:handle/.well-known/agent.json",
  "/a2a/:handle/agent-card.json",
  "/a2a/:handle/agent.json"
]
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
const BUDGET = 4
const ASSETS = 9

describe("requests without a key", () => {
  it.live("count against their address on every route (wire.md C.0); files of pages have a budget of their own, and probes of this machine none", () =>
    Effect.gen(function*() {
      const { routes, stop } = recordRoutes()
      const layer = Http.layer.pipe(
        Layer.provide([Readiness.layer, NodeRpc.layerAlone]),
        Layer.provideMerge(layerModules(layerPgliteTest, {
          PORT: 0,
          DATA_DIR: tmpdir(),
          LOG_LEVEL: "error",
          TRUST_PROXY: 1,
          LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: BUDGET,
          LIMITS_ASSETS_PER_MINUTE: ASSETS,
          // The steps of a sign-in have limits of their own, wire.md P.
          LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES: BUDGET,
          LIMITS_OAUTH_REGISTRATIONS_PER_HOUR: BUDGET,
          LIMITS_OAUTH_TOKENS_PER_MINUTE: BUDGET
        }))
      )
      yield* Effect.gen(function*() {
        stop()
        const { url } = yield* HttpServer
        let addresses = 0
        const freshAddress = () => `198.51.${100 + (addresses >> 8)}.${++addresses & 255}`
        const ask = (method: string, path: string, address: string): Promise<Response> =>
          fetch(`${url}${path}`, {
            method,
            headers: { "x-forwarded-for": address },
            ...(method === "POST" || method === "PUT" || method === "PATCH" ? { body: "{}" } : {})
          }).then(async (response) => {
            await response.arrayBuffer()
            return response
          })
        const all = [...routes.values()].filter(({ method, path }) =>
          METHODS.includes(method) && !REFUSED.includes(path)
        ).map(({ method, path }) => ({
          method,
          path: path.replace(/:\w+/g, "some-thing").replace("*", "thing")
        }))
        assert.isAbove(all.length, 100)
        yield* Effect.promise(async () => {
          const uncounted: Array<string> = []
          for (const { method, path } of all) {
            const address = freshAddress()
            // Signing in to the console has a limit of its own, wire.md O.1.
            const budget = path.startsWith("/assets/")
              ? ASSETS
              : path === "/console/api/session" && method === "POST"
              ? 10
              : BUDGET
            for (let i = 0; i < budget; i++) {
              const { status } = await ask(method, path, address)
              // Registration and recovery have stricter limits.
              if (status === 429) assert.match(path, /^\/v1\/(register|agents\/recover)/)
            }
            const { headers, status } = await ask(method, path, address)
            if (status !== 429 || headers.get("retry-after") === null) uncounted.push(`${method} ${path}: ${status}`)
          }
          assert.deepStrictEqual(uncounted, [])
          for (const path of PROBES) {
            for (let i = 0; i < 3 * BUDGET; i++)
              assert.strictEqual((await ask("GET", path, "127.0.0.1")).status, 200, path)
          }
        })
      }).pipe(Effect.provide(layer))
    }))
})
