import { HttpConnection, requestHead, SocketConnection } from "../../test/support/Connection.ts"
import { cpuOf, cpuOfTree, kernelCpuOf, machineCpu } from "./CpuTime.ts"
import { type Quantiles, quantiles } from "./Statistics.ts"
import { TEXTS } from "./Texts.ts"
import type { Verdict } from "./Verdict.ts"

/**
 * The load, in a process of its own. Agents send over HTTP, and each receives on one socket that acknowledges
 * everything. With several nodes, each sender uses one node, and its socket may be on another. The load remembers every
 * message that it sent, so that the accepted, the stored and the received messages can be compared one by one.
 * `LoadProcess.ts` forks it and gives it one command after another.
 */

export interface LoadAgent {
  readonly handle: string
  readonly key: string
}

/** A conversation to which the load sends. Agents are identified by their index. */
export interface Channel {
  readonly conversationId: string
  /** Before the load begins. */
  readonly lastSeq: number
  /** The address of a send. */
  readonly target: { readonly to: string } | { readonly conversation_id: string }
  readonly senders: ReadonlyArray<number>
  /** The agents that receive a message. If the sender is among them, it receives only an echo. */
  readonly recipients: ReadonlyArray<number>
}

export interface Address {
  readonly host: string
  readonly port: number
}

export interface OpenPlan {
  /** The addresses of the servers, or of the balancer before them. */
  readonly nodes: ReadonlyArray<Address>
  readonly agents: ReadonlyArray<LoadAgent>
  readonly channels: ReadonlyArray<Channel>
  /** Whether senders get their own messages on their sockets. */
  readonly echo: boolean
  /** Sockets carry their keys in the header of the upgrade instead of in HELLO. */
  readonly keyInHeader: boolean
}

/** The processes whose processor time is counted as the cost of messages. */
export interface Processes {
  readonly servers: ReadonlyArray<number>
  /** Parent of the database's processes, if it has any here. */
  readonly database: number | undefined
  readonly redis: number | undefined
  readonly balancer: number | undefined
}

export interface RunPlan {
  readonly inFlight: number
  readonly warmUpSeconds: number
  /**
   * The measured window lasts at least `seconds` and until `messages` messages are accepted, but at most `maxSeconds`.
   */
  readonly seconds: number
  readonly messages: number
  readonly maxSeconds: number
  /** Target in messages per second. With 0, the next message is sent as soon as the last one was answered. */
  readonly rate: number
  /** With one message in flight, whether the next one is sent only when the last one has also arrived. */
  readonly settle: boolean
  readonly pids: Processes
}

export interface RunResult {
  readonly seconds: number
  readonly accepted: number
  readonly perSecond: number
  /** Messages on sockets, echoes included. */
  readonly framesPerSecond: number
  /** Milliseconds from the send to the arrival at the last of the recipients' sockets. */
  readonly toSocket: Quantiles
  readonly toAnswer: Quantiles
  /** Microseconds per accepted message. `server` is the sum of the `nodes`, and `kernel` is a part of `server`. */
  readonly cpu: {
    readonly server: number
    readonly nodes: ReadonlyArray<number>
    readonly kernel: number
    readonly database: number | undefined
    readonly redis: number | undefined
    readonly balancer: number | undefined
    readonly load: number
  }
  /**
   * Share of all processors, 0 to 1: `others` is used by processes outside the measurement, `stolen` by other guests of
   * the host.
   */
  readonly noise: { readonly others: number; readonly stolen: number }
  readonly refused: Readonly<Record<string, number>>
}

export interface IdlePlan extends Address {
  readonly keys: ReadonlyArray<string>
  /** How many connect at a time. */
  readonly atATime: number
}

export interface HttpPlan extends Address {
  readonly path: string
  readonly key: string
  readonly inFlight: number
  readonly seconds: number
  readonly serverPid: number
}

export interface HttpResult {
  readonly perSecond: number
  readonly serverCpu: number
}

