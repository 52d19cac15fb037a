import { DELIVERED, type Final, partOf, READ } from "./Final.ts"
import {
  type AddressRequest,
  fingerprint,
  type History,
  NEVER,
  type Operation,
  Outcome,
  SYSTEM,
  type Tick,
  TICKS_PER_MS
} from "./History.ts"
import { checkMarks } from "./Marks.ts"
import type { Rule } from "./Rule.ts"
import { certainly, possibly, type Switches } from "./Switches.ts"

export interface Violation {
  readonly rule: Rule
  /** When the request was made or its result was shown; 0 if only the final state shows the violation. */
  readonly at: Tick
  readonly line: string
}

export interface Verdict {
  /** The first thousand of each rule, in the order of the rules' checks. */
  readonly violations: ReadonlyArray<Violation>
  /** The number of violations of each rule. */
  readonly found: Readonly<Partial<Record<Rule, number>>>
  readonly sends: number
  readonly accepted: number
  readonly refused: number
  readonly unknown: number
  /** The number of sends with an unknown outcome that were stored. */
  readonly unknownStored: number
  readonly stored: number
  readonly envelopes: number
  readonly sightings: number
}

export interface CheckOptions {
  /** Milliseconds that a mute, a dead key or a suspension may take to reach every node. */
  readonly graceMs?: number
  /** Milliseconds after which a sent `ack` frame counts as done, if no fault was active meanwhile. */
  readonly ackMs?: number
  /** Unanswered conversations that an agent may have. */
  readonly coldCap?: number
  /** The most members of a group. */
  readonly groupSize?: number
  /** Without them, no limit is checked. */
  readonly limits?: Limits
}

/** The rate limits of the nodes. */
export interface Limits {
  /** Sends of an agent in a second. */
  readonly sends: number
  /** Registrations from an address in an hour. */
  readonly registrations: number
  /** Codes for an address in ten minutes. */
  readonly codes: number
  /** The number of nodes. Each counts alone while there is no Redis. */
  readonly nodes: number
  /** The length of every window in tests, instead of a second, an hour and ten minutes. */
  readonly windowMs?: number
}

/** The factor by which accepted sends may exceed their limit. */
const LENIENCE = 1.1

const KEPT = 1_000

/**
 * Messages sorted by conversation and seq, and envelopes by recipient and number. A place is a position in the order of
 * messages.
 */
class Index {
  /** Of conversation c, seqs 1 to `top[c]` have the places from `base[c]` on. */
  readonly base: Int32Array
  readonly top: Int32Array
  readonly places: number
  /** The row of `final.messages` at a place; -1 if there is none. */
  readonly row: Int32Array
  readonly conversationAt: Int32Array
  /** The place at which each send is stored; -1 if it is not stored. */
  readonly placeOf: Int32Array
  /** The envelopes at place p: `envelopeAt` from `firstEnvelope[p]` to before `firstEnvelope[p + 1]`. */
  readonly firstEnvelope: Int32Array
  readonly envelopeAt: Int32Array
  /** The place of each envelope. */
  readonly place: Int32Array
  /** The envelopes of agent a by their numbers: `inbox` from `firstOf[a]` to before `firstOf[a + 1]`. */
  readonly firstOf: Int32Array
  readonly inbox: Int32Array

  private readonly final: Final

  constructor(history: History, final: Final) {
    this.final = final
    const { envelopes, messages } = final
    const conversations = history.conversations.length
    this.top = new Int32Array(conversations)
    // A seq far beyond all others is ignored, because it would make the index too large.
    const counts = new Int32Array(conversations)
    for (let i = 0; i < messages.seq.length; i++) counts[messages.conversation.get(i)]!++
    const reach = (conversation: number, seq: number) => {
      if (seq > this.top[conversation]! && seq <= counts[conversation]! * 2 + 100) this.top[conversation] = seq
    }
    for (let i = 0; i < messages.seq.length; i++) reach(messages.conversation.get(i), messages.seq.get(i))
    this.base = new Int32Array(conversations + 1)
    for (let c = 0; c < conversations; c++) this.base[c + 1] = this.base[c]! + this.top[c]!
    this.places = this.base[conversations]!
    this.row = new Int32Array(this.places).fill(-1)
    this.conversationAt = new Int32Array(this.places)
    for (let c = 0; c < conversations; c++) this.conversationAt.fill(c, this.base[c]!, this.base[c + 1]!)
    this.placeOf = new Int32Array(history.sends.length).fill(-1)

    const size = envelopes.inboxNo.length
    this.place = new Int32Array(size)
    this.firstEnvelope = new Int32Array(this.places + 1)
    for (let e = 0; e < size; e++) {
      const place = this.at(envelopes.conversation.get(e), envelopes.seq.get(e))
      this.place[e] = place
      if (place >= 0) this.firstEnvelope[place + 1]!++
    }
    for (let p = 0; p < this.places; p++) this.firstEnvelope[p + 1]! += this.firstEnvelope[p]!
    const filled = this.firstEnvelope.slice(0, this.places)
    this.envelopeAt = new Int32Array(this.firstEnvelope[this.places]!)
    for (let e = 0; e < size; e++) {
      const place = this.place[e]!
      if (place >= 0) this.envelopeAt[filled[place]!++] = e
    }

    const agents = history.agents.length
    this.firstOf = new Int32Array(agents + 1)
    for (let e = 0; e < size; e++) this.firstOf[envelopes.recipient.get(e) + 1]!++
    for (let a = 0; a < agents; a++) this.firstOf[a + 1]! += this.firstOf[a]!
    const next = this.firstOf.slice(0, agents)
    this.inbox = new Int32Array(size)
    for (let e = 0; e < size; e++) this.inbox[next[envelopes.recipient.get(e)]!++] = e
    for (let a = 0; a < agents; a++) {
      this.inbox.subarray(this.firstOf[a]!, this.firstOf[a + 1]!).sort((x, y) =>
        envelopes.inboxNo.get(x) - envelopes.inboxNo.get(y)
      )
    }
  }

  /** The place of a seq; -1 if there is no such seq. */
  at(conversation: number, seq: number): number {
    if (conversation < 0 || seq < 1 || seq > this.top[conversation]!) return -1
    return this.base[conversation]! + seq - 1
  }

  seqAt(place: number): number {
    return place - this.base[this.conversationAt[place]!]! + 1
  }

  /** The envelope of an agent for the message at a place; -1 if the agent has none. */
  envelope(agent: number, place: number): number {
    for (let i = this.firstEnvelope[place]!; i < this.firstEnvelope[place + 1]!; i++) {
      const e = this.envelopeAt[i]!
      if (this.final.envelopes.recipient.get(e) === agent) return e
    }
    return -1
  }
}

