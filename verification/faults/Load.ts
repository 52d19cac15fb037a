import { AgentChatClient, AgentChatError } from "agentchatme"
import { createHash, randomBytes } from "node:crypto"
import { setTimeout as pause } from "node:timers/promises"
import { Client } from "pg"
import { randomOf } from "../../test/support/Random.ts"
import {
  type AddressRequest,
  fingerprint,
  History,
  NEVER,
  type Operation,
  Outcome,
  type OutcomeState
} from "./History.ts"
import { HttpPool, type Reply } from "./HttpPool.ts"
import { Line, type Row, sight } from "./Line.ts"

/**
 * Settings of nodes under this load: what would refuse the load itself is out of its way, the cap of cold outreach is
 * not.
 */
export const LOAD_LIMITS = {
  LIMITS_SENDS_PER_SECOND: "1000000",
  LIMITS_BACKLOG_SOFT: "1000000000",
  LIMITS_BACKLOG_HARD: "1000000000",
  LIMITS_GROUP_INVITES_PER_DAY: "1000000",
  LIMITS_ROTATE_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_MUTE_WRITES_PER_SECOND: "1000",
  LIMITS_REQUESTS_PER_MINUTE: "100000000",
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "100000000",
  LIMITS_RESTRICT_BLOCKS: "100000",
  LIMITS_SUSPEND_BLOCKS: "100000"
}

export interface LoadAgent {
  readonly id: string
  readonly handle: string
  readonly key: string
}

export interface LoadOptions {
  /** That nobody has used: at least 24. */
  readonly agents: ReadonlyArray<LoadAgent>
  /**
   * Where requests and sockets go, in turn: all nodes, those that are ready, or what stands before them. Asked each
   * time.
   */
  readonly urls: () => ReadonlyArray<string>
  /** To this address: keys are rotated and agents suspended in ways that need no mail. */
  readonly database: string
  /** Whether the node at this URL answers nobody at the moment; without a URL, whether one of the nodes does not. */
  readonly isSilent?: (url: string | undefined) => boolean
  readonly seed: number
  /** Sends per second to aim at. */
  readonly rate: number
  /** Sends under way at once; more if most of them are accepted, and only some have to wait. */
  readonly lanes?: number
  /** Share of the sends made by the published client itself. */
  readonly clientShare?: number
  /** Where the published client sends to; it knows one address. Without it, one of `urls` for each send. */
  readonly clientUrl?: () => string
  /** How long a caller waits for an answer; the published client's own patience by default. */
  readonly timeoutMs?: number
  /** Share of the sends that go to groups. */
  readonly groupShare?: number
}

// The published client's retries.
const ATTEMPTS = 4
const RETRIED = new Set([408, 425, 429, 500, 502, 503, 504])
const BASE_DELAY_MS = 250
const MAX_DELAY_MS = 8_000
const CLIENT_TIMEOUT_MS = 30_000
/**
 * The client repeats this refusal too (429), though nothing but a reply frees a place. Such a send does not fail
 * because the service is away when it is repeated: its sender has been told why it is not taken. Nobody knows whether
 * it was stored.
 */
const CAP = "COLD_CAP_EXCEEDED"

/** How long what is not a send is asked for again, before it stays unknown. */
const LONGEST_WAIT_MS = 90_000
const PARTNERS = 6
/** Which of the pairs a flood goes through: one that does not quarrel (`drive`). */
const FLOODED = 5
const MAX_LANES = 4_096
/** How often it is seen whether at least half of what is due is accepted. */
const LOOK_MS = 500
/** How often the sends that are due begin. */
const BEAT_MS = 3
const EMOJIS = ["thanks", "+1", "👀"]
const FILLER = "The quick brown fox jumps over the lazy dog. ".repeat(4)

interface Actor {
  readonly number: number
  readonly id: string
  readonly handle: string
  /** The current one last. */
  readonly keys: Array<string>
  readonly lines: Set<Line>
  suspended: boolean
  deleted: boolean
  /** Its key is being replaced, or was: its sockets may be closed with 1008. */
  rotates: boolean
  /** Failed attempts to connect in a row. */
  failures: number
}

interface GroupTalk {
  readonly conversation: number
  readonly id: string
  readonly creator: Actor
  readonly members: Set<Actor>
  readonly pool: ReadonlyArray<Actor>
}

/** What became of a call that was repeated as the published client repeats one. */
interface Called {
  readonly reply: Reply | undefined
  /** Whether every attempt was answered, and none of them with a 5xx: then a refusal is one of all. */
  readonly certain: boolean
  /** Whether an attempt was refused by the cap of cold outreach, and those after it met a service that was away. */
  readonly capped: boolean
  /** When the last attempt began. */
  readonly began: number
}

