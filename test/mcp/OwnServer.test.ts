import { assert, beforeAll, describe, it } from "@effect/vitest"
import { request } from "node:http"
import { freePort } from "../../runners/local/FreePort.ts"
import { inbox, say } from "../contract/Talk.ts"
import { breath, eventually, within } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { patient } from "../support/Patient.ts"
import { RawConnection } from "../support/RawConnection.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { answerIn, type Json, newest, older, post, refusalIn, rpc } from "./Mcp.ts"

/** Requests that an agent may make in a minute. */
const BUDGET = 60

describe("/mcp on a server of its own", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer({
      env: {
        PORT: String(await freePort()),
        PUBLIC_URL: "https://parley.example",
        ALLOWED_ORIGINS: "https://app.example, https://desk.example:8443",
        LIMITS_REQUESTS_PER_MINUTE: String(BUDGET),
        HTTP_HEADERS_SECONDS: "9",
        HTTP_REQUEST_SECONDS: "10"
      }
    })
  })

  const status = rpc("tools/call", { name: "agentchat_get_my_status", arguments: {} })

  it("pages of PUBLIC_URL's origin and of those listed may call it, others may not; which name leads to it is the proxy's affair", async () => {
    const alice = await newAgent(server, "alice")
    const all = ["https://parley.example", "https://app.example", "https://desk.example:8443"]
    for (const origin of all) {
      const answer = await post(server, alice.key, status, { ...older, origin })
      assert.deepStrictEqual([answer.status, answer.headers.get("access-control-allow-origin")], [200, origin])
      for (const path of ["/mcp", "/mcp/join"]) {
        const asked = await fetch(server.url + path, {
          method: "OPTIONS",
          headers: { origin, "access-control-request-method": "POST" }
        })
        assert.strictEqual(asked.headers.get("access-control-allow-origin"), origin)
        for (const header of ["MCP-Protocol-Version", "X-MCP-Toolsets"])
          assert.include(asked.headers.get("access-control-allow-headers") ?? "", header)
      }
    }
    for (
      const origin of [
        "http://parley.example",
        "https://parley.example:444",
        "https://app.example.evil.example",
        server.url,
        "null",
        "*"
      ]
    ) {
      const answer = await post(server, alice.key, status, { ...older, origin })
      assert.deepStrictEqual([answer.status, answer.body.error.data.code], [403, "FORBIDDEN"], origin)
      assert.isNull(answer.headers.get("access-control-allow-origin"), origin)
    }
    const { port } = new URL(server.url)
    // fetch sets Host itself.
    const under = (host: string) =>
      new Promise<number | undefined>((resolve, reject) => {
        const headers = { host, authorization: `Bearer ${alice.key}`, "content-type": "application/json", ...older }
        const asked = request({ port, host: "127.0.0.1", path: "/mcp", method: "POST", headers }, (answer) => {
          answer.resume()
          resolve(answer.statusCode)
        })
        asked.on("error", reject)
        asked.end(JSON.stringify(status))
      })
    for (const host of ["parley.example", "inside.example:8080"]) assert.strictEqual(await under(host), 200)
  })

  it("a body that stalls, is too large or is no text is refused as JSON-RPC has it, and a head that is too large as HTTP has it", async () => {
    const carol = await newAgent(server, "carol")
    const head = (more: ReadonlyArray<string>) =>
      [
        `POST /mcp HTTP/1.1`,
        "host: parley.example",
        `authorization: Bearer ${carol.key}`,
        "content-type: application/json",
        ...more
      ].join("\r\n") + "\r\n"
    const bodyOf = (received: string): Json => JSON.parse(received.slice(received.indexOf("\r\n\r\n") + 4))
    const stalled = await RawConnection.open(server)
    stalled.write(`${head(["content-length: 1000"])}\r\n{"jsonrpc"`)
    // The same where agents are called by A2A, in both of its bindings.
    const [rpcStalled, restStalled] = await Promise.all(["/a2a/carol", "/a2a/carol/message:send"].map(async (path) => {
      const connection = await RawConnection.open(server)
      connection.write(`${head(["content-length: 1000"]).replace("/mcp", path)}\r\n{"message"`)
      return connection
    })) as [RawConnection, RawConnection]
    const chunked = async (): Promise<string> => {
      const connection = await RawConnection.open(server)
      connection.write(`${head(["transfer-encoding: chunked"])}\r\n`)
      for (let i = 0; i < 160 && !connection.socket.destroyed; i++) {
        connection.write(`10000\r\n${"x".repeat(65_536)}\r\n`)
        if (connection.received !== "") break
        await breath()
      }
      const received = await eventually(
        "the refusal",
        () => /\r\n\r\n\{.*\}$/s.test(connection.received) ? connection.received : undefined
      )
      connection.drop()
      // On a busy machine, sending it may take longer than a request may.
      return received.startsWith("HTTP/1.1 408 ") ? chunked() : received
    }
    const large = bodyOf(await chunked())
    assert.deepStrictEqual([large.jsonrpc, large.error.data.code], ["2.0", "PAYLOAD_TOO_LARGE"])
    const overlong = await RawConnection.open(server)
    overlong.write(`${head([`x-long: ${"x".repeat(20_000)}`])}\r\n`)
    const tooLong = await overlong.end()
    assert.match(tooLong, /^HTTP\/1\.1 431 /)
    assert.strictEqual(bodyOf(tooLong).code, "VALIDATION_ERROR")
    const noText = await patient(`${server.url}/mcp`, {
      method: "POST",
      headers: { authorization: `Bearer ${carol.key}` },
      body: Uint8Array.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d])
    })
    assert.deepStrictEqual([noText.status, (await noText.json() as Json).error.data.code], [400, "VALIDATION_ERROR"])
    const ended = await stalled.end()
    assert.match(ended, /^HTTP\/1\.1 408 /)
    const late = bodyOf(ended)
    assert.deepStrictEqual([late.jsonrpc, late.id, late.error.data.code], ["2.0", null, "VALIDATION_ERROR"])
    const rpcLate = bodyOf(await rpcStalled.end())
    assert.deepStrictEqual([rpcLate.jsonrpc, rpcLate.id, rpcLate.error.data[0].metadata.code], [
      "2.0",
      null,
      "VALIDATION_ERROR"
    ])
    const restLate = bodyOf(await restStalled.end()).error
    assert.deepStrictEqual([restLate.code, restLate.status, restLate.details[0].metadata.code], [
      408,
      "DEADLINE_EXCEEDED",
      "VALIDATION_ERROR"
    ])
  })

  it("a hundred waits of one agent are refused beyond the 20th, and none of them is left when the caller goes", async () => {
    const dave = await newAgent(server, "dave")
    const erin = await newAgent(server, "erin")
    await say(erin, dave)
    const [first] = await inbox(dave)
    await dave.http.post("/v1/messages/sync/ack", { last_delivery_id: first?.delivery_id })
    const end = new AbortController()
    const codes: Array<string> = []
    const flood = Array.from({ length: 50 }, () =>
      patient(`${server.url}/mcp`, {
        method: "POST",
        signal: end.signal,
        headers: { authorization: `Bearer ${dave.key}`, "content-type": "application/json", ...older },
        body: JSON.stringify(
          rpc("tools/call", { name: "agentchat_wait_for_messages", arguments: { timeout_seconds: 50 } })
        )
      }).then(async (answer) => {
        const { result } = await answer.json() as Json
        codes.push(refusalIn(result).refusal["code"])
      }, () => undefined))
    const waits = () => metricOf(server, "waits_open")
    await eventually("the refusals", () => codes.length === 30 || undefined)
    assert.deepStrictEqual(codes.filter((code) => code !== "RATE_LIMITED"), [])
    assert.strictEqual(await waits(), 20)
    end.abort()
    await Promise.all(flood)
    await eventually("their end", async () => (await waits()) === 0 || undefined)
    const said = await say(dave, erin)
    assert.deepStrictEqual((await inbox(erin)).map(({ id }) => id), [said.id])
  })

  it("a request counts once, however many calls it makes inside, and a refused one says for how long", async () => {
    const carol = await newAgent(server, "carol")
    const add = rpc("tools/call", {
      name: "agentchat_add_contact",
      arguments: { handle: "nobody-has-this", note: "x" }
    })
    const left = Number((await post(server, carol.key, add, older)).headers.get("ratelimit-remaining"))
    assert.strictEqual(Number((await post(server, carol.key, add, older)).headers.get("ratelimit-remaining")), left - 1)
    for (let i = 0; i < left - 1; i++) await post(server, carol.key, add, older)
    // A slow machine may get some more while the window moves on.
    const refused = await eventually("the refusal of a request", async () => {
      const answer = await post(server, carol.key, add, older)
      return answer.headers.get("ratelimit-remaining") === "0" && answer.text.includes("RATE_LIMITED")
        ? answer
        : undefined
    })
    assert.strictEqual(refused.status, 200)
    const { advice, refusal } = refusalIn(refused.body.result)
    assert.deepStrictEqual([refusal["code"], typeof refusal["details"].retry_after_ms], ["RATE_LIMITED", "number"])
    assert.match(advice ?? "", /^Wait \d+ seconds? before you try again\.$/)
    const list = await post(server, carol.key, rpc("tools/list"), older)
    assert.deepStrictEqual([list.status, list.body.error.data.code], [429, "RATE_LIMITED"])
    assert.isAtLeast(Number(list.headers.get("retry-after")), 1)
  })

  it("when it stops, waits and subscriptions end in good time, and a wait says to call again", async () => {
    const alice = await newAgent(server, "alice")
    const bob = await newAgent(server, "bob")
    await alice.http.post("/v1/contacts", { handle: bob.handle })
    const wait = rpc("tools/call", { name: "agentchat_wait_for_messages", arguments: { timeout_seconds: 50 } })
    const waiting = post(server, bob.key, wait, older)
    await eventually("the wait", async () => {
      const { status } = (await alice.http.get(`/v1/presence/${bob.handle}`)).body as { readonly status: string }
      return status === "online" || undefined
    })
    const [body, headers] = newest("subscriptions/listen", {
      notifications: { resourceSubscriptions: ["parley://inbox"] }
    })
    const listening = post(server, bob.key, body, headers)
    await eventually("the stream", async () => await metricOf(server, "waits_open") === 2 || undefined)
    server.terminate()
    assert.strictEqual(
      answerIn("agentchat_wait_for_messages", (await within("the answer of the wait", waiting)).body.result)["outcome"],
      "moved"
    )
    assert.include((await within("the end of the stream", listening)).text, "notifications/subscriptions/acknowledged")
    await server.stop()
  })
})
