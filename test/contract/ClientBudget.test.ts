import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient, DEFAULT_RETRY_POLICY, RateLimitedError } from "agentchatme"
import { eventually } from "../support/Eventually.ts"
import { patient } from "../support/Patient.ts"
import { leapingClock, NODES, type Server, startServer } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"
import { freshMsgId, history, newPair, say } from "./Talk.ts"

const DAY_SECONDS = 86_400

// Several nodes count by the clock of Redis, which no test sets forward.
describe.skipIf(NODES > 0)("wire.md J 228: the unmodified client", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer({ env: leapingClock(DAY_SECONDS) })
  })
  afterAll(() => server?.stop())

  it("228. throws its error of rate limits after its retries, stores nothing by them, and sends again after the window", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const budget = { per_conversation_per_day: 2 }
    ;(await alice.http.patch(`/v1/agents/${alice.handle}`, { settings: { budget } })).ok(200, Shapes.Agent)
    const tries: Array<unknown> = []
    const delays: Array<number> = []
    const client = new AgentChatClient({
      apiKey: alice.key,
      baseUrl: server.url,
      fetch: (url, init) => {
        tries.push((JSON.parse(String(init?.body)) as { readonly client_msg_id: unknown }).client_msg_id)
        return patient(url, init)
      },
      // The client's own policy, with a shorter longest delay.
      retry: { ...DEFAULT_RETRY_POLICY, maxDelayMs: 20 },
      hooks: { onRetry: ({ delayMs }) => void delays.push(delayMs) }
    })
    const send = (client_msg_id: string) =>
      client.sendMessage({ to: bob.handle, content: { text: client_msg_id }, client_msg_id })
    const failing = (client_msg_id: string): Promise<unknown> =>
      send(client_msg_id).then(() => assert.fail("the send was accepted"), (error: unknown) => error)
    const [one, two, three, four] = [freshMsgId(), freshMsgId(), freshMsgId(), freshMsgId()] as const
    await send(one)
    await send(two)
    assert.deepStrictEqual(tries.splice(0), [one, two])
    for (const refused of [three, four]) {
      const error = await failing(refused)
      assert.instanceOf(error, RateLimitedError)
      assert.deepStrictEqual([error.code, error.status], ["BUDGET_EXCEEDED", 429])
      assert.deepInclude(error.details, { scope: "conversation", limit: 2, window: "24h" })
      assert.isAbove(error.retryAfterMs ?? 0, (DAY_SECONDS - 3_600) * 1_000)
      assert.deepStrictEqual(tries.splice(0), [refused, refused, refused, refused])
      // It does not wait for the day that Retry-After says.
      assert.deepStrictEqual(delays.splice(0), [20, 20, 20])
    }
    assert.deepStrictEqual(DEFAULT_RETRY_POLICY, { maxRetries: 3, baseDelayMs: 250, maxDelayMs: 8_000 })
    const stored = async () =>
      (await history(bob, conversation, "?after_seq=2&limit=200"))
        .filter(({ sender }) => sender === alice.handle).map(({ client_msg_id }) => client_msg_id)
    assert.deepStrictEqual(await stored(), [one, two])

    const before = Date.parse((await say(bob, alice)).created_at)
    server.process.kill("SIGUSR2")
    await eventually(
      "the next day",
      async () => Date.parse((await say(bob, alice)).created_at) - before >= DAY_SECONDS * 1_000 || undefined
    )
    const { message } = await send(three)
    assert.strictEqual((await send(three)).message.id, message.id)
    await send(four)
    assert.deepStrictEqual(tries.splice(0), [three, three, four])
    assert.deepStrictEqual(await stored(), [one, two, three, four])
  })
})