class Check {
  private readonly history: History
  private readonly final: Final
  private readonly grace: Tick
  private readonly ackGrace: Tick
  private readonly options: CheckOptions
  private readonly index: Index
  private readonly violations: Array<Violation> = []
  private readonly found: Partial<Record<Rule, number>> = {}
  private readonly switches = new Map<string, Switches>()
  /** The span of time in which the message at a place was committed. */
  private readonly invokedAt: Int32Array
  private readonly endedAt: Int32Array
  /** When each envelope was surely closed (`closed`), and when it may first have been closed (`maybeClosed`). */
  private readonly closed: Int32Array
  private readonly maybeClosed: Int32Array
  /** Whether `closed` is the time by which a socket's frame must have been carried out, which no answer confirms. */
  private readonly closedByFrame: Uint8Array
  private readonly seen: Int32Array
  /** For each envelope, the first acknowledgement of a later one. It must not close envelopes that were not shown. */
  private readonly covered: Int32Array

  constructor(history: History, final: Final, options: CheckOptions) {
    this.history = history
    this.final = final
    this.options = options
    this.grace = (options.graceMs ?? 1_000) * TICKS_PER_MS
    this.ackGrace = (options.ackMs ?? 3_000) * TICKS_PER_MS
    this.index = new Index(history, final)
    this.invokedAt = new Int32Array(this.index.places)
    this.endedAt = new Int32Array(this.index.places).fill(NEVER)
    const envelopes = final.envelopes.inboxNo.length
    this.closed = new Int32Array(envelopes).fill(NEVER)
    this.closedByFrame = new Uint8Array(envelopes)
    this.maybeClosed = new Int32Array(envelopes).fill(NEVER)
    this.covered = new Int32Array(envelopes).fill(NEVER)
    this.seen = new Int32Array(envelopes)
  }

  run(): Verdict {
    for (const operation of this.history.operations) this.sort(operation)
    for (const line of this.history.oddities) this.wrong("answer", 0, line)
    for (const line of this.final.unsound) this.wrong("half", 0, line)
    this.checkStored()
    this.checkSends()
    this.checkReplays()
    if (this.options.limits !== undefined) this.checkLimits(this.options.limits)
    this.checkChanges()
    this.checkOrderInTime()
    this.checkRecipients()
    this.checkOutreach()
    this.collectClosings()
    this.checkSightings()
    this.checkSockets()
    this.checkEnvelopes()
    this.checkCounters()
    this.checkWhatIsShown()
    checkMarks(this.history, this.final, {
      blocksOf: (one, other) => [this.of(`block ${one} ${other}`), this.of(`block ${other} ${one}`)],
      told: (operation) => this.told(operation),
      wrong: (rule, at, line) => this.wrong(rule, at, line)
    })
    return this.verdict()
  }

  private verdict(): Verdict {
    const { sends } = this.history
    const counts = [0, 0, 0]
    let unknownStored = 0
    for (let n = 0; n < sends.length; n++) {
      const outcome = sends.outcome.get(n)
      counts[outcome]!++
      if (outcome === Outcome.Unknown && this.index.placeOf[n]! >= 0) unknownStored++
    }
    return {
      violations: this.violations,
      found: this.found,
      sends: sends.length,
      accepted: counts[Outcome.Ok]!,
      refused: counts[Outcome.Refused]!,
      unknown: counts[Outcome.Unknown]!,
      unknownStored,
      stored: this.final.messages.seq.length,
      envelopes: this.final.envelopes.inboxNo.length,
      sightings: this.history.sightings.length
    }
  }

  private wrong(rule: Rule, at: Tick, line: string): void {
    const count = (this.found[rule] ?? 0) + 1
    this.found[rule] = count
    if (count <= KEPT) this.violations.push({ rule, at, line: at === 0 ? line : `${seconds(at)} ${line}` })
  }

  // Names, for a violation's line.

  private who(agent: number): string {
    return `@${this.history.agents[agent]?.handle ?? `agent ${agent}`}`
  }

  private where(conversation: number, seq: number): string {
    return `${this.history.conversations[conversation]?.id ?? `conversation ${conversation}`} seq ${seq}`
  }

  private place(place: number): string {
    return this.where(this.index.conversationAt[place]!, this.index.seqAt(place))
  }

  private send(n: number): string {
    const { sends } = this.history
    const ok = sends.outcome.get(n) === Outcome.Ok ? `, answered with ${sends.id(n)} seq ${sends.seq.get(n)}` : ""
    const span = `${seconds(sends.invoked.get(n))} to ${seconds(sends.ended.get(n))}`
    return `${this.history.clientMsgId(n)} of ${this.who(sends.sender.get(n))} (${span}${ok})`
  }

  private told(operation: Operation): string {
    const other = operation.other === undefined ? "" : ` ${this.who(operation.other)}`
    return `${operation.kind}${other} by ${this.who(operation.agent)} (${seconds(operation.invoked)} to ${
      seconds(operation.ended)
    })`
  }

  // Operations that begin and end states.

  private of(key: string): Switches {
    let known = this.switches.get(key)
    if (known === undefined) this.switches.set(key, known = { on: [], off: [] })
    return known
  }

  private sort(operation: Operation): void {
    const { agent, conversation, kind, other } = operation
    switch (kind) {
      case "block":
      case "unblock":
        this.of(`block ${agent} ${other}`)[kind === "block" ? "on" : "off"].push(operation)
        break
      case "mute":
      case "unmute":
        for (
          const key of [
            `mutes ${agent}`,
            other === undefined ? `mute ${agent} in ${conversation}` : `mute ${agent} of ${other}`
          ]
        ) {
          this.of(key)[kind === "mute" ? "on" : "off"].push(operation)
        }
        break
      case "create":
      case "join":
        this.of(`member ${agent} of ${conversation}`).on.push(operation)
        break
      case "leave":
        this.of(`member ${agent} of ${conversation}`).off.push(operation)
        break
      case "remove":
        this.of(`member ${other} of ${conversation}`).off.push(operation)
        break
      case "rotate":
        this.of(`rotated ${agent}`).on.push(operation)
        break
      case "suspend":
      case "restore":
        this.of(`suspended ${agent}`)[kind === "suspend" ? "on" : "off"].push(operation)
        break
      case "delete":
        this.of(`deleted ${agent}`).on.push(operation)
        break
      case "add":
      case "read":
      case "ack":
      case "hide":
      case "react":
      case "unreact":
        break
    }
    for (const answer of operation.answers) {
      if (answer !== operation.answers[0]) {
        this.wrong("answer", operation.invoked, `${this.told(operation)} was answered differently the second time`)
      }
    }
  }

