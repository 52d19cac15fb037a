/**
 * What a load asked of the service, what it was answered and what it was shown, in a form
 * of which a million sends with their deliveries fit into memory: a send costs 41 bytes, a
 * delivery 29. Agents, conversations, sends and streams are numbers, from 0.
 */

/** Ten microseconds since the history began, never 0: six hours fit into 32 bits. */
export type Tick = number

export const TICKS_PER_MS = 100
/** An end that never came. */
export const NEVER = 0x7fffffff

/** What the caller knows of the effect. */
export const Outcome = {
  /** No answer, or one that leaves it open: wholly done or not at all. */
  Unknown: 0,
  /** Done, for ever. */
  Ok: 1,
  /** Refused by the only attempt, or by each of them: not done. */
  Refused: 2
} as const
export type Outcome = (typeof Outcome)[keyof typeof Outcome]

/** A growing column of 32-bit numbers, which is never copied. */
export class Ints {
  length = 0
  private readonly chunks: Array<Int32Array> = []

  push(value: number): number {
    const at = this.length++
    if ((at & 0xfff) === 0) this.chunks.push(new Int32Array(0x1000))
    this.chunks[at >> 12]![at & 0xfff] = value
    return at
  }

  /** 0 beyond the end. */
  get(at: number): number {
    return this.chunks[at >> 12]?.[at & 0xfff] ?? 0
  }

  set(at: number, value: number): void {
    this.chunks[at >> 12]![at & 0xfff] = value
  }
}

export class Bytes {
  length = 0
  private readonly chunks: Array<Uint8Array> = []

  push(value: number): number {
    const at = this.length++
    if ((at & 0xfff) === 0) this.chunks.push(new Uint8Array(0x1000))
    this.chunks[at >> 12]![at & 0xfff] = value
    return at
  }

  get(at: number): number {
    return this.chunks[at >> 12]?.[at & 0xfff] ?? 0
  }

  set(at: number, value: number): void {
    this.chunks[at >> 12]![at & 0xfff] = value
  }
}

/** 32 bits of a text. Only ever compared with what ought to be equal, so that a collision hides a fault once in 2^32. */
export const fingerprint = (text: string): number => {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash ^ (hash >>> 15)) | 0
}

/** No send of this history: a system message. */
export const SYSTEM = -1
/** No send of this history, and no system message. */
export const FOREIGN = -2

export interface HistoryAgent {
  readonly id: string
  readonly handle: string
}

export interface Conversation {
  /** Unknown until the first answer or delivery names it. */
  id: string | undefined
  /** The two of a direct conversation, the lower number first; undefined for a group. */
  readonly pair: readonly [number, number] | undefined
}

/** Sends, by the number that their `client_msg_id` contains. */
export class Sends {
  readonly sender = new Ints()
  readonly conversation = new Ints()
  readonly invoked = new Ints()
  /** When the outcome was known; NEVER for Unknown. */
  readonly ended = new Ints()
  readonly outcome = new Bytes()
  /** Of an Ok one. */
  readonly seq = new Ints()
  /** Of an Ok one: the 12 bytes of the message's id. */
  private readonly words = [new Ints(), new Ints(), new Ints()] as const
  /** Of one that was refused in the end, Refused or not: where the code is in `codes`. */
  readonly code = new Bytes()
  /** Which of the sender's keys it was made with, from 0. */
  readonly generation = new Bytes()
  /** Requests made for it. */
  readonly attempts = new Bytes()
  readonly codes: Array<string> = [""]

  get length(): number {
    return this.sender.length
  }

  begin(sender: number, conversation: number, at: Tick, generation: number): number {
    this.conversation.push(conversation)
    this.invoked.push(at)
    this.ended.push(NEVER)
    this.outcome.push(Outcome.Unknown)
    this.seq.push(0)
    for (const word of this.words) word.push(0)
    this.code.push(0)
    this.generation.push(generation)
    this.attempts.push(0)
    return this.sender.push(sender)
  }

  ok(n: number, at: Tick, id: string, seq: number): void {
    this.outcome.set(n, Outcome.Ok)
    this.ended.set(n, at)
    this.seq.set(n, seq)
    const bytes = Buffer.from(id.slice(4), "base64url")
    for (let w = 0; w < 3; w++) this.words[w]!.set(n, bytes.readInt32LE(4 * w))
  }

  refused(n: number, at: Tick, code: string): void {
    this.outcome.set(n, Outcome.Refused)
    this.ended.set(n, at)
    this.doubted(n, code)
  }

