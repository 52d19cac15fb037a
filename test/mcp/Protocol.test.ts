import { catalogue } from "#interfaces/mcp/tools/Catalogue"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import { inbox, newPair, say } from "../contract/Talk.ts"
import { adminHere } from "../support/Admin.ts"
import { patient } from "../support/Patient.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import {
  ageless,
  call,
  connect,
  granted,
  initialize,
  type Json,
  newest,
  older,
  post,
  refusalIn,
  refused,
  rpc
} from "./Mcp.ts"

describe("the protocol of /mcp", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  let conversation: string

  beforeAll(async () => {
    server = await sharedServer()
    ;({ alice, bob, conversation } = await newPair(server))
  })
  afterAll(() => server.stop())

  it("the official client works with automatic and with old negotiation, and the one of before too", async () => {
    for (const [mode, revision] of [["auto", "2026-07-28"], ["legacy", "2025-11-25"]] as const) {
      const client = await connect(server, alice, mode)
      assert.strictEqual(client.getNegotiatedProtocolVersion(), revision)
      assert.match(client.getInstructions() ?? "", new RegExp(`You are the agent @${alice.handle} on Parley`))
      assert.strictEqual((await granted(client, "agentchat_get_my_status"))["handle"], alice.handle)
      assert.deepStrictEqual((await client.listResources()).resources.map(({ uri }) => uri), ["parley://inbox"])
      assert.strictEqual((await client.listResourceTemplates()).resourceTemplates.length, 3)
      const prompt = await client.getPrompt({ name: "introduce_yourself", arguments: { handle: `@${bob.handle}` } })
      assert.match(JSON.stringify(prompt.messages), new RegExp(`@${bob.handle}`))
      assert.isTrue(await client.getPrompt({ name: "introduce_yourself", arguments: {} }).then(() => false, () => true))
      await client.close()
    }
    const old = new OldClient({ name: "test", version: "1.0.0" })
    const requestInit = { headers: { authorization: `Bearer ${alice.key}` } }
    await old.connect(new OldTransport(new URL(`${server.url}/mcp`), { requestInit, fetch: patient }) as never)
    assert.isAbove((await old.listTools()).tools.length, 30)
    const status = await old.callTool({ name: "agentchat_get_my_status", arguments: {} })
    assert.strictEqual((status.structuredContent as { readonly handle: string }).handle, alice.handle)
    await old.close()
  })

  it("the instructions are the same whatever waits, and hosts are asked to load the tools that send and wait at once", async () => {
    const carol = await newAgent(server, "carol")
    const introduced = async (): Promise<ReadonlyArray<string>> => {
      const [discover, headers] = newest("server/discover")
      const answers = [
        await post(server, carol.key, initialize("2025-06-18")),
        await post(server, carol.key, discover, headers)
      ]
      return answers.map(({ body }) => body.result.instructions)
    }
    const before = await introduced()
    await say(alice, carol)
    assert.deepStrictEqual(await introduced(), before)
    assert.deepStrictEqual(new Set(before).size, 1)
    for (const query of ["", "?structured=on"]) {
      const tools: ReadonlyArray<Json> =
        (await post(server, carol.key, rpc("tools/list"), older, query)).body.result.tools
      const loaded = tools.filter(({ _meta }) => _meta?.["anthropic/alwaysLoad"] === true).map(({ name }) => name)
      assert.deepStrictEqual(loaded, ["agentchat_send_message", "agentchat_wait_for_messages"])
    }
  })

  it("a call that needs nothing of the protocol's library is answered as the library answers it", async () => {
    const id = `twice-${Math.random()}`
    const calls: ReadonlyArray<readonly [string, object]> = [
      ["agentchat_get_my_status", {}],
      ["agentchat_send_message", { to: bob.handle, text: "sent once", client_msg_id: id }],
      ["agentchat_send_message", { to: "nobody-of-this-name", text: "refused", client_msg_id: `${id}-refused` }],
      ["agentchat_send_message", { to: 7 }],
      ["agentchat_list_inbox", {}],
      ["agentchat_get_conversation", { conversation_id: conversation }],
      ["agentchat_get_conversation", { conversation_id: "conv_unknown" }],
      ["agentchat_list_contacts", { limit: "3", nonsense: true, cursor: null }],
      ["agentchat_wait_for_messages", { timeout_seconds: 1 }],
      // Every other tool without arguments: lists, and the errors of those that need some. A profile says when it was
      // updated.
      ...catalogue.filter(({ name }) => name !== "agentchat_wait_for_messages" && name !== "agentchat_update_profile")
        .map(({ name }) => [name, {}] as const)
    ]
    for (const [name, args] of calls) {
      for (const arguments_ of name === "agentchat_get_my_status" ? [args, undefined] : [args]) {
        const params = { name, ...(arguments_ === undefined ? {} : { arguments: arguments_ }) }
        const [modern, headers] = newest("tools/call", params)
        // Whoever asks for progress is answered by the library.
        const asking = (body: Json) => ({
          ...body,
          params: { ...body.params, _meta: { ...body.params._meta, progressToken: 1 } }
        })
        for (const [body, sent] of [[rpc("tools/call", params, 7), older], [modern, headers]] as const) {
          const answered = async (body: object) => {
            const { body: answer, status } = await post(server, alice.key, body, sent)
            return [status, ageless(answer)]
          }
          assert.deepStrictEqual(await answered(body), await answered(asking(body)), `${name} ${JSON.stringify(args)}`)
        }
      }
    }
    // What the library refuses is refused alike, with and without it.
    const [modern, headers] = newest("tools/call", { name: "agentchat_get_my_status", arguments: {} })
    for (
      const sent of [{ ...headers, "mcp-name": "" }, { ...headers, "mcp-method": "tools/list" }, {
        ...headers,
        "mcp-protocol-version": "2025-06-18"
      }]
    ) {
      assert.strictEqual((await post(server, alice.key, modern, sent)).status, 400, JSON.stringify(sent))
    }
    for (
      const params of [
        { name: "agentchat_get_my_status", arguments: [] },
        { name: "agentchat_get_my_status", arguments: "x" },
        { name: 7 },
        { name: "agentchat_none" }
      ]
    ) {
      assert.isDefined(
        (await post(server, alice.key, rpc("tools/call", params), older)).body.error,
        JSON.stringify(params)
      )
    }
  })

  it("a list that never changes is answered from memory as the library answers it, for each set of tools and whatever else a request has", async () => {
    for (const query of ["", "?tools=core", "?structured=on"]) {
      for (
        const method of [
          "tools/list",
          "resources/list",
          "resources/templates/list",
          "prompts/list",
          "events/list",
          "ping"
        ]
      ) {
        const ask = async (id: unknown, params: object, sent: Readonly<Record<string, string>>) => {
          const { body: { id: answered, jsonrpc, result }, status } = await post(
            server,
            alice.key,
            { ...rpc(method, params), id },
            sent,
            query
          )
          assert.deepStrictEqual([answered, jsonrpc, status], [id, "2.0", 200])
          return result
        }
        const [body, headers] = newest(method)
        const { params } = body as Json
        // The revision of 2026 has no `ping`.
        for (
          const [given, sent] of method === "ping"
            ? [[{}, older] as const]
            : [[{}, older] as const, [params, headers] as const]
        ) {
          const first = await ask(1, given, sent)
          for (const id of [2, 'a "quoted" id', -1]) assert.deepStrictEqual(await ask(id, given, sent), first)
          const more = { ...given, unknown: 1, _meta: { ...(given as Json)["_meta"], progressToken: 7 } }
          assert.deepStrictEqual(await ask(3, more, sent), first)
          assert.deepStrictEqual(await ask(4, { ...given, cursor: "" }, { ...sent, "mcp-name": "x" }), first)
        }
      }
    }
    const names = async (query: string) =>
      (await post(server, alice.key, rpc("tools/list"), older, query)).body.result.tools.map(({ name }: Json) => name)
    const [all, core] = [await names(""), await names("?tools=core")]
    assert.deepStrictEqual(all, catalogue.map(({ name }) => name))
    assert.strictEqual(core.length, 9)
    const tools = async (query: string): Promise<ReadonlyArray<Json>> =>
      (await post(server, alice.key, rpc("tools/list"), older, query)).body.result.tools
    assert.isTrue(
      (await tools("?structured=on")).filter(({ outputSchema }) => outputSchema !== undefined).length >
        (await tools("")).filter(({ outputSchema }) => outputSchema !== undefined).length
    )
    assert.isDefined((await post(server, alice.key, { ...rpc("tools/list"), jsonrpc: "1.0" }, older)).body.error)
    assert.isDefined(
      (await post(server, alice.key, rpc("tools/list", { _meta: { progressToken: {} } }), older)).body.error
    )
  })

  it("each revision gets the specification's answer, and no session is given out", async () => {
    for (
      const [asked, answered] of [["2025-06-18", "2025-06-18"], ["2025-11-25", "2025-11-25"], [
        "2024-11-05",
        "2025-11-25"
      ], ["3000-01-01", "2025-11-25"]] as const
    ) {
      const answer = await post(server, alice.key, initialize(asked), { "mcp-session-id": "somebody-elses" })
      assert.deepStrictEqual([answer.status, answer.body.result.protocolVersion], [200, answered])
      assert.isNull(answer.headers.get("mcp-session-id"))
    }
    const unknown = await post(server, alice.key, rpc("tools/list"), { "mcp-protocol-version": "1999-01-01" })
    assert.deepStrictEqual([unknown.status, typeof unknown.body.error.code], [400, "number"])
    const [body, headers] = newest("tools/call", { name: "agentchat_get_my_status", arguments: {} })
    assert.strictEqual(
      (await post(server, alice.key, body, headers)).body.result.structuredContent.handle,
      alice.handle
    )
    const otherName = await post(server, alice.key, body, { ...headers, "mcp-name": "agentchat_block_agent" })
    assert.deepStrictEqual([otherName.status, otherName.body.error.code], [400, -32_020])
    const [discover, discoverHeaders] = newest("server/discover")
    const discovered = (await post(server, alice.key, discover, discoverHeaders)).body.result
    assert.deepStrictEqual([discovered.supportedVersions, discovered.cacheScope, discovered.ttlMs], [
      ["2026-07-28"],
      "private",
      0
    ])
  })

  it("GET and DELETE are 405, a notification and a cancellation 202, a batch and invalid JSON-RPC the protocol's error", async () => {
    for (const method of ["GET", "DELETE"]) {
      // As clients do that come back for a stream: there is none to go on with.
      const headers = {
        authorization: `Bearer ${alice.key}`,
        accept: "text/event-stream",
        "last-event-id": "7",
        "mcp-session-id": "x"
      }
      const answer = await fetch(`${server.url}/mcp`, { method, headers })
      assert.deepStrictEqual([answer.status, (await answer.json() as Json).error.data.code], [
        405,
        "METHOD_NOT_ALLOWED"
      ])
      assert.include(answer.headers.get("allow") ?? "", "POST")
    }
    const notification = (method: string) => ({ jsonrpc: "2.0", method, params: { requestId: 1 } })
    for (const method of ["notifications/initialized", "notifications/cancelled"]) {
      assert.strictEqual((await post(server, alice.key, notification(method), older)).status, 202)
    }
    const send = rpc("tools/call", {
      name: "agentchat_send_message",
      arguments: { to: bob.handle, text: "in a batch" }
    })
    const batch = await post(server, alice.key, [send, send], older)
    assert.deepStrictEqual([batch.status, batch.body.error.code], [400, -32_600])
    for (
      const [nonsense, code] of [["{", -32_700], ["", -32_700], ["7", -32_600], ["null", -32_600], [
        `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
        -32_600
      ]] as const
    ) {
      const answer = await post(server, alice.key, nonsense, older)
      assert.deepStrictEqual([answer.status, answer.body.error.code], [400, code], nonsense)
    }
    assert.strictEqual((await post(server, alice.key, rpc("tools/unknown"), older)).body.error.code, -32_601)
    assert.strictEqual(
      (await post(server, alice.key, rpc("tools/call", { name: "agentchat_nothing" }), older)).body.error.code,
      -32_602
    )
    const large = await post(
      server,
      alice.key,
      rpc("tools/call", {
        name: "agentchat_send_message",
        arguments: { to: bob.handle, text: "x".repeat(10_000_000) }
      }),
      older
    )
    assert.deepStrictEqual([large.status, large.body.error.data.code], [413, "PAYLOAD_TOO_LARGE"])
    assert.notInclude((await inbox(bob)).map(({ content }) => content.text), "in a batch")
  })

  it("wrong parameters of every method are refused with −32602 in a sentence, in every revision", async () => {
    const event = { name: "message.received" }
    const info = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "a", version: "1" } }
    const me = "agentchat_get_my_status"
    const cursors = [5, "x", {}, false].map((cursor) => ({ cursor }))
    const wrong: Readonly<Record<string, ReadonlyArray<unknown>>> = {
      "initialize": [
        ...[5, {}].map((protocolVersion) => ({ ...info, protocolVersion })),
        ...[5, []].map((capabilities) => ({ ...info, capabilities })),
        ...[5, {}, { name: "a" }, { name: 5, version: "1" }].map((clientInfo) => ({ ...info, clientInfo })),
        {}
      ],
      "ping": [],
      "server/discover": [],
      "tools/list": cursors,
      "tools/call": [
        {},
        { name: 5 },
        { name: "" },
        { name: "agentchat_none" },
        ...[5, "x", []].map((given) => ({ name: me, arguments: given }))
      ],
      "resources/list": cursors,
      "resources/templates/list": cursors,
      "resources/read": [{}, { uri: 5 }, { uri: {} }, { uri: "" }, { uri: "parley://nothing" }],
      "prompts/list": cursors,
      "prompts/get": [
        {},
        { name: 5 },
        { name: "none" },
        { name: "introduce_yourself" },
        ...[5, [], { handle: 5 }].map((given) => ({ name: "introduce_yourself", arguments: given }))
      ],
      "subscriptions/listen": [
        {},
        ...[5, [], { toolsListChanged: 1 }, { resourceSubscriptions: {} }, { resourceSubscriptions: [5] }].map((
          notifications
        ) => ({ notifications }))
      ],
      "events/list": cursors,
      "events/poll": [{}, { name: 5 }, { ...event, arguments: 5 }, { ...event, cursor: 5 }, { ...event, cursor: "x" }, {
        ...event,
        maxEvents: "x"
      }, { ...event, maxAgeMs: -1 }],
      "events/subscribe": [{}, { ...event, delivery: 5 }, { ...event, delivery: { url: 5 } }, {
        ...event,
        delivery: { mode: null }
      }, {
        ...event,
        arguments: []
      }],
      "events/unsubscribe": [{}, { ...event, delivery: {} }],
      "events/stream": [{}, { ...event, arguments: 5 }, { ...event, cursor: {} }]
    }
    const ofAll = [
      7,
      "x",
      [],
      true,
      { _meta: 5 },
      { _meta: [] },
      ...[{}, 1.5, true, "p".repeat(257)].map((progressToken) => ({ _meta: { progressToken } }))
    ]
    const requests = Object.entries(wrong).flatMap(([method, own]) =>
      [...own, ...ofAll].flatMap((params) => {
        const given = params as Json
        const [modern, headers] = newest(method, given) as [Json, Record<string, string>]
        const isObject = typeof params === "object" && !Array.isArray(params)
        const meta = isObject && given._meta !== undefined ? { _meta: given._meta } : {}
        return [
          ...["2025-06-18", "2025-11-25"].map((version) =>
            [rpc(method, given), { "mcp-protocol-version": version }] as const
          ),
          [isObject ? { ...modern, params: { ...modern["params"], ...meta } } : { ...modern, params }, headers] as const
        ]
      })
    )
    const answers = await Promise.all(requests.map(async ([body, headers]) => {
      const { body: { error, id, jsonrpc } } = await post(server, alice.key, body, headers)
      return [`${headers["mcp-protocol-version"]} ${JSON.stringify(body)}`, { error, id, jsonrpc }] as const
    }))
    const faults = answers.filter(([, { error, id, jsonrpc }]) =>
      jsonrpc !== "2.0" || id !== 1 || error?.code !== -32_602 || !/^[A-Za-z_][^\n[\]{}"]+\.?$/.test(error.message)
    )
    assert.deepStrictEqual(faults, [])
    assert.isAbove(answers.length, 500)

    // The envelope of the revision of 2026.
    const [modern, headers] = newest("tools/list") as [Json, Record<string, string>]
    for (const key of Object.keys(modern["params"]._meta)) {
      const { body: { error } } = await post(server, alice.key, {
        ...modern,
        params: { _meta: { ...modern["params"]._meta, [key]: 5 } }
      }, headers)
      assert.notInclude([undefined, -32_603], error?.code, key)
      assert.notMatch(error.message, /[\n{}[\]]/)
    }
  })

  it("a null parameter is an absent one, and parameters that no method has are ignored", async () => {
    const me = { name: "agentchat_get_my_status" }
    const cases: ReadonlyArray<
      readonly [method: string, given: Record<string, unknown>, absent: Record<string, unknown>]
    > = [
      ["tools/list", { cursor: null }, {}],
      ["resources/list", { cursor: null, _more: [5] }, {}],
      ["resources/read", { uri: "parley://inbox", _more: 5 }, { uri: "parley://inbox" }],
      ["tools/call", { ...me, arguments: null }, me],
      ["tools/call", { ...me, task: 5, inputResponses: 5, requestState: 5 }, me],
      ["prompts/get", { name: "check_messages", arguments: null }, { name: "check_messages" }],
      ["prompts/get", { name: "check_messages", arguments: { max: null } }, { name: "check_messages" }],
      ["events/poll", { name: "message.received", arguments: null, maxEvents: null, cursor: null }, {
        name: "message.received"
      }]
    ]
    for (const [method, given, absent] of cases) {
      for (const version of ["2025-06-18", "2025-11-25"]) {
        const [one, other] = await Promise.all(
          [given, absent].map((params) =>
            post(server, alice.key, rpc(method, params), { "mcp-protocol-version": version })
          )
        )
        assert.isDefined(one?.body.result, `${method} ${one?.text}`)
        assert.deepStrictEqual(ageless(one?.body), ageless(other?.body))
      }
      const [one, other] = await Promise.all(
        [given, absent].map((params) => post(server, alice.key, ...newest(method, params)))
      )
      assert.isDefined(one?.body.result, `${method} ${one?.text}`)
      assert.deepStrictEqual(ageless(one?.body), ageless(other?.body))
    }
    for (
      const [method, params] of [["ping", null], ["tools/list", null], ["tools/list", { _meta: null }], ["tools/list", {
        _meta: { progressToken: null }
      }]] as const
    ) {
      const { body, text } = await post(server, alice.key, { jsonrpc: "2.0", id: 1, method, params }, older)
      assert.isDefined(body.result, text)
    }
    // A client says many things of itself that the server does not use.
    const capabilities = { roots: 5, sampling: null, elicitation: [], tasks: "x" }
    const clientInfo = { name: "a", version: "1", icons: 5, title: {} }
    const { body, text } = await post(
      server,
      alice.key,
      rpc("initialize", { protocolVersion: "2025-06-18", capabilities, clientInfo })
    )
    assert.strictEqual(body.result?.protocolVersion, "2025-06-18", text)
  })

  it("a request without a live key is 401, wherever else a key is", async () => {
    for (const key of [undefined, "nonsense", "ac_0000000000000000000000000000000000000000000"]) {
      const answer = await post(server, key, rpc("tools/list"), older)
      assert.strictEqual(answer.status, 401)
      assert.match(
        answer.headers.get("www-authenticate") ?? "",
        /^Bearer (?:error="invalid_token", )?resource_metadata="/
      )
      assert.strictEqual(answer.body.error.data.code, "UNAUTHORIZED")
    }
    const inQuery = await fetch(`${server.url}/mcp?api_key=${alice.key}&access_token=${alice.key}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(rpc("tools/list"))
    })
    assert.strictEqual(inQuery.status, 401)
  })

  it("other origins and other host names are refused", async () => {
    for (const origin of ["https://evil.example", "null"]) {
      const answer = await post(server, alice.key, rpc("tools/list"), { ...older, origin })
      assert.deepStrictEqual([answer.status, answer.body.error.data.code], [403, "FORBIDDEN"], origin)
      assert.isNull(answer.headers.get("access-control-allow-origin"))
    }
    const own = await post(server, alice.key, rpc("tools/list"), { ...older, origin: server.url })
    assert.deepStrictEqual([own.status, own.headers.get("access-control-allow-origin")], [200, server.url])
    // fetch sets Host itself.
    const { request } = await import("node:http")
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const { port } = new URL(server.url)
      const asked = request({
        port,
        host: "127.0.0.1",
        path: "/mcp",
        method: "POST",
        headers: {
          host: `rebound.example:${port}`,
          authorization: `Bearer ${alice.key}`,
          "content-type": "application/json"
        }
      }, (answer) => {
        answer.resume()
        resolve(answer.statusCode)
      })
      asked.on("error", reject)
      asked.end(JSON.stringify(rpc("tools/list")))
    })
    assert.strictEqual(status, 403)
  })

  it("ids of another agent get the answer of unknown ids, in tools and in resources", async () => {
    const carol = await connect(server, await newAgent(server, "carol"))
    const said = await say(alice, bob)
    await refused(carol, "agentchat_get_conversation", { conversation_id: conversation }, "CONVERSATION_NOT_FOUND")
    await refused(carol, "agentchat_mark_read", { message_id: said.id }, "MESSAGE_NOT_FOUND")
    const failure = (uri: string) =>
      carol.readResource({ uri }).then(
        () => undefined,
        (error: { readonly code?: number; readonly message: string }) => [error.code, error.message.replace(uri, "")]
      )
    const foreign = await failure(`parley://conversations/${conversation}`)
    assert.isDefined(foreign)
    assert.deepStrictEqual(foreign, await failure("parley://conversations/conv_AAAAAAAAAAAAAAAA"))
    for (
      const uri of [
        "parley://inbox/x",
        "parley://conversations/sync",
        "parley://groups/invites",
        "file:///etc/passwd",
        "parley://agents/me",
        "parley://conversations/%00"
      ]
    ) {
      assert.isDefined(await failure(uri), uri)
    }
    await carol.close()
  })

  it("invalid arguments are refused, and do no harm", async () => {
    const client = await connect(server, alice)
    const waiting = async () => (await inbox(bob)).map(({ id }) => id)
    const before = await waiting()
    const deep = (levels: number): unknown => levels === 0 ? "end" : [deep(levels - 1)]
    for (
      const args of [
        { to: bob.handle, text: "lone \ud800 surrogate" },
        { to: bob.handle, text: "NUL \u0000" },
        { to: bob.handle, text: "65 levels", more: deep(64) },
        { to: bob.handle, text: "a key", more: { "\udfff": 1 } },
        { to: bob.handle, text: "a lone surrogate as its name", client_msg_id: "\udc00" },
        { to: { toString: "x" }, text: "an object" },
        { to: "../../v1/agents/me", text: "a path", reply_to: 7 }
      ]
    ) {
      const { result } = await call(client, "agentchat_send_message", args)
      assert.strictEqual(refusalIn(result).refusal["code"], "VALIDATION_ERROR", JSON.stringify(args).slice(0, 80))
    }
    assert.deepStrictEqual(await waiting(), before)
    // The arguments are the first level.
    const most = await granted(client, "agentchat_send_message", { to: bob.handle, text: "64 levels", more: deep(63) })
    assert.deepStrictEqual(await waiting(), [...before, most["message_id"]])
    const named =
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"agentchat_send_message","arguments":` +
      `{"to":"${bob.handle}","text":"hello","__proto__":{"client_msg_id":"polluted","reply_to":"polluted"}}}}`
    const sent = (await post(server, alice.key, named, older)).body.result.structuredContent
    assert.notStrictEqual(sent.client_msg_id, "polluted")
    const [last] = (await inbox(bob)).slice(-1)
    assert.deepStrictEqual([last?.id, last?.metadata], [sent.message_id, {}])
    for (
      const uri of ["parley://conversations/\ud800", "parley://agents/%ed%a0%80", `parley://groups/${"x".repeat(300)}`]
    ) {
      const { body } = await post(server, alice.key, rpc("resources/read", { uri }), older)
      assert.strictEqual(body.error.code, -32_602, uri)
    }
    const polluted =
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"agentchat_update_profile","arguments":{"__proto__":{"description":"polluted"},"constructor":{"prototype":{"x":1}}}}}`
    assert.strictEqual((await post(server, alice.key, polluted, older)).status, 200)
    assert.isNull((await granted(client, "agentchat_get_my_status"))["description"])
    for (const handle of ["../me", "a/b", "?x=1", "%00", "me", "blocks", "@", ".."]) {
      const { result } = await call(client, "agentchat_get_agent_profile", { handle })
      assert.include(["AGENT_NOT_FOUND", "NOT_FOUND", "VALIDATION_ERROR"], refusalIn(result).refusal["code"], handle)
    }
    await client.close()
  })

  it("a suspended agent begins, lists and sees its status, and nothing else", async () => {
    const carol = await newAgent(server, "carol")
    assert.strictEqual((await adminHere(server.place, "agents", "suspend", carol.handle, "--reason", "a test")).code, 0)
    const client = await connect(server, carol)
    assert.isAbove((await client.listTools()).tools.length, 30)
    assert.strictEqual((await granted(client, "agentchat_get_my_status"))["status"], "suspended")
    for (const name of ["agentchat_list_inbox", "agentchat_wait_for_messages"])
      await refused(client, name, {}, "AGENT_SUSPENDED")
    assert.isTrue(await client.readResource({ uri: "parley://inbox" }).then(() => false, () => true))
    await client.close()
  })
})
