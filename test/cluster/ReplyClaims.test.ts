import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { randomUUID } from "node:crypto"
import { untilTaken } from "../support/Http.ts"
import { Cluster, missingForNodes, on, type Sent } from "../support/Nodes.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"

/** Sends a message; as often as it takes while a busy node is out of the cluster. */
const say = async (from: TestAgent, to: TestAgent): Promise<Sent> => {
  const body = { to: to.handle, client_msg_id: randomUUID(), content: { text: "a word" } }
  const answer = await untilTaken(() => from.http.post("/v1/messages", body))
  assert.isTrue(answer.status === 201 || answer.status === 200, `${answer}`)
  return answer.body as Sent
}

interface Claim {
  readonly claimed: boolean
  readonly deferred: boolean
}

const claim = async (agent: TestAgent, message_id: string, holder: string, defer_if_active = false): Promise<Claim> => {
  const answer = await untilTaken(() => agent.http.post("/v1/reply/claim", { message_id, holder, defer_if_active }))
  assert.strictEqual(answer.status, 200, `${answer}`)
  return answer.body as Claim
}

const lease = async (agent: TestAgent, method: "PUT" | "DELETE"): Promise<void> => {
  const answer = await untilTaken(() => agent.http.request(method, "/v1/reply/active", { json: { session_id: "one" } }))
  assert.strictEqual(answer.status, 200, `${answer}`)
}

describe.skipIf(missingForNodes !== "")(`claims over two nodes${missingForNodes}`, () => {
  let cluster: Cluster
  let one: Server
  let two: Server
  let sender: TestAgent
  let agent: TestAgent
  beforeAll(async () => {
    cluster = await Cluster.start(2)
    ;[one, two] = cluster.nodes as [Server, Server]
    sender = await newAgent(one, "sender")
    agent = await newAgent(one, "agent")
    await say(sender, agent)
    await say(agent, sender)
  })
  afterAll(() => cluster?.stop())

  /** The agent's processes, each at one of the nodes. */
  const at = (i: number): TestAgent => on(i % 2 === 0 ? one : two, agent)

  it("156. of 200 that claim a message at once one has it, and has it again wherever it asks", async () => {
    const { id } = await say(sender, agent)
    const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => claim(at(i), id, `daemon:${i}`)))
    const holders = answers.flatMap(({ claimed }, i) => claimed ? [i] : [])
    assert.lengthOf(holders, 1)
    const again = await Promise.all(Array.from({ length: 20 }, (_, i) => claim(at(i), id, `daemon:${holders[0]}`)))
    assert.isTrue(again.every(({ claimed }) => claimed))
  })

  it("156. of batches at once over the same messages one has them all, in whichever order they are named", async () => {
    const ids: Array<string> = []
    for (let i = 0; i < 10; i++) ids.push((await say(sender, agent)).id)
    const counts = await Promise.all(Array.from({ length: 40 }, async (_, i) => {
      const message_ids = i % 4 < 2 ? ids : ids.toReversed()
      const answer = await untilTaken(() => at(i).http.post("/v1/reply/claim-batch", { message_ids, holder: `daemon:${i}` }))
      assert.strictEqual(answer.status, 200, `${answer}`)
      return (answer.body as { readonly claimed_count: number }).claimed_count
    }))
    assert.deepStrictEqual(counts.filter((n) => n > 0), [10])
  })

  it("a lease that was begun on the other node defers at once, and one that has ended does not", async () => {
    for (let i = 0; i < 20; i++) {
      const { id } = await say(sender, agent)
      await lease(at(i), "PUT")
      assert.deepInclude(await claim(at(i + 1), id, "daemon:1", true), { claimed: false, deferred: true })
      await lease(at(i), "DELETE")
      assert.deepInclude(await claim(at(i + 1), id, "daemon:1", true), { claimed: true, deferred: false })
    }
  })

  it("a claim stands after the death of the node that granted it", async () => {
    const { id } = await say(sender, agent)
    assert.isTrue((await claim(on(two, agent), id, "daemon:1")).claimed)
    cluster.nodes.splice(1, 1)
    await two.kill()
    const here = on(one, agent)
    assert.isFalse((await claim(here, id, "session:1")).claimed)
    assert.isTrue((await claim(here, id, "daemon:1")).claimed)
  })
})
