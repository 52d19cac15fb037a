import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { begin, connect, pushTo } from "../../test/a2a/A2a.ts"
import { newPair, type Pair, say } from "../../test/contract/Talk.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Hosts } from "../../test/support/Hosts.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"

/** The longest that the setting allows: a dead target holds its place for the whole test. */
const TIMEOUT_SECONDS = "60"
const POSTS = 50
const AT_ONCE = 10
const FACTOR = 3
/** Latencies below these count as these: a post that waits for a dead target waits for the whole time-out. */
const FLOOR_MS = { median: 1_000, slowest: 5_000 }

const HOOKS = 5
const AGENTS = 40
const HOSTS = AGENTS * HOOKS + 2
/** The hosts of the healthy webhook, and of one that comes later. */
const HEALTHY = HOSTS - 1
const FRESH = HOSTS - 2

describe("dead targets", () => {
  let server: Server
  let hosts: Hosts
  let healthy: Pair
  let before: Latencies
  beforeAll(async () => {
    hosts = await Hosts.start(HOSTS)
    server = await startServer({
      env: {
        WEBHOOK_ALLOW_PRIVATE: "loopback",
        WEBHOOK_TIMEOUT_SECONDS: TIMEOUT_SECONDS,
        LIMITS_PUSH_CONFIGS_PER_TASK: "100"
      }
    })
    healthy = await newPair(server)
    await hook(healthy.bob, hosts.url(HEALTHY, "/healthy"))
    await latencies()
    before = await latencies()
  })
  afterAll(async () => {
    hosts?.stop()
    await server?.stop()
  })

  interface Latencies {
    readonly median: number
    readonly slowest: number
  }

  const hook = async (agent: TestAgent, url: string): Promise<void> => {
    assert.strictEqual((await agent.http.post("/v1/webhooks", { url, events: ["message.new"] })).status, 201)
  }

  /** How long posts take from the send to their arrival at the healthy webhook. */
  const latencies = async (): Promise<Latencies> => {
    const found: Array<number> = []
    for (let sent = 0; sent < POSTS; sent += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, async () => {
        const sentAt = performance.now()
        const { id } = await say(healthy.alice, healthy.bob)
        found.push(
          await eventually("a post to the healthy webhook", () => hosts.arrived.get(`/healthy ${id}`)) - sentAt
        )
      }))
    }
    const sorted = found.toSorted((a, b) => a - b)
    return { median: sorted[POSTS / 2]!, slowest: sorted.at(-1)! }
  }

  const stillHolding = (holding: number): void => {
    assert.isAtLeast(hosts.holding, holding)
    assert.strictEqual(hosts.answered, 0)
  }

  /** Posts to the healthy webhook go on as before while the dead targets hold this many places or more. */
  const goOn = async (holding: number): Promise<void> => {
    await eventually(`${holding} posts without an answer`, () => hosts.holding >= holding || undefined)
    const now = await latencies()
    stillHolding(holding)
    for (const what of ["median", "slowest"] as const) {
      const most = FACTOR * Math.max(before[what], FLOOR_MS[what])
      assert.isBelow(now[what], most, `the ${what} latency was ${before[what]} ms without the dead targets`)
    }
  }

  /** Posts come to this many targets that are back, each at least once. */
  const allArrive = async (targets: number): Promise<void> => {
    hosts.revive()
    await eventually(
      `posts to ${targets} targets that are back`,
      () => hosts.answeredTargets.size >= targets || undefined
    )
    assert.strictEqual(hosts.answeredTargets.size, targets)
    hosts.kill()
  }

  it("two agents with a hundred push configurations leave the places of others alone", async () => {
    const CONFIGS = 50
    const pairs = await Promise.all([newPair(server), newPair(server)])
    for (const [i, { alice, bob }] of pairs.entries()) {
      const client = await connect(server, alice, bob, "JSONRPC")
      const task = await begin(client, "a task with many configurations")
      for (let n = 0; n < CONFIGS; n++) {
        await client.createTaskPushNotificationConfig(pushTo(hosts.url(i * CONFIGS + n, "/dead"), { taskId: task.id }))
      }
      await say(bob, alice, { metadata: { reply_to: task.id } })
    }
    await goOn(pairs.length)
    await allArrive(2 * CONFIGS)
  })

  it("forty agents with five webhooks each, some on the healthy host, delay neither the healthy webhook nor a new one", async () => {
    const agents = await Promise.all(Array.from({ length: AGENTS }, () => newAgent(server, "dead")))
    await Promise.all(agents.map(async (agent, i) => {
      for (let n = 0; n < HOOKS; n++) {
        const host = n === 0 && i < 10 ? HEALTHY : i * HOOKS + n
        await hook(agent, hosts.url(host, `/dead/${i}`))
      }
    }))
    await Promise.all(agents.map((agent) => say(healthy.alice, agent)))
    await goOn(AGENTS)
    // Neither does a target wait that was never posted to.
    const fresh = await newAgent(server, "fresh")
    await hook(fresh, hosts.url(FRESH, "/fresh"))
    const { id } = await say(healthy.alice, fresh)
    await eventually("a post to a new target", () => hosts.arrived.get(`/fresh ${id}`))
    stillHolding(AGENTS)
    await allArrive(AGENTS * HOOKS)
  })
})