export interface LoadStats {
  readonly accepted: number
  /** By code: refusals that are answers. */
  readonly refused: Readonly<Record<string, number>>
  /** By reason: sends that the client gave up, after all its retries. */
  readonly failed: Readonly<Record<string, number>>
  /** By reason: attempts that were repeated. */
  readonly retried: Readonly<Record<string, number>>
  /** Sends that were answered with a message that an attempt whose answer was lost had stored. */
  readonly found: number
  /** Sends that were due while every lane was taken. */
  readonly starved: number
  readonly underWay: number
}

/**
 * Traffic as a cluster has it: direct conversations and groups, blocks, mutes and memberships
 * that change, keys that are rotated, agents that are suspended and one that is deleted; every
 * agent on a socket that comes again and acknowledges, some over sync. All of it is recorded.
 * Callers repeat what fails as the published client does.
 */
export class Load {
  readonly history: History
  /** Sends per second to aim at from now on. */
  rate: number
  private readonly options: LoadOptions
  private readonly random: () => number
  private readonly pool = new HttpPool()
  private readonly actors: Array<Actor> = []
  private readonly pairs: Array<readonly [Actor, Actor, number]> = []
  private readonly groups: Array<GroupTalk> = []
  private readonly free: Array<number> = []
  private readonly drivers: Array<Promise<void>> = []
  private readonly counts = { accepted: 0, found: 0, starved: 0, underWay: 0 }
  private readonly refused: Record<string, number> = {}
  private readonly failed: Record<string, number> = {}
  private readonly retried: Record<string, number> = {}
  private sending = false
  private driving = true
  private connecting = true
  private serial = 0
  private turn = 0
  private lanes: number

  private constructor(options: LoadOptions) {
    this.options = options
    this.rate = options.rate
    this.history = new History(`load-${randomBytes(3).toString("hex")}-`)
    this.random = randomOf(options.seed)
    for (const { handle, id, key } of options.agents) {
      const number = this.history.addAgent({ id, handle })
      this.actors.push({
        number,
        id,
        handle,
        keys: [key],
        lines: new Set(),
        suspended: false,
        deleted: false,
        rotates: false,
        failures: 0
      })
    }
    this.lanes = options.lanes ?? 256
    for (let lane = 0; lane < this.lanes; lane++) this.free.push(lane)
  }

  /** Lets agents meet and groups form, and begins. */
  static async start(options: LoadOptions): Promise<Load> {
    const load = new Load(options)
    for (const actor of load.actors) load.connect(actor)
    await load.meet()
    await load.formGroups()
    load.resume()
    load.drive()
    return load
  }

  get stats(): LoadStats {
    return { ...this.counts, refused: this.refused, failed: this.failed, retried: this.retried }
  }

  /** By agent, for those that may still ask. */
  get keys(): ReadonlyArray<string | undefined> {
    return this.actors.map(({ deleted, keys, suspended }) => (deleted || suspended ? undefined : keys.at(-1)))
  }

  /** No new sends, blocks and so on; waits for those that are under way. */
  async stop(): Promise<void> {
    this.sending = false
    this.driving = false
    await Promise.all(this.drivers.splice(0))
    while (this.counts.underWay > 0) await pause(10)
  }

  /** Begins to send; `start` has done so. */
  resume(): void {
    this.sending = true
    this.drivers.push(this.pace())
  }

  /**
   * After `stop`, with the service well: sends again, under the same ids, most of what had no
   * answer, and waits until nothing more comes to the sockets.
   */
  async settle(patienceMs = 60_000): Promise<void> {
    const { history } = this
    const { sends } = history
    const unknown: Array<number> = []
    for (let n = 0; n < sends.length; n++) {
      if (sends.outcome.get(n) === Outcome.Unknown && this.random() < 0.8) unknown.push(n)
    }
    for (let at = 0; at < unknown.length; at += 32) {
      await Promise.all(unknown.slice(at, at + 32).map((n) => this.send(n, at)))
    }
    const deadline = performance.now() + patienceMs
    for (let before = -1; performance.now() < deadline;) {
      const shown = history.sightings.length
      const connected = this.actors.every((actor) =>
        actor.suspended || actor.deleted || [...actor.lines].some((line) => line.isLive)
      )
      if (shown === before && connected) return
      before = shown
      await pause(1_500)
    }
    history.oddities.push("the agents were not all connected and quiet in the end")
  }

  /**
   * Sends of one agent, so many at once, each once and to one of these nodes in turn; answers how many were accepted
   * and how many its limit refused. Over a conversation in which nobody quarrels.
   */
  async flood(
    urls: ReadonlyArray<string>,
    atOnce: number
  ): Promise<{ readonly accepted: number; readonly refused: number }> {
    const { history } = this
    const [from, , conversation] = this.pairs[FLOODED % this.pairs.length]!
    const generation = from.keys.length - 1
    const counts = { accepted: 0, refused: 0 }
    await Promise.all(Array.from({ length: atOnce }, async (_, i) => {
      const n = history.sends.begin(from.number, conversation, history.now(), generation)
      history.sends.attempts.set(n, 1)
      const body = JSON.stringify({
        ...this.target(n),
        client_msg_id: history.clientMsgId(n),
        content: { text: this.text(n) }
      })
      const reply = await this.pool.request(
        urls[i % urls.length]!,
        "POST",
        "/v1/messages",
        from.keys[generation]!,
        body,
        CLIENT_TIMEOUT_MS
      )
        .catch(() => undefined)
      if (reply === undefined || reply.status >= 500) return
      if (reply.status >= 300) {
        this.refuse(n, true, codeOf(reply))
        if (codeOf(reply) === "RATE_LIMITED") counts.refused++
      } else {
        this.accepted(n, JSON.parse(reply.text) as Row)
        counts.accepted++
      }
    }))
    return counts
  }

