import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { HttpConnection } from "../../test/support/Connection.ts"
import { newAgent, parley, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"

/** How often each size is sent. The fastest answer counts. */
const TIMES = 7
/** Four times as many parts may take this many times as long: a linear parser needs 4, a quadratic one 16. */
const RATIO = 8
/** An answer within this time is fast enough, whatever the ratio is: the time of a small request is mostly constant. */
const FLOOR_MS = 25
/**
 * Bytes of the smaller request. The larger one has four times as many, and is just below a limit of the server: of a
 * form or another body without a key, of the head, of a body with a message, of the values in a body (20,000), of a
 * body.
 */
const SIZES = { form: 4_000, head: 3_900, small: 15_000, values: 25_000, text: 240_000 }

interface Ask {
  readonly method?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/**
 * Repeats a part until it has so many characters together. `part` gets a number, so that it can make distinct parts.
 */
const fill = (length: number, part: (i: number) => string, separator = ""): string => {
  const parts: Array<string> = []
  for (let [i, size] = [0, 0]; size < length; i++) {
    const one = part(i)
    parts.push(one)
    size += one.length + separator.length
  }
  return parts.join(separator)
}

const name = (i: number): string => i.toString(36)
const keys = (length: number): string => `{${fill(length, (i) => `"k${name(i)}":1`, ",")}}`
const list = (length: number, part: (i: number) => string = (i) => `"${name(i)}"`): string =>
  `[${fill(length, part, ",")}]`

/**
 * Parsers that a stranger can reach, with or without a key. A request of 4 n parts takes some four times as long as one
 * of n.
 */
describe("a request of four times as many parts", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  const table: Array<Readonly<Record<string, string | number>>> = []

  beforeAll(async () => {
    server = await startServer({ program: parley("start"), env: { LOG_LEVEL: "error" } })
    ;[alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
  }, 60_000)
  afterAll(async () => {
    console.table(table)
    await server?.stop()
  }, 20_000)

  const fastest = async (ask: Ask): Promise<{ readonly ms: number; readonly status: number }> => {
    const { host, hostname, port } = new URL(server.url)
    const { body = "", headers = {}, method = "GET", path = "/" } = ask
    const lines = Object.entries({ host, "content-length": String(Buffer.byteLength(body)), ...headers }).map((
      [name, value]
    ) => `${name}: ${value}`)
    const bytes = Buffer.from([`${method} ${path} HTTP/1.1`, ...lines, "", body].join("\r\n"))
    let [ms, status] = [Number.POSITIVE_INFINITY, 0]
    for (let times = 0; times < TIMES; times++) {
      const connection = await HttpConnection.connect(hostname, Number(port), () => undefined)
      const began = performance.now()
      status = await new Promise<number>((resolve) => connection.request(bytes, resolve))
      ms = Math.min(ms, performance.now() - began)
      connection.close()
    }
    return { ms, status }
  }

  const compare = async (what: string, size: number, ask: (length: number) => Ask): Promise<void> => {
    const isLinear = () => ratio < RATIO || large.ms < FLOOR_MS
    let [small, large, ratio] = [{ ms: 0, status: 0 }, { ms: 0, status: 0 }, 0]
    for (let tries = 0; tries === 0 || (tries < 3 && !isLinear()); tries++) {
      small = await fastest(ask(size))
      large = await fastest(ask(4 * size))
      ratio = large.ms / small.ms
    }
    table.push({
      request: what,
      "n ms": Number(small.ms.toFixed(1)),
      "4 n ms": Number(large.ms.toFixed(1)),
      ratio: Number(ratio.toFixed(1)),
      status: large.status
    })
    assert.isBelow(large.status, 500, what)
    assert.isTrue(isLinear(), `${what}: ${small.ms} ms and ${large.ms} ms`)
  }

  const form = { "content-type": "application/x-www-form-urlencoded" }
  const keyed = () => ({ authorization: `Bearer ${alice.key}`, "content-type": "application/json" })
  const post = (path: string, body: string): Ask => ({ method: "POST", path, body, headers: keyed() })
  const rpc = (method: string, params: string, path = "/mcp"): Ask => ({
    ...post(path, `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`),
    headers: { ...keyed(), accept: "application/json, text/event-stream", "a2a-version": "1.0" }
  })
  const call = (tool: string, given: string, path?: string) =>
    rpc("tools/call", `{"name":"${tool}","arguments":${given}}`, path)

  const forms: Readonly<Record<string, (length: number) => Ask>> = {
    "POST /token, distinct names": (n) => ({ method: "POST", path: "/token", headers: form, body: fill(n, name, "&") }),
    "POST /token, resource repeated": (n) => ({
      method: "POST",
      path: "/token",
      headers: form,
      body: fill(n, () => "resource", "&")
    }),
    "POST /revoke, distinct names": (n) => ({
      method: "POST",
      path: "/revoke",
      headers: form,
      body: fill(n, name, "&")
    }),
    "POST /register, redirect_uris": (n) => ({
      method: "POST",
      path: "/register",
      body: `{"redirect_uris":${list(n / 2 - 50, (i) => `"a.b:${name(i)}"`)}}`
    }),
    "POST /v1/register, unknown fields": (n) => ({ method: "POST", path: "/v1/register", body: keys(n) }),
    "POST /v1/register, e-mail address": (n) => ({
      method: "POST",
      path: "/v1/register",
      body: `{"email":"${fill(n, () => "a.")}@${fill(10, () => "a.")}","handle":"ada"}`
    }),
    "POST /v1/register, display name": (n) => ({
      method: "POST",
      path: "/v1/register",
      body: `{"email":"a@b.example","handle":"ada-l","display_name":"${"\u200b".repeat(n / 3)}"}`
    }),
    "/mcp/join, unknown arguments": (n) => call("agentchat_register", keys(n), "/mcp/join")
  }

  const heads: Readonly<Record<string, (length: number) => Ask>> = {
    "GET /authorize, distinct names": (n) => ({ path: `/authorize?${fill(n, name, "&")}` }),
    "GET /authorize, client_id repeated": (n) => ({ path: `/authorize?${fill(n, () => "client_id", "&")}` }),
    "GET /authorize, scope": (n) => ({ path: `/authorize?scope=${fill(n, name, "+")}` }),
    "query, distinct names": (n) => ({ path: `/v1/directory?${fill(n, name, "&")}` }),
    "query, one name repeated": (n) => ({ path: `/v1/directory?${fill(n, () => "limit", "&")}` }),
    "query of a search": (n) => ({ path: `/v1/messages/search?q=${fill(n, name, "+")}`, headers: keyed() }),
    "query of a search, quotes and signs": (n) => ({
      path: `/v1/messages/search?q=${fill(n, () => "%22-")}`,
      headers: keyed()
    }),
    "?tools=": (n) => ({ ...rpc("ping", "{}"), path: `/mcp?tools=${fill(n, name, ",")}` }),
    "X-MCP-Toolsets": (n) => ({ ...rpc("ping", "{}"), headers: { ...keyed(), "x-mcp-toolsets": fill(n, name, ",") } }),
    "Cookie": (n) => ({ path: "/oauth/requests/orq_1", headers: { cookie: fill(n, (i) => `${name(i)}=1`, "; ") } }),
    "Authorization, blanks": (n) => ({
      path: "/v1/agents/me",
      headers: { authorization: `Bearer${" ".repeat(n)}x x` }
    }),
    "Authorization of a client, blanks": (n) => ({
      method: "POST",
      path: "/token",
      headers: { ...form, authorization: `Basic ${"a".repeat(n / 2)}${" ".repeat(n / 2)}!` }
    }),
    "path, slashes": (n) => ({ path: "/".repeat(n) }),
    "path, escapes": (n) => ({ path: `/v1/${fill(n, () => "%2e%2f")}` }),
    "path of the console": (n) => ({ path: `/console/api/${fill(n, () => "%61/")}` }),
    "If-None-Match": (n) => ({
      path: `/a2a/${bob.handle}/.well-known/agent-card.json`,
      headers: { "if-none-match": fill(n, (i) => `W/"${name(i)}"`, ", ") }
    }),
    "User-Agent of a host": (n) => ({
      ...rpc("ping", "{}"),
      headers: { ...keyed(), "user-agent": fill(n, () => "visual studio cod ") }
    }),
    "X-Forwarded-For": (n) => ({
      path: "/v1/directory",
      headers: { "x-forwarded-for": fill(n, () => "10.0.0.1", ", ") }
    }),
    "traceparent": (n) => ({ path: "/v1/directory", headers: { traceparent: fill(n, () => "00-") } }),
    "Idempotency-Key": (n) => ({
      ...post("/v1/messages", "{}"),
      headers: { ...keyed(), "idempotency-key": "k".repeat(n) }
    })
  }

  const small: Readonly<Record<string, (length: number) => Ask>> = {
    "POST /v1/messages, unknown fields": (n) => post("/v1/messages", keys(n)),
    "POST /v1/messages, metadata": (n) =>
      post("/v1/messages", `{"to":"${bob.handle}","client_msg_id":"a","content":{"text":"x"},"metadata":${keys(n)}}`),
    "POST /v1/messages, data": (n) =>
      post("/v1/messages", `{"to":"${bob.handle}","client_msg_id":"b","content":{"data":{"a":${list(n)}}}}`),
    "POST /v1/messages, lists in lists": (n) =>
      post("/v1/messages", `{"to":"${bob.handle}","content":{"data":{"a":${"[".repeat(n / 2)}${"]".repeat(n / 2)}}}}`),
    "POST /v1/messages, mentions": (n) =>
      post(
        "/v1/messages",
        `{"to":"${bob.handle}","client_msg_id":"c","content":{"text":"${fill(n, (i) => `@a${name(i)}-`)}"}}`
      )
  }

  const values: Readonly<Record<string, (length: number) => Ask>> = {
    "POST /v1/groups, member_handles": (n) => post("/v1/groups", `{"name":"g","member_handles":${list(n)}}`),
    "POST /v1/presence/batch, handles": (n) => post("/v1/presence/batch", `{"handles":${list(n)}}`),
    "POST /v1/reply/claim-batch": (n) => post("/v1/reply/claim-batch", `{"message_ids":${list(n)},"session_id":"s"}`),
    "PATCH /v1/agents/me, skills": (n) => ({
      ...post(
        "/v1/agents/me",
        `{"skills":${list(n, (i) => `{"id":"${name(i)}","name":"n","description":"d","tags":[]}`)}}`
      ),
      method: "PATCH"
    }),
    "PATCH /v1/agents/me, tags": (n) => ({
      ...post("/v1/agents/me", `{"skills":[{"id":"a","name":"n","description":"d","tags":${list(n)}}]}`),
      method: "PATCH"
    }),
    "POST /v1/webhooks, events": (n) =>
      post("/v1/webhooks", `{"url":"https://a.example","secret":"0123456789abcdef","events":${list(n)}}`),
    "/mcp, fields of params": (n) => rpc("tools/list", keys(n)),
    "/mcp, unknown arguments": (n) => call("agentchat_get_my_status", keys(n)),
    "/mcp, a list of handles": (n) => call("agentchat_get_presence", `{"handles":${list(n)}}`),
    "/mcp, member_handles": (n) => call("agentchat_create_group", `{"name":"g","member_handles":${list(n)}}`),
    "/mcp, arguments of events": (n) => rpc("events/poll", `{"name":"message.received","arguments":${keys(n)}}`),
    "A2A, parts": (n) =>
      rpc(
        "SendMessage",
        `{"message":{"role":"ROLE_USER","messageId":"m","parts":${list(n, () => `{"text":"a"}`)}}}`,
        `/a2a/${bob.handle}`
      ),
    "A2A, metadata": (n) =>
      rpc(
        "SendMessage",
        `{"message":{"role":"ROLE_USER","messageId":"n","parts":[{"text":"a"}],"metadata":${keys(n)}}}`,
        `/a2a/${bob.handle}`
      )
  }

  const texts: Readonly<Record<string, (length: number) => Ask>> = {
    "/mcp, cursor": (n) => rpc("tools/list", `{"cursor":"${"a".repeat(n)}"}`),
    "/mcp, a text of marks": (n) => call("agentchat_send_message", `{"to":"${bob.handle}","text":"${"<".repeat(n)}"}`),
    "/mcp, a file in base64": (n) =>
      call(
        "agentchat_send_file",
        `{"to":"${bob.handle}","filename":"f","content_type":"text/plain","content_base64":"${"QUFB".repeat(n / 4)}"}`
      ),
    "/mcp, a URI": (n) => rpc("resources/read", `{"uri":"parley://agents/${"%41".repeat(n / 3)}"}`),
    "/mcp, an id": (n) => ({ ...post("/mcp", `{"jsonrpc":"2.0","id":"${"a".repeat(n)}","method":"ping"}`) }),
    "/mcp, no JSON": (n) => post("/mcp", "[".repeat(n)),
    "A2A, a file in base64": (n) =>
      rpc(
        "SendMessage",
        `{"message":{"role":"ROLE_USER","messageId":"f","parts":[{"raw":"${"QUFB".repeat(n / 4)}","filename":"f"}]}}`,
        `/a2a/${bob.handle}`
      )
  }

  for (
    const [kinds, size] of [
      [forms, SIZES.form],
      [heads, SIZES.head],
      [small, SIZES.small],
      [values, SIZES.values],
      [texts, SIZES.text]
    ] as const
  ) {
    for (const [what, ask] of Object.entries(kinds)) it(what, () => compare(what, size, ask))
  }
})
