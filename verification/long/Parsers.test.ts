import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createHash } from "node:crypto"
import { request } from "node:http"
import { newAgent, parley, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"

/** How often each size is sent. The fastest answer counts. */
const TIMES = 7
/** Four times as many parts may take this many times as long: a linear parser needs 4, a quadratic one 16. */
const RATIO = 8
/**
 * An answer within this time is fast enough, whatever the ratio is: the time of a small request is mostly constant. An
 * address may send 1,200 requests a minute without a key, and an agent 12,000 with one.
 */
const FLOOR_MS = { open: 8, keyed: 25 }
/**
 * Bytes of the smaller request. The larger one has four times as many, and is just below a limit of the server: of a
 * form or another body without a key, of the head, of a message, of the values in a body (20,000), of a body. A field
 * with a lower limit gets a part of them, so that it is read to its end and not refused for its length.
 */
const SIZES = { form: 4_000, head: 3_900, message: 8_000, values: 25_000, text: 240_000 }

interface Ask {
  readonly method?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

interface Fastest {
  readonly ms: number
  readonly status: number
  readonly text: string
}
const NONE: Fastest = { ms: 0, status: 0, text: "" }

const REDIRECT = "https://host.example/callback"

/** What the answer must be, and the request for a number of bytes. The answer shows that the parser was reached. */
type Row = readonly [status: number, ask: (length: number) => Ask, has?: RegExp]

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
  /** A registered client of OAuth, and the path of a file that may be read without a key. */
  let clientId = ""
  let file = ""
  const table: Array<Readonly<Record<string, string | number>>> = []

  beforeAll(async () => {
    server = await startServer({
      program: parley("start"),
      env: {
        LOG_LEVEL: "error",
        TRUST_PROXY: "1",
        LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "1000000",
        LIMITS_SEARCHES_PER_MINUTE: "1000000"
      }
    })
    ;[alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const registered = await fetch(`${server.url}/register`, {
      method: "POST",
      body: JSON.stringify({ redirect_uris: [REDIRECT], client_name: "Host", token_endpoint_auth_method: "none" })
    })
    clientId = (await registered.json() as { readonly client_id: string }).client_id
    await alice.client.sendMessage({ to: bob.handle, content: { text: "A first word." } })
    await bob.client.sendMessage({ to: alice.handle, content: { text: "Go on." } })
    const bytes = Buffer.from("A file.")
    const { attachment_id, upload_url } = await alice.client.createUpload({
      filename: "a.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex"),
      to: bob.handle
    })
    await fetch(upload_url, { method: "PUT", body: bytes })
    const signed = new URL(await alice.client.getAttachmentDownloadUrl(attachment_id))
    file = `${signed.pathname}${signed.search}`
  }, 60_000)
  afterAll(async () => {
    console.table(table)
    await server?.stop()
  }, 20_000)

  const answerTo = ({ body = "", headers = {}, method = "GET", path = "/" }: Ask): Promise<Fastest> =>
    new Promise((resolve, reject) => {
      const began = performance.now()
      const { hostname, port } = new URL(server.url)
      const asked = request({
        agent: false,
        hostname,
        port,
        method,
        path,
        headers: { "content-length": Buffer.byteLength(body), ...headers }
      }, (answer) => {
        let text = ""
        answer.setEncoding("utf8")
        answer.on("data", (part: string) => text += part)
        answer.on("end", () => resolve({ ms: performance.now() - began, status: answer.statusCode ?? 0, text }))
        answer.on("error", reject)
      })
      asked.on("error", reject)
      asked.end(body)
    })

  const fastest = async (ask: Row[1], length: number): Promise<Fastest> => {
    const answers: Array<Fastest> = []
    for (let times = 0; times < TIMES; times++) answers.push(await answerTo(ask(length)))
    return answers.reduce((one, other) => one.ms <= other.ms ? one : other)
  }

  const compare = async (what: string, size: number, [status, ask, has]: Row): Promise<void> => {
    const floor = ask(size).headers?.["authorization"] !== undefined ? FLOOR_MS.keyed : FLOOR_MS.open
    const isLinear = () => ratio < RATIO || large.ms < floor
    let [small, large, ratio]: [Fastest, Fastest, number] = [NONE, NONE, 0]
    for (let tries = 0; tries === 0 || (tries < 3 && !isLinear()); tries++) {
      small = await fastest(ask, size)
      large = await fastest(ask, 4 * size)
      ratio = large.ms / small.ms
    }
    table.push({
      request: what,
      "n ms": Number(small.ms.toFixed(1)),
      "4 n ms": Number(large.ms.toFixed(1)),
      ratio: Number(ratio.toFixed(1)),
      status: large.status
    })
    for (const one of [small, large]) {
      assert.strictEqual(one.status, status, `${what}: ${one.text.slice(0, 300)}`)
      assert.isTrue(has?.test(one.text) ?? true, `${what}: ${one.text.slice(0, 300)}`)
    }
    assert.isTrue(isLinear(), `${what}: ${small.ms} ms and ${large.ms} ms`)
  }

  const form = { "content-type": "application/x-www-form-urlencoded" }
  const json = { "content-type": "application/json" }
  const keyed = () => ({ authorization: `Bearer ${alice.key}`, ...json })
  const post = (path: string, body: string): Ask => ({ method: "POST", path, body, headers: keyed() })
  const open = (path: string, body: string, headers: Ask["headers"] = json): Ask => ({
    method: "POST",
    path,
    body,
    headers: headers ?? {}
  })
  const rpc = (method: string, params: string, path = "/mcp"): Ask => ({
    ...post(path, `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}`),
    headers: { ...keyed(), accept: "application/json, text/event-stream", "a2a-version": "1.0" }
  })
  const call = (tool: string, given: string, path?: string) =>
    rpc("tools/call", `{"name":"${tool}","arguments":${given}}`, path)
  let sent = 0
  const message = (fields: string): Ask =>
    post("/v1/messages", `{"to":"${bob.handle}","client_msg_id":"c-${sent++}",${fields}}`)
  const task = (fields: string): Ask =>
    rpc(
      "SendMessage",
      `{"message":{"role":"ROLE_USER","messageId":"m-${sent++}",${fields}},"configuration":{"returnImmediately":true}}`,
      `/a2a/${bob.handle}`
    )
  const authorize = (rest: string): Ask => ({
    path: `/authorize?response_type=code&client_id=${clientId}&redirect_uri=${REDIRECT}&code_challenge=${
      "a".repeat(43)
    }&code_challenge_method=S256&${rest}`
  })

  const forms: Readonly<Record<string, Row>> = {
    "POST /token, distinct names": [401, (n) => open("/token", fill(n, name, "&"), form)],
    "POST /token, resource repeated": [
      400,
      (n) =>
        open(
          "/token",
          `grant_type=authorization_code&client_id=${clientId}&code=a&code_verifier=b&redirect_uri=${REDIRECT}&${
            fill(n - 600, () => "resource=a", "&")
          }`,
          form
        ),
      /"invalid_(target|request|grant)"/
    ],
    "POST /revoke, distinct names": [200, (n) => open("/revoke", fill(n, name, "&"), form)],
    "POST /register, redirect_uris": [
      400,
      (n) => open("/register", `{"redirect_uris":${list(n / 2 - 50, (i) => `"a.b:${name(i)}"`)}}`)
    ],
    "POST /register, client_name": [
      201,
      (n) => open("/register", `{"redirect_uris":["${REDIRECT}"],"client_name":"a${"\u200b".repeat(n / 8)}b"}`),
      /"client_name":"ab"/
    ],
    "POST /v1/register, unknown fields": [400, (n) => open("/v1/register", keys(n))],
    "POST /v1/register, e-mail address": [
      400,
      (n) => open("/v1/register", `{"email":"${fill(n, () => "a.")}@${fill(10, () => "a.")}","handle":"ada"}`)
    ],
    "POST /v1/register, display name": [
      400,
      (n) =>
        open(
          "/v1/register",
          `{"email":"a@b.example","handle":"all","display_name":"a${"\u200b".repeat(n / 8 - 10)}b"}`
        ),
      /INVALID_HANDLE/
    ],
    "POST /v1/register/verify, code": [
      400,
      (n) => open("/v1/register/verify", `{"pending_id":"pnd_1","code":"${"1".repeat(n)}"}`)
    ],
    "POST /v1/agents/recover, unknown fields": [400, (n) => open("/v1/agents/recover", keys(n))],
    "POST /v1/agents/recover/verify, unknown fields": [400, (n) => open("/v1/agents/recover/verify", keys(n))],
    "POST /oauth/requests, unknown fields": [404, (n) => open("/oauth/requests/orq_1/approve", keys(n))],
    "/mcp/join, unknown arguments": [
      200,
      (n) => ({
        ...call("agentchat_register", keys(n), "/mcp/join"),
        headers: { ...json, accept: "application/json, text/event-stream" }
      }),
      /"isError":true|"error"/
    ]
  }

  const heads: Readonly<Record<string, Row>> = {
    "GET /authorize, distinct names": [400, (n) => ({ path: `/authorize?${fill(n, name, "&")}` })],
    "GET /authorize, client_id repeated": [400, (n) => ({ path: `/authorize?${fill(n, () => "client_id", "&")}` })],
    "GET /authorize, resource repeated": [400, (n) => authorize(fill(n - 500, () => "resource=a", "&"))],
    "GET /authorize, scope": [303, (n) => authorize(`scope=${fill(n - 500, name, "+")}`)],
    "query, distinct names": [400, (n) => ({ path: `/v1/directory?${fill(n, name, "&")}` })],
    "query, one name repeated": [400, (n) => ({ path: `/v1/directory?${fill(n, () => "limit", "&")}` })],
    "query of a search": [
      200,
      (n) => ({
        path: `/v1/messages/search?q=${fill(n / 100, (i) => `${name(i)}abcdefghijklmnopqrstu`, "+")}`,
        headers: keyed()
      })
    ],
    "query of a search, quotes and signs": [
      200,
      (n) => ({ path: `/v1/messages/search?q=word+${fill(n / 80, () => "%22-")}`, headers: keyed() })
    ],
    "cursor of a list": [
      400,
      (n) => ({ path: `/v1/messages/search?q=word&cursor=${"a".repeat(n)}`, headers: keyed() })
    ],
    "reaction in a path": [
      400,
      (n) => ({
        method: "PUT",
        path: `/v1/messages/msg_1/reactions/${fill(n, () => "%F0%9F%91%8D")}`,
        headers: keyed()
      })
    ],
    "?tools=": [400, (n) => ({ ...rpc("ping", "{}"), path: `/mcp?tools=${fill(n, name, ",")}` })],
    "X-MCP-Toolsets": [
      400,
      (n) => ({ ...rpc("ping", "{}"), headers: { ...keyed(), "x-mcp-toolsets": fill(n, name, ",") } })
    ],
    "Accept of /mcp": [
      200,
      (n) => ({
        ...rpc("ping", "{}"),
        headers: {
          ...keyed(),
          accept: `${fill(n, (i) => `a/${name(i)};q=0.1`, ", ")}, application/json, text/event-stream`
        }
      })
    ],
    "Accept-Encoding of a page": [
      200,
      (n) => ({ path: "/app", headers: { "accept-encoding": fill(n, (i) => `${name(i)};q=0.1`, ", ") } })
    ],
    "Content-Type": [
      400,
      (n) => ({
        ...message(`"content":{}`),
        headers: { ...keyed(), "content-type": `application/json;${fill(n, (i) => `${name(i)}=1`, ";")}` }
      })
    ],
    "Range of a file": [
      200,
      (n) => ({ path: file, headers: { range: `bytes=${fill(n, () => "0-0", ",")}` } })
    ],
    "Cookie": [
      404,
      (n) => ({ path: "/oauth/requests/orq_1", headers: { cookie: fill(n, (i) => `${name(i)}=1`, "; ") } })
    ],
    "Authorization, blanks": [
      401,
      (n) => ({ path: "/v1/agents/me", headers: { authorization: `Bearer${" ".repeat(n)}x x` } })
    ],
    "Authorization of a client, blanks": [
      401,
      (n) => open("/token", "", { ...form, authorization: `Basic ${"a".repeat(n / 2)}${" ".repeat(n / 2)}!` })
    ],
    "path, slashes": [200, (n) => ({ path: "/".repeat(n) })],
    "path, escapes": [404, (n) => ({ path: `/v1/${fill(n, () => "%2e%2f")}` })],
    "path of the console": [404, (n) => ({ path: `/console/api/${fill(n, () => "%61/")}` })],
    "If-None-Match": [
      200,
      (n) => ({
        path: `/a2a/${bob.handle}/.well-known/agent-card.json`,
        headers: { "if-none-match": fill(n, (i) => `W/"${name(i)}"`, ", ") }
      })
    ],
    "User-Agent of a host": [
      200,
      (n) => ({ ...rpc("ping", "{}"), headers: { ...keyed(), "user-agent": fill(n, () => "visual studio cod ") } })
    ],
    "X-Forwarded-For": [
      400,
      (n) => ({ path: "/v1/directory", headers: { "x-forwarded-for": fill(n, () => "10.0.0.1", ", ") } })
    ],
    "traceparent": [400, (n) => ({ path: "/v1/directory", headers: { traceparent: fill(n, () => "00-") } })],
    "Idempotency-Key": [
      400,
      (n) => ({ ...post("/v1/messages", "{}"), headers: { ...keyed(), "idempotency-key": "k".repeat(n) } })
    ]
  }

  const messages: Readonly<Record<string, Row>> = {
    "POST /v1/messages, unknown fields": [400, (n) => post("/v1/messages", keys(n))],
    "POST /v1/messages, metadata": [
      201,
      (n) => message(`"content":{"text":"x"},"metadata":${keys(n - 100)}`)
    ],
    "POST /v1/messages, data": [201, (n) => message(`"content":{"data":{"a":${list(n - 100)}}}`)],
    "POST /v1/messages, lists in lists": [
      400,
      (n) => message(`"content":{"data":{"a":${"[".repeat(n / 2)}${"]".repeat(n / 2)}}}`)
    ],
    "POST /v1/messages, mentions": [
      201,
      (n) => message(`"content":{"text":"${fill(n - 100, (i) => `@a${name(i)}-`)}"}`)
    ],
    "POST /v1/messages, code and quotes": [
      201,
      (n) => message(`"content":{"text":"${fill(n - 100, (i) => `> \`@a\`\\n    @${name(i)}\\n`)}"}`)
    ],
    "/mcp, a text of marks": [
      200,
      (n) => call("agentchat_send_message", `{"to":"${bob.handle}","text":"${"<".repeat(n - 100)}"}`),
      /"structuredContent":\{"ok":true/
    ],
    "A2A, metadata": [
      200,
      (n) => task(`"parts":[{"text":"a"}],"metadata":${keys(n - 100)}`),
      /"result"/
    ]
  }

  const values: Readonly<Record<string, Row>> = {
    "POST /v1/groups, member_handles": [400, (n) => post("/v1/groups", `{"name":"g","member_handles":${list(n)}}`)],
    "POST /v1/presence/batch, handles": [400, (n) => post("/v1/presence/batch", `{"handles":${list(n)}}`)],
    "POST /v1/reply/claim-batch": [
      400,
      (n) => post("/v1/reply/claim-batch", `{"message_ids":${list(n)},"session_id":"s"}`)
    ],
    "PATCH /v1/agents/me, skills": [
      400,
      (n) => ({
        ...post(
          "/v1/agents/me",
          `{"skills":${list(n, (i) => `{"id":"${name(i)}","name":"n","description":"d","tags":[]}`)}}`
        ),
        method: "PATCH"
      })
    ],
    "PATCH /v1/agents/me, tags": [
      400,
      (n) => ({
        ...post("/v1/agents/me", `{"skills":[{"id":"a","name":"n","description":"d","tags":${list(n)}}]}`),
        method: "PATCH"
      })
    ],
    "POST /v1/webhooks, events": [
      400,
      (n) => post("/v1/webhooks", `{"url":"https://a.example","secret":"0123456789abcdef","events":${list(n)}}`)
    ],
    "/mcp, fields of params": [200, (n) => rpc("tools/list", keys(n)), /agentchat_send_message/],
    "/mcp, unknown arguments": [200, (n) => call("agentchat_get_my_status", keys(n)), /"result"/],
    "/mcp, a list of handles": [
      200,
      (n) => call("agentchat_get_presence", `{"handles":${list(n)}}`),
      /"isError":true|"error"/
    ],
    "/mcp, member_handles": [
      200,
      (n) => call("agentchat_create_group", `{"name":"g","member_handles":${list(n)}}`),
      /"isError":true|"error"/
    ],
    "/mcp, arguments of events": [
      200,
      (n) => rpc("events/poll", `{"name":"message.received","arguments":${keys(n)}}`),
      /"error"/
    ],
    "A2A without JSON-RPC, parts": [
      200,
      (n) => ({
        ...post(
          `/a2a/${bob.handle}/message:send`,
          `{"message":{"role":"ROLE_USER","messageId":"m-${sent++}","parts":${
            list(n, () => `{"text":"a"}`)
          }},"configuration":{"returnImmediately":true}}`
        ),
        headers: { ...keyed(), "a2a-version": "1.0" }
      }),
      /"task"/
    ],
    "A2A, parts": [200, (n) => task(`"parts":${list(n, () => `{"text":"a"}`)}`), /"result"|"error"/]
  }

  const texts: Readonly<Record<string, Row>> = {
    "/mcp, cursor": [200, (n) => rpc("tools/list", `{"cursor":"${"a".repeat(n)}"}`), /-32602/],
    "/mcp, a file in base64": [
      200,
      (n) =>
        call(
          "agentchat_send_file",
          `{"to":"${bob.handle}","filename":"f","content_type":"text/plain","data":"${"QUFB".repeat(n / 4)}"}`
        ),
      /attachment_id/
    ],
    "/mcp, a URI": [
      200,
      (n) => rpc("resources/read", `{"uri":"parley://agents/${"%41".repeat(n / 360)}"}`),
      /-32602|-32002/
    ],
    "/mcp, an id": [
      200,
      (n) => ({ ...post("/mcp", `{"jsonrpc":"2.0","id":"${"a".repeat(n)}","method":"ping"}`) }),
      /"result"/
    ],
    "/mcp, no JSON": [400, (n) => post("/mcp", "[".repeat(n))],
    "A2A, page token": [
      200,
      (n) => rpc("ListTasks", `{"pageToken":"${"a".repeat(n)}"}`, `/a2a/${bob.handle}`),
      /-32602/
    ],
    "A2A, a file in base64": [
      200,
      (n) => task(`"parts":[{"raw":"${"QUFB".repeat(n / 4)}","filename":"f","mediaType":"text/plain"}]`),
      /"result"/
    ]
  }

  it("HELLO of a socket, unknown fields", { timeout: 60_000 }, async () => {
    const hello = (length: number): Promise<number> =>
      new Promise((resolve, reject) => {
        const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/ws`)
        let began = 0
        socket.addEventListener("open", () => {
          began = performance.now()
          socket.send(`{"type":"hello","api_key":"${alice.key}","capabilities":["ack"],"more":${keys(length)}}`)
        })
        socket.addEventListener("message", ({ data }) => {
          assert.match(String(data), /"hello.ok"/)
          resolve(performance.now() - began)
          socket.close()
        })
        socket.addEventListener(
          "close",
          ({ code, reason }) => reject(new Error(`closed with ${code} ${reason}`))
        )
      })
    const best = async (length: number): Promise<number> => {
      const times: Array<number> = []
      for (let i = 0; i < TIMES; i++) times.push(await hello(length))
      return Math.min(...times)
    }
    const small = await best(SIZES.message)
    const large = await best(4 * SIZES.message)
    table.push({
      request: "HELLO of a socket",
      "n ms": Number(small.toFixed(1)),
      "4 n ms": Number(large.toFixed(1)),
      ratio: Number((large / small).toFixed(1)),
      status: 101
    })
    assert.isTrue(large / small < RATIO || large < FLOOR_MS.open, `${small} ms and ${large} ms`)
  })

  for (
    const [kinds, size] of [
      [forms, SIZES.form],
      [heads, SIZES.head],
      [messages, SIZES.message],
      [values, SIZES.values],
      [texts, SIZES.text]
    ] as const
  ) {
    for (const [what, row] of Object.entries(kinds)) it(what, { timeout: 60_000 }, () => compare(what, size, row))
  }
})