  /** Asks as whoever is at an address may; true if its limit let it through, undefined if nobody knows. */
  async askFrom(address: string, kind: AddressRequest["kind"], url: string): Promise<boolean | undefined> {
    const { history } = this
    const request: AddressRequest = { kind, address, invoked: history.now(), ended: NEVER, outcome: Outcome.Unknown }
    history.requests.push(request)
    const handle = `asked-${randomBytes(5).toString("hex")}`
    const [path, body] = kind === "registration"
      ? ["/v1/register", { email: `${handle}@agents.example`, handle }]
      : ["/v1/register/verify", { pending_id: `pnd_${randomBytes(12).toString("base64url")}`, code: "271828" }]
    const reply = await this.pool.request(
      url,
      "POST",
      path,
      "",
      JSON.stringify(body),
      CLIENT_TIMEOUT_MS,
      undefined,
      address
    )
      .catch(() => undefined)
    if (reply === undefined || reply.status >= 500) return undefined
    request.ended = history.now()
    request.outcome = codeOf(reply) === "RATE_LIMITED" ? Outcome.Refused : Outcome.Ok
    return request.outcome === Outcome.Ok
  }

  close(): void {
    this.connecting = false
    for (const { lines } of this.actors) for (const line of lines) line.close(true)
    this.pool.close()
  }

  // Requests.

  private url(turn: number): string | undefined {
    const urls = this.options.urls()
    return urls[turn % Math.max(1, urls.length)]
  }

  private note(into: Record<string, number>, why: string): void {
    into[why] = (into[why] ?? 0) + 1
  }

  /** One call with the published client's retries: the last answer, if there was one at all. */
  private async call(
    lane: number,
    method: string,
    path: string,
    key: string,
    body?: string,
    idempotencyKey?: string,
    first?: (attempts: number, url: string | undefined) => void
  ): Promise<Called> {
    let certain = true
    let capped = false
    for (let attempt = 1;; attempt++) {
      const base = this.url(lane + attempt)
      first?.(attempt, base)
      const began = this.history.now()
      let reply: Reply | undefined
      let why = "no node"
      if (base !== undefined) {
        try {
          reply = await this.pool.request(
            base,
            method,
            path,
            key,
            body,
            this.options.timeoutMs ?? CLIENT_TIMEOUT_MS,
            idempotencyKey
          )
          why = `${reply.status} ${codeOf(reply)}`
        } catch (error) {
          why = error instanceof Error ? error.message : String(error)
        }
      }
      const again = reply === undefined || (RETRIED.has(reply.status) && codeOf(reply) !== "RECIPIENT_BACKLOGGED")
      if (reply === undefined ? base !== undefined : reply.status >= 500) certain = false
      if (reply !== undefined && codeOf(reply) === CAP) capped = true
      else if (reply !== undefined && reply.status !== 503) capped = false
      if (!again || attempt === ATTEMPTS) return { reply, certain, capped, began }
      this.note(this.retried, why)
      const delay = reply?.retryAfterMs ?? BASE_DELAY_MS * 2 ** (attempt - 1) * (0.75 + this.random() * 0.5)
      await pause(Math.min(delay, MAX_DELAY_MS))
    }
  }

  // Sends.

  private async pace(): Promise<void> {
    let from = performance.now()
    let owed = 0
    let looked = from
    let before = this.counts.accepted
    let flows = true
    while (this.sending) {
      await pause(BEAT_MS)
      const now = performance.now()
      owed += ((now - from) / 1_000) * this.rate
      from = now
      if (now - looked > LOOK_MS) {
        flows = (this.counts.accepted - before) / (now - looked) > this.rate / 2_000
        looked = now
        before = this.counts.accepted
      }
      while (owed >= 1) {
        // What waits for some conversations alone must not hold up all others; on a machine that is too slow for the
        // rate it may.
        const lane = this.free.pop() ?? (flows && this.lanes < MAX_LANES ? this.lanes++ : undefined)
        if (lane === undefined) {
          this.counts.starved += Math.floor(owed)
          owed = 0
          break
        }
        owed--
        void this.next(lane).finally(() => this.free.push(lane))
      }
    }
  }

