import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client } from "pg"
import { Balancer } from "../../runners/local/Balancer.ts"
import { check } from "../../verification/faults/Checker.ts"
import { NEVER } from "../../verification/faults/History.ts"
import { Load, LOAD_LIMITS, type LoadAgent } from "../../verification/faults/Load.ts"
import { outageOf } from "../../verification/faults/Outage.ts"
import { readFinal } from "../../verification/faults/ReadFinal.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { Cluster, missingForNodes } from "../support/Nodes.ts"
import { MEASURES, Stopwatch } from "../support/Promptly.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

const AGENTS = 24
const COLD_CAP = 10
const SEED = 7

const shardsOf = (node: Server): Promise<number> => metricOf(node, "effect_cluster_shards")

/**
 * The short form of `npm run test:faults`: its load and its checker, one node killed, one stopped for seconds, both
 * restarted.
 */
describe.skipIf(missingForNodes !== "")(`fail-over${missingForNodes}`, () => {
  let cluster: Cluster
  let balancer: Balancer
  let load: Load
  let agents: ReadonlyArray<TestAgent>

  beforeAll(async () => {
    cluster = await Cluster.start(2, { ...LOAD_LIMITS, LIMITS_COLD_CONVERSATIONS: String(COLD_CAP) })
    balancer = await Balancer.start(() => cluster.nodes.map(({ url }) => url))
    agents = await Promise.all(["watcher", "rotated", "watched"].map((prefix) => newAgent(cluster.nodes[0]!, prefix)))
    await agents[2]!.client.sendMessage({ to: agents[0]!.handle, content: { text: "hello" } })
    await agents[0]!.client.sendMessage({ to: agents[2]!.handle, content: { text: "hello to you" } })
    const database = cluster.env["DATABASE_URL"] ?? ""
    const handles = Array.from({ length: AGENTS }, (_, i) => `load-${i}`)
    const made = await adminHere({ DATABASE_URL: database }, "agents", "create", "--json", ...handles)
    const keys = JSON.parse(made.stdout) as ReadonlyArray<Omit<LoadAgent, "key"> & { readonly api_key: string }>
    load = await Load.start({
      agents: keys.map(({ api_key, handle, id }) => ({ handle, id, key: api_key })),
      urls: () => [balancer.url],
      database,
      seed: SEED,
      rate: 40,
      lanes: 64,
      clientShare: 0.1
    })
  })
  afterAll(async () => {
    await load?.stop()
    load?.close()
    balancer?.stop()
    await cluster?.stop()
  })

  /** A client retries for some seconds, and a busy machine may take longer. */
  const noSendFailed = () => {
    if (MEASURES) assert.deepStrictEqual(load.stats.failed, {}, "sends that failed in spite of all retries")
  }

  it("conversations of a node that is killed take messages again within seconds", async () => {
    const [one, two] = cluster.pair
    const [watcher, keyless, watched] = agents as [TestAgent, TestAgent, TestAgent]
    // A key that was replaced by a node that did not live to tell the others, and a socket that dies with it.
    const rotated = await Socket.hello(one, keyless.key)
    const client = new Client(cluster.env["DATABASE_URL"])
    await client.connect()
    await client.query("UPDATE agents SET key_hash = sha256('another'::bytea) WHERE id = $1", [keyless.id])
      .finally(() => client.end())
    await Socket.hello(two, watched.key)
    const presence = (status: string) =>
      eventually(`a presence ${status}`, async () => {
        const answer = await watcher.http.get(`/v1/presence/${watched.handle}`)
        return (answer.body as { readonly status: string }).status === status || undefined
      })
    await presence("online")
    const { history } = load
    const killed = { name: "kill", from: history.now(), until: NEVER, healed: NEVER }
    history.faults.push(killed)
    two.process.kill("SIGKILL")
    await rotated.closedWith(1008)
    await presence("offline")
    // Within 5 s on a machine that has nothing else to do: the long form holds it to that.
    const begun = history.sends.length
    const outage = await eventually("every conversation to take messages again", () => {
      const found = outageOf(history, killed.from, history.now())
      return history.sends.length > begun + 80 && Number.isFinite(found.seconds) ? found : undefined
    })
    console.log(`fail-over after ${outage.seconds.toFixed(2)} s at the latest`)
    await two.kill()
    killed.until = history.now()
    await cluster.add(two)
    killed.healed = history.now()
    noSendFailed()
  })

  it("a restart of one node after the other fails no send of the published client, also while their secret is changed", async () => {
    const { history } = load
    const span = { name: "restart", from: history.now(), until: NEVER, healed: NEVER }
    history.faults.push(span)
    const old = cluster.env["RUNNER_SECRET"]
    // Every pair of settings that meet in the two rolling restarts of a change: old with both, both with new.
    const secrets = [`a new secret, ${old}`, "a new secret"]
    for (const [i, node] of [...cluster.nodes].entries()) {
      const socket = await Socket.hello(node, agents[0]!.key)
      const stopping = new Stopwatch()
      node.terminate()
      await eventually(
        "503 on /v1/ready",
        // It serves for two seconds more.
        () =>
          fetch(`${node.url}/v1/ready`).then(
            ({ status }) => status === 503 || undefined,
            () => MEASURES ? undefined : true
          )
      )
      await eventually(
        "its shards on the other node",
        async () => await shardsOf(cluster.nodes[1 - i]!) === 300 || undefined
      )
      await socket.closedWith(1001)
      await node.ended()
      stopping.endsWithin(15_000)
      await cluster.add(node, { RUNNER_SECRET: secrets[i]! })
    }
    // A node that gets no processor time for seconds is excluded, or does not try its second secret in time.
    if (MEASURES) {
      for (const { log } of cluster.nodes)
        assert.notMatch(log, /was excluded from|Refused a connection/)
    }
    span.until = history.now()
    span.healed = history.now()
    noSendFailed()
  })

  it("afterwards everything that was accepted is there, once, in order, and for those it was for", async () => {
    await load.stop()
    await load.settle()
    const { history, keys } = load
    const database = cluster.env["DATABASE_URL"] ?? ""
    const final = await readFinal({ history, database, url: cluster.nodes[0]!.url, keys })
    const verdict = check(history, final, { coldCap: COLD_CAP })
    assert.deepStrictEqual(verdict.violations.map(({ line, rule }) => `${rule}: ${line}`), [])
    assert.deepStrictEqual(history.oddities, [])
    assert.isAbove(verdict.accepted, 300)
  })
})
