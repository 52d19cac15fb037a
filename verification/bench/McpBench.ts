import { connect as connectTcp, type Socket } from "node:net"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Host } from "../../test/signin/Flow.ts"
import { HttpConnection, requestHead } from "../../test/support/Connection.ts"
import { registerAgents, type RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import type { ServerProcess } from "../../test/support/ServerProcess.ts"
import { here } from "./Checkout.ts"
import { cleanUp } from "./CleanUps.ts"
import { probe } from "./Contender.ts"
import { cpuOf } from "./CpuTime.ts"
import { AT_A_TIME, type IdleResult, weighSockets } from "./IdleSockets.ts"
import { metric, metrics } from "./Metrics.ts"
import type { Memory } from "./Probe.ts"
import { json, percent, printProfile, table } from "./Report.ts"
import { nameOf, type Rig, startRig, type Subject } from "./Rig.ts"
import { median } from "./Statistics.ts"

/** Limits that waits, sends and sign-ins need, besides the limits of every bench. */
const LIMITS = {
  LIMITS_COLD_CONVERSATIONS: "1000000",
  LIMITS_BACKLOG_SOFT: "9000000",
  LIMITS_BACKLOG_HARD: "10000000",
  LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES: "1000000",
  LIMITS_OAUTH_KEYS_PER_10_MINUTES: "1000000"
}
/** Sends under way at once while the ways to send are compared. */
const IN_FLIGHT = 32
/** Waits that are answered one at a time, with nothing else going on. */
const WAITS_ALONE = 300
/** Sends at once to waiting agents, in the measurement under load. */
const AT_ONCE = 16
const REVISIONS = { older: "2025-11-25", newest: "2026-07-28" } as const

interface Options {
  readonly drivers: ReadonlyArray<"pglite" | "postgres">
  readonly idle: number
  readonly profile: boolean
  readonly short: boolean
}

/** A call of a tool as bytes. */
const callOf = (
  server: ServerProcess,
  key: string,
  name: string,
  args: object,
  revision: keyof typeof REVISIONS = "older"
): Buffer => {
  const modern = revision === "newest"
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: {
      name,
      arguments: args,
      ...(modern
        ? {
          _meta: {
            "io.modelcontextprotocol/protocolVersion": REVISIONS.newest,
            "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
            "io.modelcontextprotocol/clientCapabilities": {}
          }
        }
        : {})
    }
  })
  const head = requestHead("POST", "/mcp", `${server.host}:${server.port}`, key, Buffer.byteLength(body)).replace(
    "\r\nContent-Type",
    `\r\nMCP-Protocol-Version: ${REVISIONS[revision]}\r\nAccept: application/json, text/event-stream` +
      `${modern ? `\r\nMcp-Method: tools/call\r\nMcp-Name: ${name}` : ""}\r\nContent-Type`
  )
  return Buffer.from(head + body)
}

const OUTCOME = '"outcome":"'

/** An agent that waits on a connection of its own. When a wait times out, it waits again. */
class WaitingAgent {
  /** Called with the time when a wait has brought messages. */
  heard: ((at: number) => void) | undefined
  private readonly request: Buffer
  private readonly socket: Socket
  private received = ""

  constructor(server: ServerProcess, key: string, failed: (why: string) => void) {
    this.request = callOf(server, key, "agentchat_wait_for_messages", { timeout_seconds: 50 })
    this.socket = connectTcp({ host: server.host, port: server.port, noDelay: true })
    this.socket.once("connect", () => this.socket.write(this.request))
    this.socket.on("error", (error) => failed(error.message))
    this.socket.setEncoding("latin1").on("data", (text: string) => {
      this.received += text
      // An answer is one JSON text, or the last event of a stream.
      const at = this.received.indexOf(OUTCOME)
      if (at < 0) {
        if (this.received.includes('"isError":true')) failed(this.received)
        return
      }
      const outcome = this.received.slice(at + OUTCOME.length, this.received.indexOf('"', at + OUTCOME.length))
      if (outcome === "messages") return this.heard?.(performance.now())
      if (!/0\r\n\r\n$|\}$/.test(this.received)) return
      this.received = ""
      this.socket.write(this.request)
    })
  }

  close(): void {
    this.socket.destroy()
  }
}

const settle = () => pause(3_000)