  private next(lane: number): Promise<void> {
    if (this.random() < (this.options.groupShare ?? 0.08) && this.groups.length > 0) {
      const group = this.pick(this.groups)
      // Now and then somebody who is no member.
      const from = this.random() < 0.02 ? this.pick(this.actors) : this.pick([...group.members])
      return this.begin(lane, from, group.conversation)
    }
    const [one, other, conversation] = this.pick(this.pairs)
    return this.begin(lane, this.random() < 0.5 ? one : other, conversation)
  }

  private begin(lane: number, from: Actor, conversation: number): Promise<void> {
    const { history } = this
    // Now and then with the key that it had before.
    const generation = from.keys.length > 1 && this.random() < 0.05 ? from.keys.length - 2 : from.keys.length - 1
    const n = history.sends.begin(from.number, conversation, history.now(), generation)
    return this.random() < (this.options.clientShare ?? 0.01) ? this.sendByClient(n, lane) : this.send(n, lane)
  }

  private target(n: number): { readonly to: string } | { readonly conversation_id: string } {
    const { history } = this
    const conversation = history.conversations[history.sends.conversation.get(n)]!
    if (conversation.pair === undefined) return { conversation_id: conversation.id! }
    const [one, other] = conversation.pair
    return { to: `@${this.actors[history.sends.sender.get(n) === one ? other : one]!.handle}` }
  }

  private text(n: number): string {
    return `${this.history.clientMsgId(n)} ${FILLER.slice(0, 40 + (n * 37) % 140)}`
  }

  /** Makes the attempts of one send, or some more of them, and notes what is known afterwards. */
  private async send(n: number, lane: number): Promise<void> {
    const { history } = this
    const { sends } = history
    this.counts.underWay++
    const key = this.actors[sends.sender.get(n)]!.keys[sends.generation.get(n)]!
    const before = sends.attempts.get(n)
    const body = JSON.stringify({
      ...this.target(n),
      client_msg_id: history.clientMsgId(n),
      content: { text: this.text(n) }
    })
    const { capped, certain, reply } = await this.call(
      lane,
      "POST",
      "/v1/messages",
      key,
      body,
      undefined,
      (attempt, url) => {
        sends.attempts.set(n, Math.min(255, before + attempt))
        this.noteSilence(n, url)
      }
    )
    this.counts.underWay--
    if (reply !== undefined && reply.status < 300) {
      this.accepted(n, JSON.parse(reply.text) as Row)
      if (reply.status === 200) this.counts.found++
      if (this.random() < 0.005) await this.repeat(n, lane, key, body)
    } else if (reply !== undefined && reply.status < 500) this.refuse(n, certain && before === 0, codeOf(reply))
    else if (capped) this.refuse(n, false, CAP)
    else this.note(this.failed, reply === undefined ? "no answer" : `${reply.status} ${codeOf(reply)}`)
  }

  private noteSilence(n: number, url: string | undefined): void {
    const { sends } = this.history
    if (this.options.isSilent?.(url) === true && sends.unheardSince.get(n) === NEVER)
      sends.unheardSince.set(n, this.history.now())
  }

  private accepted(n: number, row: Row): void {
    const { history } = this
    this.counts.accepted++
    history.name(history.sends.conversation.get(n), row.conversation_id)
    history.sends.ok(n, history.now(), row.id, row.seq)
  }

  /**
   * A refusal says something of the attempt that it answers only: another one without an answer may have been carried
   * out.
   */
  private refuse(n: number, certain: boolean, code: string): void {
    this.note(this.refused, code)
    if (certain) this.history.sends.refused(n, this.history.now(), code)
    else this.history.sends.doubted(n, code)
  }

  /** The same send once more, although it was answered. */
  private async repeat(n: number, lane: number, key: string, body: string): Promise<void> {
    const { history } = this
    const invoked = history.now()
    const { reply } = await this.call(lane, "POST", "/v1/messages", key, body)
    if (reply === undefined || reply.status >= 300) return
    const row = JSON.parse(reply.text) as Row
    history.replays.push({
      send: n,
      status: reply.status,
      conversation: history.conversation(row.conversation_id),
      seq: row.seq,
      message: fingerprint(row.id),
      invoked,
      ended: history.now()
    })
  }

  private async sendByClient(n: number, lane: number): Promise<void> {
    const { history } = this
    const { sends } = history
    const base = this.options.clientUrl?.() ?? this.url(lane)
    if (base === undefined) return this.send(n, lane)
    this.counts.underWay++
    let certain = true
    let capped = false
    const client = new AgentChatClient({
      apiKey: this.actors[sends.sender.get(n)]!.keys[sends.generation.get(n)]!,
      baseUrl: base,
      hooks: {
        onRequest: ({ attempt }) => {
          sends.attempts.set(n, attempt)
          this.noteSilence(n, undefined)
        },
        onRetry: ({ error, status }) => {
          this.note(this.retried, `client: ${status ?? ""} ${error?.message}`)
          if (status === undefined || status >= 500) certain = false
          if (error instanceof AgentChatError && error.code === CAP) capped = true
          else if (status !== undefined && status !== 503) capped = false
        }
      }
    })
    try {
      const { message } = await client.sendMessage({
        ...this.target(n),
        client_msg_id: history.clientMsgId(n),
        content: { text: this.text(n) }
      })
      this.accepted(n, { ...message, delivery_id: null })
    } catch (error) {
      if (error instanceof AgentChatError && error.status < 500) this.refuse(n, certain, error.code)
      else if (capped && (!(error instanceof AgentChatError) || error.status === 503)) this.refuse(n, false, CAP)
      else this.note(this.failed, `client: ${error instanceof Error ? error.message : String(error)}`)
    }
    this.counts.underWay--
  }

