import { randomOf } from "../../test/support/Random.ts"
import { DELIVERED, Final, type Group, markOf, partOf, READ, type SystemMessage } from "./Final.ts"
import {
  type AddressRequest,
  fingerprint,
  History,
  Ints,
  NEVER,
  type Operation,
  Outcome,
  type OutcomeState,
  SYSTEM,
  type Tick,
  TICKS_PER_MS
} from "./History.ts"
import type { Rule } from "./Rule.ts"

/** The bugs that a world can have, one at a time, and the rule that each of them breaks. */
export const BUGS = {
  "an envelope is dropped": "lost",
  "a seq is reused": "duplicated",
  "a seq is left out": "lost",
  "an answer leaves before its commit, which fails": "lost",
  "a block is ignored": "blocked",
  "a push is swapped with the one before it for one reader": "reordered",
  "a push comes twice on a socket": "duplicated",
  "a push is left out on a socket that stays open": "lost",
  "an acknowledged envelope is offered again": "acknowledged",
  "an acknowledgement is answered and not stored": "acknowledged",
  "an acknowledgement covers what was not offered": "lost",
  "a removed member still receives": "recipients",
  "a member is left out from its joining on": "lost",
  "a client_msg_id has a second effect": "duplicated",
  "a repetition is answered with another message": "duplicated",
  "the undelivered counter is off by one": "counters",
  "the number of members is off by one": "counters",
  "the last seq is off by one": "counters",
  "an unread count is off by one": "counters",
  "a send is half there": "lost",
  "a refused send is stored": "half",
  "a send is refused as blocked without a block": "refused",
  "a muted message is pushed": "muted",
  "a suspended agent's send is accepted": "revoked",
  "a dead key's send is accepted": "revoked",
  "a dead key's socket stays open": "revoked",
  "a reading misses a message": "lost",
  "sync does not offer what waits": "lost",
  "a send overtakes one that it came after": "reordered",
  "a read mark is lost": "lost",
  "a reaction is lost": "lost",
  "a reaction stays that was taken back": "half",
  "a reaction crosses a block": "blocked",
  "an outcome is lost": "lost",
  "a second final outcome is accepted": "duplicated",
  "a joining has a second effect": "duplicated",
  "an acknowledging frame is forgotten": "acknowledged",
  "a key's second answer differs": "answer",
  "what a member left behind is offered to it": "acknowledged",
  "a dead key opens a socket": "revoked",
  "two readers read in different orders": "reordered",
  "an agent is told to wait for a reply that is there": "refused",
  "a limit lets through more sends than it has": "limit",
  "without Redis a node lets through more sends than the limit": "limit",
  "a send is refused by a limit that has places": "refused",
  "a registration too many is let through": "limit",
  "a code is tried once too often": "limit"
} as const satisfies Record<string, Rule>
export type Bug = keyof typeof BUGS

export interface World {
  readonly history: History
  readonly final: Final
  /** Whether the bug took effect in this world in a way that the checker must notice. */
  readonly bitten: boolean
}

interface Envelope {
  readonly inboxNo: number
  readonly conversation: Talk
  readonly seq: number
  readonly sender: number
  delivered: boolean
  read: boolean
  /** Answered acknowledgement, for the bugs. */
  closedAt: Tick
  seen: boolean
}

interface Stored {
  readonly seq: number
  readonly send: number
  readonly sender: number
  readonly id: string
}

interface Talk {
  readonly number: number
  readonly pair: readonly [number, number] | undefined
  readonly stored: Array<Stored>
  readonly systems: Array<SystemMessage>
  readonly members: Set<number>
  /** Seqs up to which a participant reads nothing. */
  readonly cutoffs: Map<number, number>
  creator: number
  lastSeq: number
}

interface Socket {
  readonly stream: number
  readonly agent: number
  readonly generation: number
  /** Frames of one socket never overtake each other. */
  lastFrame: Tick
  open: boolean
  /** What the last frame was, for the bugs. */
  pending: Array<{ show: () => void }>
}

const AGENTS = 7
const END = 40_000
/** The time after which later operations rarely hide the effect of a bug. */
const LATE = 30_000
/** The longest delay of any message in the model, much shorter than the grace times below. */
const WAY = 200

const NODES = 2
const LIMITS = { sends: 5, registrations: 3, codes: 4, nodes: NODES, windowMs: 20 } as const
const WINDOW = LIMITS.windowMs * TICKS_PER_MS
/** Sends of one agent at once: more than all windows together allow. */
const FLOOD = 30

/** The options of `check` for these worlds. */
export const MODEL_OPTIONS = { graceMs: 8, ackMs: 8, limits: LIMITS }

/**
 * A small model of the service that follows its rules, with callers that overlap, lose answers and retry. It generates
 * valid histories, and invalid ones if it has a bug.
 */
class Model {
  private readonly random: () => number
  private readonly bug: Bug | undefined
  private struck = false
  /** Tells at the end whether the bug made a difference, if this is known only then. */
  private doubt: (() => boolean) | undefined
  private bitten = false
  private now: Tick = 1
  private serial = 0
  private readonly queue: Array<{ readonly at: Tick; readonly order: number; readonly run: () => void }> = []
  readonly history = new History("model-")
  private readonly talks = new Map<number, Talk>()
  private readonly inboxes: Array<Array<Envelope>> = []
  private readonly sockets = new Set<Socket>()
  private readonly blocks = new Map<string, Operation>()
  private readonly mutes = new Map<string, Operation>()
  private readonly suspended = new Map<number, Operation>()
  private readonly rotated = new Map<number, Operation>()
  private readonly generation: Array<number> = []
  /** The result of the first commit of each send. */
  private readonly committed = new Map<number, Stored & { readonly talk: Talk }>()
  private readonly hidden = new Map<number, Set<number>>()
  private readonly reactions = new Set<string>()
  private readonly outcomes = new Map<string, OutcomeState>()
  private readonly groups: Array<Talk> = []