/** The commands of the process. It runs one at a time. */
export interface Commands {
  readonly open: (plan: OpenPlan) => Promise<void>
  readonly run: (plan: RunPlan) => Promise<RunResult>
  /** `stores` is true if the server stores messages, so that they can be read back. */
  readonly verify: (options: { readonly stores: boolean }) => Promise<Verdict>
  readonly idle: (plan: IdlePlan) => Promise<void>
  /** Closes the idle sockets and returns how many were still open. */
  readonly closeIdle: () => Promise<number>
  readonly http: (plan: HttpPlan) => Promise<HttpResult>
}

const CAPACITY = 4_000_000
const ID_LENGTH = 20
const PREFIX = "bench-"
const DIGITS = 8
/** How long messages may be under way after the last send before they count as lost. */
const SETTLE_MS = 15_000

const CLIENT_ID = Buffer.from(`"client_msg_id":"${PREFIX}`)
const ID = Buffer.from('"id":"')
const SEQ = Buffer.from('"seq":')

/** Reads the decimal number at this position. */
const readNumber = (buffer: Buffer, at: number): number => {
  let value = 0
  for (let i = at;; i++) {
    const digit = buffer[i]! - 48
    if (digit < 0 || digit > 9) return value
    value = value * 10 + digit
  }
}

const inside = (buffer: Buffer, needle: Buffer, start: number, end: number): number => {
  const at = buffer.indexOf(needle, start)
  return at < 0 || at >= end ? -1 : at + needle.length
}

/** An agent that sends to one conversation. */
class Sender {
  readonly index: number
  readonly agent: number
  readonly channel: number
  /** How many agents besides itself receive its messages. */
  readonly audience: number
  /** A whole request for each size of payload, and the position of the digits in its client_msg_id. */
  private readonly requests: ReadonlyArray<{ readonly bytes: Buffer; readonly digitsAt: number }>

  constructor(index: number, agent: number, channel: number, { agents, channels, nodes }: OpenPlan) {
    const { host, port } = nodes[index % nodes.length]!
    const { recipients, target } = channels[channel]!
    this.index = index
    this.agent = agent
    this.channel = channel
    this.audience = recipients.filter((recipient) => recipient !== agent).length
    this.requests = TEXTS.map((text) => {
      const body = JSON.stringify({
        ...target,
        client_msg_id: PREFIX + "0".repeat(DIGITS),
        type: "text",
        content: { text }
      })
      const bytes = Buffer.from(
        requestHead("POST", "/v1/messages", `${host}:${port}`, agents[agent]!.key, body.length) + body
      )
      return { bytes, digitsAt: bytes.indexOf(CLIENT_ID) + CLIENT_ID.length }
    })
  }

  /** The request for message number `n`. The buffer is valid until the next call. */
  request(n: number): Buffer {
    const { bytes, digitsAt } = this.requests[n % TEXTS.length]!
    let rest = n
    for (let i = digitsAt + DIGITS - 1; i >= digitsAt; i--) {
      bytes[i] = 48 + (rest % 10)
      rest = Math.floor(rest / 10)
    }
    return bytes
  }
}

/** An agent that receives, with the last seq that its socket showed for each of its channels. */
interface Listener {
  readonly agent: number
  readonly handle: string
  readonly heard: Map<number, number>
}

let plan: OpenPlan
let senders: Array<Sender> = []
let sockets: Array<SocketConnection> = []
const sentAt = new Float64Array(CAPACITY)
const answeredAt = new Float64Array(CAPACITY)
const receivedAt = new Float64Array(CAPACITY)
const seqs = new Int32Array(CAPACITY)
const senderOf = new Int32Array(CAPACITY)
/** For each message, how many recipients have not received it yet. */
const missing = new Uint16Array(CAPACITY)
const ids: Array<string | undefined> = []
let sent = 0
let accepted = 0
let delivered = 0
let echoed = 0
let frames = 0
let refused: Record<string, number> = {}
const problems: Array<string> = []
let fatal: ((error: Error) => void) | undefined
let onReceived: ((n: number) => void) | undefined

const problem = (text: string) => {
  if (problems.length < 20) problems.push(text)
}

const connectionLost = (why: string) => {
  problem(`a connection was lost: ${why}`)
  fatal?.(new Error(`a connection was lost: ${why}`))
}