  private pick<A>(some: ReadonlyArray<A>): A {
    return some[Math.floor(this.random() * some.length)]!
  }

  // Sockets and sync.

  private connect(actor: Actor): void {
    const url = this.url(this.turn++)
    const again = (afterMs: number) => {
      setTimeout(() => {
        if (this.connecting && !actor.deleted && !actor.suspended && actor.lines.size === 0) this.connect(actor)
      }, afterMs)
    }
    if (url === undefined) return again(200)
    const line: Line = new Line({
      history: this.history,
      agent: actor.number,
      generation: actor.keys.length - 1,
      url,
      key: actor.keys.at(-1)!,
      acknowledges: () => this.random() < 0.97,
      onLive: () => {
        actor.failures = 0
        if (this.random() < 0.3) this.drivers.push(this.drain(actor))
      },
      onRow: (row) => {
        if (!this.driving || row.delivery_id === null || this.random() >= 0.006) return
        this.drivers.push(this.pick([this.markRead, this.react, this.report]).call(this, actor, row))
      },
      onEnd: (code) => {
        actor.lines.delete(line)
        actor.failures++
        if (code === 1008 && !actor.suspended && !actor.deleted && !actor.rotates) {
          this.history.oddities.push(`@${actor.handle} was closed with 1008 for no reason`)
        }
        again(Math.min(2_000, 100 * 2 ** actor.failures) * (0.5 + this.random()))
      }
    })
    actor.lines.add(line)
  }

  /** Takes pages from the oldest on and acknowledges them, as the published client does when it connects. */
  private async drain(actor: Actor): Promise<void> {
    const { history } = this
    for (let pages = 0; pages < 20 && !actor.suspended && !actor.deleted; pages++) {
      const limit = 20 + Math.floor(this.random() * 180)
      const { began, reply } = await this.call(
        this.turn++,
        "GET",
        `/v1/messages/sync?limit=${limit}`,
        actor.keys.at(-1)!
      )
      if (reply === undefined || reply.status !== 200) return
      const rows = JSON.parse(reply.text) as ReadonlyArray<Row>
      const stream = history.openStream({
        kind: "page",
        agent: actor.number,
        opened: began,
        closed: history.now(),
        full: rows.length === limit
      })
      const sightings = rows.map((row) => sight(history, stream, row))
      if (rows.length === 0) return
      const upTo = this.random() < 0.8 ? rows.length - 1 : Math.floor(this.random() * rows.length)
      const operation = history.operation({ kind: "ack", agent: actor.number, sighting: sightings[upTo]! })
      await this.carryOut(operation, actor, "POST", "/v1/messages/sync/ack", {
        last_delivery_id: rows[upTo]!.delivery_id
      })
      if (rows.length < limit || operation.outcome !== Outcome.Ok) return
    }
  }

  // Everything else.

  /** Asks until there is an answer that says what became of it; repeats some that were answered. */
  private async carryOut(
    operation: Operation,
    by: Actor,
    method: string,
    path: string,
    body?: unknown
  ): Promise<Reply | undefined> {
    const { history } = this
    const generation = by.keys.length - 1
    const key = by.keys[generation]!
    const idempotencyKey = `${history.prefix}${this.serial++}`
    const text = body === undefined ? undefined : JSON.stringify(body)
    const deadline = performance.now() + LONGEST_WAIT_MS
    for (let sure = true;;) {
      const { certain, reply } = await this.call(this.turn++, method, path, key, text, idempotencyKey)
      sure &&= certain
      const open = reply === undefined || reply.status >= 500 || reply.status === 429 ||
        codeOf(reply) === "IDEMPOTENT_IN_PROGRESS"
      if (open) {
        if (performance.now() > deadline) return undefined
        sure &&= reply !== undefined && reply.status < 500 && reply.status !== 409
        await pause(500)
        continue
      }
      if (reply.status < 300) {
        operation.outcome = Outcome.Ok
        operation.ended = history.now()
        operation.answers.push(fingerprint(`${reply.status} ${reply.text}`))
        if (this.random() < 0.05 && by.keys.length - 1 === generation) {
          const second = await this.call(this.turn++, method, path, key, text, idempotencyKey)
          if (second.reply !== undefined && second.reply.status < 300) {
            operation.answers.push(fingerprint(`${second.reply.status} ${second.reply.text}`))
          }
        }
      } else if (sure && !this.wasBroken(operation.invoked)) {
        operation.outcome = Outcome.Refused
        operation.ended = history.now()
        operation.code = codeOf(reply)
      }
      return reply
    }
  }