  constructor(seed: number, bug: Bug | undefined) {
    this.random = randomOf(seed)
    this.bug = bug
    for (let a = 0; a < AGENTS; a++) {
      this.history.addAgent({ id: `agt_${a}`, handle: `agent-${a}` })
      this.inboxes.push([])
      this.generation.push(0)
    }
  }

  run(): World {
    for (let g = 0; g < 2; g++) this.createGroup(g)
    for (let a = 0; a < AGENTS; a++) this.at(this.below(300), () => this.connect(a))
    for (let k = 0; k < 360; k++) this.at(600 + this.below(END - 6_000), () => this.act())
    if (this.random() < 0.5) {
      const from = this.below(END)
      this.history.faults.push({ name: "something", from, until: from + 500, healed: from + 1_000 })
    }
    if (this.random() < 0.5) {
      const from = this.below(END / 2)
      this.history.withoutRedis.push({ from, until: from + 3 * WINDOW })
      // In the middle of it.
      this.at(from + WINDOW, () => this.flood(this.below(AGENTS)))
    }
    for (;;) {
      const next = this.queue.shift()
      if (next === undefined) break
      this.now = next.at
      next.run()
    }
    if (this.doubt?.() === true) this.bitten = true
    return { history: this.history, final: this.finish(), bitten: this.bitten }
  }

  private below(limit: number): number {
    return Math.floor(this.random() * limit)
  }

  private pick<A>(some: ReadonlyArray<A>): A {
    return some[this.below(some.length)]!
  }

  private at(at: Tick, run: () => void): void {
    const order = this.serial++
    let low = 0
    let high = this.queue.length
    while (low < high) {
      const middle = (low + high) >> 1
      const found = this.queue[middle]!
      if (found.at < at || (found.at === at && found.order < order)) low = middle + 1
      else high = middle
    }
    this.queue.splice(low, 0, { at, order, run })
  }

  private later(run: () => void): void {
    this.at(this.now + 1 + this.below(WAY), run)
  }

  /** Whether the bug takes effect at this occasion. If not, it may at a later one. */
  private strikes(bug: Bug, chance = 0.5): boolean {
    return this.bug === bug && !this.struck && this.random() < chance
  }

  private bite(): true {
    this.struck = true
    this.bitten = true
    return true
  }

  private biteIf(atTheEnd: () => boolean): true {
    this.struck = true
    this.doubt = atTheEnd
    return true
  }

  private id(): string {
    return `msg_${Buffer.from(Array.from({ length: 12 }, () => this.below(256))).toString("base64url")}`
  }

  private talkOf(number: number): Talk {
    let known = this.talks.get(number)
    if (known === undefined) {
      const { pair } = this.history.conversations[number]!
      known = {
        number,
        pair,
        stored: [],
        systems: [],
        members: new Set(pair),
        cutoffs: new Map(pair?.map((agent) => [agent, 0])),
        creator: -1,
        lastSeq: 0
      }
      this.talks.set(number, known)
    }
    return known
  }

  // The service.

  private append(
    talk: Talk,
    sender: number,
    send: number,
    recipients: Iterable<number>,
    system?: { event: string; agent: number }
  ): Stored {
    let seq = talk.lastSeq + 1
    if (talk.lastSeq > 0 && this.strikes("a seq is reused", 0.05) && this.bite()) seq = talk.lastSeq
    if (this.strikes("a seq is left out", 0.05) && this.bite()) seq++
    talk.lastSeq = seq
    const stored: Stored = { seq, send, sender, id: this.id() }
    if (talk.stored.length > 1 && send >= 0 && this.strikes("a send overtakes one that it came after", 0.1)) {
      const before = talk.stored.at(-1)!
      const { sends } = this.history
      if (before.send >= 0 && before.seq === seq - 1 && sends.ended.get(before.send) < sends.invoked.get(send)) {
        // The two messages swap their places. The answer to the earlier one stays as it was.
        this.bite()
        talk.stored[talk.stored.length - 1] = { ...stored, seq: before.seq }
        talk.stored.push({ ...before, seq })
        this.envelopes(talk, stored, sender, recipients)
        return { ...stored, seq: before.seq }
      }
    }
    talk.stored.push(stored)
    if (system !== undefined) talk.systems.push({ conversation: talk.number, seq, sender, ...system })
    this.envelopes(talk, stored, sender, recipients)
    this.echo(talk, stored)
    return stored
  }

  private envelopes(talk: Talk, stored: Stored, sender: number, recipients: Iterable<number>): void {
    const all = [...recipients].filter((agent) => agent !== sender)
    if (all.length > 0 && this.strikes("an envelope is dropped", 0.1) && this.bite())
      all.splice(this.below(all.length), 1)
    if (talk.pair === undefined && stored.send >= 0 && this.strikes("a removed member still receives", 0.3)) {
      const gone = Array.from({ length: AGENTS }, (_, a) => a).find((agent) =>
        agent !== sender && !all.includes(agent) && talk.cutoffs.has(-1 - agent)
      )
      if (gone !== undefined && this.bite()) all.push(gone)
    }
    if (talk.pair === undefined && stored.send >= 0 && this.strikes("a member is left out from its joining on", 0.3)) {
      const joined = all.findIndex((agent) =>
        talk.systems.some(({ agent: who, event }) => event === "member_joined" && who === agent)
      )
      if (joined >= 0 && this.bite()) all.splice(joined, 1)
    }
    for (const agent of all) {
      const inbox = this.inboxes[agent]!
      const envelope: Envelope = {
        inboxNo: inbox.length + 1,
        conversation: talk,
        seq: stored.seq,
        sender,
        delivered: false,
        read: false,
        closedAt: NEVER,
        seen: false
      }
      inbox.push(envelope)
      for (const socket of this.sockets) if (socket.agent === agent) this.push(socket, envelope, stored)
    }
  }