  /** Whether no fault was active from `from` to `until`. */
  private calm(from: Tick, until: Tick): boolean {
    return !this.history.faults.some((fault) => fault.from <= until && fault.healed >= from)
  }

  // 2, 5, 8: what is stored.

  private checkStored(): void {
    const { history, index } = this
    const { messages } = this.final
    const { sends } = history
    for (let i = 0; i < messages.seq.length; i++) {
      const conversation = messages.conversation.get(i)
      const seq = messages.seq.get(i)
      const send = messages.send.get(i)
      const place = index.at(conversation, seq)
      const at = send < 0 ? 0 : sends.invoked.get(send)
      if (place < 0) this.wrong("reordered", at, `${this.where(conversation, seq)} is far from all other seqs`)
      else if (index.row[place]! >= 0) this.wrong("duplicated", at, `${this.where(conversation, seq)} is there twice`)
      else index.row[place] = i
      if (send === SYSTEM) continue
      if (send < 0) {
        this.wrong("recipients", 0, `nobody sent ${this.where(conversation, seq)}`)
        continue
      }
      const first = index.placeOf[send]!
      if (first >= 0)
        this.wrong(
          "duplicated",
          at,
          `${this.send(send)} is both ${this.place(first)} and ${this.where(conversation, seq)}`
        )
      else index.placeOf[send] = place
      if (sends.sender.get(send) !== messages.sender.get(i)) {
        this.wrong("recipients", at, `${this.send(send)} is stored as one of ${this.who(messages.sender.get(i))}`)
      }
      if (sends.conversation.get(send) !== conversation) {
        this.wrong("recipients", at, `${this.send(send)} is stored as ${this.where(conversation, seq)}`)
      }
      if (place >= 0) {
        this.invokedAt[place] = at
        this.endedAt[place] = sends.outcome.get(send) === Outcome.Ok ? sends.ended.get(send) : NEVER
      }
    }
    for (let place = 0; place < index.places; place++) {
      if (index.row[place]! < 0) this.wrong("lost", 0, `nothing has ${this.place(place)}`)
    }
    for (const [c, seq] of this.final.lastSeq) {
      if (seq !== index.top[c])
        this.wrong("counters", 0, `${this.where(c, index.top[c]!)} is the last one, and the counter is ${seq}`)
    }
  }

  // 1, 3, 9: each send's answer against what is stored and what was in force.

  private checkSends(): void {
    const { history, index } = this
    const { sends } = history
    const rotated = history.agents.map((_, a) => this.switches.get(`rotated ${a}`)?.on)
    const suspended = history.agents.map((_, a) => this.switches.get(`suspended ${a}`))
    const deleted = history.agents.map((_, a) => this.switches.get(`deleted ${a}`))
    const blocks = history.conversations.map(({ pair }) => {
      if (pair === undefined) return []
      const [one, other] = pair
      return [this.switches.get(`block ${one} ${other}`), this.switches.get(`block ${other} ${one}`)].filter((found) =>
        found !== undefined
      )
    })
    for (let n = 0; n < sends.length; n++) {
      const outcome = sends.outcome.get(n)
      const conversation = sends.conversation.get(n)
      const sender = sends.sender.get(n)
      const from = sends.invoked.get(n)
      const until = sends.ended.get(n)
      const pair = history.conversations[conversation]!.pair
      const other = pair === undefined ? -1 : pair[0] === sender ? pair[1] : pair[0]
      if (outcome === Outcome.Refused) {
        if (index.placeOf[n]! >= 0) {
          this.wrong(
            "half",
            from,
            `${this.send(n)} was refused (${sends.refusal(n)}) and is stored as ${this.place(index.placeOf[n]!)}`
          )
        }
        const why = sends.refusal(n)
        const reason = why === "BLOCKED" ?
          blocks[conversation]!.some((one) => possibly(one, from, until))
          : why === "AGENT_SUSPENDED" ?
          possibly(suspended[sender] ?? NONE, from - this.grace, until)
          : why === "UNAUTHORIZED" ?
          possibly(deleted[sender] ?? NONE, from, until) ||
          possibly(
            { on: (rotated[sender] ?? []).filter((one) => one.generation! >= sends.generation.get(n)), off: [] },
            from,
            until
          )
          : why === "AGENT_NOT_FOUND" ?
          possibly(deleted[other] ?? NONE, from, until)
          : why === "GROUP_NOT_FOUND" ?
          certainly(this.of(`member ${sender} of ${conversation}`), from, until) === undefined
          : true
        if (!reason) this.wrong("refused", from, `${this.send(n)} was refused without a reason: ${why}`)
        continue
      }
      const place = index.placeOf[n]!
      if (outcome === Outcome.Ok) {
        const seq = sends.seq.get(n)
        if (place < 0) this.wrong("lost", from, `${this.send(n)} in ${this.where(conversation, seq)} is not stored`)
        else if (index.seqAt(place) !== seq || this.messageAt(place) !== fingerprint(sends.id(n))) {
          this.wrong("lost", from, `${this.send(n)} is stored as another message, ${this.place(place)}`)
        }
      } else if (place < 0) continue
      // A send with an unknown outcome was committed at some moment after its beginning, so its span has no end.
      for (const block of blocks[conversation]!) {
        const why = certainly(block, from, until)
        if (why !== undefined) this.wrong("blocked", from, `${this.send(n)} was accepted after the ${this.told(why)}`)
      }
      const key = rotated[sender]?.find((one) =>
        one.outcome === Outcome.Ok && one.ended < from && one.generation! >= sends.generation.get(n)
      )
      const stop = key ?? (suspended[sender] && certainly(suspended[sender], from, until)) ??
        (deleted[sender] && certainly(deleted[sender], from, until)) ??
        (other >= 0 ? deleted[other] && certainly(deleted[other], from, until) : undefined)
      if (stop !== undefined) this.wrong("revoked", from, `${this.send(n)} was accepted after the ${this.told(stop)}`)
    }
  }

  /** The fingerprint of the message at a place. */
  private messageAt(place: number): number {
    const row = this.index.row[place]!
    return row < 0 ? 0 : this.final.messages.message.get(row)
  }

  // 5: a second answer equals the first one.

  private checkReplays(): void {
    const { replays, sends } = this.history
    for (const replay of replays) {
      const n = replay.send
      if (sends.outcome.get(n) !== Outcome.Ok) continue
      const same = replay.conversation === sends.conversation.get(n) && replay.seq === sends.seq.get(n) &&
        replay.message === fingerprint(sends.id(n))
      if (!same) {
        this.wrong(
          "duplicated",
          replay.invoked,
          `${this.send(n)}, sent again, was answered with ${this.where(replay.conversation, replay.seq)}`
        )
      } else if (replay.status !== 200 && replay.invoked > sends.ended.get(n)) {
        this.wrong("answer", replay.invoked, `${this.send(n)}, sent again, was answered with status ${replay.status}`)
      }
    }
  }

