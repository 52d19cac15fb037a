import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { gzipSync } from "node:zlib"
import { eventually } from "../support/Eventually.ts"
import { type Answer, bare } from "../support/Http.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, freshMsgId, newPair, type Pair, say, words } from "./Talk.ts"

describe("wire.md J, Common", () => {
  let server: Server
  let pair: Pair
  let outsider: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    pair = await newPair(server)
    outsider = await newAgent(server, "carol")
  })
  afterAll(() => server.stop())

  it("1. every kind of answer has an x-request-id, and a new one each time", async () => {
    const http = server.http()
    const { alice } = pair
    const expected: ReadonlyArray<readonly [Answer, ReadonlyArray<number>]> = [
      [await http.get("/"), [200]],
      [await http.get("/docs"), [200]],
      [await http.get("/v1/health"), [200]],
      [await http.get("/v1/openapi.json"), [200]],
      [await alice.http.get("/v1/agents/me"), [200]],
      [await http.get("/v1/agents/me"), [401]],
      [await http.get("/no/such/route"), [404]],
      [await alice.http.get("/v1/agents/nobody-here"), [404]],
      [await http.delete("/v1/register"), [405]],
      [await http.get("/v1/ws"), [426]],
      [await http.request("OPTIONS", "/v1/messages"), [200, 204]],
      [await http.post("/v1/register", {}), [400]],
      [await Socket.refusal(server, { authorization: "Bearer ac_nonsense" }), [401]]
    ]
    // That the header is there at all is asserted for each answer when it is made.
    for (const [answer, statuses] of expected) assert.include(statuses, answer.status, `${answer}`)
    const answers = expected.map(([answer]) => answer)
    const ids = answers.map((answer) => answer.header("x-request-id"))
    assert.strictEqual(new Set(ids).size, ids.length, `not all different: ${ids.join(" ")}`)
    for (const id of ids) assert.isAtMost(id?.length ?? 0, 40, "a short random id")
  })

  it("2. a client's request id comes back on answers, refusals and refused upgrades", async () => {
    for (const id of ["a", "my-request.42", `!"#$%&'()*+,-./:;<=>?@[]^_{|}~`, "x".repeat(128)]) {
      for (const path of ["/v1/health", "/v1/agents/me", "/no/such/route"]) {
        assert.strictEqual((await bare(server.url, "GET", path, { "x-request-id": id })).header("x-request-id"), id)
      }
      const refused = await Socket.refusal(server, { authorization: "Bearer ac_nonsense", "x-request-id": id })
      assert.strictEqual(refused.header("x-request-id"), id)
    }
  })

  it("2. a request id with a space, too long, empty or not ASCII is replaced", async () => {
    for (const id of ["with space", "x".repeat(129), "", "caf\u00e9", "tab\there"]) {
      const answer = await bare(server.url, "GET", "/v1/health", { "x-request-id": id })
      assert.notStrictEqual(answer.header("x-request-id"), id)
    }
  })

  it("2. the log shows a client's request id", async () => {
    await bare(server.url, "GET", "/v1/agents/me", { "x-request-id": "find-me-in-the-log" })
    await eventually("the request id in the log", () => server.log.includes("find-me-in-the-log") || undefined)
  })

  it("3. every refusal is exactly {code, message, details?} with its documented code", async () => {
    const { alice, conversation, first, reply } = pair
    const big = `{"email":"${"x".repeat(1_048_576)}"}`
    const table: ReadonlyArray<readonly [() => Promise<Answer>, number, string]> = [
      [() => server.http().get("/v1/conversations"), 401, "UNAUTHORIZED"],
      [() => server.http().get("/no/such/route"), 404, "NOT_FOUND"],
      [() => alice.http.get("/v1/no/such/route"), 404, "NOT_FOUND"],
      [() => server.http().request("PUT", "/v1/register"), 405, "METHOD_NOT_ALLOWED"],
      [() => alice.http.request("PUT", "/v1/messages"), 405, "METHOD_NOT_ALLOWED"],
      [() => server.http().get("/v1/ws"), 426, "UPGRADE_REQUIRED"],
      [() => server.http().post("/v1/register", {}), 400, "VALIDATION_ERROR"],
      [
        () => server.http().post("/v1/register/verify", { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" }),
        400,
        "EXPIRED"
      ],
      [() => server.http().post("/v1/register", { email: "a@example.com", handle: "a" }), 400, "INVALID_HANDLE"],
      [() => server.http().post("/v1/register", { email: "a@example.com", handle: alice.handle }), 409, "HANDLE_TAKEN"],
      [() => bare(server.url, "POST", "/v1/register", {}, big), 413, "PAYLOAD_TOO_LARGE"],
      [() => alice.http.get("/v1/agents/nobody-here"), 404, "AGENT_NOT_FOUND"],
      [() => alice.http.patch(`/v1/agents/${pair.bob.handle}`, {}), 403, "FORBIDDEN"],
      [() => alice.http.get("/v1/messages/conv_AAAAAAAAAAAAAAAA"), 404, "CONVERSATION_NOT_FOUND"],
      [() => alice.http.post("/v1/messages/msg_AAAAAAAAAAAAAAAA/read"), 404, "MESSAGE_NOT_FOUND"],
      [() => alice.http.post(`/v1/messages/${first.id}/read`), 403, "FORBIDDEN"],
      [() => outsider.http.post(`/v1/messages/${reply.id}/read`), 404, "MESSAGE_NOT_FOUND"],
      [() => alice.http.get(`/v1/messages/${conversation}?limit=0`), 400, "VALIDATION_ERROR"],
      [() => alice.http.get("/v1/conversations?cursor=%21"), 400, "VALIDATION_ERROR"],
      [() => attempt(alice, alice), 400, "VALIDATION_ERROR"],
      [() => attempt(alice, "nobody-here"), 404, "AGENT_NOT_FOUND"],
      [() => attempt(alice, pair.bob, { content: { text: "x".repeat(40_000) } }), 413, "CONTENT_TOO_LARGE"]
    ]
    for (const [ask, status, code] of table) (await ask()).refused(status, code)
  })

  it("3. a validation error names the fields", async () => {
    const refusal =
      (await pair.alice.http.post("/v1/messages", { to: "bob", content: { text: "x" }, client_msg_id: 7 }))
        .refused(400, "VALIDATION_ERROR")
    const fields = (refusal.details as { readonly fields: Record<string, ReadonlyArray<string>> }).fields
    assert.deepStrictEqual(Object.keys(fields), ["client_msg_id"])
    assert.isNotEmpty(fields["client_msg_id"])
  })

  it("4. no key, garbage, an unknown, a rotated and a deleted account's key get the very same 401", async () => {
    const rotated = await newAgent(server, "rotated")
    const begun = (await rotated.http.post(`/v1/agents/${rotated.handle}/rotate-key`)).ok(200, Shapes.Pending)
    const fresh = (await rotated.http.post(`/v1/agents/${rotated.handle}/rotate-key/verify`, {
      pending_id: begun.pending_id,
      code: await server.code(rotated.email)
    })).ok(200, Shapes.NewKey)
    const deleted = await newAgent(server, "deleted")
    ;(await deleted.http.delete(`/v1/agents/${deleted.handle}`)).ok(200, Shapes.Confirmation)
    const { key } = pair.alice

    const reference = await server.http().get("/v1/agents/me")
    reference.refused(401, "UNAUTHORIZED")
    const headers: ReadonlyArray<Record<string, string>> = [
      {},
      { authorization: "" },
      { authorization: "Bearer" },
      { authorization: "Bearer garbage" },
      { authorization: "Bearer \u00e9\u00e8" },
      { authorization: `Bearer ac_${"A".repeat(43)}` },
      { authorization: `Bearer ${key}x` },
      { authorization: `Bearer ${key.slice(0, -1)}` },
      { authorization: key },
      { authorization: `Basic ${Buffer.from(`x:${key}`).toString("base64")}` },
      { authorization: `Bearer ${rotated.key}` },
      { authorization: `Bearer ${deleted.key}` }
    ]
    for (const path of ["/v1/agents/me", "/v1/conversations", "/v1/messages/sync"]) {
      for (const header of headers) {
        const answer = await bare(server.url, "GET", path, header)
        assert.strictEqual(answer.status, 401, `${path} ${JSON.stringify(header)} ${answer}`)
        assert.strictEqual(answer.text, reference.text, JSON.stringify(header))
        assert.strictEqual(answer.header("www-authenticate"), "Bearer")
      }
    }
    assert.strictEqual((await server.http(fresh.api_key).get("/v1/agents/me")).status, 200)
  })

  it("221. a compressed body is 415 on every route, which says so; identity is no compression", async () => {
    const { alice, bob } = pair
    const message = () => JSON.stringify({ to: bob.handle, client_msg_id: freshMsgId(), content: { text: "unpacked" } })
    const key = { authorization: `Bearer ${alice.key}` }
    for (const encoding of ["gzip", "GZIP", "br", "identity, gzip", "gzip, identity", "nonsense"]) {
      const headers = { ...key, "content-encoding": encoding }
      for (
        const [method, path] of [
          ["POST", "/v1/messages"],
          ["POST", "/v1/register"],
          ["POST", "/v1/messages/sync/ack"],
          ["PUT", `/v1/agents/${alice.handle}/avatar`],
          ["PUT", "/v1/files/x.y"],
          ["POST", "/no/such/route"]
        ] as const
      ) {
        const answer = await bare(server.url, method, path, headers, gzipSync("{}"))
        assert.match(answer.refused(415, "UNSUPPORTED_ENCODING").message, /without Content-Encoding/)
        assert.strictEqual(answer.header("accept-encoding"), "identity")
      }
    }
    for (const path of ["/token", "/revoke", "/register"]) {
      const answer = await fetch(server.url + path, {
        method: "POST",
        headers: { "content-encoding": "gzip" },
        body: gzipSync("a=b")
      })
      const { error, error_description } = await answer.json() as {
        readonly error: string
        readonly error_description: string
      }
      assert.deepStrictEqual([answer.status, error], [415, "invalid_request"], path)
      assert.match(error_description, /without Content-Encoding/)
    }
    for (const encoding of ["identity", "Identity", "", "identity, identity"]) {
      const answer = await bare(server.url, "POST", "/v1/messages", { ...key, "content-encoding": encoding }, message())
      assert.strictEqual(answer.status, 201, `${encoding} ${answer}`)
    }
    // Without a body there is nothing to unpack.
    assert.strictEqual((await alice.http.get("/v1/agents/me", { "content-encoding": "gzip" })).status, 200)
  })

  it("4. a key in the query string is ignored", async () => {
    for (const name of ["api_key", "token", "access_token", "key"]) {
      ;(await server.http().get(`/v1/agents/me?${name}=${pair.alice.key}`)).refused(401, "UNAUTHORIZED")
    }
  })

  it("5. a body that is no JSON, or no object, is 400 VALIDATION_ERROR", async () => {
    const { alice } = pair
    const routes = [
      [server.http(), "POST", "/v1/register"],
      [server.http(), "POST", "/v1/register/verify"],
      [server.http(), "POST", "/v1/agents/recover"],
      [server.http(), "POST", "/v1/agents/recover/verify"],
      [alice.http, "POST", "/v1/messages"],
      [alice.http, "POST", "/v1/messages/sync/ack"],
      [alice.http, "POST", `/v1/agents/${alice.handle}/rotate-key/verify`],
      [alice.http, "PATCH", `/v1/agents/${alice.handle}`]
    ] as const
    for (const [http, method, path] of routes) {
      for (const raw of ["{", "{'a':1}", "not json", "[]", "null", "7", `"text"`, "\u0000", "{}}"]) {
        ;(await http.request(method, path, { raw, headers: { "content-type": "application/json" } }))
          .refused(400, "VALIDATION_ERROR")
      }
    }
    const notUtf8 = new Uint8Array([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])
    ;(await alice.http.request("POST", "/v1/messages", { raw: notUtf8 })).refused(400, "VALIDATION_ERROR")
  })

  it("5. NUL, lone surrogates and JSON deeper than 64 are refused before anything is stored", async () => {
    const { alice, bob } = pair
    const nest = (depth: number) => `${`{"a":`.repeat(depth - 1)}{}${"}".repeat(depth - 1)}`
    const send = (id: string, content: string) =>
      alice.http.request("POST", "/v1/messages", {
        raw: `{"to":"${bob.handle}","client_msg_id":${id},"content":${content}}`
      })
    const refusals = [
      await send(`"${freshMsgId()}"`, String.raw`{"text":"nul \u0000"}`),
      await send(`"${freshMsgId()}"`, String.raw`{"text":"lone \ud800"}`),
      await send(`"${freshMsgId()}"`, String.raw`{"data":{"key \udc00":1}}`),
      await send(`"${freshMsgId()}"`, String.raw`{"data":{"list":["\u0000"]}}`),
      await send(String.raw`"id \u0000"`, `{"text":"x"}`),
      await send(`"${freshMsgId()}"`, `{"data":${nest(100)}}`),
      await alice.http.request("PATCH", `/v1/agents/${alice.handle}`, { raw: String.raw`{"display_name":"\u0000"}` })
    ]
    for (const answer of refusals) answer.refused(400, "VALIDATION_ERROR")
    // The next message takes the next seq: nothing was stored in between.
    const [before, after] = [await say(alice, bob), await say(alice, bob)]
    assert.strictEqual(after.seq, before.seq + 1)
    ;(await send(`"${freshMsgId()}"`, `{"data":${nest(30)}}`)).ok(201, Shapes.Message)
  })

  it("5. content-type is not enforced, unknown fields are ignored", async () => {
    const { alice, bob } = pair
    for (
      const type of ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", undefined]
    ) {
      const answer = await alice.http.request("POST", "/v1/messages", {
        raw: JSON.stringify({
          to: bob.handle,
          client_msg_id: freshMsgId(),
          content: { text: "hello" },
          nonsense: { a: 1 }
        }),
        headers: type === undefined ? {} : { "content-type": type }
      })
      answer.ok(201, Shapes.Message)
    }
  })

  it("5. a body of more than 1 MiB is 413 PAYLOAD_TOO_LARGE, also without a content-length", async () => {
    const body = JSON.stringify({
      to: pair.bob.handle,
      client_msg_id: freshMsgId(),
      content: { text: "x".repeat(1_048_576) }
    })
    const headers = { authorization: `Bearer ${pair.alice.key}`, "content-type": "application/json" }
    ;(await bare(server.url, "POST", "/v1/messages", headers, body)).refused(413, "PAYLOAD_TOO_LARGE")
    const chunks = new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(body))
        controller.close()
      }
    })
    const answer = await fetch(
      `${server.url}/v1/messages`,
      { method: "POST", headers, body: chunks, duplex: "half" } as RequestInit
    )
    assert.deepStrictEqual([answer.status, (await answer.json() as { code: string }).code], [413, "PAYLOAD_TOO_LARGE"])
    // Registration takes small bodies only, however its path is written.
    const email = `{"email":"${"x".repeat(20_000)}"}`
    for (const path of ["/v1/register", "/V1/Register"])
      (await bare(server.url, "POST", path, {}, email)).refused(413, "PAYLOAD_TOO_LARGE")
  })

  it("6. an unknown path is 404 and a wrong method 405, as JSON, with a key and without", async () => {
    for (const http of [server.http(), pair.alice.http]) {
      for (const path of ["/nope", "/v1", "/v1/nope", "/v2/agents/me", "/v1/agents", "/v1/messages/a/b/c"]) {
        ;(await http.get(path)).refused(404, "NOT_FOUND")
      }
      ;(await http.post("/v1/nope", {})).refused(404, "NOT_FOUND")
      ;(await http.request("PUT", "/v1/conversations")).refused(405, "METHOD_NOT_ALLOWED")
      ;(await http.get("/v1/register")).refused(405, "METHOD_NOT_ALLOWED")
      ;(await http.delete("/v1/health")).refused(405, "METHOD_NOT_ALLOWED")
    }
  })

  it("245. a path of more than 2,048 characters, or with more than 16 %25, is unknown, whoever asks", async () => {
    const { alice } = pair
    const slashes = (count: number): string => `${"/".repeat(count)}v1/agents/me`
    ;(await alice.http.get(slashes(2_048 - 12))).ok(200, Shapes.Agent)
    ;(await alice.http.get(`/v1/agents/me?${"a".repeat(4_000)}`)).ok(200, Shapes.Agent)
    const percent = "%25".repeat(4_000)
    ;(await alice.http.get(`/v1/agents/${"%25".repeat(16)}`)).refused(404, "AGENT_NOT_FOUND")
    ;(await alice.http.get(`/v1/agents/me?a=${percent}`)).ok(200, Shapes.Agent)
    for (const target of [`http://?/${percent}`, `http://a/${percent}`])
      (await bare(server.url, "GET", target, {})).refused(404, "NOT_FOUND")
    for (
      const path of [
        slashes(2_048 - 11),
        `/v1/agents/${percent}`,
        `/v1/agents/${"%25".repeat(17)}?a`,
        `/${"a".repeat(2_048)}`
      ]
    ) {
      for (const method of ["GET", "POST", "DELETE"]) {
        ;(await alice.http.request(method, path)).refused(404, "NOT_FOUND")
        ;(await server.http().request(method, path)).refused(404, "NOT_FOUND")
      }
      assert.strictEqual((await bare(server.url, "OPTIONS", path, {})).status, 204)
    }
  })

  it("6. repeated slashes collapse", async () => {
    const answer = await bare(server.url, "GET", "//v1///agents//me", { authorization: `Bearer ${pair.alice.key}` })
    assert.strictEqual(answer.ok(200, Shapes.Agent).handle, pair.alice.handle)
  })

  it("7. %40Alice, @alice and alice are the same agent, in paths and in bodies", async () => {
    const { alice, bob } = pair
    const upper = bob.handle.toUpperCase()
    const spellings = [bob.handle, `@${bob.handle}`, `%40${bob.handle}`, `%40${upper}`, upper, `%20@${bob.handle}%20`]
    for (const spelling of spellings) {
      assert.strictEqual((await alice.http.get(`/v1/agents/${spelling}`)).ok(200, Shapes.Card).handle, bob.handle)
    }
    for (const to of [`@${bob.handle}`, upper, `  @${upper} `]) {
      assert.strictEqual((await say(alice, bob, { to })).conversation_id, pair.conversation)
    }
    const changed = await alice.http.patch(`/v1/agents/%40${alice.handle.toUpperCase()}`, { description: "me" })
    assert.strictEqual(changed.ok(200, Shapes.Agent).description, "me")
    ;(await alice.http.get(`/v1/agents/@@${bob.handle}`)).refused(404, "AGENT_NOT_FOUND")
  })

  it("8. POST and DELETE with an empty body and no content-type work", async () => {
    const { alice, bob } = pair
    const message = await say(alice, bob)
    const headers = { authorization: `Bearer ${bob.key}`, "content-length": "0" }
    ;(await bare(server.url, "POST", `/v1/messages/${message.id}/read`, headers)).ok(200, Shapes.ReadMessage)
    ;(await bare(server.url, "DELETE", `/v1/messages/${message.id}`, headers)).ok(200, Shapes.Confirmation)
    ;(await bare(server.url, "DELETE", `/v1/conversations/${pair.conversation}`, headers)).ok(200, Shapes.Hidden)
    ;(await bare(server.url, "POST", `/v1/agents/${bob.handle}/rotate-key`, headers)).ok(200, Shapes.Pending)
  })

  it("8. an empty body is 400 where a body is required", async () => {
    ;(await pair.alice.http.post("/v1/messages")).refused(400, "VALIDATION_ERROR")
    ;(await pair.alice.http.post("/v1/messages/sync/ack")).refused(400, "VALIDATION_ERROR")
    ;(await server.http().post("/v1/register")).refused(400, "VALIDATION_ERROR")
  })

  it("9. a limit above the maximum is clamped", async () => {
    const { alice } = pair
    for (const limit of [200, 201, 1_000, 999_999_999]) {
      assert.strictEqual(
        (await alice.http.get(`/v1/conversations?limit=${limit}`)).ok(200, Shapes.ConversationPage).limit,
        200
      )
    }
    assert.strictEqual((await alice.http.get("/v1/conversations")).ok(200, Shapes.ConversationPage).limit, 50)
    assert.strictEqual((await alice.http.get("/v1/conversations?limit=7")).ok(200, Shapes.ConversationPage).limit, 7)
  })

  it("10. a limit of 0, -1, 1.5 or x is refused with 400 on every list", async () => {
    const { alice, conversation } = pair
    for (const path of ["/v1/conversations", `/v1/messages/${conversation}`, "/v1/messages/sync"]) {
      for (const limit of ["0", "-1", "1.5", "x", "1x", "NaN", "Infinity"]) {
        ;(await alice.http.get(`${path}?limit=${limit}`)).refused(400, "VALIDATION_ERROR")
      }
    }
    for (const query of ["offset=-1", "offset=x", "offset=1.5"]) {
      ;(await alice.http.get(`/v1/conversations?${query}`)).refused(400, "VALIDATION_ERROR")
    }
    for (const query of ["before_seq=-1", "before_seq=x", "before_seq=1.5", "after_seq=-1", "after_seq=x"]) {
      ;(await alice.http.get(`/v1/messages/${conversation}?${query}`)).refused(400, "VALIDATION_ERROR")
    }
  })

  it("numbers in a query are digits and nothing else", async () => {
    const { alice, conversation } = pair
    const written = ["1e1", "1E1", "1.0", "1.", "%2B1", "%201", "1%20", "0x10", "1_0", "1n", "%D9%A1", ""]
    const paths = [
      "/v1/conversations?limit=",
      "/v1/conversations?offset=",
      `/v1/messages/${conversation}?limit=`,
      "/v1/messages/sync?limit=",
      "/v1/contacts?offset=",
      "/v1/contacts/blocks?limit=",
      "/v1/mutes?limit=",
      "/v1/webhooks?limit=",
      `/v1/directory?q=${alice.handle}&limit=`,
      `/v1/directory?q=${alice.handle}&offset=`
    ]
    for (const path of paths) {
      for (const number of written) (await alice.http.get(`${path}${number}`)).refused(400, "VALIDATION_ERROR")
      const answer = await alice.http.get(`${path}007`)
      assert.strictEqual(answer.status, 200, `${answer}`)
    }
    for (const name of ["before_seq", "after_seq"]) {
      for (const number of written.filter((text) => text !== "")) {
        ;(await alice.http.get(`/v1/messages/${conversation}?${name}=${number}`)).refused(400, "VALIDATION_ERROR")
      }
    }
  })

  it("11. pages by cursor reach null without gaps or repeats", async () => {
    const hub = await newAgent(server, "hub")
    const peers = await Promise.all(Array.from({ length: 7 }, () => newAgent(server, "peer")))
    const ids: Array<string> = []
    for (const peer of peers) ids.unshift((await say(hub, peer)).conversation_id)

    const seen: Array<string> = []
    let cursor: string | null = null
    let pages = 0
    do {
      const query: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`
      const answer = await hub.http.get(`/v1/conversations?limit=2${query}`)
      const page = answer.ok(200, Shapes.ConversationPage)
      assert.deepInclude(page, { total: 7, limit: 2 })
      assert.strictEqual(answer.header("x-total-count"), "7")
      assert.strictEqual(answer.header("x-next-cursor"), page.next_cursor)
      seen.push(...page.conversations.map((conversation) => conversation.id))
      cursor = page.next_cursor
      pages++
    } while (cursor !== null && pages < 10)
    assert.deepStrictEqual(seen, ids)
    assert.strictEqual(pages, 4)
    // A page that ends exactly at the end is the last one too.
    assert.isNull((await hub.http.get("/v1/conversations?limit=7")).ok(200, Shapes.ConversationPage).next_cursor)
  })

  it("11. a cursor that this server never gave out is 400", async () => {
    for (const cursor of ["x", "%21%21", "bnVsbA", "e30", "W10", "MQ", "a".repeat(5_000)]) {
      ;(await pair.alice.http.get(`/v1/conversations?cursor=${cursor}`)).refused(400, "VALIDATION_ERROR")
    }
    const { group } = await pair.alice.client.createGroup({ name: "The band" })
    const lists = ["conversations", "contacts", "contacts/blocks", "mutes", "webhooks", `groups/${group.id}/invites`]
    for (const text of ["\0", "a\0", "\ud800", ""]) {
      const position = { activityAt: 1, createdAt: 1, handle: text, id: text, kind: "agent", targetId: text }
      const cursor = Buffer.from(JSON.stringify(position)).toString("base64url")
      for (const list of lists)
        (await pair.alice.http.get(`/v1/${list}?cursor=${cursor}`)).refused(400, "VALIDATION_ERROR")
    }
  })

  it("12. offset and cursor together are 400", async () => {
    const hub = await newAgent(server, "hub")
    for (const prefix of ["one", "two"]) await say(hub, await newAgent(server, prefix))
    const page = (await hub.http.get("/v1/conversations?limit=1")).ok(200, Shapes.ConversationPage)
    const cursor = encodeURIComponent(page.next_cursor ?? assert.fail("no next page"))
    ;(await hub.http.get(`/v1/conversations?cursor=${cursor}`)).ok(200, Shapes.ConversationPage)
    ;(await hub.http.get(`/v1/conversations?offset=0&cursor=${cursor}`)).refused(400, "VALIDATION_ERROR")
    const client = { "x-agentchat-client": "typescript_sdk" }
    ;(await hub.http.get(`/v1/conversations?offset=0&cursor=${cursor}`, client)).refused(400, "VALIDATION_ERROR")
  })

  it("13. a preflight with the client's headers passes", async () => {
    const wanted = [
      "authorization",
      "content-type",
      "idempotency-key",
      "x-agentchat-client",
      "x-agentchat-client-version",
      "x-request-id"
    ]
    for (
      const [method, path] of [["POST", "/v1/messages"], ["PATCH", "/v1/agents/x"], ["DELETE", "/v1/agents/x"]] as const
    ) {
      const answer = await bare(server.url, "OPTIONS", path, {
        origin: "https://somewhere.example",
        "access-control-request-method": method,
        "access-control-request-headers": wanted.join(",")
      })
      assert.include([200, 204], answer.status)
      assert.strictEqual(answer.header("access-control-allow-origin"), "*")
      assert.isNull(answer.header("access-control-allow-credentials"))
      const list = (name: string) => (answer.header(name) ?? "").toLowerCase().split(",").map((item) => item.trim())
      assert.includeMembers(list("access-control-allow-headers"), wanted)
      assert.includeMembers(list("access-control-allow-methods"), ["get", "post", "put", "patch", "delete"])
    }
  })

  it("13. answers and refusals alike may be read from any origin, with the headers the client reads", async () => {
    const origin = { origin: "https://somewhere.example" }
    for (const http of [server.http(), pair.alice.http]) {
      for (const path of ["/v1/agents/me", "/v1/nope"]) {
        const answer = await http.get(path, origin)
        assert.strictEqual(answer.header("access-control-allow-origin"), "*", `${answer}`)
        assert.isNull(answer.header("access-control-allow-credentials"))
        const exposed = (answer.header("access-control-expose-headers") ?? "").toLowerCase().split(",").map((s) =>
          s.trim()
        )
        assert.includeMembers(exposed, [
          "retry-after",
          "x-backlog-warning",
          "x-client-msg-id-conflict",
          "idempotent-replay",
          "x-request-id",
          "location",
          "x-next-cursor",
          "x-total-count"
        ])
      }
    }
  })

  it("C.13: the server shows its name and version, health, readiness and documents", async () => {
    const http = server.http()
    const Root = Schema.Struct({
      name: Schema.NonEmptyString,
      version: Schema.NonEmptyString,
      status: Schema.Literal("alive")
    })
    ;(await http.get("/")).ok(200, Root)
    ;(await http.get("/v1/health")).ok(
      200,
      Schema.Struct({ status: Schema.Literal("ok"), version: Schema.NonEmptyString, commit: Schema.NonEmptyString })
    )
    assert.strictEqual((await http.get("/v1/ready")).status, 200)
    const openapi = (await http.get("/v1/openapi.json")).body as { openapi: string; info: { version: string } }
    assert.match(openapi.openapi, /^3\.1\./)
    assert.strictEqual(openapi.info.version, "0.3.0")
    const docs = await http.get("/docs")
    assert.strictEqual(docs.status, 200)
    assert.match(docs.header("content-type") ?? "", /^text\/html/)
    assert.strictEqual((await http.get("/internal/metrics")).status, 200)
  })

  it("C.0: answers of limited routes say how much of the limit is left", async () => {
    for (
      const answer of [
        await pair.alice.http.get("/v1/agents/me"),
        await server.http().post("/v1/agents/recover", { email: "nobody@example.com" })
      ]
    ) {
      for (const name of ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]) {
        assert.match(answer.header(name) ?? "", /^\d+$/, `${name} of ${answer}`)
      }
    }
  })

  it("C.0: a key that has no header of the client's works all the same", async () => {
    const answer = await bare(
      server.url,
      "POST",
      "/v1/messages",
      { authorization: `Bearer ${pair.alice.key}` },
      JSON.stringify({
        to: pair.bob.handle,
        client_msg_id: freshMsgId(),
        content: { text: words() }
      })
    )
    answer.ok(201, Shapes.Message)
  })
})