/** Notes the id and the seq of a message at their first appearance, and compares them at each later one. */
const agree = (n: number, where: string, buffer: Buffer, idAt: number, seq: number) => {
  const id = buffer.toString("latin1", idAt, idAt + ID_LENGTH)
  const known = ids[n]
  if (known === undefined) {
    ids[n] = id
    seqs[n] = seq
  } else if (known !== id || seqs[n] !== seq) {
    problem(`message ${n} is ${known} with seq ${seqs[n]} in one place and ${id} with seq ${seq} in its ${where}`)
  }
}

const onFrame = (me: Listener) => (buffer: Buffer, start: number, end: number): number => {
  const clientIdAt = inside(buffer, CLIENT_ID, start, end)
  if (clientIdAt < 0) return -1
  const n = readNumber(buffer, clientIdAt)
  const idAt = inside(buffer, ID, start, end)
  const seq = readNumber(buffer, inside(buffer, SEQ, start, end))
  const from = senders[senderOf[n]!]
  const last = from === undefined ? undefined : me.heard.get(from.channel)
  if (n >= sent || from === undefined || last === undefined) {
    problem(`@${me.handle} got a message that is not for it: ${buffer.toString("utf8", start, end)}`)
    return idAt
  }
  frames++
  // Without echoes, the seqs of the agent's own messages are missing on its socket.
  const gaps = !plan.echo && plan.channels[from.channel]!.senders.includes(me.agent)
  if (gaps ? seq <= last : seq !== last + 1) problem(`@${me.handle} got seq ${seq} after ${last}`)
  me.heard.set(from.channel, seq)
  if (from.agent === me.agent) {
    echoed++
    agree(n, "echo", buffer, idAt, seq)
    return -1
  }
  if (missing[n] === 0) problem(`message ${n} arrived more often than it has recipients`)
  else if (--missing[n]! === 0) {
    receivedAt[n] = performance.now()
    delivered++
    onReceived?.(n)
  }
  agree(n, "push", buffer, idAt, seq)
  return idAt
}

const onAnswer = (n: number, status: number, buffer: Buffer, start: number, end: number) => {
  if (status === 201) {
    answeredAt[n] = performance.now()
    accepted++
    agree(n, "answer", buffer, inside(buffer, ID, start, end), readNumber(buffer, inside(buffer, SEQ, start, end)))
  } else {
    const code = /"code":"(\w+)"/.exec(buffer.toString("latin1", start, end))?.[1] ?? "no code"
    const name = `${status} ${code}`
    refused[name] = (refused[name] ?? 0) + 1
  }
}

const sendOver = (connection: HttpConnection, from: Sender, since: number, next: (n: number) => void) => {
  const n = sent++
  if (n >= CAPACITY) throw new Error("more messages than this process can remember")
  senderOf[n] = from.index
  missing[n] = from.audience
  sentAt[n] = since
  connection.request(from.request(n), (status, buffer, start, end) => {
    onAnswer(n, status, buffer, start, end)
    next(n)
  })
}

const sum = (values: ReadonlyArray<number>): number => values.reduce((total, value) => total + value, 0)

const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

const open: Commands["open"] = async (p) => {
  plan = p
  senders = []
  for (const [c, channel] of p.channels.entries()) {
    for (const agent of channel.senders) senders.push(new Sender(senders.length, agent, c, p))
  }
  for (const [agent, { handle, key }] of p.agents.entries()) {
    const heard = new Map(
      p.channels.flatMap(({ lastSeq, recipients, senders }, c) =>
        recipients.includes(agent) || (p.echo && senders.includes(agent)) ? [[c, lastSeq]] : []
      )
    )
    // Sockets are spread by another rule than senders. With the same rule, every message would take the same path
    // between nodes.
    const node = p.nodes[Math.floor(agent / p.nodes.length) % p.nodes.length]!
    sockets.push(
      await SocketConnection.connect({
        ...node,
        key,
        keyInHeader: p.keyInHeader,
        onFrame: onFrame({ agent, handle, heard }),
        onFailure: connectionLost
      })
    )
  }
}

