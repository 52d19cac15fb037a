import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { connected } from "../support/Connected.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"

describe("wire.md P, connections", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer()
  })
  afterAll(() => server.stop())

  it("an agent lists its connections, the newest first, and ends one of them", async () => {
    const [alice, bob] = [await newAgent(server, "alice"), await newAgent(server, "bob")]
    assert.deepStrictEqual((await alice.http.get("/v1/connections")).ok(200, Shapes.ConnectionList), {
      connections: []
    })
    const first = await connected(server, alice)
    const second = await connected(server, alice)
    const { connections } = (await alice.http.get("/v1/connections")).ok(200, Shapes.ConnectionList)
    assert.deepStrictEqual(connections.map(({ id }) => id), [second, first])
    assert.deepStrictEqual({ ...connections[0], id: "", created_at: "" }, {
      id: "",
      client_name: null,
      client_host: "host.example",
      redirect_host: "host.example",
      scopes: ["agent:read"],
      created_at: "",
      last_used_at: null
    })
    ;(await bob.http.delete(`/v1/connections/${first}`)).refused(404, "NOT_FOUND")
    ;(await alice.http.delete(`/v1/connections/${first}`)).ok(200, Shapes.Confirmation)
    ;(await alice.http.delete(`/v1/connections/${first}`)).refused(404, "NOT_FOUND")
    const left = (await alice.http.get("/v1/connections")).ok(200, Shapes.ConnectionList)
    assert.deepStrictEqual(left.connections.map(({ id }) => id), [second])
    ;(await server.http().get("/v1/connections")).refused(401, "UNAUTHORIZED")
  })
})