const quantile = (values: ReadonlyArray<number>, share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? Number.NaN

const quantiles = (values: ReadonlyArray<number>) => ({
  p50: quantile(values, 0.5),
  p99: quantile(values, 0.99),
  max: Math.max(...values)
})

interface WaitResult {
  /** The memory of idle sockets of the same agents, also on a server that has just started. */
  readonly idle: IdleResult
  readonly waiting: number
  /** Bytes for each agent that waits. */
  readonly rss: number
  readonly heap: number
  readonly external: number
  /** Milliseconds until all of them waited. */
  readonly begun: number
  /** Milliseconds from a send, or from its 201, which leaves after the commit, until the wait has its answer. */
  readonly alone: Record<"fromSend" | "fromAnswer", ReturnType<typeof quantiles>>
  readonly loaded: Record<"fromSend" | "fromAnswer", ReturnType<typeof quantiles>>
}

/**
 * Measures agents that wait at once on one node: the memory of a wait, and the time from a send to the end of the wait.
 */
const benchWaits = async (rig: Rig, count: number, say: (text: string) => void): Promise<WaitResult> => {
  say(`registering ${count} agents that will wait`)
  const handles = Array.from({ length: count }, (_, i) => `waits-${i}`)
  const [sender, ...agents] = await registerAgents(rig.servers[0]!.url, rig.outbox, ["waits-for-nobody", ...handles])
  const [server] = await rig.restart()
  if (server === undefined || sender === undefined) throw new Error("no server")
  const failures: Array<string> = []
  const begin = (some: ReadonlyArray<RegisteredAgent>) =>
    some.map(({ key }) => new WaitingAgent(server, key, (why) => failures.push(why)))
  const open = async (wanted: number) => {
    for (const deadline = Date.now() + 120_000;;) {
      if (failures.length > 0 || Date.now() > deadline)
        throw new Error(`the waits did not begin: ${failures[0] ?? "too late"}`)
      if (metric(await metrics(server), "waits_open") === wanted) return
      await pause(20)
    }
  }
  // A few agents wait and leave first, so that memory of the first use of the code is not counted.
  const first = begin(agents.slice(0, Math.ceil(count / 10)))
  await open(first.length)
  for (const one of first) one.close()
  await open(0)
  // An agent stays online for some seconds after its last wait.
  await pause(6_000)
  await settle()
  const before = await probe(server, { probe: "memory" }) as Memory
  const began = performance.now()
  const waiting: Array<WaitingAgent> = []
  for (let at = 0; at < count; at += AT_A_TIME) {
    waiting.push(...begin(agents.slice(at, at + AT_A_TIME)))
    await open(waiting.length)
  }
  const begun = performance.now() - began
  await settle()
  const after = await probe(server, { probe: "memory" }) as Memory
  await open(count)
  say(`${count} agents wait, after ${(begun / 1_000).toFixed(1)} s`)

  const connections = await Promise.all(
    Array.from({ length: AT_ONCE }, () => HttpConnection.connect(server.host, server.port, (why) => failures.push(why)))
  )
  const fromSend: Array<number> = []
  const fromAnswer: Array<number> = []
  const wake = (connection: HttpConnection, i: number) =>
    new Promise<void>((resolve, reject) => {
      const body = JSON.stringify({
        to: handles[i],
        client_msg_id: `wake-${i}`,
        type: "text",
        content: { text: "a message that somebody waits for" }
      })
      const sent = performance.now()
      let [answered, heard] = [0, 0]
      const done = () => {
        if (answered === 0 || heard === 0) return
        fromSend.push(heard - sent)
        fromAnswer.push(heard - answered)
        resolve()
      }
      waiting[i]!.heard = (at) => {
        if (heard !== 0) return
        heard = at
        done()
      }
      connection.request(
        Buffer.from(
          requestHead("POST", "/v1/messages", `${server.host}:${server.port}`, sender.key, Buffer.byteLength(body)) +
            body
        ),
        (status) => {
          if (status !== 201) reject(new Error(`a send was answered with ${status}`))
          answered = performance.now()
          done()
        }
      )
    })
  const alone = Math.min(WAITS_ALONE, count >> 1)
  for (let i = 0; i < alone; i++) await wake(connections[0]!, i)
  const quiet = { fromSend: quantiles(fromSend), fromAnswer: quantiles(fromAnswer) }
  fromSend.length = fromAnswer.length = 0
  let next = alone
  await Promise.all(connections.map(async (connection) => {
    while (next < count) await wake(connection, next++)
  }))
  if (fromSend.length !== count - alone || failures.length > 0)
    throw new Error(`not all of them heard: ${failures[0] ?? ""}`)
  for (const one of [...waiting, ...connections]) one.close()
  const each = (kind: "rss" | "heap" | "external") => (after[kind] - before[kind]) / count
  const [fresh] = await rig.restart()
  if (fresh === undefined) throw new Error("no server")
  const idle = await weighSockets(fresh, agents.map(({ key }) => key))
  return {
    idle,
    waiting: count,
    rss: each("rss"),
    heap: each("heap"),
    external: each("external"),
    begun,
    alone: quiet,
    loaded: { fromSend: quantiles(fromSend), fromAnswer: quantiles(fromAnswer) }
  }
}

const BY_TOKEN = "agentchat_send_message, 2025-11-25, by token"
const WAYS = [
  "POST /v1/messages",
  "agentchat_send_message, 2025-11-25",
  BY_TOKEN,
  "agentchat_send_message, 2026-07-28"
] as const
type Way = (typeof WAYS)[number]

interface SendResult {
  readonly perSecond: number
  /** Microseconds of the server's processor time for each. */
  readonly cpu: number
}

/** The ways to send, in turn, between agents that know each other. */
const benchSends = async (
  rig: Rig,
  { profile, short }: Options,
  say: (text: string) => void
): Promise<Map<Way, ReadonlyArray<SendResult>>> => {
  const [server] = rig.servers
  if (server === undefined) throw new Error("no server")
  const handles = Array.from({ length: IN_FLIGHT * 2 }, (_, i) => `sends-${i}`)
  const agents = await registerAgents(server.url, rig.outbox, handles)
  const plain = async (from: RegisteredAgent, to: RegisteredAgent) => {
    const response = await fetch(`${server.url}/v1/messages`, {
      method: "POST",
      headers: { authorization: `Bearer ${from.key}`, "content-type": "application/json" },
      body: JSON.stringify({ to: to.handle, client_msg_id: "first", type: "text", content: { text: "hello" } })
    })
    if (response.status !== 201)
      throw new Error(`a first message was answered with ${response.status}: ${await response.text()}`)
  }
  const pairs = Array.from({ length: IN_FLIGHT }, (_, i) => [agents[i * 2]!, agents[i * 2 + 1]!] as const)
  for (const [one, other] of pairs) {
    await plain(one, other)
    await plain(other, one)
  }
  const host = await Host.register(server)
  const tokens = new Map<string, string>()
  for (const [one] of pairs) tokens.set(one.key, (await host.connect(one)).access_token)
  let serial = 0
  const text = "a message of the size that agents send each other most of the time, about so many bytes"
  const bytesOf = (way: Way, from: RegisteredAgent, to: RegisteredAgent): Buffer => {
    const id = `sent-${serial++}`
    if (way !== "POST /v1/messages") {
      const args = { to: to.handle, text, client_msg_id: id }
      const credential = way === BY_TOKEN ? tokens.get(from.key) ?? "" : from.key
      return callOf(
        server,
        credential,
        "agentchat_send_message",
        args,
        way.endsWith(REVISIONS.newest) ? "newest" : "older"
      )
    }
    const body = JSON.stringify({ to: to.handle, client_msg_id: id, type: "text", content: { text } })
    return Buffer.from(
      requestHead("POST", "/v1/messages", `${server.host}:${server.port}`, from.key, Buffer.byteLength(body)) + body
    )
  }
  const failures: Array<string> = []
  const connections = await Promise.all(
    pairs.map(() => HttpConnection.connect(server.host, server.port, (why) => failures.push(why)))
  )
  const run = async (way: Way, seconds: number): Promise<SendResult> => {
    let done = 0
    const [from, cpu] = [performance.now(), cpuOf(server.pid)]
    const until = from + seconds * 1_000
    await Promise.all(connections.map((connection, i) =>
      new Promise<void>((resolve, reject) => {
        const [one, other] = pairs[i]!
        const next = (): void => {
          if (failures.length > 0) return reject(new Error(failures[0]))
          if (performance.now() > until) return resolve()
          connection.request(bytesOf(way, one, other), (status, buffer, start, end) => {
            const fine = way === "POST /v1/messages"
              ? status === 201
              : status === 200 && buffer.indexOf('"structuredContent":', start) >= 0
            if (!fine)
              return reject(new Error(`${way} was answered with ${status}: ${buffer.toString("utf8", start, end)}`))
            done++
            next()
          })
        }
        next()
      })
    ))
    const took = (performance.now() - from) / 1_000
    return { perSecond: done / took, cpu: (cpuOf(server.pid) - cpu) / done }
  }
  const results = new Map<Way, Array<SendResult>>(WAYS.map((way) => [way, []]))
  for (const way of WAYS) await run(way, 2)
  for (let round = 0; round < (short ? 1 : 3); round++) {
    for (const way of round % 2 === 0 ? WAYS : WAYS.toReversed()) {
      if (profile && round === 0) {
        const file = join(rig.folder, "window.cpuprofile")
        await probe(server, { probe: "profile-start" })
        const { cpu, perSecond } = await run(way, 3)
        await probe(server, { probe: "profile-stop", file })
        printProfile(way, file, cpu)
        say(`${way}: ${perSecond.toFixed(0)}/s while profiled`)
      }
      results.get(way)!.push(await run(way, short ? 2 : 4))
    }
  }
  for (const connection of connections) connection.close()
  return results
}

const kb = (bytes: number): string => (bytes / 1_000).toFixed(1)
const ms = ({ max, p50, p99 }: ReturnType<typeof quantiles>): ReadonlyArray<string> =>
  [p50, p99, max].map((value) => value.toFixed(1))

const benchOn = async (subject: Subject, options: Options, say: (text: string) => void): Promise<void> => {
  const name = nameOf(subject)
  const started = await startRig(subject, LIMITS, (text) => say(`${name}: ${text}`))
  const sends = await benchSends(started, options, say)
  await cleanUp()
  const posts = sends.get("POST /v1/messages") ?? []
  const shares = new Map(WAYS.map((way) => [
    way,
    median((sends.get(way) ?? []).map(({ perSecond }, round) => perSecond / (posts[round]?.perSecond ?? Number.NaN)))
  ]))
  console.log(table([
    [`${name}: sends, ${IN_FLIGHT} in flight`, "req/s", "spread", "CPU µs", "of POST"],
    ...WAYS.map((way) => {
      const speeds = (sends.get(way) ?? []).map(({ perSecond }) => perSecond)
      const cpu = median((sends.get(way) ?? []).map((one) => one.cpu))
      const spread = `${Math.min(...speeds).toFixed(0)} to ${Math.max(...speeds).toFixed(0)}`
      return [way, median(speeds).toFixed(0), spread, cpu.toFixed(0), percent(shares.get(way) ?? Number.NaN)]
    })
  ]))
  let waits: WaitResult | undefined
  if (options.idle > 0) {
    waits = await benchWaits(await startRig(subject, LIMITS, (text) => say(`${name}: ${text}`)), options.idle, say)
    await cleanUp()
    const { idle } = waits
    console.log(table([
      [`${name}: ${waits.waiting} at once`, "resident kB", "heap kB", "external kB"],
      ["an agent that waits on /mcp", ...[waits.rss, waits.heap, waits.external].map(kb)],
      ["an idle socket", ...[idle.rss, idle.heap, idle.external].map(kb)]
    ]))
    console.log(table([
      [`${name}: ms until a wait is answered`, "p50", "p99", "max"],
      ["one send at a time: from the send", ...ms(waits.alone.fromSend)],
      ["one send at a time: from its 201", ...ms(waits.alone.fromAnswer)],
      [`${AT_ONCE} sends at once: from the send`, ...ms(waits.loaded.fromSend)],
      [`${AT_ONCE} sends at once: from its 201`, ...ms(waits.loaded.fromAnswer)]
    ]))
  }
  console.log(
    json({ bench: "mcp", subject: name, sends: Object.fromEntries(sends), shares: Object.fromEntries(shares), waits })
  )
}

/** Compares `/mcp` with the API that it is built on. */
export const benchMcp = async (options: Options, say: (text: string) => void): Promise<void> => {
  for (const database of options.drivers) {
    await benchOn({ database, nodes: 0, balancer: undefined, stored: 0, checkout: here }, options, say)
  }
}