  /** Refused by the last attempt, or by the cap of cold outreach before it; another attempt may have been carried out. */
  doubted(n: number, code: string): void {
    let known = this.codes.indexOf(code)
    if (known < 0) known = this.codes.push(code) - 1
    this.code.set(n, known)
  }

  /** Of an Ok one. */
  id(n: number): string {
    const bytes = Buffer.alloc(12)
    for (let w = 0; w < 3; w++) bytes.writeInt32LE(this.words[w]!.get(n), 4 * w)
    return `msg_${bytes.toString("base64url")}`
  }

  refusal(n: number): string {
    return this.codes[this.code.get(n)] ?? ""
  }
}

/**
 * Where messages are shown to an agent: a socket from its HELLO to its end, or one page of
 * sync. What a stream shows is in `Sightings`, in the order in which it came.
 */
export interface Stream {
  readonly kind: "socket" | "page"
  readonly agent: number
  /** A socket: which of the agent's keys it was opened with. */
  readonly generation: number
  /** When its HELLO left, or its request. */
  readonly opened: Tick
  /** A socket: when hello.ok came; NEVER if it did not. */
  live: Tick
  /** When it was closed or its answer was complete; NEVER: open to the end. A page without an answer is none. */
  closed: Tick
  /** A socket: its close code, 0 if it is open, 1006 if it broke. */
  code: number
  /** A page: whether it began at the oldest, and whether it was as long as was asked for. */
  readonly fromStart: boolean
  full: boolean
}

/** Every time a message was shown to an agent by a stream: `message.new` frames, rows of sync. */
export class Sightings {
  readonly stream = new Ints()
  readonly conversation = new Ints()
  readonly seq = new Ints()
  /** Of the send, or SYSTEM, or FOREIGN. */
  readonly send = new Ints()
  /** Fingerprints; of the delivery 0 for an own message's echo. */
  readonly message = new Ints()
  readonly delivery = new Ints()
  readonly at = new Ints()
  /** When an `ack` frame for it was sent; 0: never. */
  readonly acked = new Ints()
  /** When the server had surely taken that frame: it has answered something that was sent later. 0: nobody knows. */
  readonly taken = new Ints()

  get length(): number {
    return this.stream.length
  }

  push(
    stream: number,
    conversation: number,
    seq: number,
    send: number,
    message: number,
    delivery: number,
    at: Tick
  ): number {
    this.conversation.push(conversation)
    this.seq.push(seq)
    this.send.push(send)
    this.message.push(message)
    this.delivery.push(delivery)
    this.at.push(at)
    this.acked.push(0)
    this.taken.push(0)
    return this.stream.push(stream)
  }
}

/** What was asked besides sends; in `History.operations` in the order in which they were begun. */
export interface Operation {
  readonly kind:
    /** `agent` blocks `other`. */
    | "block"
    | "unblock"
    /** `agent` mutes the agent `other`, or else `conversation`. */
    | "mute"
    | "unmute"
    /** `agent` makes the group `conversation`, and invites. */
    | "create"
    /** `agent` invites `other`. */
    | "add"
    /** `agent` accepts an invitation. */
    | "join"
    | "leave"
    /** `agent` removes `other`. */
    | "remove"
    /** `agent` marks `seq` of `conversation` as read. */
    | "read"
    /** `agent` acknowledges everything up to `sighting`, which a page has shown. */
    | "ack"
    /** `agent` hides `seq` of `conversation`. */
    | "hide"
    /** The keys of `agent` up to `generation` are dead from here on. */
    | "rotate"
    | "suspend"
    | "restore"
    | "delete"
  readonly agent: number
  readonly other?: number
  readonly conversation?: number
  readonly seq?: number
  readonly sighting?: number
  readonly generation?: number
  readonly invoked: Tick
  /** When the outcome was known; NEVER for Unknown. */
  ended: Tick
  outcome: Outcome
  /** Of a Refused one. */
  code?: string
  /** ack: how many the answer said. */
  acked?: number
  /** Every 2xx answer to its Idempotency-Key, the first one first: fingerprints of status and body. */
  readonly answers: Array<number>
}

/** A second answer to a send: it was sent again after its first answer. */
export interface Replay {
  readonly send: number
  readonly status: number
  readonly conversation: number
  readonly seq: number
  readonly message: number
  readonly invoked: Tick
  readonly ended: Tick
}

/** What anybody may ask for, and each address only so often. */
export interface AddressRequest {
  readonly kind: "registration" | "code"
  readonly address: string
  readonly invoked: Tick
  ended: Tick
  /** Refused: by its limit. Any other answer counts as Ok, but for a 5xx. */
  outcome: Outcome
}