  private muted(agent: number, sender: number, talk: Talk): Operation | undefined {
    return this.mutes.get(`${agent} of ${sender}`) ?? this.mutes.get(`${agent} in ${talk.number}`)
  }

  private frame(socket: Socket, show: () => void): void {
    const frame = { show }
    socket.pending.push(frame)
    socket.lastFrame = Math.max(socket.lastFrame, this.now + this.below(WAY))
    this.at(socket.lastFrame, () => {
      const next = socket.pending.shift()
      if (next !== undefined && socket.open) next.show()
    })
  }

  private push(socket: Socket, envelope: Envelope, stored: Stored): void {
    const { agent } = socket
    const mute = this.muted(agent, envelope.sender, envelope.conversation)
    const { sends } = this.history
    if (mute !== undefined) {
      const known = stored.send >= 0 && mute.outcome === Outcome.Ok && mute.ended + 800 < sends.invoked.get(stored.send)
      if (!known || this.history.faults.length > 0 || !this.strikes("a muted message is pushed")) return
      this.frame(socket, () => {
        const at = this.now
        this.biteIf(() => !this.ends(mute, "unmute", at))
        this.show(socket.stream, agent, envelope, stored)
      })
      return
    }
    if (
      this.now > LATE && envelope.conversation.pair !== undefined &&
      this.strikes("a push is left out on a socket that stays open")
    ) {
      this.biteIf(() => socket.open && !envelope.seen && !this.mutesAnything(agent))
      return
    }
    const show = () => {
      const at = this.show(socket.stream, agent, envelope, stored)
      if (this.random() < 0.75) this.ackFrame(socket, at, envelope)
    }
    this.frame(socket, show)
    if (this.strikes("a push comes twice on a socket", 0.1)) {
      this.frame(socket, () => {
        this.bite()
        show()
      })
    }
    const last = socket.pending.length - 1
    if (last > 0 && this.strikes("a push is swapped with the one before it for one reader")) {
      const one = socket.pending[last]!
      const other = socket.pending[last - 1]!
      let before = false
      socket.pending[last] = {
        show: () => {
          if (before) this.bite()
          other.show()
        }
      }
      socket.pending[last - 1] = {
        show: () => {
          before = true
          one.show()
        }
      }
      if (!this.isPush.has(other)) socket.pending.splice(last - 1, 2, other, one)
    }
    this.isPush.add(socket.pending[last]!)
  }

  private readonly isPush = new WeakSet<object>()

  private mutesAnything(agent: number): boolean {
    return this.history.operations.some((one) => one.kind === "mute" && one.agent === agent)
  }

  private echo(talk: Talk, stored: Stored): void {
    for (const socket of this.sockets) {
      if (socket.agent !== stored.sender) continue
      this.frame(socket, () => {
        this.history.sightings.push(
          socket.stream,
          talk.number,
          stored.seq,
          stored.send,
          fingerprint(stored.id),
          0,
          this.now
        )
      })
    }
  }

  private show(stream: number, agent: number, envelope: Envelope, stored: Stored): number {
    envelope.seen = true
    const delivery = fingerprint(`${agent} ${envelope.inboxNo}`)
    return this.history.sightings.push(
      stream,
      envelope.conversation.number,
      envelope.seq,
      stored.send,
      fingerprint(stored.id),
      delivery,
      this.now
    )
  }

  private ackFrame(socket: Socket, sighting: number, envelope: Envelope): void {
    this.history.sightings.acked.set(sighting, this.now)
    this.history.sightings.taken.set(sighting, this.now)
    this.later(() => {
      // A socket that breaks takes its last frames with it.
      if (!socket.open) return
      if (this.now > LATE && this.strikes("an acknowledging frame is forgotten")) {
        const { acked } = this.history.sightings
        this.biteIf(() =>
          !envelope.delivered && this.history.faults.length === 0 &&
          this.history.streams[socket.stream]!.closed > acked.get(sighting) + 1_000
        )
        return
      }
      envelope.delivered = true
    })
  }

  private message(envelope: Envelope): Stored {
    return envelope.conversation.stored.find(({ seq }) => seq === envelope.seq)!
  }

  // The callers.

  private act(): void {
    const agent = this.below(AGENTS)
    const kind = this.random()
    if (this.random() < 0.01) this.flood(agent)
    else if (this.random() < 0.05) this.ask(this.random() < 0.5 ? "registration" : "code")
    else if (kind < 0.45) this.sendTo(agent, this.history.direct(agent, this.other(agent)))
    else if (kind < 0.62) this.sendTo(agent, this.pick(this.groups).number)
    else if (kind < 0.7) this.sync(agent)
    else if (kind < 0.75) this.reconnect(agent)
    else if (kind < 0.8) this.block(agent)
    else if (kind < 0.85) this.membership()
    else if (kind < 0.865) this.react(agent)
    else if (kind < 0.88) this.report(agent)
    else if (kind < 0.89) this.read(agent)
    else if (kind < 0.91) this.hide(agent)
    else if (kind < 0.96) this.mute()
    else if (kind < 0.98) this.suspend(AGENTS - 1)
    else this.rotate(AGENTS - 2)
  }

  private other(agent: number): number {
    return (agent + 1 + this.below(AGENTS - 1)) % AGENTS
  }

  private sendTo(agent: number, conversation: number): void {
    const { sends } = this.history
    // Now and then with the key that it had before.
    const old = this.random() < 0.2 ? 1 : 0
    const n = sends.begin(agent, conversation, this.now, Math.max(0, this.generation[agent]! - old))
    this.attempt(n, 3)
  }

