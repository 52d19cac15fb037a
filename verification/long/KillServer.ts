import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { HttpConnection, requestHead, SocketConnection } from "../../test/support/Connection.ts"
import { randomOf } from "../../test/support/Random.ts"
import { registerAgents, type RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import { type ServerProcess, spawnServer, untilReady } from "../../test/support/ServerProcess.ts"
import { check, type Row, type Send } from "./Ledger.ts"

/**
 * Kills a standalone server with SIGKILL, again and again, at random moments with 50
 * sends under way and acknowledgements between them, starts it again on the same
 * folder, and compares everything it shows with everything it ever acknowledged.
 */

const IN_FLIGHT = 50
const AGENTS = 8
/** The longest that a server works before it is killed. */
const LONGEST_MS = 1200

const LIMITS = {
  LIMITS_SENDS_PER_SECOND: "1000000",
  LIMITS_BACKLOG_SOFT: "1000000000",
  LIMITS_BACKLOG_HARD: "1000000000",
  LIMITS_REGISTER_PER_HOUR: "1000000",
  LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_REQUESTS_PER_MINUTE: "100000000",
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "100000000"
}

export interface KillReport {
  readonly kills: number
  /** Kills while it was starting again, on top of the others. */
  readonly killsAtStart: number
  readonly acknowledged: number
  /** Sends whose answer a kill swallowed: stored all the same, or not. */
  readonly unansweredStored: number
  readonly unansweredAbsent: number
  /** Of those that were sent again: answered with the first message, or stored now. */
  readonly replayed: number
  readonly sentAgain: number
  readonly pushed: number
  readonly slowestStartMs: number
}

const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

interface Reply {
  readonly status: number
  readonly body: unknown
}

/** One connection that gives up, without an answer, when the server is gone. */
class Caller {
  private readonly connection: HttpConnection
  private readonly host: string
  private giveUp: (() => void) | undefined
  private lost = false

  private constructor(connection: HttpConnection, host: string) {
    this.connection = connection
    this.host = host
  }

  static async connect(server: ServerProcess): Promise<Caller> {
    let caller: Caller | undefined
    const connection = await HttpConnection.connect(server.host, server.port, () => caller?.fail())
    caller = new Caller(connection, `${server.host}:${server.port}`)
    return caller
  }

  private fail(): void {
    this.lost = true
    this.giveUp?.()
  }

  /** Undefined when the connection broke before the whole answer was here. */
  ask(method: string, path: string, key: string, body?: unknown): Promise<Reply | undefined> {
    if (this.lost) return Promise.resolve(undefined)
    const text = body === undefined ? "" : JSON.stringify(body)
    return new Promise((resolve) => {
      this.giveUp = () => resolve(undefined)
      this.connection.request(
        Buffer.from(requestHead(method, path, this.host, key, Buffer.byteLength(text)) + text),
        (status, buffer, start, end) => resolve({ status, body: JSON.parse(buffer.toString("utf8", start, end)) })
      )
    })
  }

  close(): void {
    this.connection.close()
  }
}

/** An answer that must come, because the server is up and nothing is wrong with the request. */
const must = async <A>(caller: Caller, method: string, path: string, key: string, body?: unknown): Promise<A> => {
  const reply = await caller.ask(method, path, key, body)
  if (reply === undefined || reply.status >= 300) {
    throw new Error(`${method} ${path} answered ${reply?.status ?? "nothing"}: ${JSON.stringify(reply?.body)}`)
  }
  // The contract tests are about shapes; here they are taken as given.
  return reply.body as A
}

interface Delivered {
  readonly status: number
  readonly conversation: string
}

type SyncRow = Row & { readonly delivery_id: string }

class Trial {
  readonly random: () => number
  readonly dataDir: string
  readonly say: (line: string) => void
  readonly nodeOptions: ReadonlyArray<string>
  readonly sends: Array<Send> = []
  readonly pushed: Array<Row> = []
  readonly acknowledged = new Map<string, Set<string>>()
  readonly maybeAcknowledged = new Map<string, Set<string>>()
  agents: ReadonlyArray<RegisteredAgent> = []
  /** Pairs of agents that talk, by their conversation. */
  readonly pairs = new Map<string, readonly [RegisteredAgent, RegisteredAgent]>()
  server: ServerProcess | undefined
  private port: number | undefined
  private serial = 0
  readonly counts = {
    killsAtStart: 0,
    unansweredStored: 0,
    unansweredAbsent: 0,
    replayed: 0,
    sentAgain: 0,
    slowestStartMs: 0
  }

  constructor(dataDir: string, seed: number, say: (line: string) => void, nodeOptions: ReadonlyArray<string>) {
    this.dataDir = dataDir
    this.nodeOptions = nodeOptions
    this.random = randomOf(seed)
    this.say = say
  }

  pick<A>(some: ReadonlyArray<A>): A {
    return some[Math.floor(this.random() * some.length)]!
  }

  async spawn(): Promise<ServerProcess> {
    const server = await spawnServer({
      dataDir: this.dataDir,
      env: LIMITS,
      nodeOptions: this.nodeOptions,
      ...(this.port === undefined ? {} : { port: this.port })
    })
    this.port = server.port
    this.server = server
    return server
  }

  async start(): Promise<ServerProcess> {
    const begin = performance.now()
    const server = await this.spawn()
    await untilReady(server)
    if (this.agents.length > 0)
      this.counts.slowestStartMs = Math.max(this.counts.slowestStartMs, performance.now() - begin)
    return server
  }

  newSend(from: RegisteredAgent, to: RegisteredAgent): Send {
    const send: Send = {
      clientMsgId: `kill-${this.serial++}`,
      from: from.handle,
      to: to.handle,
      answer: { _tag: "Unknown" }
    }
    this.sends.push(send)
    return send
  }

  /** Sends it, or sends it again; undefined without an answer, and a refusal is an error. */
  async deliver(caller: Caller, send: Send, key: string): Promise<Delivered | undefined> {
    const reply = await caller.ask("POST", "/v1/messages", key, {
      to: send.to,
      client_msg_id: send.clientMsgId,
      content: { text: `${send.clientMsgId} from ${send.from}` }
    })
    if (reply === undefined) return undefined
    if (reply.status >= 300) throw new Error(`a send was refused with ${reply.status}: ${JSON.stringify(reply.body)}`)
    const { conversation_id, id, seq } = reply.body as Row
    send.answer = { _tag: "Stored", id, seq }
    return { status: reply.status, conversation: conversation_id }
  }

  /** Registers the agents and lets each pair exchange its first two messages. */
  async begin(): Promise<void> {
    const server = await this.start()
    const handles = Array.from({ length: AGENTS }, (_, i) => `kill-${i}`)
    this.agents = await registerAgents(server.url, join(this.dataDir, "outbox"), handles)
    for (const { handle } of this.agents) {
      this.acknowledged.set(handle, new Set())
      this.maybeAcknowledged.set(handle, new Set())
    }
    const caller = await Caller.connect(server)
    for (const step of [1, 3]) {
      for (const [i, one] of this.agents.entries()) {
        const other = this.agents[(i + step) % AGENTS]!
        const first = await this.deliver(caller, this.newSend(one, other), one.key)
        await this.deliver(caller, this.newSend(other, one), other.key)
        if (first === undefined) throw new Error("no answer before the first kill")
        this.pairs.set(first.conversation, [one, other])
      }
    }
    caller.close()
  }

  /**
   * Sends and acknowledges until the kill, which comes after so many milliseconds, or once a busy machine has come to
   * something.
   */
  async workUntilKilled(ms: number): Promise<number> {
    const server = this.server!
    const callers = await Promise.all(Array.from({ length: IN_FLIGHT + 2 }, () => Caller.connect(server)))
    const pairs = [...this.pairs.values()]
    let underWay = 0
    const sender = async (caller: Caller) => {
      for (;;) {
        const [one, other] = this.pick(pairs)
        const [from, to] = this.random() < 0.5 ? [one, other] : [other, one]
        underWay++
        const delivered = await this.deliver(caller, this.newSend(from, to), from.key)
        // What is under way at the kill stays counted.
        if (delivered === undefined) return
        underWay--
      }
    }
    const sockets = await Promise.all([2, 3, 4].map((i) => this.listen(server, this.agents[i]!)))
    const working = [
      ...callers.slice(0, IN_FLIGHT).map(sender),
      ...callers.slice(IN_FLIGHT).map((caller, i) => this.drain(caller, this.agents[i]!))
    ]
    const enough = this.sends.length + 100
    await wait(ms)
    while (this.sends.length < enough) await wait(20)
    const atKill = underWay
    await server.kill()
    await Promise.all(working)
    for (const socket of sockets) socket.close()
    for (const caller of callers) caller.close()
    return atKill
  }

  /** A socket that acknowledges most of what it gets. */
  private listen(server: ServerProcess, agent: RegisteredAgent): Promise<SocketConnection> {
    const maybe = this.maybeAcknowledged.get(agent.handle)!
    return SocketConnection.connect({
      host: server.host,
      port: server.port,
      key: agent.key,
      onFrame: (buffer, start, end) => {
        const text = buffer.toString("utf8", start, end)
        const frame = JSON.parse(text) as {
          readonly type: string
          readonly payload: Row & { readonly delivery_id: string | null }
        }
        if (frame.type !== "message.new") return -1
        this.pushed.push(frame.payload)
        if (frame.payload.delivery_id === null || this.random() < 0.3) return -1
        maybe.add(frame.payload.id)
        return buffer.indexOf(frame.payload.id, start)
      },
      onFailure: () => {}
    })
  }

  /** Reads pages of its inbox and acknowledges a part of each. */
  private async drain(caller: Caller, agent: RegisteredAgent): Promise<void> {
    const acknowledged = this.acknowledged.get(agent.handle)!
    const maybe = this.maybeAcknowledged.get(agent.handle)!
    for (;;) {
      const page = await caller.ask("GET", "/v1/messages/sync?limit=100", agent.key)
      if (page === undefined) return
      const rows = page.body as ReadonlyArray<SyncRow>
      const part = rows.slice(0, Math.floor(this.random() * (rows.length + 1)))
      const last = part.at(-1)
      if (last === undefined) {
        await wait(5)
        continue
      }
      for (const { id } of part) maybe.add(id)
      const reply = await caller.ask("POST", "/v1/messages/sync/ack", agent.key, { last_delivery_id: last.delivery_id })
      if (reply === undefined) return
      for (const { id } of part) {
        acknowledged.add(id)
        maybe.delete(id)
      }
    }
  }

  /** Reads everything back and compares; what was open is settled afterwards. */
  async compare(): Promise<void> {
    const server = this.server!
    const caller = await Caller.connect(server)
    const histories = new Map<string, ReadonlyArray<ReadonlyArray<Row>>>()
    for (const [conversation, pair] of this.pairs) {
      const sides: Array<ReadonlyArray<Row>> = []
      for (const { key } of pair) {
        const rows: Array<Row> = []
        for (let full = true; full;) {
          const after = rows.at(-1)?.seq ?? 0
          const page = await must<ReadonlyArray<Row>>(
            caller,
            "GET",
            `/v1/messages/${conversation}?limit=200&after_seq=${after}`,
            key
          )
          rows.push(...page)
          full = page.length === 200
        }
        sides.push(rows)
      }
      histories.set(conversation, sides)
    }
    const inboxes = new Map<string, ReadonlyArray<Row>>()
    for (const { handle, key } of this.agents) {
      const rows: Array<SyncRow> = []
      for (let full = true; full;) {
        const after = rows.length === 0 ? "" : `&after=${rows.at(-1)!.delivery_id}`
        const page = await must<ReadonlyArray<SyncRow>>(caller, "GET", `/v1/messages/sync?limit=500${after}`, key)
        rows.push(...page)
        full = page.length === 500
      }
      inboxes.set(handle, rows)
    }
    caller.close()
    const problems = check({
      sends: this.sends,
      histories,
      inboxes,
      pushed: this.pushed,
      acknowledged: this.acknowledged,
      maybeAcknowledged: this.maybeAcknowledged
    })
    if (problems.length > 0) {
      const more = problems.length > 20 ? `\nand ${problems.length - 20} more` : ""
      throw new Error(`after the restart:\n${problems.slice(0, 20).join("\n")}${more}`)
    }
    this.settle(histories, inboxes)
  }

  /** From here on an open acknowledgement counts as what became of it, and an open send is stored or must stay away. */
  private settle(
    histories: ReadonlyMap<string, ReadonlyArray<ReadonlyArray<Row>>>,
    inboxes: ReadonlyMap<string, ReadonlyArray<Row>>
  ): void {
    for (const [handle, maybe] of this.maybeAcknowledged) {
      const offered = new Set(inboxes.get(handle)?.map((row) => row.id))
      for (const id of maybe) if (!offered.has(id)) this.acknowledged.get(handle)!.add(id)
      maybe.clear()
    }
    const stored = new Map([...histories.values()].flatMap(([one]) => one!).map((row) => [row.client_msg_id, row]))
    for (const send of this.sends) {
      if (send.answer._tag !== "Unknown") continue
      const row = stored.get(send.clientMsgId)
      if (row === undefined) {
        this.counts.unansweredAbsent++
        send.answer = { _tag: "Absent" }
      } else {
        this.counts.unansweredStored++
        send.answer = { _tag: "Stored", id: row.id, seq: row.seq }
      }
    }
  }

  /** Sends half of what was without an answer again, as a client would: 200 with the stored message, or 201 now. */
  async sendAgain(unanswered: ReadonlyArray<Send>): Promise<void> {
    const caller = await Caller.connect(this.server!)
    for (const send of unanswered) {
      if (this.random() < 0.5) continue
      const { answer } = send
      const key = this.agents.find(({ handle }) => handle === send.from)!.key
      const status = (await this.deliver(caller, send, key))?.status
      const expected = answer._tag === "Stored" ? 200 : 201
      if (status !== expected)
        throw new Error(`${send.clientMsgId}, ${answer._tag}, sent again: ${status}, not ${expected}`)
      if (answer._tag === "Stored") this.counts.replayed++
      else this.counts.sentAgain++
      const now = send.answer
      if (answer._tag === "Stored" && (now._tag !== "Stored" || now.id !== answer.id || now.seq !== answer.seq)) {
        throw new Error(`${send.clientMsgId} was ${answer.id} and is answered as ${JSON.stringify(now)}`)
      }
    }
    caller.close()
  }

  /** Kills it while it starts, now and then: a recovery that is cut short must recover all the same. */
  async killAtStart(): Promise<void> {
    const server = await this.spawn()
    await wait(this.random() * 1500)
    await server.kill()
    this.counts.killsAtStart++
  }
}

/** Fails with everything that is wrong after the first kill that something is wrong after. */
export const killServer = async (options: {
  readonly kills: number
  readonly seed: number
  readonly say: (line: string) => void
  /** A folder for the server's data that the caller removes; without it, a fresh one. */
  readonly dataDir?: string
  /** Node's own, for the server's processes. */
  readonly nodeOptions?: ReadonlyArray<string>
}): Promise<KillReport> => {
  const folder = options.dataDir === undefined ? await mkdtemp(join(tmpdir(), "parley-kill-")) : undefined
  const trial = new Trial(
    options.dataDir ?? join(folder!, "data"),
    options.seed,
    options.say,
    options.nodeOptions ?? []
  )
  try {
    await trial.begin()
    for (let kill = 1; kill <= options.kills; kill++) {
      // The first one has work to lose, however slow the machine is.
      const ms = Math.round((kill === 1 ? 1 : trial.random()) * LONGEST_MS)
      const before = trial.sends.length
      const underWay = await trial.workUntilKilled(ms)
      const unanswered = trial.sends.slice(before).filter((send) => send.answer._tag === "Unknown")
      options.say(
        `kill ${kill} of ${options.kills} after ${ms} ms of work: ${underWay} sends under way, ` +
          `${trial.sends.length - before - unanswered.length} acknowledged`
      )
      if (trial.random() < 0.2) await trial.killAtStart()
      await trial.start()
      await trial.compare()
      await trial.sendAgain(unanswered)
    }
    await trial.compare()
    const code = await trial.server?.stop()
    if (code !== 0)
      throw new Error(`the server ended with ${code} after all that:\n${trial.server?.output().slice(-2000)}`)
    const { killsAtStart, replayed, sentAgain, slowestStartMs, unansweredAbsent, unansweredStored } = trial.counts
    return {
      kills: options.kills,
      killsAtStart,
      acknowledged: trial.sends.filter((send) => send.answer._tag === "Stored").length,
      unansweredStored,
      unansweredAbsent,
      replayed,
      sentAgain,
      pushed: trial.pushed.length,
      slowestStartMs
    }
  } finally {
    await trial.server?.kill()
    if (folder !== undefined) await rm(folder, { recursive: true, force: true })
  }
}

/** A seed from the environment, or a new one. */
export const seedFromEnvironment = (): number => {
  const given = process.env["SEED"]
  return given === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(given)
}

if (import.meta.main) {
  const seed = seedFromEnvironment()
  console.log(`SEED=${seed}`)
  try {
    const report = await killServer({ kills: Number(process.env["KILLS"] ?? 20), seed, say: console.log })
    console.log(report)
    console.log("Every acknowledged message is there exactly once, seqs are dense, inboxes are complete and in order.")
  } catch (error) {
    console.error(error)
    console.error(`FAILED with SEED=${seed}`)
    process.exitCode = 1
  }
}