/** A span in which the limits had no Redis that all nodes share, or one that had forgotten everything. */
export interface WithoutRedis {
  readonly from: Tick
  /** From when on every node counts in Redis again. */
  until: Tick
}

/** A span in which something was broken on purpose. */
export interface Fault {
  readonly name: string
  readonly from: Tick
  /** When the damage was undone. */
  until: Tick
  /** When everything was well again, as far as one could see. */
  healed: Tick
}

const NOTHING_SHOWN = { kind: "page", generation: 0, live: NEVER, closed: NEVER, code: 0, full: false } as const

/** Records what happens as it happens; everything in it can also be written by hand, for a history that never was. */
export class History {
  readonly agents: Array<HistoryAgent> = []
  readonly conversations: Array<Conversation> = []
  readonly sends = new Sends()
  readonly streams: Array<Stream> = []
  readonly sightings = new Sightings()
  readonly operations: Array<Operation> = []
  readonly replays: Array<Replay> = []
  /** In the order in which they were begun. */
  readonly requests: Array<AddressRequest> = []
  readonly faults: Array<Fault> = []
  readonly withoutRedis: Array<WithoutRedis> = []
  /** What no type of record has room for and must not be: a problem that was seen while recording. */
  readonly oddities: Array<string> = []
  /** Before the number in each `client_msg_id`. */
  readonly prefix: string
  /** As `performance.now()` counts. */
  readonly began = performance.now()
  private readonly byAgentId = new Map<string, number>()
  private readonly byHandle = new Map<string, number>()
  private readonly byConversationId = new Map<string, number>()
  private readonly byPair = new Map<number, number>()

  constructor(prefix = "load-") {
    this.prefix = prefix
  }

  now(): Tick {
    return 1 + Math.floor((performance.now() - this.began) * TICKS_PER_MS)
  }

  addAgent(agent: HistoryAgent): number {
    const number = this.agents.push(agent) - 1
    this.byAgentId.set(agent.id, number)
    this.byHandle.set(agent.handle, number)
    return number
  }

  /** By its id or its handle; -1 if it is none of ours. */
  agent(idOrHandle: string): number {
    return this.byAgentId.get(idOrHandle) ?? this.byHandle.get(idOrHandle) ?? -1
  }

  addGroup(id: string | undefined): number {
    const number = this.conversations.push({ id: undefined, pair: undefined }) - 1
    if (id !== undefined) this.name(number, id)
    return number
  }

  /** The direct conversation of two agents, whether or not they have written. */
  direct(one: number, other: number): number {
    const pair = one < other ? [one, other] as const : [other, one] as const
    const key = pair[0] * 0x100000 + pair[1]
    const known = this.byPair.get(key)
    if (known !== undefined) return known
    const number = this.conversations.push({ id: undefined, pair }) - 1
    this.byPair.set(key, number)
    return number
  }

  /** By its id; -1 if nobody has named it. */
  conversation(id: string): number {
    return this.byConversationId.get(id) ?? -1
  }

  /** The id of a conversation, from an answer: there is one for each pair, for ever. */
  name(conversation: number, id: string): void {
    const known = this.conversations[conversation]!
    if (known.id === id) return
    const other = this.byConversationId.get(id)
    if (known.id !== undefined || other !== undefined) {
      this.oddities.push(`conversation ${conversation} is ${known.id}, and ${id} is ${other ?? conversation}`)
      return
    }
    known.id = id
    this.byConversationId.set(id, conversation)
  }

  clientMsgId(send: number): string {
    return this.prefix + send
  }

  /** Which send has this `client_msg_id`. */
  sendOf(clientMsgId: string): number {
    if (clientMsgId.startsWith("sys_")) return SYSTEM
    if (!clientMsgId.startsWith(this.prefix)) return FOREIGN
    const number = Number(clientMsgId.slice(this.prefix.length))
    return Number.isInteger(number) && number >= 0 && number < this.sends.length ? number : FOREIGN
  }

  openStream(stream: Pick<Stream, "kind" | "agent"> & Partial<Stream>): number {
    return this.streams.push({ ...NOTHING_SHOWN, fromStart: true, opened: this.now(), ...stream }) - 1
  }

  /** Begins an operation; its outcome is written into it. */
  operation(operation: Pick<Operation, "kind" | "agent"> & Partial<Operation>): Operation {
    const begun: Operation = {
      invoked: this.now(),
      ended: NEVER,
      outcome: Outcome.Unknown,
      answers: [],
      ...operation
    }
    this.operations.push(begun)
    return begun
  }
}
