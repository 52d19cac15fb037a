/**
 * Bytes of the smaller request. The larger one has four times as many, and is just below a limit of the server: of a
 * form or another body without a key, of the head, of a message, of a frame, of the values in a body (20,000), of a
 * body. A field with a lower limit gets a part of them, so that it is read to its end and not refused for its length.
 */
const SIZES = { form: 4_000, head: 3_900, message: 8_000, frame: 16_000, values: 25_000, text: 240_000 }

export interface Ask {
  readonly method?: string
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Buffer
}

/** The redirect URI of the client in `World`. */
export const REDIRECT = "https://host.example/callback"

/** What the answer must be, and the request for a number of bytes. The answer shows that the parser was reached. */
export type Row = readonly [status: number, ask: (length: number) => Ask, has?: RegExp]

/**
 * A frame for a number of bytes, and what the server's first answer to it must contain. The answer may be the close of
 * the socket, as `closed with 1008`. The server sends no answer to some frames, so a ping follows each frame.
 */
export type FrameRow = readonly [has: RegExp, frame: (length: number) => string]

/** The names and secrets in the requests. */
export interface World {
  /** The key of alice, who sends the requests. */
  readonly key: string
  /** The handle of alice. */
  readonly alice: string
  /** The handle of bob, with whom alice has exchanged messages. */
  readonly bob: string
  /** A registered client of OAuth. */
  readonly clientId: string
  /** The path of a file that may be read without a key. */
  readonly file: string
  /**
   * The path of an authorization request on whose page no agent has signed in, and the headers that only this page
   * sends.
   */
  readonly signIn: { readonly path: string; readonly headers: Readonly<Record<string, string>> }
}

