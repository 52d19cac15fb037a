import { createHash, randomBytes } from "node:crypto"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { here } from "./Checkout.ts"
import { cleanUp } from "./CleanUps.ts"
import { probe } from "./Contender.ts"
import { cpuOf, cpuOfTree } from "./CpuTime.ts"
import { connected } from "./Database.ts"
import { metric, metrics } from "./Metrics.ts"
import type { Memory } from "./Probe.ts"
import { printProfile, table } from "./Report.ts"
import { startRig } from "./Rig.ts"

/**
 * Measures agents with a subscription of MCP Events by webhook: their cost without mail, beside the same agents without
 * subscriptions, and a message to each of them. PostgreSQL and one server; the receiver is here. `node --import
 * ./runners/require-node.js verification/bench/EventCost.ts [agents] [--profile]`
 */
const AGENTS = Number(process.argv[2] ?? 5_000)
const PROFILE = process.argv.includes("--profile")
const SENDERS = 50
const AT_ONCE = 16
const REST_MS = 30_000
const LIMITS = {
  WEBHOOK_ALLOW_PRIVATE: "loopback",
  LIMITS_COLD_CONVERSATIONS: "1000000"
}

interface Agent {
  readonly handle: string
  readonly key: string
}

const agentsOf = (name: string, count: number): ReadonlyArray<Agent> =>
  Array.from(
    { length: count },
    (_, i) => ({ handle: `${name}-${i}`, key: `ac_${randomBytes(32).toString("base64url")}` })
  )

/** Inserts accounts as registration does, without the mail. */
const insert = (url: string, agents: ReadonlyArray<Agent>) =>
  connected(url, async (client) => {
    await client.query(
      `WITH made AS (
        INSERT INTO agents (id, handle, email, key_hash, created_at, updated_at)
        SELECT 'agt_' || handle, handle, handle || '@example.com', hash, 0, 0 FROM unnest($1::text[], $2::bytea[]) AS given (handle, hash)
        RETURNING id
      ) INSERT INTO inboxes (agent_id) SELECT id FROM made`,
      [agents.map(({ handle }) => handle), agents.map(({ key }) => createHash("sha256").update(key).digest())]
    )
    await client.query("ANALYZE")
  })

/** Posts that told of an event, by its id, with the time of the first. */
const told = new Map<string, number>()
let repeats = 0
const receiver = createServer((request, response) => {
  let text = ""
  request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
    const body = JSON.parse(text) as { readonly type?: string; readonly challenge?: string; readonly eventId?: string }
    if (body.type === "verification") return response.end(JSON.stringify({ challenge: body.challenge }))
    if (told.has(String(body.eventId))) repeats++
    else told.set(String(body.eventId), performance.now())
    response.end()
  })
})
await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve))
const hook = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`

const say = (text: string): void => console.error(text)
const rig = await startRig(
  { database: "postgres", nodes: 0, balancer: undefined, stored: 0, checkout: here },
  LIMITS,
  say
)
const [server] = rig.servers
const { database } = rig
if (server === undefined || database === undefined) throw new Error("no server")

const all = agentsOf("told", AGENTS)
const senders = agentsOf("sends", SENDERS)
await insert(database.url, [...all, ...senders])

const request = async (
  path: string,
  key: string,
  body: object,
  headers: Readonly<Record<string, string>> = {}
): Promise<string> => {
  const response = await fetch(`${server.url}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
    body: JSON.stringify(body)
  })
  const text = await response.text()
  if (!response.ok || text.includes(`"error":`)) throw new Error(`${path} answered ${response.status}: ${text}`)
  return text
}

const each = async <A>(items: ReadonlyArray<A>, run: (item: A, i: number) => Promise<unknown>): Promise<void> => {
  let next = 0
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let i = next++; i < items.length; i = next++) await run(items[i]!, i)
  }))
}

const statements = async (): Promise<number> => metric(await metrics(server), "database_statement_seconds_count")
const used = async () => ({
  at: performance.now(),
  server: cpuOf(server.pid),
  database: database.pid === undefined ? 0 : cpuOfTree(database.pid),
  statements: await statements()
})
type Used = Awaited<ReturnType<typeof used>>
const rowOf = (what: string, before: Used, after: Used): ReadonlyArray<string> => {
  const seconds = (after.at - before.at) / 1_000
  const share = (micros: number) => `${(micros / seconds / 10_000).toFixed(2)} %`
  return [
    what,
    seconds.toFixed(1),
    share(after.server - before.server),
    share(after.database - before.database),
    ((after.statements - before.statements) / seconds * 60).toFixed(0)
  ]
}
const rest = async (what: string): Promise<ReadonlyArray<string>> => {
  await pause(10_000)
  const before = await used()
  await pause(REST_MS)
  return rowOf(what, before, await used())
}
const memory = async () => await probe(server, { probe: "memory" }) as Memory

const rows = [await rest("at rest, no subscriptions")]
const weight = await memory()
let before = await used()
await each(all, ({ key }) =>
  request("/mcp", key, {
    jsonrpc: "2.0",
    id: 1,
    method: "events/subscribe",
    params: {
      name: "message.received",
      delivery: { mode: "webhook", url: hook, secret: `whsec_${randomBytes(32).toString("base64")}` },
      _meta: {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {}
      }
    }
  }, {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "events/subscribe",
    "mcp-name": "message.received"
  }))
rows.push(rowOf("subscribing", before, await used()))
rows.push(await rest(`at rest, ${AGENTS} subscriptions`))
const heavier = await memory()

if (PROFILE) await probe(server, { probe: "profile-start" })
before = await used()
const sentAt: Array<number> = []
await each(all, ({ handle }, i) => {
  sentAt.push(performance.now())
  return request("/v1/messages", senders[i % SENDERS]!.key, {
    to: handle,
    client_msg_id: `${i}`,
    type: "text",
    content: { text: "hello" }
  })
})
const sent = performance.now()
while (told.size < AGENTS && performance.now() - sent < 120_000) await pause(50)
const after = await used()
if (PROFILE) {
  const file = join(rig.folder, "events.cpuprofile")
  await probe(server, { probe: "profile-stop", file })
  printProfile("events", file, (after.server - before.server) / AGENTS)
}
rows.push(rowOf("a message to each", before, after))
const last = Math.max(...told.values())
console.log(table([["", "seconds", "CPU of the server", "of PostgreSQL", "statements a minute"], ...rows]))
const took = (last - before.at) / 1_000
console.log(
  `${told.size} of ${AGENTS} told, ${repeats} twice: sent within ${
    ((sent - before.at) / 1_000).toFixed(1)
  } s, all told after ${took.toFixed(1)} s, ` +
    `${(told.size / took).toFixed(0)} events/s; ${
      ((after.statements - before.statements) / AGENTS).toFixed(1)
    } statements, ` +
    `${((after.server - before.server) / AGENTS / 1_000).toFixed(2)} ms of the server and ${
      ((after.database - before.database) / AGENTS / 1_000).toFixed(2)
    } ms of PostgreSQL ` +
    `for a message and its event; ${
      ((heavier.heap - weight.heap) / AGENTS).toFixed(0)
    } bytes of heap for a subscription`
)
receiver.closeAllConnections()
receiver.close()
await cleanUp()
