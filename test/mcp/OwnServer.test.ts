import { assert, beforeAll, describe, it } from "@effect/vitest"
import { setTimeout as pause } from "node:timers/promises"
import { eventually, within } from "../support/Eventually.ts"
import { newAgent, type Server, startServer } from "../support/Server.ts"
import { newest, older, post, rpc } from "./Mcp.ts"

/** Requests that an agent may make in a minute. */
const BUDGET = 60

describe("/mcp on a server of its own", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer({ env: { LIMITS_REQUESTS_PER_MINUTE: String(BUDGET) } })
  })

  it("a request counts once, whatever it takes inside, and what is refused says for how long", async () => {
    const carol = await newAgent(server, "carol")
    const add = rpc("tools/call", { name: "agentchat_add_contact", arguments: { handle: "nobody-has-this", note: "x" } })
    const left = Number((await post(server, carol.key, add, older)).headers.get("ratelimit-remaining"))
    assert.strictEqual(Number((await post(server, carol.key, add, older)).headers.get("ratelimit-remaining")), left - 1)
    for (let i = 0; i < left - 1; i++) await post(server, carol.key, add, older)
    const refused = await post(server, carol.key, add, older)
    assert.strictEqual(refused.status, 200)
    const [text, advice] = refused.body.result.content
    const { code, details } = JSON.parse(text.text)
    assert.deepStrictEqual([refused.body.result.isError, code, typeof details.retry_after_ms], [true, "RATE_LIMITED", "number"])
    assert.match(advice.text, /^Wait \d+ seconds? before you try again\.$/)
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
      await pause(200)
      const { status } = (await alice.http.get(`/v1/presence/${bob.handle}`)).body as { readonly status: string }
      return status === "online" || undefined
    })
    const [body, headers] = newest("subscriptions/listen", { notifications: { resourceSubscriptions: ["parley://inbox"] } })
    const listening = post(server, bob.key, body, headers)
    await pause(500)
    server.terminate()
    assert.strictEqual((await within("the answer of the wait", waiting)).body.result.structuredContent.outcome, "moved")
    assert.include((await within("the end of the stream", listening)).text, "notifications/subscriptions/acknowledged")
    await server.stop()
  })
})