const run = (p: RunPlan): Promise<RunResult> => {
  const outcome = Promise.withResolvers<RunResult>()
  fatal = outcome.reject
  execute(p).then(outcome.resolve, outcome.reject)
  return outcome.promise
}

const execute = async (p: RunPlan): Promise<RunResult> => {
  // Each line sends for its own part of the senders, one after the other.
  const parts = Array.from(
    { length: p.inFlight },
    (_, c) => c < senders.length ? senders.filter((_, s) => s % p.inFlight === c) : [senders[c % senders.length]!]
  )
  // A line uses one connection at a time, the one to its current sender's node. The server would close a connection
  // without requests.
  const nodeOf = (from: Sender): number => from.index % plan.nodes.length
  const lines = await Promise.all(
    parts.map((part) =>
      Promise.all(plan.nodes.map(({ host, port }, node) =>
        part.some((from) => nodeOf(from) === node)
          ? HttpConnection.connect(host, port, connectionLost)
          : undefined
      ))
    )
  )
  const turns = lines.map(() => 0)
  const turn = (c: number): Sender => {
    const part = parts[c]!
    const at = turns[c]!
    turns[c] = at + 1 === part.length ? 0 : at + 1
    return part[at]!
  }
  const first = sent
  let running = true
  let underWay = 0
  let idle: () => void = () => {}
  refused = {}

  const send = (c: number, since: number, next: (n: number) => void) => {
    const from = turn(c)
    sendOver(lines[c]![nodeOf(from)]!, from, since, next)
  }

  const settled = { answered: false, arrived: false }
  const step = (c: number) => {
    if (!running) {
      if (--underWay === 0) idle()
      return
    }
    if (!p.settle) {
      send(c, performance.now(), () => step(c))
      return
    }
    settled.answered = settled.arrived = false
    const proceed = () => {
      if (settled.answered && settled.arrived) setImmediate(step, c)
    }
    onReceived = () => {
      settled.arrived = true
      proceed()
    }
    send(c, performance.now(), (n) => {
      settled.answered = true
      // A refused message never arrives, so its arrival is not waited for.
      if (answeredAt[n] === 0) settled.arrived = true
      proceed()
    })
  }

  const free: Array<number> = []
  const waiting: Array<number> = []
  let owed = 0
  let paceFrom = 0
  const paced = (c: number) => {
    if (!running && waiting.length === 0) {
      if (--underWay === 0) idle()
      return
    }
    const since = waiting.shift()
    if (since === undefined) free.push(c)
    else send(c, since, () => paced(c))
  }
  const pace = () => {
    const now = performance.now()
    const due = ((now - paceFrom) / 1000) * p.rate
    for (; owed < due; owed++) {
      waiting.push(now)
      const c = free.shift()
      if (c !== undefined) paced(c)
    }
    if (running) setTimeout(pace, 1)
    else for (const c of free.splice(0)) paced(c)
  }

  underWay = lines.length
  if (p.rate > 0) {
    paceFrom = performance.now()
    for (let c = 0; c < lines.length; c++) free.push(c)
    pace()
  } else for (let c = 0; c < lines.length; c++) step(c)

  await wait(p.warmUpSeconds * 1000)
  const { balancer, database: databasePid, redis, servers: serverPids } = p.pids
  const mark = () => ({
    at: performance.now(),
    accepted,
    frames,
    nodes: serverPids.map(cpuOf),
    kernel: sum(serverPids.map(kernelCpuOf)),
    database: databasePid === undefined ? undefined : cpuOfTree(databasePid),
    redis: redis === undefined ? undefined : cpuOf(redis),
    balancer: balancer === undefined ? undefined : cpuOf(balancer),
    load: process.cpuUsage(),
    machine: machineCpu()
  })
  const begin = mark()
  process.send?.({ event: "begin" })
  do await wait(Math.min(p.seconds * 1000, Math.max(50, begin.at + p.seconds * 1000 - performance.now())))
  while (accepted - begin.accepted < p.messages && performance.now() - begin.at < p.maxSeconds * 1000)
  const end = mark()
  process.send?.({ event: "end" })

  running = false
  await new Promise<void>((resolve) => (idle = resolve))
  onReceived = undefined
  for (const connection of lines.flat()) connection?.close()
  for (const deadline = performance.now() + SETTLE_MS; performance.now() < deadline; await wait(20)) {
    if (delivered === accepted) break
  }
  fatal = undefined

  const toSocket: Array<number> = []
  const toAnswer: Array<number> = []
  for (let n = first; n < sent; n++) {
    if (sentAt[n]! < begin.at || sentAt[n]! > end.at || answeredAt[n] === 0) continue
    toAnswer.push(answeredAt[n]! - sentAt[n]!)
    if (receivedAt[n] !== 0) toSocket.push(receivedAt[n]! - sentAt[n]!)
  }
  const seconds = (end.at - begin.at) / 1000
  const count = end.accepted - begin.accepted
  const nodes = end.nodes.map((cpu, i) => cpu - begin.nodes[i]!)
  const server = sum(nodes)
  const used = (part: "database" | "redis" | "balancer") => {
    const [from, to] = [begin[part], end[part]]
    return from === undefined || to === undefined ? undefined : to - from
  }
  const each = (micros: number | undefined) => micros === undefined ? undefined : micros / count
  const [database, redisCpu, balancerCpu] = [used("database"), used("redis"), used("balancer")]
  const load = end.load.user + end.load.system - begin.load.user - begin.load.system
  const whole = seconds * 1e6 * navigator.hardwareConcurrency
  return {
    seconds,
    accepted: count,
    perSecond: count / seconds,
    framesPerSecond: (end.frames - begin.frames) / seconds,
    toSocket: quantiles(Float64Array.from(toSocket)),
    toAnswer: quantiles(Float64Array.from(toAnswer)),
    cpu: {
      server: server / count,
      nodes: nodes.map((cpu) => cpu / count),
      kernel: (end.kernel - begin.kernel) / count,
      database: each(database),
      redis: each(redisCpu),
      balancer: each(balancerCpu),
      load: load / count
    },
    noise: {
      others: Math.max(
        0,
        end.machine.busy - begin.machine.busy - server - (database ?? 0) - (redisCpu ?? 0) - (balancerCpu ?? 0) - load
      ) / whole,
      stolen: (end.machine.stolen - begin.machine.stolen) / whole
    },
    refused
  }
}