  // 4: limits. A request that began and was answered within a window was surely counted in it. Any other may have been
  // counted outside.

  private checkLimits(limits: Limits): void {
    const { requests, sends } = this.history
    const window = (ofItself: number): Tick => (limits.windowMs ?? ofItself) * TICKS_PER_MS
    const bySender = this.history.agents.map((): Array<number> => [])
    for (let n = 0; n < sends.length; n++) bySender[sends.sender.get(n)]!.push(n)
    bySender.forEach((own, agent) => {
      const spans = own.map((n) => ({
        invoked: sends.invoked.get(n),
        ended: sends.ended.get(n),
        outcome: sends.outcome.get(n)
      }))
      this.checkLetThrough(spans, limits.sends * LENIENCE, limits.nodes, window(1_000), `sends of ${this.who(agent)}`)
      this.checkHeldBack(own, limits.sends, window(1_000))
    })
    const addresses = new Map<string, Array<AddressRequest>>()
    for (const request of requests) {
      const known = addresses.get(`${request.kind} ${request.address}`)
      if (known === undefined) addresses.set(`${request.kind} ${request.address}`, [request])
      else known.push(request)
    }
    for (const [what, asked] of addresses) {
      const codes = asked[0]!.kind === "code"
      const limit = codes ? limits.codes : limits.registrations
      this.checkLetThrough(asked, limit, limits.nodes, window(codes ? 600_000 : 3_600_000), `requests (${what})`)
    }
  }

  /** Checks spans, given in the order in which they began, against a limit. */
  private checkLetThrough(
    spans: ReadonlyArray<{ readonly invoked: Tick; readonly ended: Tick; readonly outcome: number }>,
    limit: number,
    nodes: number,
    window: Tick,
    what: string
  ): void {
    const taken = spans.filter(({ outcome }) => outcome === Outcome.Ok)
    for (let first = 0; first < taken.length;) {
      const from = taken[first]!.invoked
      let count = 0
      let next = first
      for (; next < taken.length && taken[next]!.invoked < from + window; next++) {
        if (taken[next]!.ended < from + window) count++
      }
      const allowed = limit * this.windowsAt(from, from + window, nodes)
      if (count > allowed) {
        this.wrong(
          "limit",
          from,
          `${count} ${what} were let through within ${seconds(window)}, and ${allowed} are allowed`
        )
        first = next
      } else first++
    }
  }

  /**
   * How many windows may have counted something from `from` to `until`: the one in Redis, one of each node while there
   * is no Redis, or all of them if the absence of Redis begins or ends in that time.
   */
  private windowsAt(from: Tick, until: Tick, nodes: number): number {
    const without = this.history.withoutRedis.filter((span) => span.from <= until && span.until >= from)
    if (without.length === 0) return 1
    return without.some((span) => span.from <= from && span.until >= until) ? nodes : nodes + 1
  }

  /** Checks that other sends, which may have counted at that time, had used up the limit whenever it refused a send. */
  private checkHeldBack(own: ReadonlyArray<number>, limit: number, window: Tick): void {
    const { replays, sends } = this.history
    const isHeldBack = (n: number) => sends.outcome.get(n) === Outcome.Refused && sends.refusal(n) === "RATE_LIMITED"
    if (!own.some(isHeldBack)) return
    const again = new Map<number, number>()
    for (const { send } of replays) again.set(send, (again.get(send) ?? 0) + 1)
    /** When attempts may have been counted, and when they surely no longer counted. */
    const begins: Array<readonly [at: Tick, places: number]> = []
    const ends: Array<readonly [at: Tick, places: number]> = []
    for (const n of own) {
      const places = sends.attempts.get(n) - (isHeldBack(n) ? 1 : 0)
      begins.push([sends.invoked.get(n), places + (again.get(n) ?? 0)])
      // A send that is repeated after its answer may count again at any time, so it has no end.
      if (!again.has(n) && sends.ended.get(n) !== NEVER) ends.push([sends.ended.get(n) + window, places])
    }
    const begun = running(begins)
    const over = running(ends)
    for (const n of own) {
      if (!isHeldBack(n)) continue
      const places = begun(sends.ended.get(n) + 1) - over(sends.invoked.get(n))
      if (places < limit) {
        this.wrong(
          "refused",
          sends.invoked.get(n),
          `${this.send(n)} was refused by a limit of ${limit} that at most ${places} others had used`
        )
      }
    }
  }

  // 3, 5: a change of membership has at most one system message. An acknowledged change has exactly one.

  private checkChanges(): void {
    const told = new Map<string, Array<number>>()
    for (const { agent, conversation, event, seq } of this.final.systems) {
      const change = event === "member_joined"
        ? "join"
        : event === "member_left"
        ? "leave"
        : event === "member_removed"
        ? "remove"
        : undefined
      const place = this.index.at(conversation, seq)
      if (change === undefined || place < 0) continue
      const key = `${change} ${agent} ${conversation}`
      const known = told.get(key)
      if (known === undefined) told.set(key, [place])
      else known.push(place)
    }
    const asked = new Map<string, Array<Operation>>()
    for (const operation of this.history.operations) {
      const { agent, conversation, kind, other, outcome } = operation
      if ((kind !== "join" && kind !== "leave" && kind !== "remove") || outcome === Outcome.Refused) continue
      const key = `${kind} ${kind === "remove" ? other : agent} ${conversation}`
      const known = asked.get(key)
      if (known === undefined) asked.set(key, [operation])
      else known.push(operation)
    }
    for (const key of new Set([...told.keys(), ...asked.keys()])) {
      const places = (told.get(key) ?? []).sort((x, y) => x - y)
      const operations = asked.get(key) ?? []
      const certain = operations.filter(({ outcome }) => outcome === Outcome.Ok)
      const [kind, agent, conversation] = key.split(" ") as [string, string, string]
      const about = `${kind} of ${this.who(Number(agent))} in ${this.history.conversations[Number(conversation)]?.id}`
      if (places.length < certain.length) {
        this.wrong("lost", certain[0]!.invoked, `${about}: ${certain.length} acknowledged, ${places.length} done`)
      } else if (places.length > operations.length && this.switches.get(`deleted ${agent}`) === undefined) {
        this.wrong(
          "duplicated",
          operations[0]?.invoked ?? 0,
          `${about}: ${operations.length} asked for, ${places.length} done`
        )
      }
      const matching = places.length === certain.length
        ? certain
        : places.length === operations.length
        ? operations
        : undefined
      matching?.forEach((operation, i) => {
        this.invokedAt[places[i]!] = operation.invoked
        this.endedAt[places[i]!] = operation.outcome === Outcome.Ok ? operation.ended : NEVER
      })
    }
  }

