import { isRegistrable, RESERVED } from "#domain/agents/Agent"
import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { Readiness } from "#infrastructure/platform/Readiness"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { tmpdir } from "node:os"
import * as Http from "../../src/Http.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { Http as Client } from "../support/Http.ts"
import { layerModules, newAgent } from "../support/Modules.ts"
import * as Document from "../support/ReservedHandles.ts"
import { recordRoutes } from "../support/Routes.ts"

/** Whether a word has the form of a handle (wire.md D). */
const isHandle = (word: string): boolean => /^[a-z][a-z0-9-]{2,29}$/.test(word) && !/--|-$/.test(word)

/** The parent paths below which some route takes a handle, such as `/v1/agents`. */
const parentsOfHandles = (paths: ReadonlyArray<string>): ReadonlySet<string> =>
  new Set(paths.flatMap((path) => {
    const at = path.indexOf("/:handle")
    return at === -1 ? [] : [path.slice(0, at)]
  }))

/** The words that wire.md D wants reserved because of these routes. */
const wordsOf = (paths: ReadonlyArray<string>): ReadonlySet<string> => {
  const parents = parentsOfHandles(paths)
  return new Set(paths.flatMap((path) => {
    const segments = path.split("/").slice(1)
    return segments.filter((segment, at) =>
      isHandle(segment) && (at < 2 || segments[0] === "v1" || parents.has(`/${segments.slice(0, at).join("/")}`))
    )
  }))
}

describe("reserved handles", () => {
  it("the list of the code is the list of wire.md D, and every word in it has the form of a handle, or is too short for one", () => {
    assert.isAbove(Document.RESERVED.length, 60)
    assert.deepStrictEqual([...RESERVED].sort(), [...Document.RESERVED].sort())
    assert.deepStrictEqual(Document.RESERVED.filter((word) => isRegistrable(word)), [])
    assert.deepStrictEqual(Document.RESERVED.filter((word) => !isHandle(word)), ["v1", "me", "ws"])
  })

  it.live("every word in a path of the server that is near the root, in `/v1`, or where a handle could stand is reserved; agents that have such a handle go on working", () =>
    Effect.gen(function*() {
      const { routes, stop } = recordRoutes()
      const layer = Http.layer.pipe(
        Layer.provide([Readiness.layer, NodeRpc.layerAlone]),
        Layer.provideMerge(layerModules(layerPgliteTest, { PORT: 0, DATA_DIR: tmpdir(), LOG_LEVEL: "error" }))
      )
      yield* Effect.gen(function*() {
        stop()
        const paths = new Set([...routes.values()].map(({ path }) => path))
        // One route of each kind: endpoints, and routes that the OpenAPI document does not have.
        for (const path of ["/mcp", "/console/api/*", "/app", "/a2a/:handle", "/v1/ws"])
          assert.include([...paths], path)
        const words = wordsOf([...paths])
        for (const word of ["console", "mcp", "a2a", "app", "reply", "active", "claim", "files", "register"])
          assert.include([...words], word)
        assert.deepStrictEqual([...words].filter((word) => isRegistrable(word)), [])

        const { url } = yield* HttpServer
        const sql = yield* SqlClient.SqlClient
        const friend = yield* newAgent("friend")
        const old = yield* newAgent("old-one")
        yield* sql`UPDATE agents SET handle = 'mcp' WHERE id = ${old.id}`
        const [mcp, writer] = [new Client(url, old.key, () => undefined), new Client(url, friend.key, () => undefined)]
        yield* Effect.promise(async () => {
          ;(await mcp.post("/v1/register", { email: "second@example.com", handle: "mcp" })).refused(
            400,
            "INVALID_HANDLE"
          )
          assert.deepInclude((await mcp.get("/v1/agents/me")).body, { handle: "mcp" })
          assert.strictEqual((await mcp.patch("/v1/agents/mcp", { description: "older than the list" })).status, 200)
          assert.deepInclude((await writer.get("/v1/agents/mcp")).body, {
            handle: "mcp",
            description: "older than the list"
          })
          const found = (await writer.get("/v1/directory?q=mcp")).body as {
            readonly agents: ReadonlyArray<{ readonly handle: string }>
          }
          assert.deepStrictEqual(found.agents.map(({ handle }) => handle), ["mcp"])
          assert.strictEqual((await writer.post("/v1/contacts", { handle: "mcp" })).status, 201)
          assert.strictEqual(
            (await writer.post("/v1/messages", { to: "mcp", client_msg_id: "one", content: { text: "still there?" } }))
              .status,
            201
          )
          assert.include(JSON.stringify((await mcp.get("/v1/messages/sync")).body), "still there?")
          assert.strictEqual(
            (await mcp.post("/v1/messages", { to: friend.handle, client_msg_id: "two", content: { text: "yes" } }))
              .status,
            201
          )
        })
      }).pipe(Effect.provide(layer))
    }))
})
