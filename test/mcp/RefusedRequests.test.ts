import { HOST_FAMILIES, hostFamily } from "#interfaces/mcp/HostFamily"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { newPair } from "../contract/Talk.ts"
import { eventually } from "../support/Eventually.ts"
import { type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { initialize, type Json, newest, older, post, type Raw, rpc } from "./Mcp.ts"

describe("refused requests of /mcp", () => {
  let server: Server
  let alice: TestAgent
  let conversation: string

  beforeAll(async () => {
    server = await sharedServer()
    ;({ alice, conversation } = await newPair(server))
  })
  afterAll(() => server.stop())

  /** The line of the log about one request. */
  const lineOf = async ({ headers }: Pick<Raw, "headers">): Promise<Json> => {
    const id = headers.get("x-request-id") ?? ""
    const line = await eventually(
      "the line of the log",
      () => server.log.split("\n").slice(0, -1).find((one) => one.includes(id) && /"(?:Refused|Answered)"/.test(one))
    )
    return JSON.parse(line)
  }

  const counted = async (): Promise<ReadonlyMap<string, number>> => {
    const { text } = await server.http().get("/internal/metrics")
    return new Map(
      [...text.matchAll(/^mcp_requests_total\{(.*)\} (\d+)$/gm)].map((
        [, labels = "", value]
      ) => [labels, Number(value)])
    )
  }

  const call = (name: string, args: object = {}): object => rpc("tools/call", { name, arguments: args })
  const [unknownMethod, newestHeaders] = newest("tools/unknown")

  const cases: ReadonlyArray<
    readonly [
      what: string,
      make: () => Promise<Pick<Raw, "headers" | "status">>,
      status: number,
      code: string,
      why: RegExp
    ]
  > = [
    ["no key", () => post(server, undefined, rpc("tools/list"), older), 401, "UNAUTHORIZED", /no Authorization header/],
    [
      "a header without a key",
      () => post(server, undefined, rpc("tools/list"), { ...older, authorization: "ac_x" }),
      401,
      "UNAUTHORIZED",
      /does not begin with `Bearer `/
    ],
    [
      "a dead key",
      () => post(server, `${alice.key}x`, rpc("tools/list"), older),
      401,
      "UNAUTHORIZED",
      /No agent has this key/
    ],
    [
      "another page",
      () => post(server, alice.key, rpc("tools/list"), { ...older, origin: "https://evil.example" }),
      403,
      "FORBIDDEN",
      /ALLOWED_ORIGINS/
    ],
    ["no JSON", () => post(server, alice.key, "{", older), 400, "-32700", /not valid JSON/],
    [
      "an unknown revision",
      () => post(server, alice.key, rpc("tools/list"), { "mcp-protocol-version": "1999-01-01" }),
      400,
      "-32000",
      /Unsupported/
    ],
    [
      "a number that would be changed",
      () =>
        post(
          server,
          alice.key,
          `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"agentchat_send_message","arguments":{"data":{"id":9007199254740993}}}}`,
          older
        ),
      200,
      "-32602",
      /^params\.arguments\.data\.id: .* write it as a string$/
    ],
    [
      "an id that would be changed",
      () => post(server, alice.key, `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}`, older),
      400,
      "-32600",
      /^id: .* write it as a string$/
    ],
    [
      "an id of 257 characters",
      () => post(server, alice.key, `{"jsonrpc":"2.0","id":"${"i".repeat(257)}","method":"tools/list"}`, older),
      400,
      "-32600",
      /at most 256 characters/
    ],
    [
      "a compressed body",
      () => post(server, alice.key, rpc("tools/list"), { ...older, "content-encoding": "gzip" }),
      415,
      "UNSUPPORTED_ENCODING",
      /without Content-Encoding/
    ],
    [
      "an unknown tool",
      () => post(server, alice.key, call("agentchat_nothing"), older),
      200,
      "-32602",
      /no tool of this name/
    ],
    ["an unknown method", () => post(server, alice.key, unknownMethod, newestHeaders), 404, "-32601", /./],
    [
      "a refused call",
      () => post(server, alice.key, call("agentchat_get_group", { group_id: "grp_none" }), older),
      200,
      "GROUP_NOT_FOUND",
      /^agentchat_get_group: /
    ],
    [
      "a refused wait",
      () => post(server, alice.key, call("agentchat_wait_for_messages", { limit: 0 }), older),
      200,
      "VALIDATION_ERROR",
      /^agentchat_wait_for_messages: limit: /
    ],
    [
      "the old transport",
      () => fetch(`${server.url}/mcp`, { headers: { authorization: `Bearer ${alice.key}` } }),
      405,
      "METHOD_NOT_ALLOWED",
      /./
    ]
  ]
  for (const [what, make, status, code, why] of cases) {
    it(`${what}: a line of the log says why`, async () => {
      const answer = await make()
      const line = await lineOf(answer)
      assert.deepStrictEqual(
        [answer.status, line.message, line.status, line.path, line.code],
        [status, "Refused", status, "/mcp", code]
      )
      assert.match(line.why, why)
      assert.isString(line.host)
      assert.notInclude(server.log, alice.key)
    })
  }

  it("a request of the API without a live key has such a line too, and one that is granted has none", async () => {
    const refused = await lineOf(
      await fetch(`${server.url}/v1/agents/me`, { headers: { authorization: "Bearer ac_nothing" } })
    )
    assert.deepStrictEqual([refused.message, refused.code], ["Refused", "UNAUTHORIZED"])
    assert.match(refused.why, /No agent has this key/)
    // A call inside that is refused, and of which the tool makes a good answer, does not count.
    const granted = await lineOf(
      await post(
        server,
        alice.key,
        call("agentchat_get_conversation", {
          conversation_id: conversation,
          attention_message_ids: ["msg_unknown"]
        }),
        older
      )
    )
    assert.strictEqual(granted.message, "Answered")
    assert.notProperty(granted, "code")
  })

  it("requests are counted by the family of their host and by outcome", async () => {
    const before = await counted()
    const claude = { ...older, "user-agent": "claude-code/2.1.330 (cli)" }
    const stranger = { ...older, "user-agent": `Somebody's own/${Math.random()}` }
    await post(server, alice.key, initialize("2025-06-18"), claude)
    await post(server, alice.key, call("agentchat_get_my_status"), claude)
    await post(server, alice.key, call("agentchat_get_my_status"), stranger)
    await post(server, alice.key, call("agentchat_get_group", { group_id: "grp_none" }), claude)
    await post(server, undefined, initialize("2025-06-18"), claude)
    const after = await eventually("the last count", async () => {
      const counts = await counted()
      const key = `host="claude-code",outcome="unauthorized"`
      return (counts.get(key) ?? 0) > (before.get(key) ?? 0) ? counts : undefined
    })
    const grown = Object.fromEntries([...after].flatMap(([labels, value]) => {
      const more = value - (before.get(labels) ?? 0)
      return more > 0 ? [[labels, more]] : []
    }))
    assert.deepInclude(grown, {
      [`host="claude-code",outcome="answered"`]: 2,
      [`host="claude-code",outcome="unauthorized"`]: 1,
      [`host="other",outcome="answered"`]: 1
    })
    // A busy server refuses some with 503, and they are sent again.
    assert.isAtLeast(grown[`host="claude-code",outcome="refused"`] ?? 0, 1)
  })

  it("a host's family is one of a few, whatever it calls itself", () => {
    const known = {
      "claude-code/2.1.330 (cli)": "claude-code",
      "Claude-User": "claude",
      "codex-mcp-client/0.169.0": "codex",
      "openai-mcp/1.0.0 (Chat)": "openai",
      "opencode/1.18.33": "opencode",
      "Visual Studio Code/1.99": "vscode",
      "python-httpx/0.28.1": "python",
      "node": "node",
      "Bun/1.3.0": "bun",
      "": "none",
      "curl/8.5.0": "other"
    }
    for (const [userAgent, family] of Object.entries(known))
      assert.strictEqual(hostFamily(userAgent), family, userAgent)
    assert.strictEqual(hostFamily(undefined), "none")
    for (let i = 0; i < 100; i++) assert.include(HOST_FAMILIES, hostFamily(`agent-${i}/${"x".repeat(i * 100)}`))
  })
})