let asked = 0

/** Sends a GET request to the nodes in turn. */
const getJson = async (path: string, key: string): Promise<unknown> => {
  const { host, port } = plan.nodes[asked++ % plan.nodes.length]!
  const response = await fetch(`http://${host}:${port}${path}`, { headers: { authorization: `Bearer ${key}` } })
  const text = await response.text()
  if (response.status !== 200) throw new Error(`GET ${path} answered ${response.status}: ${text}`)
  return JSON.parse(text)
}

interface StoredRow {
  readonly id: string
  readonly seq: number
  readonly client_msg_id: string
}

/** Reads back all messages through the API and compares each with what was accepted and what arrived. */
const verify: Commands["verify"] = async ({ stores }) => {
  let stored = 0
  const found = new Uint8Array(sent)
  const read = async ({ conversationId, lastSeq, senders: [reader] }: Channel, index: number) => {
    const { key } = plan.agents[reader!]!
    for (let after = lastSeq;;) {
      const rows = await getJson(`/v1/messages/${conversationId}?limit=200&after_seq=${after}`, key) as Array<StoredRow>
      for (const row of rows) {
        stored++
        if (row.seq !== after + 1) problem(`the history of ${conversationId} has seq ${row.seq} after ${after}`)
        after = row.seq
        const n = row.client_msg_id.startsWith(PREFIX) ? Number(row.client_msg_id.slice(PREFIX.length)) : -1
        if (n < 0 || n >= sent || senders[senderOf[n]!]?.channel !== index)
          problem(`the history of ${conversationId} has a stranger: ${row.id}`)
        else if (found[n]!++ > 0) problem(`message ${n} is stored twice`)
        else if (ids[n] !== row.id || seqs[n] !== row.seq)
          problem(`message ${n} is stored as ${row.id} with seq ${row.seq}`)
      }
      if (rows.length < 200) return
    }
  }
  if (stores) {
    const all = plan.channels.map((channel, index) => ({ channel, index }))
    for (let at = 0; at < all.length; at += 4)
      await Promise.all(all.slice(at, at + 4).map(({ channel, index }) => read(channel, index)))
  }
  for (let n = 0; n < sent; n++) {
    if (answeredAt[n] === 0) continue
    if (stores && found[n] === 0) problem(`message ${n} was accepted and is not stored`)
    if (receivedAt[n] === 0) problem(`message ${n} was accepted and did not arrive`)
  }
  if (plan.echo && echoed !== accepted) problem(`${accepted} accepted, ${echoed} echoed to their senders`)
  // Acknowledgements have no answer. All of them have worked once sync returns nothing.
  const deadline = performance.now() + SETTLE_MS
  for (const agent of stores ? plan.agents : []) {
    let left: number
    do {
      left = (await getJson("/v1/messages/sync?limit=10", agent.key) as Array<unknown>).length
      if (left > 0) await wait(100)
    } while (left > 0 && performance.now() < deadline)
    if (left > 0) problem(`@${agent.handle} has acknowledged everything and still has messages to sync`)
  }
  for (const socket of sockets) socket.close()
  if (!stores) stored = accepted
  return { accepted, stored, delivered, echoed, problems }
}

