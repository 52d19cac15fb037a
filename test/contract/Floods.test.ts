import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client } from "pg"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { HttpConnection, requestHead } from "../bench/Connection.ts"
import { Cluster } from "../support/Nodes.ts"
import type { Server } from "../support/Server.ts"
import { newPair } from "./Talk.ts"

const SENDS = 60
const CALLERS = 400
const FLOOD_MS = 4_000
const guess = { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" }

/** The most times within any so many milliseconds, of times in their order. */
const busiest = (times: ReadonlyArray<number>, windowMs: number): number => {
  let most = 0
  for (let first = 0, last = 0; last < times.length; last++) {
    while (times[first]! <= times[last]! - windowMs) first++
    most = Math.max(most, last - first + 1)
  }
  return most
}

describe.skipIf(missingRedis !== "")(`limits under a flood, over two nodes${missingRedis}`, { timeout: 60_000 }, () => {
  let redis: RedisServer
  let cluster: Cluster
  let nodes: readonly [Server, Server]
  let database: Client
  let serial = 0

  beforeAll(async () => {
    redis = await RedisServer.start()
    cluster = await Cluster.start(2, {
      REDIS_URL: redis.url,
      REDIS_TIMEOUT_MS: process.env["FLOOD_REDIS_TIMEOUT_MS"] ?? "250",
      TRUST_PROXY: "1",
      LIMITS_SENDS_PER_SECOND: String(SENDS),
      LIMITS_REGISTER_PER_HOUR: "5",
      LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "10",
      LIMITS_RECOVER_PER_HOUR: "3"
    })
    const [one, two] = cluster.nodes
    if (one === undefined || two === undefined) throw new Error("no nodes")
    nodes = [one, two]
    database = new Client(cluster.env["DATABASE_URL"])
    await database.connect()
  }, 90_000)
  afterAll(async () => {
    await database?.end()
    await cluster?.stop()
    await redis?.kill()
  }, 30_000)

  /** Sends of one agent from so many callers at once, each as fast as it is answered, evenly to these nodes. */
  const flood = async (to: ReadonlyArray<Server>, callers: number, forMs: number, key: string, handle: string) => {
    const statuses = new Map<number, number>()
    /** When each accepted send was answered, by node. */
    const accepted = to.map((): Array<number> => [])
    const failures: Array<string> = []
    const connections = await Promise.all(Array.from({ length: callers }, (_, i) => {
      const { hostname, port } = new URL(to[i % to.length]!.url)
      return HttpConnection.connect(hostname, Number(port), (why) => failures.push(why))
    }))
    const began = performance.now()
    await Promise.all(connections.map((connection, i) =>
      new Promise<void>((resolve) => {
        const node = i % to.length
        const { host } = new URL(to[node]!.url)
        const next = (): void => {
          if (performance.now() - began >= forMs || failures.length > 0) return resolve()
          const body = JSON.stringify({ to: handle, client_msg_id: `flood-${serial++}`, content: { text: "one of very many" } })
          connection.request(Buffer.from(requestHead("POST", "/v1/messages", host, key, body.length) + body), (status) => {
            statuses.set(status, (statuses.get(status) ?? 0) + 1)
            if (status === 201) accepted[node]!.push(performance.now() - began)
            next()
          })
        }
        next()
      })
    ))
    for (const connection of connections) connection.close()
    assert.deepStrictEqual(failures, [])
    assert.deepStrictEqual([...statuses.keys()].filter((status) => status !== 201 && status !== 429), [], JSON.stringify([...statuses]))
    return { accepted, statuses, seconds: (performance.now() - began) / 1_000 }
  }

  /** How many of so many requests at once, from a new address and over both nodes, are not refused by a limit. */
  const through = async (times: number, path: string, body: (i: number) => object): Promise<number> => {
    const from = `203.0.113.${serial++ % 250}`
    const answers = await Promise.all(
      Array.from({ length: times }, (_, i) => nodes[i % 2 === 0 ? 0 : 1].http().post(path, body(i), { "x-forwarded-for": from }))
    )
    for (const answer of answers) assert.include([200, 400, 429], answer.status, `${answer}`)
    return answers.filter(({ status }) => status !== 429).length
  }

  const budgets = async (): Promise<ReadonlyArray<number>> =>
    Promise.all([
      through(40, "/v1/register", () => ({ email: `flood${serial}@example.com`, handle: `flood-${serial++}` })),
      through(60, "/v1/register/verify", () => guess),
      through(20, "/v1/agents/recover", () => ({ email: "nobody@example.com" }))
    ])

  it("160. 400 callers of one agent over two nodes: 60 sends a second pass; 161. its address's budgets hold beside them", async () => {
    const { alice, bob, conversation } = await newPair(nodes[0])
    const [{ accepted, seconds, statuses }, passed] = await Promise.all([
      flood(nodes, CALLERS, FLOOD_MS, alice.key, bob.handle),
      budgets()
    ])
    const { rows } = await database.query<{ readonly at: string }>(
      "SELECT created_at AS at FROM messages WHERE conversation_id = $1 AND seq > 2 ORDER BY seq",
      [conversation]
    )
    const times = rows.map(({ at }) => Number(at))
    const about = JSON.stringify({ statuses: [...statuses], seconds, busiest: busiest(times, 1_000), by: accepted.map(({ length }) => length), passed })
    console.log(about)
    assert.strictEqual(times.length, accepted.flat().length, about)
    assert.deepStrictEqual(passed, [5, 10, 3], about)
  })
})
