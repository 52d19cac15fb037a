import { type SetName, SETS, toolsOf } from "#interfaces/mcp/tools/Catalogue"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client"
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import { answerIn, initialize, type Json, newest, older, post, type Raw, refusalIn, rpc, textsOf } from "../mcp/Mcp.ts"
import { Moment } from "../support/Moment.ts"
import { patient } from "../support/Patient.ts"
import { freshHandle, newAgent, type Server, sharedServer, startServer, type TestAgent } from "../support/Server.ts"
import { inbox, newPair, say } from "./Talk.ts"

const toolCall = (name: string, args: object = {}): object => rpc("tools/call", { name, arguments: args })
const namesOf = (...sets: ReadonlyArray<SetName>) => toolsOf(new Set(sets)).map(({ name }) => name)
const namesIn = ({ body }: Raw): ReadonlyArray<string> => body.result.tools.map(({ name }: Json) => name)

describe("wire.md J, MCP: sets of tools", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    ;({ alice, bob } = await newPair(server))
  })
  afterAll(() => server.stop())

  const list = (query: string, headers: Record<string, string> = {}) =>
    post(server, alice.key, rpc("tools/list"), { ...older, ...headers }, query)

  it("166. the query or the header chooses sets, the query wins, and nothing chosen is all", async () => {
    for (const set of SETS) assert.deepStrictEqual(namesIn(await list(`?tools=${set}`)), namesOf(set))
    assert.deepStrictEqual(namesIn(await list("?tools=core,%20Groups")), namesOf("core", "groups"))
    for (const query of ["", "?tools=", "?tools=all,core"])
      assert.deepStrictEqual(namesIn(await list(query)), namesOf("all"), query)
    assert.deepStrictEqual(namesIn(await list("", { "x-mcp-toolsets": "files" })), namesOf("files"))
    for (const [query, set] of [["?tools=core", "core"], ["?tools=", "all"]] as const) {
      assert.deepStrictEqual(namesIn(await list(query, { "x-mcp-toolsets": "files" })), namesOf(set))
    }
    assert.isTrue(
      (await list("?tools=people&structured=on")).body.result.tools.every(({ outputSchema }: Json) =>
        outputSchema !== undefined
      )
    )
  })

  it("166. an unknown name is 400 and -32602, which lists the sets, and 401 comes before it", async () => {
    const [modern, headers] = newest("tools/list")
    for (
      const answer of [
        await list("?tools=core,chores"),
        await list("", { "x-mcp-toolsets": "chores" }),
        await post(server, alice.key, modern, headers, "?tools=chores")
      ]
    ) {
      assert.deepStrictEqual([answer.status, answer.body.error.code, answer.body.id], [400, -32_602, 1])
      assert.include(answer.body.error.message, `"chores". The sets are ${SETS.join(", ")}`)
    }
    assert.strictEqual((await post(server, undefined, rpc("tools/list"), older, "?tools=chores")).status, 401)
  })

  it("167. a tool of another set is an unknown tool, in each revision, with progress and without", async () => {
    const call = { name: "agentchat_list_contacts", arguments: {} }
    const [modern, headers] = newest("tools/call", call)
    const withToken = rpc("tools/call", { ...call, _meta: { progressToken: 1 } })
    for (const [body, sent] of [[rpc("tools/call", call), older], [withToken, older], [modern, headers]] as const) {
      const refused = await post(server, alice.key, body, sent, "?tools=core")
      assert.strictEqual(refused.body.error.code, -32_602)
      assert.strictEqual(
        refused.body.error.message,
        (await post(server, alice.key, rpc("tools/call", { name: "agentchat_none" }), older)).body.error.message
      )
      assert.isDefined((await post(server, alice.key, body, sent, "?tools=people")).body.result)
    }
    for (
      const client of [
        new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } }),
        new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "legacy" } })
      ]
    ) {
      const requestInit = { headers: { authorization: `Bearer ${alice.key}` } }
      await client.connect(
        new StreamableHTTPClientTransport(new URL(`${server.url}/mcp?tools=core`), { requestInit, fetch: patient })
      )
      assert.deepStrictEqual((await client.listTools()).tools.map(({ name }) => name), namesOf("core"))
      assert.notMatch(client.getInstructions() ?? "", /agentchat_list_group_invites/)
      await client.close()
    }
  })

  it("167. instructions, prompts and the advice after a refusal name tools of the sets only; resources stay", async () => {
    const ask = async (body: object, query: string) => (await post(server, alice.key, body, older, query)).body
    for (const sets of ["core", "read", "files", "groups,people"]) {
      const query = `?tools=${sets}`
      const known = new Set(namesOf(...sets.split(",") as ReadonlyArray<SetName>))
      const { instructions } = (await ask(initialize("2025-06-18"), query)).result
      const { prompts } = (await ask(rpc("prompts/list"), query)).result
      const texts = [instructions, JSON.stringify((await ask(rpc("tools/list"), query)).result)]
      for (const { name } of prompts)
        texts.push(
          JSON.stringify((await ask(rpc("prompts/get", { name, arguments: { handle: "ada" } }), query)).result)
        )
      for (const text of texts)
        for (const [name] of text.matchAll(/agentchat_\w+/g)) assert.isTrue(known.has(name), `${sets}: ${name}`)
      assert.match(instructions, new RegExp(`@${alice.handle}`))
      assert.strictEqual((await ask(rpc("resources/list"), query)).result.resources.length, 1)
    }
    const promptsOf = async (query: string) =>
      (await ask(rpc("prompts/list"), query)).result.prompts.map(({ name }: Json) => name)
    assert.deepStrictEqual(await promptsOf("?tools=core"), ["introduce_yourself", "check_messages"])
    assert.deepStrictEqual(await promptsOf("?tools=read"), ["check_messages"])
    assert.deepStrictEqual(await promptsOf("?tools=files"), [])
    assert.strictEqual((await ask(rpc("prompts/get", { name: "check_messages" }), "?tools=files")).error.code, -32_602)
    const advised = async (query: string) =>
      refusalIn((await ask(toolCall("agentchat_get_agent_profile", { handle: "nobody-has-this" }), query)).result)
        .advice
    assert.include(await advised("?tools=core"), "agentchat_search_directory")
    const unread = toolCall("agentchat_hide_message", { message_id: "msg_none" })
    assert.isUndefined(refusalIn((await ask(unread, "?tools=people")).result).advice)
  })

  it("168. a wait of the set read acknowledges nothing, even if it is asked to, and core brings the other wait", async () => {
    const said = await say(bob, alice)
    const [row] = await inbox(alice)
    const wait = async (query: string) => {
      const args = { timeout_seconds: 1, limit: 100, acknowledge_through: row?.delivery_id }
      const { result } =
        (await post(server, alice.key, toolCall("agentchat_wait_for_messages", args), older, query)).body
      return answerIn("agentchat_wait_for_messages", result)
    }
    for (let i = 0; i < 2; i++) {
      const shown = await wait("?tools=read")
      assert.include(shown["messages"].map(({ message_id }: Json) => message_id), said.id)
      assert.doesNotHaveAnyKeys(shown, ["acknowledge_through", "acknowledged"])
      assert.notInclude(shown["next"], "acknowledge_through")
    }
    const before = (await inbox(alice)).length
    assert.strictEqual((await wait("?tools=read,core"))["acknowledged"], 1)
    assert.strictEqual((await inbox(alice)).length, before - 1)
  })

  it("169. two hosts of one agent that claim the same messages agree on who answers", async () => {
    const message_ids = [(await say(bob, alice)).id, (await say(bob, alice)).id]
    const claims = await Promise.all(["session:one", "session:two"].map(async (holder) => {
      const { body } = await post(
        server,
        alice.key,
        toolCall("agentchat_claim_messages", { message_ids, holder }),
        older,
        "?tools=people"
      )
      return answerIn("agentchat_claim_messages", body.result)["claimed_count"]
    }))
    assert.deepStrictEqual(claims.toSorted(), [0, 2])
  })

  it("170. every message that a wait and the inbox show has its age in seconds", async () => {
    const said = await say(bob, alice)
    const moment = new Moment()
    const answerOf = async (name: string, args: object) =>
      answerIn(name, (await post(server, alice.key, toolCall(name, args), older)).body.result)
    const { messages } = await answerOf("agentchat_wait_for_messages", { limit: 100 })
    const { conversations } = await answerOf("agentchat_list_inbox", {})
    const ages = [
      ...messages,
      ...conversations.map(({ last_message }: Json) => ({ ...last_message, sent_at: last_message.at }))
    ]
    assert.isAtLeast(ages.length, 2)
    assert.include(messages.map(({ message_id }: Json) => message_id), said.id)
    for (const { age_seconds, sent_at } of ages) {
      assert.isTrue(Number.isInteger(age_seconds) && age_seconds >= 0)
      moment.hasAge(age_seconds, sent_at)
    }
  })
})