  // 2: a send that was answered before another one began precedes it, in the conversation and in each inbox.

  private checkOrderInTime(): void {
    const { base, conversationAt, firstOf, inbox, place, places } = this.index
    let earliest = NEVER
    let witness = -1
    for (let p = places - 1; p >= 0; p--) {
      if (p + 1 === base[conversationAt[p]! + 1]!) earliest = NEVER
      if (earliest < this.invokedAt[p]!) {
        this.wrong(
          "reordered",
          this.invokedAt[p]!,
          `${this.place(p)} began at ${seconds(this.invokedAt[p]!)}, after ${this.place(witness)} was answered at ${
            seconds(earliest)
          }`
        )
      }
      if (this.endedAt[p]! < earliest) {
        earliest = this.endedAt[p]!
        witness = p
      }
    }
    for (let a = 0; a < this.history.agents.length; a++) {
      earliest = NEVER
      for (let i = firstOf[a + 1]! - 1; i >= firstOf[a]!; i--) {
        const p = place[inbox[i]!]!
        if (p < 0) continue
        if (earliest < this.invokedAt[p]!) {
          this.wrong(
            "reordered",
            this.invokedAt[p]!,
            `${this.who(a)} has ${this.place(p)} before ${this.place(witness)}, which was answered before that began`
          )
        }
        if (this.endedAt[p]! < earliest) {
          earliest = this.endedAt[p]!
          witness = p
        }
      }
    }
  }

  // 1, 3, 8: the recipients of each message have an envelope, and nobody else.

  private checkRecipients(): void {
    const { conversationAt, envelopeAt, firstEnvelope, place, places, row } = this.index
    const { envelopes, messages } = this.final
    const systems = new Map<number, { event: string; agent: number }>()
    for (const { agent, conversation, event, seq } of this.final.systems)
      systems.set(this.index.at(conversation, seq), { agent, event })
    const dead = this.history.agents.map((_, a) => this.switches.get(`deleted ${a}`)?.on[0]?.invoked ?? NEVER)
    /** The last place at which an agent was found among the recipients. */
    const marked = new Int32Array(this.history.agents.length).fill(-1)
    const expected: Array<number> = []
    const members = new Set<number>()
    let current = -1
    for (let p = 0; p < places; p++) {
      const conversation = conversationAt[p]!
      const pair = this.history.conversations[conversation]!.pair
      if (conversation !== current) {
        current = conversation
        members.clear()
        const creator = this.final.groups.get(conversation)?.creator
        if (pair !== undefined) pair.forEach((agent) => members.add(agent))
        else if (creator !== undefined) members.add(creator)
      }
      if (row[p]! < 0) continue
      const sender = messages.sender.get(row[p]!)
      const system = systems.get(p)
      if (system?.event === "member_joined") {
        if (members.has(system.agent))
          this.wrong("duplicated", this.invokedAt[p]!, `${this.who(system.agent)} joins as a member, ${this.place(p)}`)
        members.add(system.agent)
      }
      if (system?.event === "member_left" || system?.event === "member_removed") {
        if (!members.delete(system.agent))
          this.wrong(
            "duplicated",
            this.invokedAt[p]!,
            `${this.who(system.agent)} goes and was no member, ${this.place(p)}`
          )
      }
      if (system === undefined && !members.has(sender)) {
        this.wrong("recipients", this.invokedAt[p]!, `${this.who(sender)} sent ${this.place(p)} and was no member`)
      }
      for (let i = firstEnvelope[p]!; i < firstEnvelope[p + 1]!; i++) {
        const agent = envelopes.recipient.get(envelopeAt[i]!)
        if (marked[agent] === p)
          this.wrong("duplicated", this.invokedAt[p]!, `${this.who(agent)} has two envelopes for ${this.place(p)}`)
        marked[agent] = p
        const entitled = agent !== sender &&
          (members.has(agent) || (system?.event === "member_removed" && system.agent === agent))
        if (!entitled)
          this.wrong(
            "recipients",
            this.invokedAt[p]!,
            `${this.who(agent)} has an envelope for ${this.place(p)} and is no recipient`
          )
      }
      expected.length = 0
      for (const agent of members) expected.push(agent)
      if (system?.event === "member_removed") expected.push(system.agent)
      for (const agent of expected) {
        if (agent === sender || marked[agent] === p || dead[agent]! < this.endedAt[p]!) continue
        const send = messages.send.get(row[p]!)
        const open = send >= 0 && this.history.sends.outcome.get(send) !== Outcome.Ok
        this.wrong(
          open ? "half" : "lost",
          this.invokedAt[p]!,
          `${this.who(agent)} has no envelope for ${this.place(p)}${send >= 0 ? `, ${this.send(send)}` : ""}`
        )
      }
      if (system?.event === "group_deleted") members.clear()
      if (p + 1 === this.index.base[conversation + 1]! && pair === undefined) this.checkMembers(conversation, members)
    }
    for (let e = 0; e < envelopes.inboxNo.length; e++) {
      if (place[e]! >= 0 && row[place[e]!]! >= 0) continue
      this.wrong(
        "recipients",
        0,
        `${this.who(envelopes.recipient.get(e))} has an envelope for ${
          this.where(envelopes.conversation.get(e), envelopes.seq.get(e))
        }, which is not stored`
      )
    }
  }

  // 4, 7: the members according to the system messages are the members of the group.

  private checkMembers(conversation: number, told: ReadonlySet<number>): void {
    const group = this.final.groups.get(conversation)
    if (group === undefined) return
    const id = this.history.conversations[conversation]!.id
    if (group.memberCount !== group.members.length) {
      this.wrong("counters", 0, `${id} has ${group.members.length} members and counts ${group.memberCount}`)
    }
    if (group.members.length > (this.options.groupSize ?? 256))
      this.wrong("counters", 0, `${id} has ${group.members.length} members`)
    for (const agent of group.members)
      if (!told.has(agent)) this.wrong("recipients", 0, `${this.who(agent)} is a member of ${id} and never joined`)
    for (const agent of told)
      if (!group.members.includes(agent))
        this.wrong(
          "recipients",
          0,
          `${this.who(agent)} is no member of ${id} and never left`
        )
  }

  // 4: one cold message to an agent, and cold conversations up to the cap.