let idleSockets: Array<SocketConnection> = []
let idleLost = 0

const idle: Commands["idle"] = async ({ atATime, host, keys, port }) => {
  for (let at = 0; at < keys.length; at += atATime) {
    const more = keys.slice(at, at + atATime).map((key) =>
      SocketConnection.connect({ host, port, key, onFrame: () => -1, onFailure: () => idleLost++ })
    )
    idleSockets.push(...await Promise.all(more))
  }
}

const closeIdle: Commands["closeIdle"] = async () => {
  const live = idleSockets.length - idleLost
  idleLost = 0
  for (const socket of idleSockets.splice(0)) socket.close()
  return live
}

/** Repeats one GET request, to measure the cost of the HTTP layer alone. */
const http: Commands["http"] = async (p) => {
  const request = Buffer.from(requestHead("GET", p.path, `${p.host}:${p.port}`, p.key, 0))
  let running = true
  let answers = 0
  const lost = Promise.withResolvers<never>()
  const connections = await Promise.all(
    Array.from(
      { length: p.inFlight },
      () => HttpConnection.connect(p.host, p.port, (why) => lost.reject(new Error(why)))
    )
  )
  const loops = connections.map((connection) =>
    new Promise<void>((resolve, reject) => {
      const next = () =>
        connection.request(request, (status, buffer, start, end) => {
          if (status !== 200) return reject(new Error(`${status}: ${buffer.toString("utf8", start, end)}`))
          answers++
          if (running) next()
          else resolve()
        })
      next()
    })
  )
  await wait(1000)
  const begin = { at: performance.now(), answers, cpu: cpuOf(p.serverPid) }
  await Promise.race([wait(p.seconds * 1000), lost.promise, Promise.all(loops)])
  const end = { at: performance.now(), answers, cpu: cpuOf(p.serverPid) }
  running = false
  await Promise.all(loops)
  for (const connection of connections) connection.close()
  const count = end.answers - begin.answers
  return { perSecond: count / ((end.at - begin.at) / 1000), serverCpu: (end.cpu - begin.cpu) / count }
}

const commands: Commands = { open, run, verify, idle, closeIdle, http }

export interface Call {
  readonly command: keyof Commands
  readonly argument: unknown
}

export type Reply =
  | { readonly event: "begin" }
  | { readonly event: "end" }
  | { readonly event: "result"; readonly result: unknown }
  | { readonly event: "failure"; readonly message: string }

process.on("message", (call: Call) => {
  const command = commands[call.command] as (argument: unknown) => Promise<unknown>
  command(call.argument).then(
    (result) => process.send?.({ event: "result", result } satisfies Reply),
    (error: unknown) =>
      process.send?.(
        { event: "failure", message: error instanceof Error ? error.message : String(error) } satisfies Reply
      )
  )
})

// The process ends with the bench that forked it.
process.on("disconnect", () => process.exit(1))