  /** Many sends at once, none of them repeated. */
  private flood(agent: number): void {
    const { sends } = this.history
    const conversation = this.groups.find(({ members }) => members.has(agent))?.number
    if (conversation === undefined) return
    const began = this.now
    const own = Array.from({ length: FLOOD }, () => {
      const n = sends.begin(agent, conversation, this.now, this.generation[agent]!)
      this.attempt(n, 0)
      return n
    })
    const redis = this.windows(began, began + WINDOW) === 1
    const bug = redis
      ? "a limit lets through more sends than it has"
      : "without Redis a node lets through more sends than the limit"
    if (!this.strikes(bug, 1)) return
    this.unlimited = { agent, until: began + WINDOW }
    const allowed = LIMITS.sends * this.windows(began, began + WINDOW)
    this.biteIf(() =>
      own.filter((n) => sends.outcome.get(n) === Outcome.Ok && sends.ended.get(n) < began + WINDOW).length >
        allowed * 1.1
    )
  }

  /** The agent that has no limit because of the bug. */
  private unlimited: { readonly agent: number; readonly until: Tick } | undefined

  /** The number of windows in which something may be counted between these times. */
  private windows(from: Tick, until: Tick): number {
    const without = this.history.withoutRedis.find((span) => span.from <= until && span.until >= from)
    if (without === undefined) return 1
    return without.from <= from && without.until >= until ? NODES : NODES + 1
  }

  /** The times of counted requests, by what is counted and in which window. */
  private readonly logs = new Map<string, Array<Tick>>()

  /**
   * Counts something in the window of Redis, or of a node if Redis is unavailable. Returns false if the window is full.
   */
  private take(what: string, limit: number): boolean {
    const away = this.history.withoutRedis.some(({ from, until }) => from <= this.now && this.now <= until)
    const key = `${what} ${away ? this.below(NODES) : "Redis"}`
    const log = (this.logs.get(key) ?? []).filter((at) => at > this.now - WINDOW)
    this.logs.set(key, log)
    if (log.length >= limit) return false
    log.push(this.now)
    return true
  }

  /** How many other sends of the agent may have counted, from one window before a send until `until`. */
  private placesAround(n: number, until: Tick): number {
    const { replays, sends } = this.history
    let places = 0
    for (let m = 0; m < sends.length; m++) {
      const same = m !== n && sends.sender.get(m) === sends.sender.get(n) && sends.invoked.get(m) <= until
      const again = replays.filter(({ send }) => send === m).length
      if (same && (again > 0 || sends.ended.get(m) + WINDOW >= sends.invoked.get(n)))
        places += sends.attempts.get(m) + again
    }
    return places
  }

  /** Makes a request without a key. */
  private ask(kind: AddressRequest["kind"]): void {
    const { requests } = this.history
    const address = `192.0.2.${this.below(2)}`
    const limit = kind === "code" ? LIMITS.codes : LIMITS.registrations
    const began = this.now
    const own = Array.from({ length: limit + 1 }, () => {
      const request: AddressRequest = { kind, address, invoked: this.now, ended: NEVER, outcome: Outcome.Unknown }
      requests.push(request)
      return request
    })
    const bug = kind === "code" ? "a code is tried once too often" : "a registration too many is let through"
    const strikes = this.windows(began, began + WINDOW) === 1 && this.strikes(bug, 1)
    if (strikes) this.biteIf(() => own.every(({ ended, outcome }) => outcome === Outcome.Ok && ended < began + WINDOW))
    for (const request of own) {
      this.later(() => {
        const taken = strikes || this.take(`${kind} ${address}`, limit)
        if (this.random() < 0.05) return
        this.later(() => {
          request.ended = this.now
          request.outcome = taken ? Outcome.Ok : Outcome.Refused
        })
      })
    }
  }

  private attempt(n: number, left: number): void {
    const { history } = this
    const { sends } = history
    const began = this.now
    sends.attempts.set(n, sends.attempts.get(n) + 1)
    this.later(() => {
      const [code, answer] = this.decide(n)
      const lost = this.random() < 0.12
      if (lost) {
        if (left > 0) this.at(this.now + this.below(2 * WAY), () => this.attempt(n, left - 1))
        return
      }
      this.later(() => {
        if (code !== undefined) {
          // The send counts as refused only if this was the first attempt, because an earlier attempt may still take
          // effect.
          if (left === 3) sends.refused(n, this.now, code)
          return
        }
        const { id, seq, talk } = answer!
        if (
          sends.outcome.get(n) === Outcome.Ok && id !== sends.id(n) &&
          this.bug === "a repetition is answered with another message"
        ) this.bite()
        if (sends.outcome.get(n) === Outcome.Ok) {
          history.replays.push({
            send: n,
            status: 200,
            conversation: talk.number,
            seq,
            message: fingerprint(id),
            invoked: began,
            ended: this.now
          })
          return
        }
        history.name(talk.number, talk.pair === undefined ? `grp_${talk.number}` : `conv_${talk.number}`)
        sends.ok(n, this.now, id, seq)
        if (this.random() < 0.1) this.at(this.now + 1 + this.below(WAY), () => this.attempt(n, 0))
      })
    })
  }