  private checkOutreach(): void {
    const { base, row } = this.index
    const { sends } = this.history
    const cold = new Map<number, number>()
    /** When a reply in each conversation had been acknowledged. */
    const established = new Map<number, Tick>()
    this.history.conversations.forEach(({ pair }, conversation) => {
      const first = base[conversation]!
      if (pair === undefined || first === base[conversation + 1]! || row[first]! < 0) return
      const initiator = this.final.messages.sender.get(row[first]!)
      let reply = first + 1
      for (; reply < base[conversation + 1]!; reply++) {
        if (row[reply]! >= 0 && this.final.messages.sender.get(row[reply]!) !== initiator) break
      }
      if (reply > first + 1)
        this.wrong("refused", this.invokedAt[first + 1]!, `${this.place(first + 1)} is a second message before a reply`)
      if (reply === base[conversation + 1]!) cold.set(initiator, (cold.get(initiator) ?? 0) + 1)
      else established.set(conversation, this.endedAt[reply]!)
    })
    for (const [agent, count] of cold) {
      if (count > (this.options.coldCap ?? 100))
        this.wrong("refused", 0, `${this.who(agent)} has ${count} conversations without a reply`)
    }
    for (let n = 0; n < sends.length; n++) {
      if (sends.outcome.get(n) !== Outcome.Refused || sends.refusal(n) !== "AWAITING_REPLY") continue
      if ((established.get(sends.conversation.get(n)) ?? NEVER) < sends.invoked.get(n)) {
        this.wrong("refused", sends.invoked.get(n), `${this.send(n)} should wait for a reply that was there`)
      }
    }
  }

  // 6: what closes an envelope.

  private close(envelope: number, certain: Tick, possible: Tick, byFrame = false): void {
    if (certain < this.closed[envelope]!) {
      this.closed[envelope] = certain
      this.closedByFrame[envelope] = Number(byFrame)
    }
    if (possible < this.maybeClosed[envelope]!) this.maybeClosed[envelope] = possible
  }

  private collectClosings(): void {
    const { history, index } = this
    const { sightings, streams } = history
    const { envelopes } = this.final
    const through = new Map<number, Array<{ inboxNo: number; certain: Tick; possible: Tick }>>()
    for (const operation of history.operations) {
      const { agent, conversation, ended, invoked, kind, other, outcome, sighting } = operation
      if (outcome === Outcome.Refused) continue
      const certain = outcome === Outcome.Ok ? ended : NEVER
      if (kind === "ack") {
        const place = index.at(sightings.conversation.get(sighting!), sightings.seq.get(sighting!))
        const envelope = place < 0 ? -1 : index.envelope(agent, place)
        if (envelope < 0) continue
        const inboxNo = envelopes.inboxNo.get(envelope)
        const known = through.get(agent)
        if (known === undefined) through.set(agent, [{ inboxNo, certain, possible: invoked }])
        else known.push({ inboxNo, certain, possible: invoked })
      } else if (kind === "read" || kind === "hide") {
        const place = index.at(conversation!, operation.seq!)
        const envelope = place < 0 ? -1 : index.envelope(agent, place)
        if (envelope < 0) continue
        this.close(envelope, certain, invoked)
        if (kind === "read" && outcome === Outcome.Ok && (envelopes.state.get(envelope) & READ) === 0) {
          this.wrong(
            "lost",
            invoked,
            `${this.told(operation)} of ${this.place(place)} was acknowledged and is not stored`
          )
        }
      } else if (kind === "leave" || kind === "remove" || kind === "delete") {
        const gone = kind === "remove" ? other! : agent
        for (let i = index.firstOf[gone]!; i < index.firstOf[gone + 1]!; i++) {
          const envelope = index.inbox[i]!
          if (kind !== "delete" && envelopes.conversation.get(envelope) !== conversation) continue
          const place = index.place[envelope]!
          // An agent that joins again gets new envelopes. The envelope of the message about its removal stays.
          if (place >= 0 && this.invokedAt[place]! > ended) continue
          const before = place >= 0 && this.endedAt[place]! < invoked
          this.close(envelope, before ? certain : NEVER, invoked)
        }
      }
    }
    for (const [agent, acks] of through) {
      acks.sort((x, y) => y.inboxNo - x.inboxNo)
      let at = 0
      let certain: Tick = NEVER
      let possible: Tick = NEVER
      for (let i = index.firstOf[agent + 1]! - 1; i >= index.firstOf[agent]!; i--) {
        const envelope = index.inbox[i]!
        for (; at < acks.length && acks[at]!.inboxNo >= envelopes.inboxNo.get(envelope); at++) {
          certain = Math.min(certain, acks[at]!.certain)
          possible = Math.min(possible, acks[at]!.possible)
        }
        this.close(envelope, certain, NEVER)
        this.covered[envelope] = possible
      }
    }
    for (let s = 0; s < sightings.length; s++) {
      const acked = sightings.acked.get(s)
      if (acked === 0) continue
      const stream = streams[sightings.stream.get(s)]!
      const place = index.at(sightings.conversation.get(s), sightings.seq.get(s))
      const envelope = place < 0 ? -1 : index.envelope(stream.agent, place)
      if (envelope < 0) continue
      // After a network was cut, TCP may deliver a frame many seconds after the network came back, when it sends the
      // frame again.
      const taken = sightings.taken.get(s)
      const done = taken + this.ackGrace
      this.close(envelope, taken > 0 && stream.closed > done && this.calm(acked, done) ? done : NEVER, acked, true)
    }
  }

  // 2, 3, 6, 9: the messages that each stream showed, in its order.