  /**
   * Whether something was broken since: a node may have carried out what it was asked and died, and another one asked
   * again by itself.
   */
  private wasBroken(since: number): boolean {
    return this.history.faults.some(({ healed }) => healed > since)
  }

  private async markRead(actor: Actor, row: Row): Promise<void> {
    const operation = this.history.operation({
      kind: "read",
      agent: actor.number,
      conversation: this.history.conversation(row.conversation_id),
      seq: row.seq
    })
    await this.carryOut(operation, actor, "POST", `/v1/messages/${row.id}/read`)
  }

  /** Reacts to a message, and mostly takes the reaction back. */
  private async react(actor: Actor, row: Row): Promise<void> {
    if (isSystem(row)) return
    const emoji = this.pick(EMOJIS)
    const about = {
      agent: actor.number,
      conversation: this.history.conversation(row.conversation_id),
      seq: row.seq,
      emoji
    }
    const path = `/v1/messages/${row.id}/reactions/${encodeURIComponent(emoji)}`
    await this.carryOut(this.history.operation({ kind: "react", ...about }), actor, "PUT", path)
    if (this.random() < 0.4) return
    await this.wait(1_000 * this.random())
    await this.carryOut(this.history.operation({ kind: "unreact", ...about }), actor, "DELETE", path)
  }

  /** Reports what becomes of a message; some recipients report both final states at once, on two nodes. */
  private async report(actor: Actor, row: Row): Promise<void> {
    if (isSystem(row)) return
    const say = (state: OutcomeState) =>
      this.carryOut(
        this.history.operation({
          kind: "read",
          agent: actor.number,
          conversation: this.history.conversation(row.conversation_id),
          seq: row.seq,
          state
        }),
        actor,
        "POST",
        `/v1/messages/${row.id}/read`,
        { outcome: state }
      )
    if (this.random() < 0.5) await say("working")
    if (this.random() < 0.3) return
    if (this.random() < 0.5) await say(this.pick(["done", "refused"]))
    else await Promise.all([say("done"), say("refused")])
  }

  /** Each pair exchanges its first messages, so that either side may write. */
  private async meet(): Promise<void> {
    const { actors, history } = this
    const count = actors.length
    const pairs: Array<readonly [Actor, Actor, number]> = []
    for (let step = 1; step <= Math.min(PARTNERS / 2, Math.floor((count - 1) / 2)); step++) {
      for (let a = 0; a < count; a++) {
        const [one, other] = [actors[a]!, actors[(a + step * step) % count]!]
        const conversation = history.direct(one.number, other.number)
        if (!pairs.some(([, , known]) => known === conversation)) pairs.push([one, other, conversation])
      }
    }
    const first = async ([one, other, conversation]: readonly [Actor, Actor, number], lane: number) => {
      for (const from of [one, other]) {
        const n = history.sends.begin(from.number, conversation, history.now(), 0)
        await this.send(n, lane)
        if (history.sends.outcome.get(n) !== Outcome.Ok)
          throw new Error(`a first message failed: ${JSON.stringify(this.stats)}`)
      }
    }
    for (let at = 0; at < pairs.length; at += 16) await Promise.all(pairs.slice(at, at + 16).map(first))
    this.pairs.push(...pairs)
  }

  private async formGroups(): Promise<void> {
    const { actors } = this
    const groups = Math.max(2, Math.floor(actors.length / 20))
    await Promise.all(Array.from({ length: groups }, async (_, g) => {
      const creator = actors[g]!
      const pool = Array.from({ length: 10 }, (_, i) => actors[(groups + g * 7 + i) % actors.length]!).filter((actor) =>
        actor !== creator
      )
      const operation = this.history.operation({
        kind: "create",
        agent: creator.number,
        conversation: this.history.addGroup(undefined)
      })
      const reply = await this.carryOut(operation, creator, "POST", "/v1/groups", { name: `Group ${g}` })
      if (reply === undefined || operation.outcome !== Outcome.Ok) throw new Error("a group could not be made")
      const { group: { id } } = JSON.parse(reply.text) as { readonly group: { readonly id: string } }
      this.history.name(operation.conversation!, id)
      const group: GroupTalk = { conversation: operation.conversation!, id, creator, members: new Set([creator]), pool }
      for (const actor of pool) if (this.random() < 0.7) await this.bring(group, actor)
      this.groups.push(group)
    }))
  }

  /** Invites an agent, which accepts. */
  private async bring(group: GroupTalk, actor: Actor): Promise<void> {
    const { conversation, creator, id, members } = group
    const add = this.history.operation({ kind: "add", agent: creator.number, other: actor.number, conversation })
    const added = await this.carryOut(add, creator, "POST", `/v1/groups/${id}/members`, { handle: actor.handle })
    const invite = added === undefined || added.status >= 300
      ? undefined
      : (JSON.parse(added.text) as { readonly invite_id?: string }).invite_id
    if (invite === undefined) return
    const join = this.history.operation({ kind: "join", agent: actor.number, conversation })
    await this.carryOut(join, actor, "POST", `/v1/groups/invites/${invite}/accept`)
    if (join.outcome === Outcome.Ok) members.add(actor)
  }

