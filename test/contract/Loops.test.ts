import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { answerIn, type Json, older, post, type Raw, refusalIn, rpc } from "../mcp/Mcp.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import type * as Shapes from "./Shapes.ts"
import { catchUp, history, inbox, say, words } from "./Talk.ts"

const BUDGET = 6
/** A loop of two within the budget stays below this limit; a loop of three reaches the limit within the budget. */
const HOPS = 12

describe("wire.md J, loops of agents that answer each other by MCP", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer({
      env: { LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY: String(BUDGET), LIMITS_HOPS: String(HOPS) }
    })
  })
  afterAll(() => server?.stop())

  const tool = async (agent: TestAgent, name: string, args: object): Promise<Raw> =>
    post(server, agent.key, rpc("tools/call", { name, arguments: args }), older)
  const write = (from: TestAgent, to: TestAgent, reply_to?: string): Promise<Raw> =>
    tool(from, "agentchat_send_message", {
      to: to.handle,
      text: words(),
      ...reply_to === undefined ? {} : { reply_to }
    })
  const sent = ({ body }: Raw): Record<string, Json> => answerIn("agentchat_send_message", body.result)
  const codeOf = ({ body }: Raw): unknown => refusalIn(body.result).refusal["code"]

  /** The id of the newest message that waits for an agent, as its model gets it. */
  const received = async (agent: TestAgent): Promise<string> => {
    const { body } = await tool(agent, "agentchat_wait_for_messages", { timeout_seconds: 30 })
    const { messages } = answerIn("agentchat_wait_for_messages", body.result) as {
      readonly messages: ReadonlyArray<{ readonly message_id: string }>
    }
    const newest = messages.at(-1)
    if (newest === undefined) return assert.fail("no message arrived")
    await catchUp(agent)
    return newest.message_id
  }
  const hopsOf = (messages: ReadonlyArray<Shapes.Message>) => messages.map(({ metadata }) => metadata["hops"])

  it("229. two agents that reply to each message by MCP are stopped at the budget exactly", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    let cause: string | undefined
    for (let turn = 0; turn < 2 * BUDGET; turn++) {
      const [from, to] = turn % 2 === 0 ? [alice, bob] : [bob, alice]
      sent(await write(from, to, cause))
      cause = await received(to)
    }
    const refused = await write(alice, bob, cause)
    assert.strictEqual(codeOf(refused), "BUDGET_EXCEEDED")
    // Neither side gets anything through, however often and at once it tries.
    const more = await Promise.all(
      Array.from({ length: 20 }, (_, i) => i % 2 === 0 ? write(alice, bob, cause) : write(bob, alice))
    )
    assert.deepStrictEqual(new Set(more.map(codeOf)), new Set(["BUDGET_EXCEEDED"]))
    assert.deepStrictEqual([await inbox(alice), await inbox(bob)], [[], []])
    const { conversation_id } = await say(alice, bob)
    const all = await history(bob, conversation_id, "?after_seq=0&limit=200")
    assert.deepStrictEqual(all.map(({ sender }) => sender), [
      ...Array.from({ length: 2 * BUDGET }, (_, turn) => turn % 2 === 0 ? alice.handle : bob.handle),
      // A program of the agent may still write.
      alice.handle
    ])
    assert.deepStrictEqual(hopsOf(all.slice(0, -1)), [
      undefined,
      ...Array.from({ length: 2 * BUDGET - 1 }, (_, i) => i + 1)
    ])
  })

  it("230. three agents that write to the next one by MCP are stopped at the limit of hops exactly", async () => {
    const circle = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob"), newAgent(server, "carol")])
    const next = (i: number): readonly [TestAgent, TestAgent] => [circle[i % 3]!, circle[(i + 1) % 3]!]
    const conversations: Array<string> = []
    for (let i = 0; i < 3; i++) {
      const [from, to] = next(i)
      conversations.push((await say(from, to)).conversation_id)
      await say(to, from)
    }
    for (const agent of circle) await catchUp(agent)
    let cause: string | undefined
    for (let i = 0; i <= HOPS; i++) {
      const [from, to] = next(i)
      sent(await write(from, to, cause))
      cause = await received(to)
    }
    const [from, to] = next(HOPS + 1)
    const { advice, refusal } = refusalIn((await write(from, to, cause)).body.result)
    assert.deepInclude(refusal, { code: "TOO_MANY_HOPS", details: { hops: HOPS + 1, limit: HOPS } })
    assert.match(advice ?? "", /Stop, and tell the person you work for\./)
    const more = await Promise.all(Array.from({ length: 10 }, () => write(from, to, cause)))
    assert.deepStrictEqual(new Set(more.map(codeOf)), new Set(["TOO_MANY_HOPS"]))
    assert.deepStrictEqual(await inbox(to), [])
    for (const [at, conversation] of conversations.entries()) {
      const all = await history(circle[at]!, conversation, "?after_seq=2&limit=200")
      const expected = Array.from({ length: HOPS + 1 }, (_, i) => i).filter((i) => i % 3 === at)
      assert.deepStrictEqual(hopsOf(all), expected.map((i) => i === 0 ? undefined : i))
    }
  })
})