  private checkSightings(): void {
    const { history, index } = this
    const { sightings, streams } = history
    const { envelopes } = this.final
    const first = new Int32Array(streams.length + 1)
    for (let s = 0; s < sightings.length; s++) first[sightings.stream.get(s) + 1]!++
    for (let i = 0; i < streams.length; i++) first[i + 1]! += first[i]!
    const next = first.slice(0, streams.length)
    const ordered = new Int32Array(sightings.length)
    for (let s = 0; s < sightings.length; s++) ordered[next[sightings.stream.get(s)]!++] = s

    const delivery = new Int32Array(envelopes.inboxNo.length)
    const shownBy = new Int32Array(index.places).fill(-1)
    const lastSeq = new Int32Array(history.conversations.length)
    const lastIn = new Int32Array(history.conversations.length).fill(-1)
    const muting = history.agents.map((_, a) => this.switches.get(`mutes ${a}`) !== undefined)
    const gone = history.agents.map((_, a) => this.switches.get(`deleted ${a}`) !== undefined)
    /** By agent, the times from which nothing up to an inbox number was waiting any more. */
    const passed = history.agents.map((): Array<{ at: Tick; inboxNo: number }> => [])
    const order = streams.map((_, i) => i).sort((x, y) => streams[x]!.opened - streams[y]!.opened)
    for (const i of order) {
      const { agent, kind, opened } = streams[i]!
      let lastInboxNo = 0
      let nothingBefore = 0
      for (const { at, inboxNo } of passed[agent]!) if (at < opened && inboxNo > nothingBefore) nothingBefore = inboxNo
      for (let k = first[i]!; k < first[i + 1]!; k++) {
        const s = ordered[k]!
        const conversation = sightings.conversation.get(s)
        const seq = sightings.seq.get(s)
        const send = sightings.send.get(s)
        const at = sightings.at.get(s)
        const place = index.at(conversation, seq)
        const what = () => `${this.where(conversation, seq)} to ${this.who(agent)} by ${kind} ${i}`
        if (place < 0 || index.row[place]! < 0) {
          this.wrong("lost", at, `${what()} was shown and is not stored`)
          continue
        }
        const row = index.row[place]!
        if (this.messageAt(place) !== sightings.message.get(s) || this.final.messages.send.get(row) !== send) {
          this.wrong("reordered", at, `${what()} was another message than the one that is stored`)
        }
        if (at < this.invokedAt[place]!) this.wrong("reordered", at, `${what()} was shown before it was sent`)
        if (shownBy[place] === i) this.wrong("duplicated", at, `${what()} was shown twice`)
        else if (lastIn[conversation] === i && seq < lastSeq[conversation]!) {
          this.wrong(
            "reordered",
            at,
            `${what()} was shown after seq ${lastSeq[conversation]}${
              sightings.delivery.get(s) === 0 ? " (its own)" : ""
            }`
          )
        }
        shownBy[place] = i
        lastIn[conversation] = i
        lastSeq[conversation] = seq
        const own = this.final.messages.sender.get(row) === agent
        const envelope = index.envelope(agent, place)
        if (own !== (sightings.delivery.get(s) === 0))
          this.wrong("recipients", at, `${what()} ${own ? "has a delivery" : "has no delivery"}`)
        if (own) continue
        if (envelope < 0) {
          this.wrong("recipients", at, `${what()} was shown to no recipient`)
          continue
        }
        const inboxNo = envelopes.inboxNo.get(envelope)
        if (delivery[envelope] === 0) delivery[envelope] = sightings.delivery.get(s)
        else if (delivery[envelope] !== sightings.delivery.get(s))
          this.wrong("duplicated", at, `${what()} has a second delivery id`)
        if (inboxNo < lastInboxNo)
          this.wrong("reordered", at, `${what()} is delivery ${inboxNo} and was shown after delivery ${lastInboxNo}`)
        if (lastInboxNo === 0 && !muting[agent]! && streams[i]!.fromStart)
          passed[agent]!.push({ at, inboxNo: inboxNo - 1 })
        lastInboxNo = inboxNo
        if (this.seen[envelope] === 0 || at < this.seen[envelope]!) this.seen[envelope] = at
        const done = inboxNo <= nothingBefore && !gone[agent] ? opened - 1 : this.closed[envelope]!
        if (done < opened) {
          this.wrong(
            "acknowledged",
            at,
            `${what()}, opened at ${seconds(opened)}, was offered again; it was acknowledged by ${
              seconds(this.closed[envelope]!)
            }${this.closedByFrame[envelope] === 1 ? ", if the frame was carried out in time" : ""}`
          )
        }
        if (kind === "socket" && muting[agent]!) this.checkMuted(agent, place, conversation, row, at, what)
      }
    }
  }

  private checkMuted(
    agent: number,
    place: number,
    conversation: number,
    row: number,
    at: Tick,
    what: () => string
  ): void {
    const sender = this.final.messages.sender.get(row)
    for (const key of [`mute ${agent} of ${sender}`, `mute ${agent} in ${conversation}`]) {
      const switches = this.switches.get(key)
      if (switches === undefined) continue
      const mute = certainly(switches, this.invokedAt[place]! - this.grace, at)
      if (mute !== undefined && this.invokedAt[place]! > 0 && this.calm(mute.invoked, at)) {
        this.wrong("muted", at, `${what()} was pushed after the ${this.told(mute)}`)
      }
    }
  }

  // 9: sockets of agents that must not have one.

  private checkSockets(): void {
    const { agents, streams } = this.history
    const dead = agents.map((_, a) =>
      [
        ...this.switches.get(`rotated ${a}`)?.on ?? [],
        ...this.switches.get(`deleted ${a}`)?.on ?? []
      ].filter((one) => one.outcome === Outcome.Ok)
    )
    const suspended = agents.map((_, a) => this.switches.get(`suspended ${a}`))
    streams.forEach((stream, i) => {
      if (stream.kind !== "socket" || stream.live === NEVER) return
      const ends = dead[stream.agent]!.filter((one) =>
        one.generation === undefined || one.generation >= stream.generation
      )
      const now = suspended[stream.agent]
      // Another node may admit the agent within the first second, and closes its socket within that second.
      const opened = stream.opened - this.grace
      const early = ends.find((one) => one.ended < opened) ?? (now && certainly(now, opened, stream.live))
      if (early !== undefined) {
        this.wrong(
          "revoked",
          stream.opened,
          `socket ${i} of ${this.who(stream.agent)} was let in after the ${this.told(early)}`
        )
      }
      for (const one of [...ends, ...now?.on.filter((on) => on.outcome === Outcome.Ok) ?? []]) {
        const due = one.ended + this.grace
        if (one.ended < opened || stream.closed <= due || !this.calm(one.invoked, due)) continue
        if (one.kind === "suspend" && certainly(now!, one.ended + 1, due) === undefined) continue
        this.wrong(
          "revoked",
          due,
          `socket ${i} of ${this.who(stream.agent)} was open until ${seconds(stream.closed)}, after the ${
            this.told(one)
          }`
        )
      }
    })
  }

  // 1, 6: the end of each envelope.

  private checkEnvelopes(): void {
    const { inbox, place } = this.index
    const { envelopes } = this.final
    const { agents, streams } = this.history
    const muting = agents.map((_, a) => this.switches.get(`mutes ${a}`) !== undefined)
    const connected = agents.map(() => false)
    for (const { agent, closed, kind, live } of streams) {
      if (kind === "socket" && live !== NEVER && closed === NEVER && !muting[agent]!) connected[agent] = true
    }
    for (const e of inbox) {
      const p = place[e]!
      if (p < 0) continue
      const recipient = envelopes.recipient.get(e)
      const delivered = (envelopes.state.get(e) & DELIVERED) !== 0
      const what = () => `${this.place(p)} for ${this.who(recipient)}`
      if (delivered && this.maybeClosed[e] === NEVER) {
        const covered = this.covered[e]!
        if (this.seen[e] === 0) this.wrong("lost", this.invokedAt[p]!, `${what()} is closed and was never shown`)
        else if (covered === NEVER)
          this.wrong("acknowledged", this.invokedAt[p]!, `${what()} is closed and was never acknowledged`)
        else if (covered < this.seen[e]!) {
          this.wrong(
            "acknowledged",
            covered,
            `${what()} was closed by the acknowledgement of a later one, and shown first at ${seconds(this.seen[e]!)}`
          )
        }
      }
      if (!delivered && this.closed[e] !== NEVER) {
        this.wrong(
          "acknowledged",
          this.closed[e]!,
          `${what()} was acknowledged by ${seconds(this.closed[e]!)} and still waits`
        )
      }
      if (!delivered && this.seen[e] === 0 && connected[recipient]!) {
        this.wrong("lost", this.invokedAt[p]!, `${what()} was never shown, and it is connected`)
      }
    }
  }