  private decide(n: number): [string] | [undefined, Stored & { readonly talk: Talk }] {
    const { sends } = this.history
    const sender = sends.sender.get(n)
    const talk = this.talkOf(sends.conversation.get(n))
    const invoked = sends.invoked.get(n)
    const first = this.committed.get(n)
    if (sends.generation.get(n) < this.generation[sender]!) {
      const rotation = this.rotated.get(sender)!
      if (first !== undefined || !(rotation.ended < invoked) || !this.strikes("a dead key's send is accepted"))
        return ["UNAUTHORIZED"]
      this.biteIf(() => sends.outcome.get(n) === Outcome.Ok)
    }
    const suspension = this.suspended.get(sender)
    if (suspension !== undefined) {
      const strict = suspension.ended < invoked && first === undefined
      if (!strict || !this.strikes("a suspended agent's send is accepted")) return ["AGENT_SUSPENDED"]
      this.biteIf(() => sends.outcome.get(n) === Outcome.Ok && !this.ends(suspension, "restore", sends.ended.get(n)))
    }
    if (first !== undefined) {
      if (this.strikes("a client_msg_id has a second effect") && this.bite()) this.append(talk, sender, n, talk.members)
      if (
        sends.outcome.get(n) === Outcome.Ok && talk.stored.length > 1 &&
        this.strikes("a repetition is answered with another message")
      ) {
        this.struck = true
        return [undefined, { ...talk.stored.find((one) => one.id !== first.id)!, talk }]
      }
      return [undefined, first]
    }
    const free = this.unlimited?.agent === sender && this.now < this.unlimited.until
    if (!free && !this.take(`sends ${sender}`, LIMITS.sends)) return ["RATE_LIMITED"]
    if (
      this.placesAround(n, this.now) < LIMITS.sends &&
      this.strikes("a send is refused by a limit that has places", 0.05)
    ) {
      this.biteIf(() =>
        sends.outcome.get(n) === Outcome.Refused && this.placesAround(n, sends.ended.get(n)) < LIMITS.sends
      )
      return ["RATE_LIMITED"]
    }
    if (talk.pair === undefined) {
      if (!talk.members.has(sender)) return ["GROUP_NOT_FOUND"]
    } else {
      const [one, other] = talk.pair
      const block = this.blocks.get(`${one} ${other}`) ?? this.blocks.get(`${other} ${one}`)
      if (block !== undefined) {
        const ended = block.outcome === Outcome.Ok ? block.ended : NEVER
        if (!(ended < invoked) || !this.strikes("a block is ignored")) {
          if (this.strikes("a refused send is stored", 0.2) && this.bite()) {
            this.append(talk, sender, n, talk.members)
            if (sends.outcome.get(n) === Outcome.Unknown) sends.refused(n, this.now, "BLOCKED")
          }
          return ["BLOCKED"]
        }
        this.biteIf(() => sends.outcome.get(n) === Outcome.Ok && !this.ends(block, "unblock", sends.ended.get(n)))
      } else if (!this.everBlocked(one, other) && this.strikes("a send is refused as blocked without a block", 0.05)) {
        this.biteIf(() => sends.outcome.get(n) === Outcome.Refused && !this.everBlocked(one, other))
        return ["BLOCKED"]
      }
      const waits = talk.stored.length > 0 && talk.stored.every((stored) => stored.sender === sender)
      if (waits) return ["AWAITING_REPLY"]
      const reply = talk.stored.find((stored) => stored.sender !== talk.stored[0]!.sender)
      if (
        reply !== undefined && sends.ended.get(reply.send) < invoked &&
        this.strikes("an agent is told to wait for a reply that is there", 0.1)
      ) {
        this.biteIf(() => sends.outcome.get(n) === Outcome.Refused)
        return ["AWAITING_REPLY"]
      }
    }
    if (this.strikes("an answer leaves before its commit, which fails", 0.1)) {
      const stored = { seq: talk.lastSeq + 1, send: n, sender, id: this.id() }
      if (sends.outcome.get(n) === Outcome.Unknown) {
        this.bite()
        // The send is answered, but nothing is stored.
        this.committed.set(n, { ...stored, talk })
        sends.ok(n, this.now, stored.id, stored.seq)
        return [undefined, { ...stored, talk }]
      }
    }
    if (this.strikes("a send is half there", 0.1)) {
      const others = [...talk.members].filter((agent) => agent !== sender)
      if (others.length > 0 && this.bite())
        return [undefined, this.commit(n, talk, this.append(talk, sender, n, others.slice(1)))]
    }
    return [undefined, this.commit(n, talk, this.append(talk, sender, n, talk.members))]
  }

  private commit(n: number, talk: Talk, stored: Stored): Stored & { readonly talk: Talk } {
    const whole = { ...stored, talk }
    this.committed.set(n, whole)
    return whole
  }

  /** Whether an operation that may have ended this state began before a time. */
  private ends(what: Operation, kind: "unblock" | "restore" | "unmute", before: Tick): boolean {
    return this.history.operations.some((one) =>
      one.kind === kind && one.agent === what.agent && one.other === what.other &&
      one.conversation === what.conversation &&
      one.invoked < before && one.ended > what.invoked && one.outcome !== Outcome.Refused
    )
  }

  private everBlocked(one: number, other: number): boolean {
    return this.history.operations.some(({ agent, kind, other: whom }) =>
      kind === "block" && ((agent === one && whom === other) || (agent === other && whom === one))
    )
  }

  /** Begins an operation. Its effect comes later, and its answer, if any, after the effect. */
  private operate(
    about: Pick<Operation, "kind" | "agent"> & Partial<Operation>,
    effect: (operation: Operation) => boolean,
    answered: (operation: Operation) => void = () => {}
  ): void {
    const operation = this.history.operation({ ...about, invoked: this.now })
    this.later(() => {
      const done = effect(operation)
      if (this.random() < 0.1) return
      this.later(() => {
        operation.ended = this.now
        operation.outcome = done ? Outcome.Ok : Outcome.Refused
        if (done) answered(operation)
      })
    })
  }

  private block(agent: number): void {
    const other = this.other(agent)
    const key = `${agent} ${other}`
    if (this.blocks.has(key) || this.random() < 0.3) {
      this.operate({ kind: "unblock", agent, other }, () => this.blocks.delete(key))
    } else {
      this.operate({ kind: "block", agent, other }, (operation) => {
        if (!this.blocks.has(key)) this.blocks.set(key, operation)
        return true
      })
    }
  }