describe("wire.md J, MCP: joining", () => {
  let server: Server
  let addresses = 1

  beforeAll(async () => {
    server = await startServer({
      env: {
        TRUST_PROXY: "1",
        LIMITS_REGISTER_PER_HOUR: "5",
        LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "10",
        LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "40"
      }
    })
  })
  afterAll(() => server.stop())

  const somewhere = () => ({ "x-forwarded-for": `203.0.113.${addresses++}` })
  const join = (body: unknown, headers: Record<string, string> = {}, query = "") =>
    post(server, undefined, body, { ...older, ...headers }, `/join${query}`)
  const fresh = () => {
    const handle = freshHandle("join")
    return { handle, email: `${handle}@example.com` }
  }
  const called = async (name: string, args: object, from: Record<string, string>) =>
    (await join(toolCall(name, args), from)).body.result
  const pendingOf = async (who: object, from: Record<string, string>): Promise<string> =>
    answerIn("agentchat_register", await called("agentchat_register", who, from))["pending_id"]

  it("171. unmodified clients register without a key: the key is in the result once, with what to do with it, and works", async () => {
    const from = somewhere()
    const clients = [
      new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } }),
      new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "legacy" } })
    ]
    for (const client of clients) {
      await client.connect(
        new StreamableHTTPClientTransport(new URL(`${server.url}/mcp/join?structured=on`), {
          requestInit: { headers: from },
          fetch: patient
        })
      )
      assert.deepStrictEqual((await client.listTools()).tools.map(({ name }) => name), [
        "agentchat_register",
        "agentchat_verify_otp"
      ])
      assert.deepStrictEqual(Object.keys(client.getServerCapabilities() ?? {}), ["tools"])
      const { email, handle } = fresh()
      const begun = await client.callTool({
        name: "agentchat_register",
        arguments: { email, handle, description: "joins" }
      })
      const { next, pending_id } = begun.structuredContent as Json
      assert.include(next, "agentchat_verify_otp")
      const code = await server.code(email)
      const done = await client.callTool({ name: "agentchat_verify_otp", arguments: { pending_id, code } })
      const [text = "", ...rest] = textsOf(done as never)
      const { agent, api_key, next: then } = JSON.parse(text)
      assert.deepStrictEqual([agent.handle, agent.email, rest], [handle, email, []])
      assert.strictEqual(JSON.stringify(done).split(api_key).length, 2)
      assert.include(then, `by ${server.url}/mcp with the header Authorization: Bearer`)
      const status = await post(server, api_key, toolCall("agentchat_get_my_status"), { ...older, ...from })
      assert.strictEqual(status.body.result.structuredContent.handle, handle)
      const again = refusalIn(await called("agentchat_verify_otp", { pending_id, code }, from))
      assert.deepStrictEqual([again.refusal["code"], again.advice], ["EXPIRED", "Begin again with agentchat_register."])
      for (const secret of [api_key, code]) assert.notInclude(server.log, secret)
      await client.close()
    }
    const old = new OldClient({ name: "test", version: "1" })
    await old.connect(new OldTransport(new URL(`${server.url}/mcp/join`), { requestInit: { headers: from } }) as never)
    assert.strictEqual((await old.listTools()).tools.length, 2)
    await old.close()
  })

  it("172. it has these two tools and nothing else, ignores keys and sets, and /mcp without a key stays 401", async () => {
    const from = somewhere()
    assert.strictEqual((await join(toolCall("agentchat_get_my_status"), from)).body.error.code, -32_602)
    for (const method of ["resources/list", "prompts/list"])
      assert.strictEqual((await join(rpc(method), from)).body.error.code, -32_601)
    const [listen, headers] = newest("subscriptions/listen", {
      notifications: { resourceSubscriptions: ["parley://inbox"] }
    })
    const refused = await join(listen, { ...headers, ...from })
    assert.deepStrictEqual([refused.status, refused.body.error.code], [404, -32_601])
    const dead = await join(rpc("tools/list"), { ...from, authorization: "Bearer ac_dead" }, "?tools=chores")
    assert.strictEqual(dead.body.result.tools.length, 2)
    assert.deepStrictEqual([(await post(server, undefined, rpc("tools/list"), { ...older, ...from })).status], [401])
    for (const tool of ["agentchat_register", "agentchat_verify_otp"]) {
      const agent = await newAgent(server, "member")
      assert.strictEqual(
        (await post(server, agent.key, toolCall(tool), { ...older, ...from })).body.error.code,
        -32_602
      )
    }
    assert.strictEqual((await fetch(`${server.url}/mcp/join`, { headers: from })).status, 405)
    assert.strictEqual((await join(rpc("tools/list"), { ...from, origin: "https://evil.example" })).status, 403)
    const large = await join(toolCall("agentchat_register", { email: "x".repeat(20_000), handle: "large" }), from)
    assert.deepStrictEqual([large.status, large.body.error.data.code], [413, "PAYLOAD_TOO_LARGE"])
  })

  it("173. the refusals are those of C.2, as results of the tools", async () => {
    const from = somewhere()
    const { email, handle } = fresh()
    const codeOf = async (name: string, args: object) => refusalIn(await called(name, args, from)).refusal["code"]
    assert.strictEqual(await codeOf("agentchat_register", { email, handle: "-no-" }), "INVALID_HANDLE")
    assert.strictEqual(await codeOf("agentchat_register", { email: "nonsense", handle }), "VALIDATION_ERROR")
    assert.strictEqual(await codeOf("agentchat_register", { handle }), "VALIDATION_ERROR")
    const pending_id = await pendingOf({ email, handle }, from)
    assert.strictEqual(await codeOf("agentchat_register", { email, handle }), "OTP_COOLDOWN")
    const code = await server.code(email)
    const wrong = String((Number(code) + 1) % 1_000_000).padStart(6, "0")
    const refused = refusalIn(await called("agentchat_verify_otp", { pending_id, code: wrong }, from))
    assert.deepStrictEqual([refused.refusal["code"], refused.refusal["details"]], ["INVALID_CODE", {
      attempts_remaining: 4
    }])
    assert.include(refused.advice, "Do not guess")
    assert.isUndefined((await called("agentchat_verify_otp", { pending_id, code }, from)).isError)
    assert.strictEqual(await codeOf("agentchat_register", { ...fresh(), handle }), "HANDLE_TAKEN")
  })

  it("174. registrations and codes count for the caller's address, together with those of the API, and so do requests", async () => {
    const [from, elsewhere] = [somewhere(), somewhere()]
    for (let i = 0; i < 3; i++) await pendingOf(fresh(), from)
    for (let i = 0; i < 2; i++)
      assert.strictEqual((await server.http().post("/v1/register", fresh(), from)).status, 200)
    const sixth = refusalIn(await called("agentchat_register", fresh(), from))
    assert.strictEqual(sixth.refusal["code"], "RATE_LIMITED")
    assert.match(sixth.advice ?? "", /^Wait \d+ seconds/)
    const api = await server.http().post("/v1/register", fresh(), from)
    assert.strictEqual(api.status, 429)
    const pending_id = await pendingOf(fresh(), elsewhere)
    const codes = []
    for (let i = 0; i < 11; i++)
      codes.push(
        refusalIn(await called("agentchat_verify_otp", { pending_id: `${pending_id}x`, code: "000000" }, elsewhere))
          .refusal["code"]
      )
    assert.deepStrictEqual(new Set(codes.slice(0, 10)), new Set(["EXPIRED"]))
    assert.strictEqual(codes[10], "RATE_LIMITED")

    const flood = somewhere()
    for (let i = 0; i < 39; i++) await join(rpc("ping"), flood)
    const left = await join(toolCall("agentchat_verify_otp", { pending_id: "reg_none", code: "000000" }), flood)
    assert.deepStrictEqual([left.status, refusalIn(left.body.result).refusal["code"]], [200, "EXPIRED"])
    const spent = await join(toolCall("agentchat_register", fresh()), flood)
    assert.deepStrictEqual([spent.status, refusalIn(spent.body.result).refusal["code"]], [200, "RATE_LIMITED"])
    const listed = await join(rpc("tools/list"), flood)
    assert.deepStrictEqual([listed.status, listed.body.error.data.code], [429, "RATE_LIMITED"])
    assert.strictEqual((await join(rpc("tools/list"), somewhere())).status, 200)
  })
})
