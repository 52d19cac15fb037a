import { catalogue } from "#infrastructure/platform/Metrics"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { eventually } from "../../test/support/Eventually.ts"
import { Cluster, missingForNodes, on, send } from "../../test/support/Nodes.ts"
import { DEPLOY, missingPrometheus, Prometheus, promtool } from "../../test/support/Prometheus.ts"
import { Receiver } from "../../test/support/Receiver.ts"
import { newAgent, type Server, type TestAgent } from "../../test/support/Server.ts"
import { Socket } from "../../test/support/Socket.ts"

const missing = missingPrometheus || missingForNodes

interface Panel {
  readonly title: string
  readonly targets?: ReadonlyArray<{ readonly expr: string }>
}
const dashboard = JSON.parse(readFileSync(join(DEPLOY, "grafana/parley.json"), "utf8")) as {
  readonly panels: ReadonlyArray<Panel>
}
/** The dashboard's queries as Grafana would ask them for all nodes. */
const queries = dashboard.panels.flatMap(({ targets = [], title }) =>
  targets.map(({ expr }) => ({ title, expr: expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "2m") }))
)

const names = new Set(
  catalogue.flatMap(({ metrics }) =>
    metrics.flatMap(({ description: { name }, kind }) =>
      kind === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name]
    )
  )
)

/** Metrics that nodes on PostgreSQL do not have. */
const ofPglite = new Set(
  catalogue.flatMap(({ metrics }) =>
    metrics.flatMap(({ description: { name, only } }) => /PGlite|BACKUP_EVERY/.test(only ?? "") ? [name] : [])
  )
)

/** What a query reads: names with the labels that are asked for. */
const selectors = (query: string): ReadonlyArray<string> =>
  Array.from(query.matchAll(/\b([a-z][a-z0-9_]+)(\{[^}]*\})?/g))
    .filter(([, name]) => names.has(name!) || name === "up")
    .map(([, name, labels]) => `${name}${labels ?? ""}`)

describe.skipIf(missing !== "")(`Prometheus with two nodes${missing}`, () => {
  let cluster: Cluster
  let prometheus: Prometheus
  let receiver: Receiver

  beforeAll(async () => {
    cluster = await Cluster.start(2, { WEBHOOK_ALLOW_PRIVATE: "loopback" })
    receiver = await Receiver.start()
    const [one, two] = cluster.pair
    prometheus = await Prometheus.start([new URL(one.url).host, new URL(two.url).host])
    await eventually(
      "two nodes that are scraped",
      async () => (await prometheus.query(`count_over_time(up{job="parley"}[1m]) > 1`)).length === 2 || undefined
    )
    await load(one, two)
    // Two scrapes after the load, so that rates have seen it.
    const scrapes = async () => (await prometheus.query("min(count_over_time(up[10m]))"))[0]?.value ?? 0
    const before = await scrapes()
    await eventually("scrapes after the load", async () => await scrapes() > before + 2 || undefined)
  })
  afterAll(async () => {
    await prometheus?.stop()
    receiver?.stop()
    await cluster?.stop()
  })

  /**
   * Everything that a metric counts without a fault: sends of both kinds over both nodes, sockets, acknowledgements,
   * webhooks, refusals.
   */
  const load = async (one: Server, two: Server): Promise<void> => {
    const ada = await newAgent(one, "ada")
    const others: Array<TestAgent> = []
    for (let i = 0; i < 6; i++) others.push(await newAgent(i % 2 === 0 ? one : two, "bob"))
    await others[0]!.http.post("/v1/webhooks", { url: receiver.url("/hook"), events: ["message.new"] })
    const sockets = await Promise.all(others.map((agent, i) => Socket.hello(i % 2 === 0 ? two : one, agent.key)))
    const made = await ada.http.post("/v1/groups", { name: "all", member_handles: others.map(({ handle }) => handle) })
    const { add_results, group } = made.body as {
      readonly group: { readonly id: string }
      readonly add_results: ReadonlyArray<{ readonly invite_id: string }>
    }
    for (const [i, { invite_id }] of add_results.entries())
      await others[i]!.http.post(`/v1/groups/invites/${invite_id}/accept`)
    let last = ""
    for (let round = 0; round < 10; round++) {
      for (const [i, agent] of others.entries()) {
        const { id } = await send(on(round % 2 === 0 ? one : two, ada), { to: agent.handle }, `word ${round}`)
        await sockets[i]!.message(id)
        await send(agent, { to: ada.handle }, `answer ${round}`)
        last = id
      }
      await send(ada, { conversation_id: group.id }, `all ${round}`)
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
    assert.notStrictEqual(last, "")
    for (const agent of [ada, ...others]) {
      const rows = (await agent.http.get("/v1/messages/sync?limit=50")).body as ReadonlyArray<
        { readonly delivery_id: string }
      >
      const through = rows.at(-1)?.delivery_id
      if (through !== undefined) await agent.http.post("/v1/messages/sync/ack", { last_delivery_id: through })
    }
    await ada.http.post("/v1/messages", { to: "nobody-there", type: "text" })
    await Promise.all(sockets.map((socket) => socket.close()))
    await eventually("posts to the webhook", () => receiver.posts.length >= 10 || undefined)
  }

  it("promtool accepts the rules and the example", () => {
    for (const args of [["rules", "alerts.yml"], ["config", "prometheus.yml"]] as const) {
      const { output, status } = promtool("check", args[0], join(DEPLOY, "prometheus", args[1]))
      assert.strictEqual(status, 0, output)
    }
  })

  it("promtool finds nothing wrong with what a node prints", async () => {
    const text = (await cluster.nodes[0]!.http().get("/internal/metrics")).text
    const { status, stderr, stdout } = spawnSync("promtool", ["check", "metrics"], { input: text, encoding: "utf8" })
    // Complaints about names that have landed already; what cannot be read ends with 1.
    assert.notStrictEqual(status, 1, `${stdout}${stderr}`)
  })

  it("every query of the dashboard returns data", async () => {
    assert.isAbove(queries.length, 50)
    const empty: Array<string> = []
    for (const { expr, title } of queries) {
      const found = await prometheus.query(expr)
      if (!found.some(({ value }) => Number.isFinite(value))) empty.push(`${title}: ${expr}`)
    }
    assert.deepStrictEqual(empty, [])
  })

  it("every metric that an alert looks at is there, every rule is evaluated, and none is raised while all is well", async () => {
    const rules = await eventually("rules that were evaluated", async () => {
      const all = await prometheus.rules()
      return all.every(({ health }) => health !== "unknown") ? all : undefined
    })
    assert.isAbove(rules.length, 10)
    for (const { health, name, query, state } of rules) {
      assert.strictEqual(health, "ok", name)
      const read = selectors(query)
      assert.isNotEmpty(read, name)
      // What an alert compares is empty while nothing is wrong; what it reads is not.
      for (const selector of read.filter((selector) => !ofPglite.has(/^\w+/.exec(selector)?.[0] ?? "")))
        assert.isNotEmpty(await prometheus.query(`last_over_time(${selector}[2m])`), `${name}: ${selector}`)
      assert.notStrictEqual(state, "firing", name)
    }
  })

  it("a node that dies is told by an alert's expression", async () => {
    const down = (await prometheus.rules()).find(({ name }) => name === "ParleyNodeDown")!
    await cluster.nodes.splice(1, 1)[0]!.kill()
    await eventually(
      "the expression to hold",
      async () => (await prometheus.query(down.query)).length === 1 || undefined
    )
  })
})