  private createGroup(g: number): void {
    const talk = this.talkOf(this.history.addGroup(undefined))
    this.history.name(talk.number, `grp_${talk.number}`)
    talk.creator = g
    talk.members.add(g)
    talk.cutoffs.set(g, 0)
    this.groups.push(talk)
    this.history.operations.push({
      kind: "create",
      agent: g,
      conversation: talk.number,
      invoked: 1,
      ended: 2,
      outcome: Outcome.Ok,
      answers: [1]
    })
    for (let a = 0; a < AGENTS; a++)
      if (a !== g && this.random() < 0.6)
        this.at(3 + this.below(200), () => this.join(talk, a))
  }

  private join(talk: Talk, agent: number): void {
    const conversation = talk.number
    this.operate({ kind: "join", agent, conversation }, () => {
      if (talk.members.has(agent)) return false
      talk.members.add(agent)
      talk.cutoffs.set(agent, talk.lastSeq)
      const event = { event: "member_joined", agent }
      this.append(talk, agent, SYSTEM, talk.members, event)
      if (this.strikes("a joining has a second effect") && this.bite())
        this.append(talk, agent, SYSTEM, talk.members, event)
      return true
    }, (operation) => {
      operation.answers.push(1)
      if (this.random() < 0.2)
        operation.answers.push(this.strikes("a key's second answer differs") && this.bite() ? 2 : 1)
    })
  }

  private membership(): void {
    const talk = this.pick(this.groups)
    const agent = this.below(AGENTS)
    const conversation = talk.number
    if (agent === talk.creator) return
    if (!talk.members.has(agent)) return this.join(talk, agent)
    const leaves = this.random() < 0.5
    const about = leaves
      ? { kind: "leave" as const, agent, conversation }
      : { kind: "remove" as const, agent: talk.creator, other: agent, conversation }
    this.operate(about, (operation) => {
      if (!talk.members.delete(agent)) return false
      talk.cutoffs.delete(agent)
      // The bug of the removed member needs this entry.
      talk.cutoffs.set(-1 - agent, 0)
      const left = this.inboxes[agent]!.filter(({ conversation, delivered }) => conversation === talk && !delivered)
      if (left.length > 0 && this.now > LATE && this.strikes("what a member left behind is offered to it", 1)) {
        this.biteIf(() =>
          left.some((envelope) => {
            const { send } = this.message(envelope)
            return !envelope.delivered && operation.outcome === Outcome.Ok && send >= 0 &&
              this.history.sends.ended.get(send) < operation.invoked
          })
        )
      } else for (const envelope of left) envelope.delivered = true
      if (leaves) this.append(talk, agent, SYSTEM, talk.members, { event: "member_left", agent })
      else this.append(talk, talk.creator, SYSTEM, [...talk.members, agent], { event: "member_removed", agent })
      return true
    })
  }

  private read(agent: number): void {
    const seen = this.inboxes[agent]!.filter((envelope) => envelope.seen)
    if (seen.length === 0) return
    const envelope = this.pick(seen)
    this.operate({ kind: "read", agent, conversation: envelope.conversation.number, seq: envelope.seq }, () => {
      envelope.delivered = true
      envelope.read = true
      return true
    }, () => {
      envelope.closedAt = this.now
      if (this.strikes("a read mark is lost") && this.biteIf(() => !envelope.read)) envelope.read = false
    })
  }

  private operationsOn(mark: string): ReadonlyArray<Operation> {
    return this.history.operations.filter(({ agent, conversation, emoji, seq }) =>
      conversation !== undefined && seq !== undefined && markOf(agent, conversation, seq, emoji) === mark
    )
  }

  private react(agent: number): void {
    const seen = this.inboxes[agent]!.filter((envelope) => envelope.seen)
    if (seen.length === 0) return
    const { conversation, seq } = this.pick(seen)
    const about = { agent, conversation: conversation.number, seq, emoji: this.pick(["thanks", "+1"]) }
    const mark = markOf(agent, conversation.number, seq, about.emoji)
    if (this.reactions.has(mark)) return this.takeBack(about, mark)
    this.operate({ kind: "react", ...about }, (operation) => {
      const [one, other] = conversation.pair ?? [-1, -1]
      const block = this.blocks.get(`${one} ${other}`) ?? this.blocks.get(`${other} ${one}`)
      if (block !== undefined) {
        const ended = block.outcome === Outcome.Ok ? block.ended : NEVER
        if (ended >= operation.invoked || !this.strikes("a reaction crosses a block")) return false
        this.biteIf(() => operation.outcome === Outcome.Ok && !this.ends(block, "unblock", operation.ended))
      }
      this.reactions.add(mark)
      return true
    }, () => {
      if (this.strikes("a reaction is lost") && this.biteIf(() => this.operationsOn(mark).length === 1))
        this.reactions.delete(mark)
    })
  }

  private takeBack(about: Pick<Operation, "agent"> & Partial<Operation>, mark: string): void {
    this.operate({ kind: "unreact", ...about }, (operation) => {
      const stays = this.strikes("a reaction stays that was taken back") &&
        this.biteIf(() =>
          operation.outcome === Outcome.Ok && this.reactions.has(mark) &&
          this.operationsOn(mark).every((one) => one.kind !== "react" || one.ended < operation.invoked)
        )
      if (!stays) this.reactions.delete(mark)
      return true
    })
  }

  private report(agent: number): void {
    const seen = this.inboxes[agent]!.filter((envelope) => envelope.seen)
    if (seen.length === 0) return
    const envelope = this.pick(seen)
    this.reportOn(agent, envelope)
    if (this.random() < 0.7) this.later(() => this.reportOn(agent, envelope))
  }

