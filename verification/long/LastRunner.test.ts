import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../../test/support/Eventually.ts"
import { Http } from "../../test/support/Http.ts"
import { Cluster, missingForNodes, send } from "../../test/support/Nodes.ts"
import { newAgent, type Server } from "../../test/support/Server.ts"
import { Socket } from "../../test/support/Socket.ts"

describe.skipIf(missingForNodes !== "")(`runners that die beside a gateway${missingForNodes}`, () => {
  let cluster: Cluster
  let one: Server
  let two: Server
  let gateway: Server
  beforeAll(async () => {
    cluster = await Cluster.start(2)
    ;[one, two] = cluster.pair
    gateway = await cluster.add(undefined, { ROLE: "gateway" })
  })
  afterAll(() => cluster?.stop())

  const metric = async (node: Server, name: string): Promise<number> => {
    const text = (await node.http().get("/internal/metrics")).text
    return Number(text.split("\n").find((line) => line.startsWith(`${name} `))?.split(" ")[1] ?? 0)
  }
  const shards = (node: Server) => metric(node, "effect_cluster_shards")
  const jobs = (node: Server) => metric(node, "effect_cluster_singletons")
  const runs = (node: Server) => metric(node, `jobs_runs_total{job="webhook_outbox",outcome="done"}`)

  it("a job runs on exactly one of two, and on the other once that one has died", { timeout: 60_000 }, async () => {
    // While shards are on their way to the second node, so are their jobs.
    await eventually("both to have their share", async () => {
      const [first, second] = await Promise.all([shards(one), shards(two)])
      return Math.min(first, second) > 0 && first + second === 300 || undefined
    }, 15_000)
    const before = await Promise.all([runs(one), runs(two)])
    const more = await eventually("three runs more", async () => {
      const [first, second] = await Promise.all([runs(one), runs(two)])
      const more = [first - before[0]!, second - before[1]!] as const
      return more[0] + more[1] >= 3 ? more : undefined
    }, 25_000)
    assert.include([...more], 0)
    const [dying, left] = more[0] > 0 ? [one, two] : [two, one]
    const all = await jobs(one) + await jobs(two)
    assert.isAbove(all, 10)
    const ran = await runs(left)
    await dying.kill()
    cluster.nodes.splice(cluster.nodes.indexOf(dying), 1)
    one = left
    await eventually("a run on the other node", async () => await runs(left) > ran || undefined, 15_000)
    await eventually("all jobs on the other node", async () => await jobs(left) === all || undefined, 15_000)
    assert.deepStrictEqual([await jobs(gateway), await runs(gateway)], [0, 0])
  })

  it(
    "leave a gateway that is not ready, holds no shard even then, and goes on with the next runner",
    { timeout: 60_000 },
    async () => {
      const [ada, bob] = [await newAgent(gateway, "ada"), await newAgent(gateway, "bob")]
      await send(ada, { to: bob.handle }, "the first word")
      await send(bob, { to: ada.handle }, "an answer")
      const socket = await Socket.hello(gateway, bob.key)
      await one.kill()
      const why = await eventually("a gateway that is not ready", async () => {
        const answer = await gateway.http().get("/v1/ready")
        return answer.status === 503
          ? (answer.body as { readonly details: { readonly reason: string } }).details.reason
          : undefined
      })
      assert.match(why, /No node that owns shards is there: start one with ROLE=runner/)
      const once = new Http(gateway.url, ada.key, () => undefined)
      ;(await once.post("/v1/messages", { to: bob.handle, client_msg_id: "to nobody", content: { text: "to nobody" } }))
        .refused(503, "UNAVAILABLE")
      assert.strictEqual(await shards(gateway), 0)
      one = await cluster.add(one)
      await eventually(
        "a gateway that is ready",
        async () => (await gateway.http().get("/v1/ready")).status === 200 || undefined,
        15_000
      )
      await socket.message((await send(ada, { to: bob.handle }, "after that")).id)
      assert.deepStrictEqual([await shards(one), await shards(gateway)], [300, 0])
      await socket.close()
    }
  )
})