  // 7: counters against a recount.

  private checkCounters(): void {
    const { firstOf, inbox } = this.index
    const { envelopes, inboxes } = this.final
    for (let a = 0; a < this.history.agents.length; a++) {
      let expected = 0
      let waiting = 0
      for (let i = firstOf[a]!; i < firstOf[a + 1]!; i++) {
        const inboxNo = envelopes.inboxNo.get(inbox[i]!)
        if (inboxNo !== expected + 1)
          this.wrong(
            inboxNo === expected ? "duplicated" : "lost",
            0,
            `${this.who(a)} has delivery ${inboxNo} after ${expected}`
          )
        expected = inboxNo
        if ((envelopes.state.get(inbox[i]!) & DELIVERED) === 0) waiting++
      }
      const counted = inboxes.get(a) ?? { lastInboxNo: 0, undelivered: 0 }
      if (counted.lastInboxNo !== expected)
        this.wrong("counters", 0, `${this.who(a)} has ${expected} deliveries and counts ${counted.lastInboxNo}`)
      if (counted.undelivered !== waiting) {
        this.wrong("counters", 0, `${this.who(a)} has ${waiting} undelivered and counts ${counted.undelivered}`)
      }
    }
  }

  // 2, 6, 7: the pages and counts that the service shows.

  private checkWhatIsShown(): void {
    const { index } = this
    const { cutoffs, envelopes, hidden, offers, readings, unread } = this.final
    for (const { agent, conversation, message, seq } of readings) {
      const part = partOf(agent, conversation)
      let at = 0
      for (let wanted = Math.max(0, cutoffs.get(part) ?? 0) + 1; wanted <= index.top[conversation]!; wanted++) {
        if (hidden.get(part)?.has(wanted) === true) continue
        const place = index.at(conversation, wanted)
        if (seq.get(at) !== wanted || at >= seq.length) {
          this.wrong(
            at < seq.length && seq.get(at) < wanted ? "reordered" : "lost",
            this.invokedAt[place]!,
            `${this.who(agent)} does not read ${this.place(place)}`
          )
          if (at < seq.length && seq.get(at) < wanted) at++
          continue
        }
        if (message.get(at) !== this.messageAt(place))
          this.wrong(
            "reordered",
            this.invokedAt[place]!,
            `${this.who(agent)} reads another message at ${this.place(place)}`
          )
        at++
      }
      if (at < seq.length)
        this.wrong(
          "duplicated",
          0,
          `${this.who(agent)} reads ${this.where(conversation, seq.get(at))} and more that is not there`
        )
    }
    for (const { agent, conversation, seq } of offers) {
      let at = 0
      for (let i = index.firstOf[agent]!; i < index.firstOf[agent + 1]!; i++) {
        const e = index.inbox[i]!
        const talk = envelopes.conversation.get(e)
        if (
          (envelopes.state.get(e) & DELIVERED) !== 0 ||
          hidden.get(partOf(agent, talk))?.has(envelopes.seq.get(e)) === true
        ) continue
        if (at < seq.length && conversation.get(at) === talk && seq.get(at) === envelopes.seq.get(e)) {
          at++
          continue
        }
        this.wrong(
          "lost",
          this.invokedAt[index.place[e]!] ?? 0,
          `${this.who(agent)} is not offered ${this.where(talk, envelopes.seq.get(e))}, which waits for it`
        )
      }
      if (at < seq.length)
        this.wrong(
          "acknowledged",
          0,
          `${this.who(agent)} is offered ${this.where(conversation.get(at), seq.get(at))}, which does not wait for it`
        )
    }
    if (unread.length === 0) return
    const counted = new Map<number, { count: number; oldest: number; newest: number }>()
    for (let e = 0; e < envelopes.inboxNo.length; e++) {
      if ((envelopes.state.get(e) & READ) !== 0) continue
      const seq = envelopes.seq.get(e)
      const part = partOf(envelopes.recipient.get(e), envelopes.conversation.get(e))
      if (seq <= (cutoffs.get(part) ?? NEVER) || hidden.get(part)?.has(seq) === true) continue
      const known = counted.get(part)
      if (known === undefined) counted.set(part, { count: 1, oldest: seq, newest: seq })
      else {
        known.count++
        known.oldest = Math.min(known.oldest, seq)
        known.newest = Math.max(known.newest, seq)
      }
    }
    for (const { agent, conversation, count, newest, oldest } of unread) {
      const own = counted.get(partOf(agent, conversation))
      if (count !== (own?.count ?? 0) || oldest !== (own?.oldest ?? null) || newest !== (own?.newest ?? null)) {
        this.wrong(
          "counters",
          0,
          `${this.who(agent)} is told of ${count} unread (${oldest} to ${newest}) in ${
            this.history.conversations[conversation]?.id
          }, and has ${own?.count ?? 0} (${own?.oldest} to ${own?.newest})`
        )
      }
    }
  }
}

/** A function from a moment to the sum of all changes before it. */
const running = (changes: Array<readonly [at: Tick, by: number]>): (before: Tick) => number => {
  changes.sort(([x], [y]) => x - y)
  const sums = new Int32Array(changes.length + 1)
  changes.forEach(([, by], i) => sums[i + 1] = sums[i]! + by)
  return (before) => {
    let low = 0
    let high = changes.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (changes[middle]![0] < before) low = middle + 1
      else high = middle
    }
    return sums[low]!
  }
}

const NONE: Switches = { on: [], off: [] }

const seconds = (at: Tick): string => (at === NEVER ? "never" : `${(at / TICKS_PER_MS / 1_000).toFixed(3)} s`)

/**
 * Finds all violations of the rules 1 to 9 ("What must hold, always") in a recorded history and in the final state
 * after healing. Operations that overlap in time may have happened in either order. An operation that was answered
 * before another one began happened before it. Takes at most n log n steps.
 */
export const check = (history: History, final: Final, options: CheckOptions = {}): Verdict =>
  new Check(history, final, options).run()