/** The rows, each with the bytes of its smaller request. */
export interface Rows {
  readonly requests: ReadonlyArray<readonly [size: number, rows: Readonly<Record<string, Row>>]>
  readonly frames: readonly [size: number, rows: Readonly<Record<string, FrameRow>>]
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
 * Makes the requests and frames that `Parsers.test.ts` times. Each has one part that grows with the number of bytes.
 * `world` is called for each request, so the rows can be listed before a server runs.
 */
export const makeRows = (world: () => World): Rows => {
  const form = { "content-type": "application/x-www-form-urlencoded" }
  const json = { "content-type": "application/json" }
  const keyed = () => ({ authorization: `Bearer ${world().key}`, ...json })
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
  const put = (path: string, body: string): Ask => ({ ...post(path, body), method: "PUT" })
  const patch = (path: string, body: string): Ask => ({ ...post(path, body), method: "PATCH" })
  const onPage = (path: string, body: string): Ask =>
    open(`${world().signIn.path}${path}`, body, { ...json, ...world().signIn.headers })
  const subscribe = (fields: string): Ask => rpc("events/subscribe", `{"name":"message.received",${fields}}`)
  let sent = 0
  const message = (fields: string): Ask =>
    post("/v1/messages", `{"to":"${world().bob}","client_msg_id":"c-${sent++}",${fields}}`)
  const task = (fields: string): Ask =>
    rpc(
      "SendMessage",
      `{"message":{"role":"ROLE_USER","messageId":"m-${sent++}",${fields}},"configuration":{"returnImmediately":true}}`,
      `/a2a/${world().bob}`
    )
  const client = () => `client_id=${world().clientId}&redirect_uri=${REDIRECT}`
  const challenge = `code_challenge=${"a".repeat(43)}&code_challenge_method=S256`
  const authorize = (rest: string): Ask => ({ path: `/authorize?response_type=code&${client()}&${challenge}&${rest}` })

  const forms: Readonly<Record<string, Row>> = {
    "POST /token, distinct names": [401, (n) => open("/token", fill(n, name, "&"), form)],
    "POST /token, resource repeated": [
      400,
      (n) =>
        open(
          "/token",
          `grant_type=authorization_code&${client()}&code=a&code_verifier=b&${fill(n - 600, () => "resource=a", "&")}`,
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
    "POST /oauth/requests/{id}/key, api_key": [401, (n) => onPage("/key", `{"api_key":"${"k".repeat(n)}"}`)],
    "POST /oauth/requests/{id}/code, e-mail address": [
      400,
      (n) => onPage("/code", `{"email":"${fill(n, () => "a.")}@${fill(10, () => "a.")}"}`),
      /"email"/
    ],
    "POST /oauth/requests/{id}/allow, scopes": [
      401,
      (n) => onPage("/allow", `{"scopes":${list(n, () => `"agent:read"`)}}`),
      /sign in first/
    ],
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
        path: `/v1/messages/msg_1/reactions/${fill(n / 8, () => "%F0%9F%91%8D")}`,
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
      (n) => ({ path: world().file, headers: { range: `bytes=${fill(n, () => "0-0", ",")}` } })
    ],
    "Cookie": [
      404,
      (n) => ({ path: "/oauth/requests/orq_1", headers: { cookie: fill(n, (i) => `${name(i)}=1`, "; ") } })
    ],
    "Cookie, semicolons": [
      404,
      (n) => ({ path: "/oauth/requests/orq_1", headers: { cookie: `parley_oauth=x${";".repeat(n)}a=1` } })
    ],
    "Authorization, blanks": [
      401,
      (n) => ({ path: "/v1/agents/me", headers: { authorization: `Bearer${" ".repeat(n)}x x` } })
    ],
    "Authorization of a client, blanks": [
      401,
      (n) => open("/token", "", { ...form, authorization: `Basic ${"a".repeat(n / 2)}${" ".repeat(n / 2)}!` })
    ],
    "path, slashes": [200, (n) => ({ path: "/".repeat(n / 8) })],
    "path, percent signs": [404, (n) => ({ path: `/v1/${fill(n, () => "%25")}` })],
    "path, percent signs of a whole URL": [404, (n) => ({ path: `http://?/${fill(n, () => "%25")}` })],
    "path, percent signs before a query": [
      404,
      (n) => ({ path: `/v1/${fill(2_000, () => "%25")}?${"a".repeat(n / 2)}` })
    ],
    "path, escapes": [404, (n) => ({ path: `/v1/${fill(n, () => "%2e%2f")}` })],
    "path of the console": [404, (n) => ({ path: `/console/api/${fill(n, () => "%61/")}` })],
    "If-None-Match": [
      200,
      (n) => ({
        path: `/a2a/${world().bob}/.well-known/agent-card.json`,
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
      (n) => call("agentchat_send_message", `{"to":"${world().bob}","text":"${"<".repeat(n - 100)}"}`),
      /"structuredContent":\{"ok":true/
    ],
    "POST /v1/messages, a number of many digits": [
      400,
      (n) => message(`"content":{"data":{"a":${"1".repeat(n - 100)}}}`),
      /cannot be kept exactly/
    ],
    "/mcp, secret of a subscription": [
      200,
      (n) => subscribe(`"delivery":{"url":"https://a.example/","secret":"whsec_${"=".repeat(n)}x"}`),
      /delivery\.secret/
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
      (n) =>
        patch(
          "/v1/agents/me",
          `{"skills":${list(n, (i) => `{"id":"${name(i)}","name":"n","description":"d","tags":[]}`)}}`
        )
    ],
    "PATCH /v1/agents/me, tags": [
      400,
      (n) => patch("/v1/agents/me", `{"skills":[{"id":"a","name":"n","description":"d","tags":${list(n)}}]}`)
    ],
    "POST /v1/groups/{id}/members, a list as handle": [
      400,
      (n) => post("/v1/groups/grp_1/members", `{"handle":${list(n)}}`),
      /"handle"/
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
    "/mcp, arguments of a subscription": [200, (n) => subscribe(`"arguments":${keys(n)}`), /"error"/],
    "/mcp, delivery of a subscription": [200, (n) => subscribe(`"delivery":${keys(n)}`), /delivery\.url/],
    "A2A without JSON-RPC, parts": [
      200,
      (n) => ({
        ...post(
          `/a2a/${world().bob}/message:send`,
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
    "POST /v1/agents/{handle}/rotate-key/verify, code": [
      400,
      (n) =>
        post(
          `/v1/agents/${world().alice}/rotate-key/verify`,
          `{"pending_id":"pnd_1","code":"${"1".repeat(n)}"}`
        ),
      /six digits/
    ],
    "PUT /v1/agents/{handle}/avatar, comments of a GIF": [
      400,
      (n) => ({
        method: "PUT",
        path: `/v1/agents/${world().alice}/avatar`,
        headers: keyed(),
        body: Buffer.from(`GIF89a\x80\0\x80\0\0\0\0${fill(n, () => "!\xfe\x01a\0")};`, "latin1")
      }),
      /DECODE_FAILED/
    ],
    "POST /v1/contacts, handle": [
      404,
      (n) => post("/v1/contacts", `{"handle":"${" ".repeat(n / 2)}@${"A".repeat(n / 2)}"}`),
      /AGENT_NOT_FOUND/
    ],
    "POST /v1/contacts, notes": [
      400,
      (n) => post("/v1/contacts", `{"handle":"${world().bob}","notes":"${"a".repeat(n)}"}`),
      /"notes"/
    ],
    "PATCH /v1/contacts/{handle}, notes": [
      400,
      (n) => patch(`/v1/contacts/${world().bob}`, `{"notes":"${"a".repeat(n)}"}`),
      /"notes"/
    ],
    "POST /v1/contacts/{handle}/report, reason": [
      400,
      (n) => post(`/v1/contacts/${world().bob}/report`, `{"reason":"${"a".repeat(n)}"}`)
    ],
    "POST /v1/messages/sync/ack, last_delivery_id": [
      200,
      (n) => post("/v1/messages/sync/ack", `{"last_delivery_id":"del_${"0".repeat(n)}"}`),
      /"acked":0/
    ],
    "POST /v1/messages/{id}/read, reason": [
      400,
      (n) => post("/v1/messages/msg_1/read", `{"outcome":"refused","reason":"${"a".repeat(n)}"}`)
    ],
    "POST /v1/mutes, muted_until": [
      400,
      (n) =>
        post(
          "/v1/mutes",
          `{"target_kind":"conversation","target_id":"cnv_1","muted_until":"2999-01-01T00:00:00.${"0".repeat(n)}"}`
        ),
      /"muted_until"/
    ],
    "PATCH /v1/groups/{id}, avatar_url": [
      400,
      (n) => patch("/v1/groups/grp_1", `{"avatar_url":"https://${fill(n, () => "a.")}example/"}`),
      /"avatar_url"/
    ],
    "PUT /v1/presence, custom_message": [
      400,
      (n) => put("/v1/presence", `{"status":"online","custom_message":"${"a".repeat(n)}"}`),
      /"custom_message"/
    ],
    "POST /v1/uploads, content_type": [
      400,
      (n) =>
        post(
          "/v1/uploads",
          `{"filename":"a","content_type":"text/plain${fill(n, (i) => `; ${name(i)}=1`)};","size":1,"sha256":"${
            "0".repeat(64)
          }"}`
        ),
      /"content_type"/
    ],
    "PUT /v1/agents/me/wake-webhook, url": [
      400,
      (n) => put("/v1/agents/me/wake-webhook", `{"url":"https://${fill(n, () => "a.")}example/","secret":"s"}`),
      /"url"/
    ],
    "PUT /v1/reply/active, session_id": [
      400,
      (n) => put("/v1/reply/active", `{"session_id":"${"a".repeat(n)}"}`)
    ],
    "DELETE /v1/reply/active, session_id": [
      400,
      (n) => ({ ...post("/v1/reply/active", `{"session_id":"${"a".repeat(n)}"}`), method: "DELETE" })
    ],
    "POST /v1/reply/claim, holder": [
      400,
      (n) => post("/v1/reply/claim", `{"message_id":"msg_1","holder":"${"a".repeat(n)}"}`),
      /"holder"/
    ],
    "/mcp, URL of a subscription that ends": [
      200,
      (n) =>
        rpc(
          "events/unsubscribe",
          `{"name":"message.received","delivery":{"url":"https://${fill(n, () => "a.")}example/"}}`
        ),
      /"result"/
    ],
    "/mcp, cursor": [200, (n) => rpc("tools/list", `{"cursor":"${"a".repeat(n)}"}`), /-32602/],
    "/mcp, a file in base64": [
      200,
      (n) =>
        call(
          "agentchat_send_file",
          `{"to":"${world().bob}","filename":"f","content_type":"text/plain","data":"${"QUFB".repeat(n / 4)}"}`
        ),
      /attachment_id/
    ],
    "/mcp, a URI": [
      200,
      (n) => rpc("resources/read", `{"uri":"parley://agents/${"%41".repeat(n / 360)}"}`),
      /-32602|-32002/
    ],
    "/mcp, an id": [
      400,
      (n) => post("/mcp", `{"jsonrpc":"2.0","id":"${"a".repeat(n)}","method":"ping"}`),
      /-32600/
    ],
    "/mcp, a handle of percent signs": [
      200,
      (n) => call("agentchat_get_agent_profile", `{"handle":"${"%".repeat(n)}"}`),
      /NOT_FOUND/
    ],
    "/mcp, a conversation's id of percent signs": [
      200,
      (n) => call("agentchat_get_conversation", `{"conversation_id":"${"%".repeat(n)}"}`),
      /NOT_FOUND/
    ],
    "/mcp, no JSON": [400, (n) => post("/mcp", "[".repeat(n))],
    "A2A, page token": [
      200,
      (n) => rpc("ListTasks", `{"pageToken":"${"a".repeat(n)}"}`, `/a2a/${world().bob}`),
      /-32602/
    ],
    "A2A, a file in base64": [
      200,
      (n) => task(`"parts":[{"raw":"${"QUFB".repeat(n / 4)}","filename":"f","mediaType":"text/plain"}]`),
      /"result"/
    ]
  }

  const hello = (fields: string): string => `{"type":"hello",${fields}}`
  const frames: Readonly<Record<string, FrameRow>> = {
    "HELLO of a socket, unknown fields": [
      /"hello\.ok"/,
      (n) => hello(`"api_key":"${world().key}","capabilities":["ack"],"more":${keys(n)}`)
    ],
    "HELLO of a socket, capabilities": [
      /"hello\.ok"/,
      (n) => hello(`"api_key":"${world().key}","capabilities":${list(n)}`)
    ],
    "HELLO of a socket, api_key": [/closed with 1008/, (n) => hello(`"api_key":"${"k".repeat(n)}"`)],
    "frame ack, message_id": [/"pong"/, (n) => `{"type":"ack","message_id":"${"a".repeat(n)}"}`],
    "frame ack, unknown fields": [/"pong"/, (n) => `{"type":"ack","message_id":"msg_1","more":${keys(n)}}`],
    "frame message.read_ack, unknown fields": [
      /VALIDATION_ERROR/,
      (n) => `{"type":"message.read_ack","payload":${keys(n)}}`
    ],
    "frame message.read_ack, a list as conversation_id": [
      /VALIDATION_ERROR/,
      (n) => `{"type":"message.read_ack","payload":{"conversation_id":${list(n)},"through_seq":1}}`
    ],
    "frame typing.start, unknown fields": [/VALIDATION_ERROR/, (n) => `{"type":"typing.start","payload":${keys(n)}}`],
    "frame typing.stop, a list as conversation_id": [
      /VALIDATION_ERROR/,
      (n) => `{"type":"typing.stop","payload":{"conversation_id":${list(n)}}}`
    ],
    "frame presence.update, unknown fields": [
      /VALIDATION_ERROR/,
      (n) => `{"type":"presence.update","payload":${keys(n)}}`
    ],
    "frame presence.update, custom_message": [
      /VALIDATION_ERROR/,
      (n) => `{"type":"presence.update","payload":{"status":"online","custom_message":"${"a".repeat(n)}"}}`
    ],
    "frame ping, unknown fields": [/"pong"/, (n) => `{"type":"ping","more":${keys(n)}}`],
    "frame ping, a number of many digits": [
      /cannot be kept exactly/,
      (n) => `{"type":"ping","more":${"1".repeat(n)}}`
    ],
    "a frame that the server does not know, id": [
      /UNSUPPORTED_ACTION/,
      (n) => `{"type":"unknown","id":${keys(n)}}`
    ],
    "a frame that is no JSON": [/VALIDATION_ERROR/, (n) => "[".repeat(n)]
  }

  return {
    requests: [
      [SIZES.form, forms],
      [SIZES.head, heads],
      [SIZES.message, messages],
      [SIZES.values, values],
      [SIZES.text, texts]
    ],
    frames: [SIZES.frame, frames]
  }
}
