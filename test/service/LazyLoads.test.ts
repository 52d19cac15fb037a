import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import sharp from "sharp"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"

describe("a server whose first load of each part fails", () => {
  let server: Server
  beforeAll(async () => {
    server = await startServer({
      env: {
        NODE_OPTIONS: `--import ${new URL("../support/FailedLoads.js", import.meta.url).href}`,
        FAILED_LOADS: "/McpHandler|/httpApiScalar|/node_modules/nodemailer/|/node_modules/sharp/"
      }
    })
  })
  afterAll(() => server?.stop())

  /** Asserts that the first response is 503, that a later one has this status, and that the log has one line. */
  const isUnavailableOnce = async (ask: () => Promise<Response>, status: number, name: string) => {
    const first = await ask()
    assert.strictEqual(first.status, 503, await first.clone().text())
    assert.strictEqual((await first.json() as { readonly code: string }).code, "UNAVAILABLE")
    assert.strictEqual(first.headers.get("retry-after"), "2")
    const later = await eventually(name, async () => {
      const response = await ask()
      return response.status === 503 ? undefined : response
    })
    assert.strictEqual(later.status, status, await later.text())
    assert.lengthOf(server.log.match(new RegExp(`${name} could not be loaded`, "g")) ?? [], 1)
  }

  it("mails codes, and renders pictures at a later request", async () => {
    const agent = await newAgent(server, "picture")
    assert.include(server.log, "The library for mail could not be loaded")
    const body = await sharp({ create: { width: 200, height: 200, channels: 3, background: "#3060c0" } }).png()
      .toBuffer()
    const put = () =>
      fetch(`${server.url}/v1/agents/${agent.handle}/avatar`, {
        method: "PUT",
        headers: { authorization: `Bearer ${agent.key}`, "content-type": "image/png" },
        body
      })
    await isUnavailableOnce(put, 200, "The library for pictures")
  })

  it("serves MCP and the documentation at a later request", async () => {
    const call = () =>
      fetch(`${server.url}/mcp`, {
        method: "POST",
        headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" })
      })
    const first = await call()
    assert.strictEqual(first.status, 503)
    assert.include(await first.text(), "The service is unavailable right now")
    const later = await eventually("MCP", async () => {
      const { status } = await call()
      return status === 503 ? undefined : status
    })
    assert.strictEqual(later, 401)
    assert.lengthOf(server.log.match(/The code for MCP could not be loaded/g) ?? [], 1)
    await isUnavailableOnce(() => fetch(`${server.url}/docs`), 200, "/docs")
  })
})
