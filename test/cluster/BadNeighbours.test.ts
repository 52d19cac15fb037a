import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { mkdtemp } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { chanceFor, elapse, eventually } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { Cluster, missingForNodes, on, send } from "../support/Nodes.ts"
import { MEASURES } from "../support/Promptly.ts"
import { newAgent, parley, RELAXED, Server, type TestAgent } from "../support/Server.ts"

/** Ports whose addresses sort below, between and above each other as texts. */
const sortedPorts = async (count: number): Promise<ReadonlyArray<string>> => {
  const ports = new Set<string>()
  while (ports.size < count) ports.add(String(await freePort()))
  return [...ports].sort()
}

describe.skipIf(missingForNodes !== "")(`a node that cannot speak with the others${missingForNodes}`, () => {
  let cluster: Cluster
  let ada: TestAgent
  let bob: TestAgent
  let goodPorts: ReadonlyArray<string>
  let badPorts: ReadonlyArray<string>
  const bad: Array<Server> = []

  beforeAll(async () => {
    const ports = await sortedPorts(6)
    goodPorts = ports.slice(2, 4)
    badPorts = [...ports.slice(0, 2), ...ports.slice(4)]
    cluster = await Cluster.start(0, { PUBLIC_URL: "http://parley.test:8080", DRAIN_SECONDS: "0" })
    for (const RUNNER_PORT of goodPorts) await cluster.add(undefined, { RUNNER_PORT })
    ada = await newAgent(cluster.nodes[0]!, "ada")
    bob = await newAgent(cluster.nodes[1]!, "bob")
    await send(ada, { to: bob.handle }, "hello")
    await send(bob, { to: ada.handle }, "hello to you")
  })
  afterAll(async () => {
    await Promise.all(bad.map((node) => node.kill().catch(() => undefined)))
    await cluster?.stop()
  })

  /**
   * Sends through both nodes, one after the other, until `until` completes, and 100 times at least; every send has to
   * be accepted.
   */
  const sendingWhile = async (until: Promise<unknown>): Promise<void> => {
    const state = { over: false }
    const end = until.finally(() => {
      state.over = true
    })
    // It is awaited at the end.
    end.catch(() => undefined)
    let sends = 0
    while (!state.over || sends < 100) {
      for (const node of cluster.nodes) {
        for (const [from, to] of [[ada, bob], [bob, ada]] as const) {
          await send(on(node, from), { to: to.handle }, "on and on")
          sends++
        }
        await eventually("a good node to be ready", async () => (await fetch(`${node.url}/v1/ready`)).ok || undefined)
      }
      await elapse("the time between two rounds", 20)
    }
    await end
  }

  const startBad = async (port: string, env: Readonly<Record<string, string | undefined>>): Promise<Server> => {
    const dataDir = await mkdtemp(join(tmpdir(), "parley-bad-"))
    const settings = {
      ...RELAXED,
      ...cluster.env,
      HOST: "127.0.0.1",
      PORT: String(await freePort()),
      RUNNER_PORT: port,
      ...env
    }
    const known = Object.entries(settings).filter((entry): entry is [string, string] => entry[1] !== undefined)
    const node = new Server(dataDir, true, Object.fromEntries(known), parley("runner"))
    node.url = `http://127.0.0.1:${settings.PORT}`
    bad.push(node)
    return node
  }

  it("harms only itself, whatever is wrong with it and wherever its address sorts, and says why, as the others do", async () => {
    const secret = { env: { RUNNER_SECRET: "another secret" }, why: "it has another RUNNER_SECRET than this node" }
    const none = {
      env: { RUNNER_SECRET: undefined },
      why: "it closes the connection: does it have the same RUNNER_SECRET"
    }
    // Two below the others' addresses, two above; with every kind below and above in the long form (`npm run
    // test:faults`).
    const started = await Promise.all([secret, none, secret, none].map(async (kind, i) => {
      const port = badPorts[i]!
      return { ...kind, port, node: await startBad(port, kind.env) }
    }))
    // Its log says it once a minute, its readiness at any time: on a busy machine it may be too early for the reason at
    // first.
    const refused = Promise.all(
      started.map(({ node, port, why }) =>
        eventually(`127.0.0.1:${port} to say why it is not taken in`, async () => {
          if (node.process.exitCode !== null) assert.fail(`it ended\n${node.output}`)
          const ready = await fetch(`${node.url}/v1/ready`).then((answer) => answer.text(), () => "")
          const said = [
            ...node.stderr.split("\n").filter((line) => line.includes("is not accepted into the cluster.")),
            ready
          ]
          const reasons = goodPorts.map((good) => `127.0.0.1:${good}: ${why}`)
          return said.some((text) =>
            text.includes("It is connected in both directions to 0 of 2 other nodes.") &&
            reasons.every((reason) => text.includes(reason))
          ) || undefined
        }).catch((error: unknown) => assert.fail(`${String(error)}\n${node.output}`))
      )
    )
    const told = Promise.all(
      cluster.nodes.flatMap((good) =>
        started.map(({ port }) =>
          eventually(
            `the others to tell of 127.0.0.1:${port}`,
            () => good.stderr.includes(`Node 127.0.0.1:${port} cannot be reached from this one: `) || undefined
          )
        )
      )
    )
    await sendingWhile(
      Promise.all([refused, told]).then(() => MEASURES ? chanceFor("a good node to be excluded", 3_000) : undefined)
    )

    // Nobody but the good nodes is in the list, and no bad one takes itself for ready, should it listen already.
    for (const { node } of started) {
      const ready = await fetch(`${node.url}/v1/ready`).then(({ status }) => status, () => 0)
      assert.notStrictEqual(ready, 200)
    }
    // A good node that gets no processor time for seconds is excluded rightly.
    if (MEASURES) {
      for (const { log } of cluster.nodes)
        assert.notMatch(log, /does not belong to the cluster any more|was excluded from/)
    }
    // A refused secret counts ten seconds later, unless a connection of the same host is accepted meanwhile.
    for (const reason of ["secret", "plain"]) {
      await eventually(
        `a connection that was refused because of its ${reason}`,
        async () => await metricOf(cluster.nodes[0]!, "node_connections_refused_total", { reason }) > 0 || undefined
      )
    }
  })

  it("logs which of its settings differ from those of the others", async () => {
    await Promise.all(bad.splice(0).map((node) => node.kill()))
    const node = await startBad(String(await freePort()), {
      PUBLIC_URL: "http://elsewhere.test:8080",
      LIMITS_MUTE_WRITES_PER_SECOND: "3"
    })
    const [one, two] = goodPorts
    await eventually(
      "what differs",
      () => node.stderr.includes("LIMITS_MUTE_WRITES_PER_SECOND is 3 on this node and 10 on ") || undefined
    )
    assert.match(
      node.stderr,
      /PUBLIC_URL is http:\/\/elsewhere\.test:8080 on this node and http:\/\/parley\.test:8080 on 127/
    )
    assert.include(node.stderr, `127.0.0.1:${one}`)
    assert.include(node.stderr, `127.0.0.1:${two}`)
  })
})