  private drive(): void {
    const { actors } = this
    for (const group of this.groups) this.every(400, () => this.changeMembers(group))
    // Pairs that quarrel: one side blocks and unblocks the other.
    for (let q = 0; q < Math.min(8, this.pairs.length); q++) {
      const [one, other] = this.pairs[(q * 11) % this.pairs.length]!
      this.every(700, () => this.quarrel(one, other))
    }
    for (const actor of actors.slice(0, 3)) this.every(900, () => this.mute(actor))
    for (let d = 0; d < 4; d++) this.every(500, () => this.drain(this.pick(actors)))
    this.every(300, () => this.recycle(this.pick(actors)))
    const last = actors.length - 1
    this.every(4_000, () => this.suspend(actors[last]!))
    this.every(5_000, () => this.rotate(actors[last - 1]!))
    this.drivers.push(this.outreach(actors[last - 2]!))
    this.drivers.push(this.remove(actors[last - 3]!))
  }

  /** Again and again with pauses about that long, until the load stops. */
  private every(ms: number, what: () => Promise<void>): void {
    this.drivers.push((async () => {
      while (this.driving) {
        await this.wait(ms * (0.5 + this.random()))
        if (this.driving) await what()
      }
    })())
  }

  private async wait(ms: number): Promise<void> {
    const until = performance.now() + ms
    while (this.driving && performance.now() < until) await pause(Math.min(100, ms))
  }

  private async changeMembers(group: GroupTalk): Promise<void> {
    const { conversation, creator, id, members, pool } = group
    const actor = this.pick(pool)
    if (actor.suspended || actor.deleted) return
    if (!members.has(actor)) return this.bring(group, actor)
    if (members.size < 4) return
    const leaves = this.random() < 0.5
    // It goes on sending until it hears that it is out.
    const operation = this.history.operation(
      leaves
        ? { kind: "leave", agent: actor.number, conversation }
        : { kind: "remove", agent: creator.number, other: actor.number, conversation }
    )
    if (leaves) await this.carryOut(operation, actor, "POST", `/v1/groups/${id}/leave`)
    else await this.carryOut(operation, creator, "DELETE", `/v1/groups/${id}/members/${actor.handle}`)
    // Where that is unknown its next message will be refused, or the next change be.
    members.delete(actor)
    if (operation.outcome === Outcome.Ok && this.random() < 0.5) await this.begin(this.turn++, actor, conversation)
  }

  private async quarrel(one: Actor, other: Actor): Promise<void> {
    const { history } = this
    const path = `/v1/contacts/${other.handle}/block`
    const block = history.operation({ kind: "block", agent: one.number, other: other.number })
    await this.carryOut(block, one, "POST", path)
    // A message that surely comes after it.
    if (this.random() < 0.5)
      await this.begin(this.turn++, this.random() < 0.5 ? one : other, history.direct(one.number, other.number))
    await this.wait(200 * this.random())
    const unblock = history.operation({ kind: "unblock", agent: one.number, other: other.number })
    await this.carryOut(unblock, one, "DELETE", path)
  }

  private async mute(actor: Actor): Promise<void> {
    const { history } = this
    const group = this.groups.find(({ members }) => members.has(actor))
    const pair = this.pairs.find(([one, other]) => one === actor || other === actor)!
    const other = pair[0] === actor ? pair[1] : pair[0]
    const whole = group !== undefined && this.random() < 0.5
    const target = whole ? { conversation: group.conversation } : { other: other.number }
    const body = whole
      ? { target_kind: "conversation", target_id: group.id }
      : { target_kind: "agent", target_handle: other.handle }
    const mute = history.operation({ kind: "mute", agent: actor.number, ...target })
    await this.carryOut(mute, actor, "POST", "/v1/mutes", body)
    if (mute.outcome === Outcome.Refused) return
    await this.wait(2_000 + 1_000 * this.random())
    const unmute = history.operation({ kind: "unmute", agent: actor.number, ...target })
    await this.carryOut(
      unmute,
      actor,
      "DELETE",
      whole ? `/v1/mutes/conversation/${group.id}` : `/v1/mutes/agent/${other.handle}`
    )
  }

  /** A socket goes and another one comes, now and then two at a time. */
  private async recycle(actor: Actor): Promise<void> {
    if (actor.suspended || actor.deleted) return
    if (this.random() < 0.3 && actor.lines.size < 2) this.connect(actor)
    else for (const line of actor.lines) line.close(this.random() < 0.5)
  }

