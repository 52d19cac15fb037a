/** Tests that fail in several ways, for PrintLogs.test.ts. */
import { afterAll, beforeAll, describe, it } from "@effect/vitest"
import { mkdtemp } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Server, startServer } from "../Server.ts"

const start = async (env: Readonly<Record<string, string>> = {}): Promise<Server> =>
  startServer({
    program: ["test/support/failing/Listener.ts"],
    dataDir: await mkdtemp(join(tmpdir(), "parley-failing-")),
    env
  })

const ask = (server: Server, path: string) => fetch(`${server.url}/${path}`)

describe("a server of several tests", () => {
  let server: Server
  beforeAll(async () => {
    server = await start()
  })
  afterAll(() => server.stop())

  it("passes", () => ask(server, "before"))
  it("fails", async () => {
    await ask(server, "of-the-test-that-fails")
    throw new Error("on purpose")
  })
  it("passes again", () => ask(server, "after"))
})

describe("a test's own server", () => {
  it("fails when it has ended", async () => {
    const server = await start()
    await ask(server, "of-its-own")
    await server.stop()
    throw new Error("on purpose")
  })
})

describe("a server that ends badly", () => {
  let server: Server
  beforeAll(async () => {
    server = await start({ CODE: "7" })
  })
  afterAll(() => server.stop())

  it("passes", () => ask(server, "with-a-bad-end"))
})