  private reportOn(agent: number, envelope: Envelope): void {
    const { conversation: { number: conversation }, seq } = envelope
    const mark = markOf(agent, conversation, seq)
    const state = this.pick<OutcomeState>(["working", "done", "refused"])
    this.operate({ kind: "read", agent, conversation, seq, state }, (operation) => {
      const before = this.outcomes.get(mark)
      if (before !== undefined && before !== "working" && before !== state) {
        if (state === "working" || !this.strikes("a second final outcome is accepted", 0.9)) return false
        this.biteIf(() =>
          operation.outcome === Outcome.Ok &&
          this.operationsOn(mark).some((one) => one.state === before && one.outcome === Outcome.Ok)
        )
      }
      envelope.delivered = true
      envelope.read = true
      this.outcomes.set(mark, state)
      return true
    }, () => {
      envelope.closedAt = this.now
      if (this.strikes("an outcome is lost") && this.biteIf(() => !this.outcomes.has(mark))) this.outcomes.delete(mark)
    })
  }

  private hide(agent: number): void {
    const seen = this.inboxes[agent]!.filter((envelope) => envelope.seen)
    if (seen.length === 0) return
    const { conversation, inboxNo, seq } = this.pick(seen)
    this.operate({ kind: "hide", agent, conversation: conversation.number, seq }, () => {
      const part = partOf(agent, conversation.number)
      this.hidden.set(part, (this.hidden.get(part) ?? new Set()).add(seq))
      this.inboxes[agent]![inboxNo - 1]!.delivered = true
      return true
    })
  }

  private mute(): void {
    const agent = this.below(2)
    const whole = this.random() < 0.5
    const target = whole ? { conversation: this.pick(this.groups).number } : { other: this.other(agent) }
    const key = whole ? `${agent} in ${target.conversation}` : `${agent} of ${target.other}`
    if (this.mutes.has(key)) this.operate({ kind: "unmute", agent, ...target }, () => this.mutes.delete(key))
    else {
      this.operate({ kind: "mute", agent, ...target }, (operation) => {
        if (!this.mutes.has(key)) this.mutes.set(key, operation)
        return true
      })
    }
  }

  private closeAll(agent: number): void {
    for (const socket of this.sockets) {
      if (socket.agent === agent) this.later(() => this.disconnect(socket, 1008))
    }
  }

  private suspend(agent: number): void {
    if (this.suspended.has(agent)) {
      this.operate({ kind: "restore", agent }, () => {
        this.suspended.delete(agent)
        this.at(this.now + 1, () => this.connect(agent))
        return true
      })
    } else {
      this.operate({ kind: "suspend", agent }, (operation) => {
        this.suspended.set(agent, operation)
        this.closeAll(agent)
        return true
      })
    }
  }

  private rotate(agent: number): void {
    const generation = this.generation[agent]!
    this.operate({ kind: "rotate", agent, generation }, (operation) => {
      if (this.generation[agent]! !== generation) return false
      this.generation[agent]!++
      this.rotated.set(agent, operation)
      for (const socket of this.sockets) {
        if (socket.agent !== agent) continue
        if (this.history.faults.length === 0 && this.strikes("a dead key's socket stays open")) {
          const stream = this.history.streams[socket.stream]!
          this.biteIf(() => operation.outcome === Outcome.Ok && stream.closed > operation.ended + 1_000)
        } else this.later(() => this.disconnect(socket, 1008))
      }
      this.later(() => this.connect(agent))
      return true
    })
  }

  private connect(agent: number): void {
    if (this.suspended.has(agent)) return
    const { history } = this
    // Now and then with the key that it had before.
    const generation = Math.max(0, this.generation[agent]! - (this.random() < 0.1 ? 1 : 0))
    const number = history.openStream({ kind: "socket", agent, generation, opened: this.now })
    const stream = history.streams[number]!
    this.later(() => {
      const stale = this.generation[agent] !== generation
      const rotation = this.rotated.get(agent)
      if (stale && rotation !== undefined && this.strikes("a dead key opens a socket", 1)) {
        this.biteIf(() => stream.live !== NEVER && stream.opened > rotation.ended + 1_000)
      } else if (stale || this.suspended.has(agent)) {
        stream.closed = this.now
        stream.code = 1008
        return
      }
      const socket: Socket = { stream: number, agent, generation, lastFrame: this.now, open: true, pending: [] }
      this.sockets.add(socket)
      this.frame(socket, () => stream.live = this.now)
      for (const envelope of this.waiting(agent)) {
        this.push(socket, envelope, this.message(envelope))
      }
    })
  }

  /** The envelopes that are still to be delivered to an agent. */
  private waiting(agent: number): ReadonlyArray<Envelope> {
    return this.inboxes[agent]!.filter((one) => !one.delivered)
  }

  private disconnect(socket: Socket, code: number): void {
    if (!socket.open) return
    const stream = this.history.streams[socket.stream]!
    socket.open = false
    this.sockets.delete(socket)
    stream.closed = this.now
    stream.code = code
  }

  private reconnect(agent: number): void {
    for (const socket of this.sockets) if (socket.agent === agent && this.random() < 0.7) this.disconnect(socket, 1006)
    this.connect(agent)
  }

  private sync(agent: number): void {
    if (this.suspended.has(agent)) return
    const { history } = this
    const opened = this.now
    const limit = 1 + this.below(12)
    this.later(() => {
      const about = {
        kind: "page",
        agent,
        opened,
        live: NEVER,
        closed: NEVER,
        code: 0,
        generation: 0,
        fromStart: true,
        full: false
      } as const
      const rows = this.waiting(agent).slice(0, limit)
      const done = this.inboxes[agent]!.find((one) => one.closedAt < opened)
      if (done !== undefined && this.strikes("an acknowledged envelope is offered again") && this.bite())
        rows.unshift(done)
      this.later(() => {
        const number = history.openStream({ ...about, closed: this.now, full: rows.length === limit })
        const shown = rows.map((row) => this.show(number, agent, row, this.message(row)))
        if (rows.length === 0 || this.random() < 0.3) return
        const upTo = this.below(rows.length)
        this.acknowledge(agent, rows[upTo]!, shown[upTo]!)
      })
    })
  }

