import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { setTimeout as pause } from "node:timers/promises"
import { EventReceiver, secretOf } from "../../test/mcp/EventReceiver.ts"
import { newest, post } from "../../test/mcp/Mcp.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Cluster, missingForNodes, on, send } from "../../test/support/Nodes.ts"
import { newAgent, type Server, type TestAgent } from "../../test/support/Server.ts"

/** Subscriptions, whose owners are on both nodes. */
const SUBSCRIPTIONS = 16
/** Messages to each of them before, during and after the end of a node. */
const EACH = 10
const LONGEST_WAIT_MS = 60_000

describe.skipIf(missingForNodes !== "")(`events while nodes are killed${missingForNodes}`, { timeout: 240_000 }, () => {
  let cluster: Cluster
  let receiver: EventReceiver
  beforeAll(async () => {
    cluster = await Cluster.start(2, { WEBHOOK_ALLOW_PRIVATE: "loopback", WEBHOOK_RETRY_SECONDS: "1,1,1,1,1" })
    receiver = await EventReceiver.start()
  })
  afterAll(async () => {
    receiver.stop()
    await cluster?.stop()
  })

  it("every subscription gets every event in order, and repeats only what a killed node had posted", async () => {
    const [one, two] = cluster.pair
    const alice = await newAgent(one, "alice")
    const sent = new Map<string, Array<string>>()
    const bobs: Array<{ readonly id: string; readonly agent: TestAgent }> = []
    for (let i = 0; i < SUBSCRIPTIONS; i++) {
      const agent = await newAgent(one, "bob")
      await send(alice, { to: agent.handle }, "hello")
      await send(agent, { to: alice.handle }, "hello")
      const [body, headers] = newest("events/subscribe", {
        name: "message.received",
        delivery: { mode: "webhook", url: receiver.url(`/${i}`), secret: secretOf() }
      })
      const { error, result } = (await post(i % 2 === 0 ? one : two, agent.key, body, headers)).body
      assert.isUndefined(error, JSON.stringify(error))
      bobs.push({ id: result.id, agent })
      sent.set(result.id, [])
    }
    /** Sends messages to all subscribers side by side, to each of them one after the other, by a node that lives. */
    const burst = (node: Server) =>
      Promise.all(bobs.map(async ({ agent, id }) => {
        for (let i = 0; i < EACH; i++) {
          const client_msg_id = `${id}-${sent.get(id)!.length}`
          const message = await eventually(`a send of ${client_msg_id}`, async () => {
            const answer = await on(node, alice).http.post("/v1/messages", {
              to: agent.handle,
              client_msg_id,
              type: "text",
              content: { text: "x" }
            })
            return answer.status === 200 || answer.status === 201 ? answer.body as { readonly id: string } : undefined
          }, LONGEST_WAIT_MS)
          sent.get(id)!.push(message.id)
        }
      }))
    const posts = (subscription: string) =>
      receiver.taken.filter(({ headers }) => headers["x-mcp-subscription-id"] === subscription)
    const all = () => [...sent.values()].reduce((sum, ids) => sum + ids.length, 0)
    const told = () => new Set(receiver.taken.map(({ body }) => String(body.eventId))).size

    await burst(one)
    await eventually("all events before", () => told() === all() || undefined, LONGEST_WAIT_MS)
    for (const [dies, lives] of [[1, 0], [0, 1]] as const) {
      const sending = burst(cluster.nodes[lives]!)
      // The node dies while posts are under way, and between commits and posts.
      const before = receiver.posts.length
      await eventually("posts", () => receiver.posts.length > before + SUBSCRIPTIONS || undefined, LONGEST_WAIT_MS)
      const node = cluster.nodes[dies]!
      await node.kill()
      const killed = performance.now()
      await sending
      await burst(cluster.nodes[lives]!)
      await eventually("all events", () => told() === all() || undefined, LONGEST_WAIT_MS)
      console.log(
        `node ${dies + 1} killed: all ${all()} events after ${((performance.now() - killed) / 1_000).toFixed(1)} s`
      )
      await cluster.add(node)
    }
    await pause(2_000)
    let repeats = 0
    for (const [subscription, ids] of sent) {
      const got = posts(subscription).map(({ body }) => ({
        event: String(body.eventId),
        message: String(body.data.message_id)
      }))
      const once = got.filter(({ event }, i) => got[i - 1]?.event !== event)
      repeats += got.length - once.length
      assert.deepStrictEqual(once.map(({ message }) => message), ids)
    }
    console.log(`${all()} events to ${SUBSCRIPTIONS} subscriptions, ${repeats} of them twice`)
    assert.isAtMost(repeats, 2 * SUBSCRIPTIONS)
  })
})