  /** A statement on the database itself, past every node, until it was carried out. */
  private async statement(text: string, values: ReadonlyArray<unknown>): Promise<boolean> {
    for (let tries = 0; tries < 100; tries++) {
      const client = new Client(this.options.database)
      client.on("error", () => {})
      try {
        await client.connect()
        await client.query(text, [...values])
        return true
      } catch {
        await pause(300)
      } finally {
        await client.end().catch(() => undefined)
      }
    }
    return false
  }

  private async sql(operation: Operation, text: string, values: ReadonlyArray<unknown>): Promise<void> {
    if (!await this.statement(text, values)) return
    operation.ended = this.history.now()
    operation.outcome = Outcome.Ok
  }

  private async suspend(actor: Actor): Promise<void> {
    const { history } = this
    const now = Date.now()
    actor.suspended = true
    await this.sql(history.operation({ kind: "suspend", agent: actor.number }), SUSPEND, [actor.id, now])
    for (let i = 0; i < 3; i++) {
      const own = this.pairs.filter(([one, other]) => one === actor || other === actor)
      await this.begin(this.turn++, actor, this.pick(own)[2])
    }
    await this.wait(2_500)
    await this.sql(history.operation({ kind: "restore", agent: actor.number }), RESTORE, [actor.id])
    // A key's standing is remembered for a second, and a socket may be closed on the word of that.
    await pause(1_100)
    actor.suspended = false
    if (actor.lines.size === 0) this.connect(actor)
  }

  /** A new key, for a code that was never mailed. */
  private async rotate(actor: Actor): Promise<void> {
    const { history } = this
    const [code, codeId, pending] = [
      "271828",
      `cod_${randomBytes(12).toString("base64url")}`,
      `pnd_${randomBytes(12).toString("base64url")}`
    ]
    const digest = createHash("sha256").update(code).digest()
    if (!await this.statement(CODE, [codeId, actor.id, digest, Date.now() + 600_000, pending])) return
    actor.rotates = true
    const generation = actor.keys.length - 1
    const operation = history.operation({ kind: "rotate", agent: actor.number, generation })
    const base = this.url(this.turn++)
    if (base === undefined) return
    const reply = await this.pool.request(
      base,
      "POST",
      `/v1/agents/${actor.handle}/rotate-key/verify`,
      actor.keys[generation]!,
      JSON.stringify({ pending_id: pending, code }),
      CLIENT_TIMEOUT_MS
    ).catch(() => undefined)
    if (reply?.status === 200) {
      operation.ended = history.now()
      operation.outcome = Outcome.Ok
      actor.keys.push((JSON.parse(reply.text) as { readonly api_key: string }).api_key)
    } else {
      // Its new key, if it has one, is lost with the answer: it gets another one, by force.
      const key = `ac_${randomBytes(32).toString("base64url")}`
      const hash = createHash("sha256").update(key).digest()
      await pause(2_000)
      if (await this.statement("UPDATE agents SET key_hash = $2 WHERE id = $1", [actor.id, hash])) actor.keys.push(key)
    }
  }

  /** More strangers than an agent may write to, several at once: so many are refused. */
  private async outreach(actor: Actor): Promise<void> {
    const known = new Set(
      this.pairs.filter(([one, other]) => one === actor || other === actor).flatMap(([one, other]) => [one, other])
    )
    const strangers = this.actors.filter((other) => !known.has(other) && other !== actor)
    for (let at = 0; at < strangers.length && this.driving; at += 8) {
      const some = strangers.slice(at, at + 8).map((other) =>
        this.begin(this.turn++, actor, this.history.direct(actor.number, other.number))
      )
      await Promise.all(some)
      await this.wait(300)
    }
  }

  private async remove(actor: Actor): Promise<void> {
    await this.wait(8_000 + 8_000 * this.random())
    if (!this.driving) return
    const operation = this.history.operation({ kind: "delete", agent: actor.number })
    actor.deleted = true
    await this.carryOut(operation, actor, "DELETE", `/v1/agents/${actor.handle}`)
    for (const group of this.groups) group.members.delete(actor)
  }
}

const SUSPEND = `UPDATE agents SET judged = judged + 1, status = 'suspended', suspended_at = $2::bigint WHERE id = $1`
const RESTORE = `UPDATE agents SET judged = judged + 1, status = 'active', suspended_at = NULL WHERE id = $1`
const CODE = `
WITH code AS (
  INSERT INTO codes (id, purpose, email, agent_id, code_hash, expires_at)
  SELECT $1, 'rotate', email, id, sha256(convert_to($1, 'UTF8') || $3::bytea), $4::bigint FROM agents WHERE id = $2 ON CONFLICT DO NOTHING
)
INSERT INTO pending_codes (id, code_id, created_at) VALUES ($5, $1, 0) ON CONFLICT DO NOTHING`

const codeOf = (reply: Reply): string => (reply.status < 400 ? "" : /"code":"(\w+)"/.exec(reply.text)?.[1] ?? "")

const isSystem = (row: Row): boolean => row.client_msg_id.startsWith("sys_")