  private acknowledge(agent: number, last: Envelope, sighting: number): void {
    const covered = (): Array<Envelope> => this.inboxes[agent]!.filter(({ inboxNo }) => inboxNo <= last.inboxNo)
    this.operate({ kind: "ack", agent, sighting }, () => {
      for (const one of covered()) one.delivered = true
      const unseen = this.inboxes[agent]!.find((one) =>
        one.inboxNo > last.inboxNo && !one.seen && !one.delivered && one.conversation.pair !== undefined
      )
      if (unseen !== undefined && this.strikes("an acknowledgement covers what was not offered")) {
        unseen.delivered = true
        this.biteIf(() => !unseen.seen)
      }
      return true
    }, () => {
      for (const one of covered()) one.closedAt = Math.min(one.closedAt, this.now)
      if (
        this.now > LATE && this.strikes("an acknowledgement is answered and not stored") &&
        this.biteIf(() => !last.delivered)
      ) last.delivered = false
    })
  }

  // The end.

  private finish(): Final {
    const final = new Final()
    for (const talk of this.talks.values()) {
      if (talk.lastSeq === 0 && talk.pair !== undefined) continue
      const wrong = this.strikes("the last seq is off by one", 1) && this.bite() ? 1 : 0
      final.lastSeq.set(talk.number, talk.lastSeq + wrong)
      for (const { id, send, sender, seq } of talk.stored) {
        final.messages.conversation.push(talk.number)
        final.messages.seq.push(seq)
        final.messages.send.push(send)
        final.messages.sender.push(sender)
        final.messages.message.push(fingerprint(id))
      }
      final.systems.push(...talk.systems)
      for (const [agent, cutoff] of talk.cutoffs) if (agent >= 0) final.cutoffs.set(partOf(agent, talk.number), cutoff)
      if (talk.pair !== undefined) continue
      const members = [...talk.members]
      const more = this.strikes("the number of members is off by one", 1) && this.bite() ? 1 : 0
      const group: Group = { creator: talk.creator, memberCount: members.length + more, members, deleted: false }
      final.groups.set(talk.number, group)
    }
    for (const [part, seqs] of this.hidden) final.hidden.set(part, seqs)
    for (const mark of this.reactions) final.reactions.add(mark)
    for (const [mark, state] of this.outcomes) final.outcomes.set(mark, state)
    this.inboxes.forEach((inbox, agent) => {
      const { envelopes } = final
      for (const { conversation, delivered, inboxNo, read, seq } of inbox) {
        envelopes.recipient.push(agent)
        envelopes.inboxNo.push(inboxNo)
        envelopes.conversation.push(conversation.number)
        envelopes.seq.push(seq)
        envelopes.state.push((delivered ? DELIVERED : 0) | (read ? READ : 0))
      }
      const waiting = inbox.filter(({ delivered }) => !delivered)
      const off = this.strikes("the undelivered counter is off by one", 1) && this.bite()
        ? (this.random() < 0.5 ? 1 : -1)
        : 0
      final.inboxes.set(agent, { lastInboxNo: inbox.length, undelivered: waiting.length + off })
      this.offer(final, agent, waiting)
    })
    for (const talk of this.talks.values()) {
      for (const agent of talk.members) {
        this.readAs(final, talk, agent)
        this.countUnread(final, talk, agent)
      }
    }
    return final
  }

  private hides(agent: number, talk: Talk, seq: number): boolean {
    return this.hidden.get(partOf(agent, talk.number))?.has(seq) === true
  }

  private offer(final: Final, agent: number, waiting: ReadonlyArray<Envelope>): void {
    const [conversation, seq] = [new Ints(), new Ints()]
    for (const one of waiting) {
      if (this.hides(agent, one.conversation, one.seq)) continue
      if (this.strikes("sync does not offer what waits", 0.3) && this.bite()) continue
      conversation.push(one.conversation.number)
      seq.push(one.seq)
    }
    final.offers.push({ agent, conversation, seq })
  }

  private readAs(final: Final, talk: Talk, agent: number): void {
    const [seq, message] = [new Ints(), new Ints()]
    for (const stored of [...talk.stored].sort((x, y) => x.seq - y.seq)) {
      if (stored.seq <= talk.cutoffs.get(agent)! || this.hides(agent, talk, stored.seq)) continue
      if (this.strikes("a reading misses a message", 0.3) && this.bite()) continue
      seq.push(stored.seq)
      message.push(fingerprint(stored.id))
    }
    if (seq.length > 1 && this.strikes("two readers read in different orders", 0.3) && this.bite()) {
      const at = this.below(seq.length - 1)
      const first = message.get(at)
      message.set(at, message.get(at + 1))
      message.set(at + 1, first)
    }
    final.readings.push({ agent, conversation: talk.number, seq, message })
  }

  private countUnread(final: Final, talk: Talk, agent: number): void {
    const unread = this.inboxes[agent]!
      .filter((one) =>
        one.conversation === talk && !one.read && one.seq > talk.cutoffs.get(agent)! &&
        !this.hides(agent, talk, one.seq)
      )
      .map(({ seq }) => seq)
    const off = this.strikes("an unread count is off by one", 1) && this.bite() ? 1 : 0
    final.unread.push({
      agent,
      conversation: talk.number,
      count: unread.length + off,
      oldest: unread[0] ?? null,
      newest: unread.at(-1) ?? null
    })
  }
}

/** The same world for the same seed and bug. */
export const makeWorld = (seed: number, bug?: Bug): World => new Model(seed, bug).run()
