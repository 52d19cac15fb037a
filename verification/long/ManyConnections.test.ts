import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Crowd, freshSend, median, untilQuiet } from "../../test/support/Crowd.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { metricOf } from "../../test/support/Metrics.ts"
import { Cluster, missingForNodes, on, send } from "../../test/support/Nodes.ts"
import { newAgent, type TestAgent } from "../../test/support/Server.ts"

const MANY = 1_200

describe.skipIf(missingForNodes !== "" || process.platform === "win32")(
  `connections without a byte to two nodes${missingForNodes}`,
  () => {
    let cluster: Cluster
    let ada: TestAgent
    let bob: TestAgent

    beforeAll(async () => {
      cluster = await Cluster.start(2, {}, 512)
      ada = await newAgent(cluster.nodes[0]!, "ada")
      bob = await newAgent(cluster.nodes[1]!, "bob")
      await send(ada, { to: bob.handle }, "hello")
      await send(bob, { to: ada.handle }, "hello to you")
    })
    afterAll(() => cluster?.stop())

    it("do not disturb sends of others, even if there are more on both ports than the nodes may have open files", async () => {
      const talk = async (text: string, times: number): Promise<ReadonlyArray<number>> => {
        const took: Array<number> = []
        for (let i = 0; i < times; i++) {
          for (const node of cluster.nodes) {
            took.push(
              await freshSend(on(node, ada), bob, `${text} ${i}`),
              await freshSend(on(node, bob), ada, `${text} ${i}`)
            )
          }
        }
        return took
      }
      const before = await talk("before", 5)
      const crowds = await Promise.all(
        cluster.nodes.flatMap((node) =>
          ([["http", node.url], ["nodes", `http://127.0.0.1:${cluster.runnerPort(node)}`]] as const).map(
            async ([port, url]) => {
              const crowd = await Crowd.gather(url, MANY)
              await untilQuiet(node, port)
              return crowd
            }
          )
        )
      )
      const during = await talk("during", 15)
      assert.isBelow(median(during), Math.max(3 * median(before), 1_000), `${before} -> ${during}`)
      for (const node of cluster.nodes) {
        assert.isAtMost(
          await metricOf(node, "connections_open", { port: "http" }),
          await metricOf(node, "connections_bound", { port: "http" })
        )
        assert.isAtMost(
          await metricOf(node, "connections_open", { port: "nodes" }),
          await metricOf(node, "connections_bound", { port: "nodes" })
        )
        for (const port of ["http", "nodes"]) {
          assert.isAbove(await metricOf(node, "connections_turned_away_total", { port, reason: "gave_way" }), MANY / 2)
        }
        await eventually("the node to be ready", async () => (await fetch(`${node.url}/v1/ready`)).ok || undefined)
        assert.notMatch(node.log, /does not belong to the cluster any more|was excluded from/)
      }
      for (const crowd of crowds) crowd.leave()
    })
  }
)
