import { consoleDocument } from "#interfaces/console/ConsoleApi"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { fetchAs } from "../a2a/A2a.ts"
import { type Json, older, post, rpc } from "../mcp/Mcp.ts"
import { get, Host, pkce, register, SignInPage } from "../signin/Flow.ts"
import type { Answer } from "../support/Http.ts"
import { Operating } from "../support/Operating.ts"
import { freshHandle, newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { type JsonSchema, type OpenApiDocument, operationsOf } from "./Document.ts"
import { freshMsgId, newPair, say } from "./Talk.ts"

/** Texts that no entrance may store. JSON has the second one as an escape. */
const UNSTORABLE = ["a\0b", "a\ud800b"]
/** Texts that no name may have. */
const UNNAMED = ["a\u0007b", "a\nb", "a\u202eb", "a\u2066b", "\u0301", "\u3164"]

/** The status and the code of a refusal. */
type Refused = readonly [status: number, code: string | number]

const invalid: Refused = [400, "VALIDATION_ERROR"]

/** A request whose body holds a text of the caller in one field, and whether this field is a name. */
type Field = readonly [method: "post" | "put" | "patch" | "delete", path: string, body: object, isName?: true]

/** The texts in JSON bodies that the server only compares. All others are in `fields`. */
const COMPARED: Readonly<Record<string, string>> = {
  "POST /v1/messages/sync/ack .last_delivery_id": "with the cursors of the agent; any other text acknowledges nothing",
  "POST /console/api/session .token": "by its hash, with the hashes of links",
  "POST /console/api/agents/{handle}/erase .confirm": "with the handle"
}

/** The places of texts in the values of a schema, as `.skills[].tags[]`. Texts of a fixed set do not count. */
const textsIn = (document: OpenApiDocument, schema: JsonSchema, at = ""): ReadonlyArray<string> => {
  const { $ref, anyOf = [], enum: fixed, items, properties = {}, type } = schema
  if ($ref !== undefined)
    return textsIn(document, document.components.schemas[$ref.replace("#/components/schemas/", "")]!, at)
  return [
    ...type === "string" && fixed === undefined ? [at] : [],
    ...anyOf.flatMap((one) => textsIn(document, one, at)),
    ...items === undefined ? [] : textsIn(document, items, `${at}[]`),
    ...Object.entries(properties).flatMap(([name, one]) => textsIn(document, one, `${at}.${name}`))
  ]
}

/** The places of strings in a value that contain this text. */
const placesOf = (text: string, value: unknown, at = ""): ReadonlyArray<string> => {
  if (typeof value === "string") return value.includes(text) ? [at] : []
  if (Array.isArray(value)) return value.flatMap((one) => placesOf(text, one, `${at}[]`))
  if (typeof value !== "object" || value === null) return []
  return Object.entries(value).flatMap(([name, one]) => placesOf(text, one, `${at}.${name}`))
}

describe("wire.md J, texts from outside", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  let group: string
  let conversation: string
  let operator: Operating

  beforeAll(async () => {
    server = await sharedServer()
    ;({ alice, bob, conversation } = await newPair(server))
    operator = await Operating.program(server)
    group = ((await alice.http.post("/v1/groups", { name: "Texts" })).body as Json).group.id
  })
  afterAll(() => server.stop())

  const refusedBy = ({ body, status }: Answer): Refused => [status, (body as Json).code]

  /** Every field of a JSON body of `/v1` and of the operators' API that holds a text of the caller. */
  const fields = (text: string): ReadonlyArray<Field> => {
    const fresh = { email: `${freshHandle("t")}@example.com`, handle: freshHandle("text") }
    const message = { to: bob.handle, client_msg_id: freshMsgId(), content: { text: "a" } }
    const upload = { to: bob.handle, filename: "a.txt", content_type: "text/plain", size: 1, sha256: "0".repeat(64) }
    const hook = { url: "http://127.0.0.1:9/", events: ["message.new"] }
    const skill = { id: "texts", name: "a", description: "a", tags: ["a"] }
    const me = `/v1/agents/${alice.handle}`
    return [
      ["post", "/v1/register", { ...fresh, email: `${text}@example.com` }],
      ["post", "/v1/register", { ...fresh, handle: text }],
      ["post", "/v1/register", { ...fresh, display_name: text }, true],
      ["post", "/v1/register", { ...fresh, description: text }],
      ["post", "/v1/register", { ...fresh, invite_code: text }],
      ["post", "/v1/register/verify", { pending_id: text, code: "123456" }],
      ["post", "/v1/register/verify", { pending_id: "pnd_1", code: text }],
      ["post", "/v1/agents/recover", { email: text }],
      ["post", "/v1/agents/recover/verify", { pending_id: text, code: "123456" }],
      ["post", "/v1/agents/recover/verify", { pending_id: "pnd_1", code: text }],
      ["post", `${me}/rotate-key/verify`, { pending_id: text, code: "123456" }],
      ["post", `${me}/rotate-key/verify`, { pending_id: "pnd_1", code: text }],
      ["patch", me, { display_name: text }, true],
      ["patch", me, { description: text }],
      ["patch", me, { skills: [{ ...skill, id: text }] }],
      ["patch", me, { skills: [{ ...skill, name: text }] }, true],
      ["patch", me, { skills: [{ ...skill, description: text }] }],
      ["patch", me, { skills: [{ ...skill, tags: [text] }] }, true],
      ["patch", me, { skills: [{ ...skill, examples: [text] }] }],
      ["put", "/v1/agents/me/wake-webhook", { url: `http://127.0.0.1:9/${text}`, secret: "s" }],
      ["put", "/v1/agents/me/wake-webhook", { url: "http://127.0.0.1:9/", secret: text }],
      ["post", "/v1/contacts", { handle: text }],
      ["post", "/v1/contacts", { handle: bob.handle, notes: text }],
      ["patch", `/v1/contacts/${bob.handle}`, { notes: text }],
      ["post", `/v1/contacts/${bob.handle}/report`, { reason: text }],
      ["post", "/v1/messages", { ...message, to: text }],
      ["post", "/v1/messages", { ...message, to: undefined, conversation_id: text }],
      ["post", "/v1/messages", { ...message, client_msg_id: text }],
      ["post", "/v1/messages", { ...message, content: { text } }],
      ["post", "/v1/messages", { ...message, content: { data: { deep: [{ text }] } } }],
      ["post", "/v1/messages", { ...message, content: { data: { [text]: 1 } } }],
      ["post", "/v1/messages", { ...message, content: { attachment_id: text } }],
      ["post", "/v1/messages", { ...message, metadata: { [text]: [text] } }],
      ["post", "/v1/messages/msg_1/read", { outcome: "refused", reason: text }],
      ["post", "/v1/groups", { name: text }, true],
      ["post", "/v1/groups", { name: "a", description: text }],
      ["post", "/v1/groups", { name: "a", avatar_url: `https://example.com/${text}` }],
      ["post", "/v1/groups", { name: "a", member_handles: [text] }],
      ["patch", `/v1/groups/${group}`, { name: text }, true],
      ["patch", `/v1/groups/${group}`, { description: text }],
      ["patch", `/v1/groups/${group}`, { avatar_url: `https://example.com/${text}` }],
      ["post", `/v1/groups/${group}/members`, { handle: text }],
      ["put", "/v1/presence", { status: "online", custom_message: text }],
      ["put", "/v1/presence", { status: "online", custom_status: text }],
      ["post", "/v1/presence/batch", { handles: [text] }],
      ["post", "/v1/mutes", { target_kind: "agent", target_handle: text }],
      ["post", "/v1/mutes", { target_kind: "conversation", target_id: text }],
      ["post", "/v1/mutes", { target_kind: "agent", target_handle: bob.handle, muted_until: text }],
      ["post", "/v1/uploads", { ...upload, to: text }],
      ["post", "/v1/uploads", { ...upload, to: undefined, conversation_id: text }],
      ["post", "/v1/uploads", { ...upload, filename: text }],
      ["post", "/v1/uploads", { ...upload, content_type: text }],
      ["post", "/v1/uploads", { ...upload, sha256: text }],
      ["post", "/v1/webhooks", { ...hook, url: `http://127.0.0.1:9/${text}` }],
      ["post", "/v1/webhooks", { ...hook, events: [text] }],
      ["post", "/v1/webhooks", { ...hook, secret: text.padEnd(20, "x") }],
      ["put", "/v1/reply/active", { session_id: text }],
      ["delete", "/v1/reply/active", { session_id: text }],
      ["post", "/v1/reply/claim", { message_id: text, holder: "h" }],
      ["post", "/v1/reply/claim", { message_id: "msg_1", holder: text }],
      ["post", "/v1/reply/claim-batch", { message_ids: [text], holder: "h" }],
      ["post", "/v1/reply/claim-batch", { message_ids: ["msg_1"], holder: text }],
      ...["refuse", "allow"].flatMap((change) =>
        [
          ["post", `/console/api/connections/${change}`, { kind: "client", value: text }],
          ["post", `/console/api/connections/${change}`, { kind: "client", value: "x", reason: text }, true]
        ] as const
      ),
      ...[
        "connections/end",
        ...["disconnect", "connections/end", "suspend", "restore", "rekey"].map((change) =>
          `agents/${bob.handle}/${change}`
        ),
        `groups/${group}/members/${bob.handle}/promote`,
        `groups/${group}/members/${bob.handle}/remove`,
        `groups/${group}/delete`,
        "messages/msg_1/remove",
        "files/att_1/quarantine",
        "files/att_1/release"
      ].map((path) => ["post", `/console/api/${path}`, { reason: text }, true] as const),
      ["post", `/console/api/agents/${bob.handle}/erase`, { confirm: "nobody", reason: text }, true],
      ["post", `/console/api/agents/${bob.handle}/email`, { email: `${text}@example.com` }],
      ["post", `/console/api/agents/${bob.handle}/email`, { email: fresh.email, reason: text }, true],
      ["post", `/console/api/agents/${bob.handle}/tell`, { text }],
      ["post", "/console/api/announcements", { text }],
      ["post", "/console/api/agents", { handles: [text] }],
      ["post", "/console/api/agents", { handles: [fresh.handle], email: text }],
      ["post", "/console/api/agents", { handles: [fresh.handle], display_name: text }],
      ["post", "/console/api/invitations", { email: `${text}@example.com` }],
      ["post", "/console/api/invitations", { note: text }, true],
      ["post", "/console/api/reports/rpt_1/uphold", { note: text }, true],
      ["post", "/console/api/reports/rpt_1/dismiss", { note: text }, true],
      ["post", "/console/api/webhooks/retry", { webhook: text }],
      ["post", "/console/api/webhooks/retry", { agent: text }],
      ["put", "/console/api/limits/LIMITS_SENDS_PER_SECOND", { value: 60, agent: text }],
      ["put", "/console/api/limits/LIMITS_SENDS_PER_SECOND", { value: 60, until: text }],
      ["put", "/console/api/limits/LIMITS_SENDS_PER_SECOND", { value: 60, reason: text }, true]
    ]
  }

  const ask = ([method, path, body]: Field): Promise<Answer> =>
    path.startsWith("/console/api")
      ? operator.ask(method.toUpperCase(), path.slice("/console/api".length), body)
      : alice.http.request(method.toUpperCase(), path, { json: body })

  it("219. every text in a JSON body is refused if it cannot be stored, and every name that acts on the text around it", async () => {
    for (const text of UNSTORABLE) {
      for (const one of fields(text)) assert.deepStrictEqual(refusedBy(await ask(one)), invalid, JSON.stringify(one))
    }
    for (const text of UNNAMED) {
      for (const one of fields(text))
        if (one[3] === true) assert.deepStrictEqual(refusedBy(await ask(one)), invalid, JSON.stringify(one))
    }
    // A cursor that the server did not issue acknowledges nothing, whatever it is.
    for (const text of UNSTORABLE) {
      const answer = await alice.http.post("/v1/messages/sync/ack", { last_delivery_id: text })
      assert.deepStrictEqual([answer.status, (answer.body as Json).acked], [200, 0])
    }
  })

  it("219. no other text is in a JSON body of the API or of the operators' API, except for texts that are only compared", () => {
    const documents = [readFileSync(new URL("./openapi.json", import.meta.url), "utf8"), consoleDocument()]
      .map((text) => JSON.parse(text) as OpenApiDocument)
    const taken = documents.flatMap((document) =>
      operationsOf(document).flatMap(({ body, name }) =>
        body === undefined ? [] : textsIn(document, body).map((at) => `${name} ${at}`)
      )
    )
    const names = documents.flatMap(operationsOf).map(({ name }) => name)
    const nameOf = (method: string, path: string): string | undefined => {
      const asked = `${method.toUpperCase()} ${path}`
      return names.find((name) => name === asked) ??
        names.find((name) => new RegExp(`^${name.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(asked))
    }
    const tried = new Set(
      fields("marked").flatMap(([method, path, body]) =>
        placesOf("marked", body).map((at) => `${nameOf(method, path)} ${at}`)
      )
    )
    assert.isAbove(taken.length, 85)
    assert.deepStrictEqual(
      taken.filter((text) => !tried.has(text) && !(text in COMPARED)),
      [],
      "texts that `fields` lacks"
    )
    assert.deepStrictEqual(Object.keys(COMPARED).filter((text) => !taken.includes(text) || tried.has(text)), [])
  })

  it("219. an address with NUL is refused, on every path; other bytes that are no text are read as U+FFFD or refused", async () => {
    const paths = [
      "/v1/agents/a%00b",
      "/v1/messages/search?q=a%00b",
      "/v1/conversations?cursor=a%00b",
      "/v1/directory?tag=a%00b",
      `/authorize?client_id=x&state=a%00b`,
      `/a2a/${bob.handle}/tasks/a%00b`,
      "/mcp?tools=a%00b"
    ]
    for (const path of paths)
      assert.strictEqual((await alice.http.get(path).catch(() => ({ status: 400 }))).status, 400, path)
    for (
      const path of [
        "/v1/directory?tag=%ED%A0%80",
        "/v1/conversations/%ED%A0%80/context",
        "/v1/messages/search?q=%ff%fe"
      ]
    ) {
      assert.isBelow((await alice.http.get(path)).status, 500, path)
    }
  })

  it("219. the socket refuses them frame by frame", async () => {
    const socket = await Socket.byHeader(server, alice.key)
    for (const text of UNSTORABLE) {
      for (
        const [type, payload] of [
          ["typing.start", { conversation_id: text }],
          ["message.read_ack", { conversation_id: text, through_seq: 1 }],
          ["message.read_ack", { conversation_id: conversation, message_id: text }],
          ["presence.update", { status: "online", custom_message: text }]
        ] as const
      ) {
        const id = freshMsgId()
        socket.send({ type, payload, id })
        const { payload: error } = await socket.waitFor((frame) => frame.type === "error" && (frame as Json).id === id)
        assert.strictEqual(error?.["code"], "VALIDATION_ERROR", `${type} ${JSON.stringify(payload)}`)
      }
      socket.ack(text)
    }
    await socket.settled()
    await socket.close()
  })

  it("219. MCP refuses them in the arguments of every kind of call, and in events", async () => {
    const codeOf = async (method: string, params: object): Promise<readonly [number, string]> => {
      const { status, text } = await post(server, alice.key, rpc(method, params), older)
      return [status, /VALIDATION_ERROR|-3260\d|-320\d\d|NOT_FOUND/.exec(text)?.[0] ?? text]
    }
    const delivery = { url: "http://127.0.0.1:9/", secret: `whsec_${randomBytes(32).toString("base64")}` }
    for (const text of UNSTORABLE) {
      for (
        const [name, args] of [
          ["agentchat_send_message", { to: bob.handle, message: text }],
          ["agentchat_send_message", { to: bob.handle, message: "a", metadata: { [text]: 1 } }],
          ["agentchat_update_profile", { display_name: text }],
          ["agentchat_create_group", { name: text, members: [] }],
          ["agentchat_set_presence", { status: "online", custom_message: text }],
          ["agentchat_get_conversation", { conversation_id: text }],
          ["agentchat_set_webhook", { url: `http://127.0.0.1:9/${text}`, secret: "s" }]
        ] as const
      ) assert.deepStrictEqual(await codeOf("tools/call", { name, arguments: args }), [200, "VALIDATION_ERROR"], name)
      const name = "message.received"
      for (
        const [method, params] of [
          ["events/poll", { name, arguments: { conversation_id: text } }],
          ["events/poll", { name, arguments: { from: text } }],
          ["events/poll", { name, cursor: text }],
          ["events/subscribe", { name, delivery: { ...delivery, url: delivery.url + text } }],
          ["events/subscribe", { name, delivery: { ...delivery, secret: text } }],
          ["events/unsubscribe", { name, delivery: { url: delivery.url + text } }]
        ] as const
      ) assert.deepStrictEqual(await codeOf(method, params), [200, "-32602"], `${method} ${JSON.stringify(params)}`)
      const read = await post(
        server,
        alice.key,
        rpc("resources/read", { uri: `parley://conversations/${encodeURIComponent(text.toWellFormed())}` }),
        older
      )
      assert.isBelow(read.status, 500)
    }
  })

  it("219. A2A refuses them in messages, ids, filters and push configurations", async () => {
    const { id: task } = (await call("SendMessage", {
      message: { messageId: freshMsgId(), role: "ROLE_USER", parts: [{ text: "a" }] },
      configuration: { returnImmediately: true }
    }))
      .result.task
    const sent = (fields: object) => ({
      message: { messageId: freshMsgId(), role: "ROLE_USER", parts: [{ text: "a" }], ...fields }
    })
    for (const text of UNSTORABLE) {
      for (
        const [method, params] of [
          ["SendMessage", sent({ parts: [{ text }] })],
          ["SendMessage", sent({ parts: [{ data: { [text]: 1 } }] })],
          ["SendMessage", sent({ messageId: text })],
          ["SendMessage", sent({ contextId: text })],
          ["SendMessage", sent({ metadata: { a: text } })],
          ["SendMessage", { ...sent({}), metadata: { [text]: 1 } }],
          ["GetTask", { id: text }],
          ["ListTasks", { contextId: text }],
          ["ListTasks", { pageToken: text }],
          ["CreateTaskPushNotificationConfig", { taskId: task, url: `http://127.0.0.1:9/${text}` }],
          ["CreateTaskPushNotificationConfig", { taskId: task, url: "http://127.0.0.1:9/", token: text }],
          ["GetTaskPushNotificationConfig", { taskId: task, id: text }],
          ["DeleteTaskPushNotificationConfig", { taskId: task, id: text }]
        ] as const
      ) assert.strictEqual((await call(method, params)).error?.code, -32_602, `${method} ${JSON.stringify(params)}`)
    }
  })

  /** A call of A2A by alice to bob. */
  const call = async (method: string, params: object): Promise<Json> => {
    const response = await fetchAs(alice.key)(`${server.url}/a2a/${bob.handle}`, {
      method: "POST",
      headers: { "A2A-Version": "1.0" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 7, method, params })
    })
    assert.isBelow(response.status, 500, method)
    return await response.json() as Json
  }

  it("219. a registration of a client and its request for authorization refuse them, and a long name is cut", async () => {
    const redirect_uris = ["https://host.example/cb"]
    for (const text of [...UNSTORABLE, ...UNNAMED]) {
      const { body, status } = await register(server, { redirect_uris, client_name: text })
      assert.deepStrictEqual([status, body.error], [400, "invalid_client_metadata"], JSON.stringify(text))
    }
    for (
      const text of [
        "https:evil.test/cb",
        "https:///evil.test/cb",
        "https://evil.test\\@host.example/cb",
        "https://e\tvil.test/cb"
      ]
    ) {
      const { body, status } = await register(server, { redirect_uris: [text] })
      assert.deepStrictEqual([status, body.error], [400, "invalid_redirect_uri"], text)
    }
    const { body, status } = await register(server, {
      redirect_uris,
      client_name: "\u{1f98a}".repeat(61),
      token_endpoint_auth_method: null
    })
    assert.deepStrictEqual([status, body.client_name, body.token_endpoint_auth_method], [
      201,
      "\u{1f98a}".repeat(60),
      "none"
    ])
    const query = new URLSearchParams({
      response_type: "code",
      client_id: body.client_id,
      redirect_uri: redirect_uris[0]!,
      code_challenge: pkce().challenge,
      code_challenge_method: "S256"
    })
    // Percent-encoded bytes that are no text become U+FFFD, and an address that is no URL has a query all the same.
    const begun = await get(`${server.url}/authorize?${query}&state=%ED%A0%80`)
    assert.strictEqual(begun.status, 303, begun.text)
    const shown = await SignInPage.after(server, begun.headers).show()
    assert.strictEqual(shown.body.client.name, "\u{1f98a}".repeat(60))
    const host = await Host.register(server)
    const page = await host.begin(pkce())
    for (const text of UNSTORABLE) {
      for (
        const [path, fields] of [
          ["/code", { email: text }],
          ["/code/verify", { pending_id: text, code: "123456" }],
          ["/register", { email: "a@example.com", handle: freshHandle("a"), display_name: text }]
        ] as const
      ) {
        const answer = await page.post(path, fields)
        assert.deepStrictEqual([answer.status, answer.body.code], invalid, path)
      }
    }
  })

  it("219. nothing of all this was stored", async () => {
    const { id } = await say(alice, bob)
    assert.isString(id)
    const { agents } = (await alice.http.get(`/v1/directory?q=${alice.handle}`)).body as Json
    assert.strictEqual(agents[0].display_name, alice.handle)
    assert.strictEqual(((await alice.http.get("/v1/webhooks")).body as Json).total, 0)
    assert.strictEqual(((await alice.http.get(`/v1/groups/${group}`)).body as Json).name, "Texts")
    assert.isString((await newAgent(server, "after")).key)
  })
})
