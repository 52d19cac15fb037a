import { PushQueue, readSockets } from "#domain/push/PushQueue"
import { RemoteSockets } from "#domain/push/RemoteSockets"
import type { SocketPlace } from "#domain/push/SocketPlaces"
import type { Entry, PeerConnection } from "#infrastructure/cluster/PeerConnection"
import { setTimeout as pause } from "node:timers/promises"
import { registerAgents } from "../../test/support/RegisterAgents.ts"
import { here } from "../bench/Checkout.ts"
import { cleanUp } from "../bench/CleanUps.ts"
import { cpuOf, cpuOfTree } from "../bench/CpuTime.ts"
import { connected } from "../bench/Database.ts"
import { AT_A_TIME } from "../bench/IdleSockets.ts"
import { LoadProcess } from "../bench/LoadProcess.ts"
import { type Rig, startRig } from "../bench/Rig.ts"
import { manyNodes } from "./ManyNodes.ts"
import { shardCosts } from "./ShardCosts.ts"

const SOCKETS = 1_000
const SECONDS = 10
const say = (text: string) => console.error(text)

interface Used {
  readonly server: number
  readonly database: number
  readonly redis: number
}

/** Microseconds of processor time that a node, its database and its Redis use during `work`. */
const using = async ({ pids }: Rig, work: () => Promise<unknown>): Promise<Used> => {
  const now = (): Used => ({
    server: pids.servers.reduce((sum, pid) => sum + cpuOf(pid), 0),
    database: pids.database === undefined ? 0 : cpuOfTree(pids.database),
    redis: pids.redis === undefined ? 0 : cpuOf(pids.redis)
  })
  const before = now()
  await work()
  const after = now()
  return {
    server: after.server - before.server,
    database: after.database - before.database,
    redis: after.redis - before.redis
  }
}

const each = (used: Used, times: number, less: Used = { server: 0, database: 0, redis: 0 }): string =>
  (["server", "database", "redis"] as const).map((part) => `${part} ${((used[part] - less[part]) / times).toFixed(1)}`)
    .join(", ")

/** Measures one node with idle sockets that are pinged every `pingSeconds`. */
const sockets = async (pingSeconds: number): Promise<ReadonlyArray<string>> => {
  const rig = await startRig(
    { database: "postgres", nodes: 1, balancer: undefined, stored: 0, checkout: here },
    { SOCKETS_PING_SECONDS: String(pingSeconds), PRESENCE_LIFETIME_SECONDS: String(pingSeconds + 300) },
    say
  )
  const [node] = rig.servers
  if (node === undefined || rig.database === undefined) throw new Error("no node")
  const handles = Array.from({ length: SOCKETS }, (_, i) => `scale-${i}`)
  const keys = (await registerAgents(node.url, rig.outbox, handles)).map(({ key }) => key)
  const load = new LoadProcess()
  const plan = { host: node.host, port: node.port, keys, atATime: AT_A_TIME }
  // The sockets connect once before the measurement, so that the code is compiled.
  await load.ask("idle", plan)
  await load.ask("closeIdle", undefined)
  await pause(3_000)
  const nothing = await using(rig, () => pause(SECONDS * 1_000))
  const connect = await using(rig, async () => {
    await load.ask("idle", plan)
    await pause(2_000)
  })
  const idle = await using(rig, () => pause(SECONDS * 1_000))
  const heads = await connected(rig.database.url, async (client) => {
    const ids = (await client.query<{ id: string }>("SELECT agent_id AS id FROM inboxes LIMIT 500")).rows.map((
      { id }
    ) => id)
    const before = cpuOfTree(rig.pids.database ?? 0)
    for (let i = 0; i < 400; i++) {
      await client.query({
        name: "heads",
        text: "SELECT agent_id, last_no FROM inboxes WHERE agent_id = ANY ($1)",
        values: [ids]
      })
    }
    return (cpuOfTree(rig.pids.database ?? 0) - before) / 400 / ids.length
  })
  await cleanUp()
  return [
    `pinged every ${pingSeconds} s, microseconds of processor time:`,
    `  a socket that connects: ${each(connect, SOCKETS)}`,
    `  an open socket, each second, beyond what a node without sockets uses: ${each(idle, SOCKETS * SECONDS, nothing)}`,
    `  an inbox's head, of 500 at once: database ${heads.toFixed(2)}`
  ]
}

/** Measures the announcement of a socket, in entries of 200 sockets, and the memory that a node keeps for it. */
export const announcements = (): ReadonlyArray<string> => {
  const count = 200
  const rounds = 1_000
  const announcements = Array.from(
    { length: rounds },
    (_, round) =>
      Array.from(
        { length: count },
        (_, i) => ({ agentId: `agt_${String(round * count + i).padStart(16, "0")}`, since: 1_780_000_000_000 + i })
      )
  )
  const encode = (places: ReadonlyArray<SocketPlace>): string => {
    const here = new Map(places.map((place) => [place.agentId, [place]]))
    const entries: Array<Entry> = []
    const queue = new PushQueue({ send: (entry: Entry) => entries.push(entry) } as unknown as PeerConnection, 1)
    for (const agentId of here.keys()) queue.announce(agentId, here)
    return entries.map((entry) => typeof entry === "string" ? entry : entry.encode()).join()
  }
  const read = (text: string) => readSockets(JSON.parse(text) as ReadonlyArray<unknown>)
  const timed = (work: () => void): number => {
    const before = process.cpuUsage()
    work()
    const { system, user } = process.cpuUsage(before)
    return (user + system) / rounds / count
  }
  for (const one of announcements.slice(0, 100)) read(encode(one))
  const texts: Array<string> = []
  const teller = timed(() => {
    for (const one of announcements) texts.push(encode(one))
  })
  const known = new RemoteSockets()
  const listener = timed(() => {
    for (const one of texts) for (const [agentId, since] of read(one)) known.set(agentId, 1, since)
  })
  return [
    `a socket announced to another node, of ${count} in an entry (without the frame that carries it): teller ${
      teller.toFixed(2)
    }, listener ${listener.toFixed(2)}`,
    `  bytes that the other node keeps for it: ${(known.bytes / rounds / count).toFixed(0)}`
  ]
}

/** Measures the cost of sockets for a node, its database, its Redis and the other nodes. */
export const measure = async (): Promise<string> => {
  const told = announcements()
  const seldom = await sockets(3_600)
  const often = await sockets(2)
  return [...told, ...await manyNodes(), ...await shardCosts(), ...seldom, ...often].join("\n")
}
