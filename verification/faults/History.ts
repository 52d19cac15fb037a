/**
 * The requests of a load, their answers, and the messages that its streams showed. The form is so compact that a
 * million sends with their deliveries fit into memory: a send takes 41 bytes, and a delivery 29. Agents, conversations,
 * sends and streams are numbers from 0.
 */

/** A time in units of ten microseconds since the history began, never 0. Six hours fit into 32 bits. */
export type Tick = number

export const TICKS_PER_MS = 100
/** The end of an operation whose outcome is unknown, or of a state that did not end. */
export const NEVER = 0x7fffffff

/** What the caller knows about the effect of an operation. */
export const Outcome = {
  /** There was no answer, or an ambiguous one. The operation was carried out completely or not at all. */
  Unknown: 0,
  /** The operation was carried out. */
  Ok: 1,
  /** Every attempt was refused, so the operation was not carried out. */
  Refused: 2
} as const
export type Outcome = (typeof Outcome)[keyof typeof Outcome]

/** A growing column of 32-bit numbers. It grows in chunks, without copying. */
export class Ints {
  length = 0
  private readonly chunks: Array<Int32Array> = []

  push(value: number): number {
    const at = this.length++
    if ((at & 0xfff) === 0) this.chunks.push(new Int32Array(0x1000))
    this.chunks[at >> 12]![at & 0xfff] = value
    return at
  }

  /** The number at an index; 0 beyond the end. */
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

/**
 * A 32-bit hash of a text. It is compared only with hashes that should be equal, so a collision hides one fault in
 * 2^32.
 */
export const fingerprint = (text: string): number => {
  let hash = 0x811c9dc5
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  return (hash ^ (hash >>> 15)) | 0
}

/** Stands for a system message, which is no send of this history. */
export const SYSTEM = -1
/** Stands for a message that is neither a send of this history nor a system message. */
export const FOREIGN = -2

export interface HistoryAgent {
  readonly id: string
  readonly handle: string
}

export interface Conversation {
  /** The conversation's id; undefined until an answer or a delivery contains it. */
  id: string | undefined
  /** The two agents of a direct conversation, the lower number first; undefined for a group. */
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
  /** The message's seq, if the outcome is Ok. */
  readonly seq = new Ints()
  /** The 12 bytes of the message's id, if the outcome is Ok. */
  private readonly words = [new Ints(), new Ints(), new Ints()] as const
  /** The index in `codes` of the last refusal's code, also if the outcome is Unknown. */
  readonly code = new Bytes()
  /** The number of the sender's key with which it was sent, from 0. */
  readonly generation = new Bytes()
  /** Requests made for it. */
  readonly attempts = new Bytes()
  /** When a request was first sent, or may have been sent, to a node that answered nobody then; NEVER if none was. */
  readonly unheardSince = new Ints()
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
    this.unheardSince.push(NEVER)
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

  /**
   * Notes the code of a refusal by the last attempt, or by the cold cap before it. Another attempt may have been
   * carried out.
   */
  doubted(n: number, code: string): void {
    let known = this.codes.indexOf(code)
    if (known < 0) known = this.codes.push(code) - 1
    this.code.set(n, known)
  }

  /** The message's id, if the outcome is Ok. */
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
 * A source of messages for an agent: a socket from its HELLO to its end, or one page of sync. `Sightings` holds the
 * messages of all streams, in the order in which they came.
 */
export interface Stream {
  readonly kind: "socket" | "page"
  readonly agent: number
  /** For a socket, the number of the agent's key with which it was opened. */
  readonly generation: number
  /** When its HELLO or its request was sent. */
  readonly opened: Tick
  /** For a socket, when hello.ok came; NEVER if it did not come. */
  live: Tick
  /**
   * When it was closed or its answer was complete; NEVER if it stayed open. A page without an answer is not recorded.
   */
  closed: Tick
  /** For a socket, its close code: 0 if it is open, 1006 if it broke. */
  code: number
  /** For a page, whether it began at the oldest message. */
  readonly fromStart: boolean
  /** For a page, whether it was as long as requested. */
  full: boolean
}

/** Every appearance of a message in a stream: `message.new` frames and rows of sync. */
export class Sightings {
  readonly stream = new Ints()
  readonly conversation = new Ints()
  readonly seq = new Ints()
  /** The number of the send, or SYSTEM, or FOREIGN. */
  readonly send = new Ints()
  /** The fingerprint of the message's id. */
  readonly message = new Ints()
  /** The fingerprint of the delivery's id; 0 for the echo of an own message. */
  readonly delivery = new Ints()
  readonly at = new Ints()
  /** When an `ack` frame for it was sent; 0 if none was sent. */
  readonly acked = new Ints()
  /** When the server had surely received that frame, because it answered a later frame; 0 if this is unknown. */
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

/** What a recipient reports of a message. `done` and `refused` are final. */
export type OutcomeState = "working" | "done" | "refused"

/** An operation other than a send. `History.operations` holds them in the order in which they began. */
export interface Operation {
  readonly kind:
    /** `agent` blocks `other`. */
    | "block"
    | "unblock"
    /** `agent` mutes the agent `other`, or else `conversation`. */
    | "mute"
    | "unmute"
    /** `agent` creates the group `conversation` and invites agents. */
    | "create"
    /** `agent` invites `other`. */
    | "add"
    /** `agent` accepts an invitation. */
    | "join"
    | "leave"
    /** `agent` removes `other`. */
    | "remove"
    /** `agent` marks `seq` of `conversation` as read, and reports `state` if there is one. */
    | "read"
    /** `agent` acknowledges all messages up to `sighting`, which a page has shown. */
    | "ack"
    /** `agent` hides `seq` of `conversation`. */
    | "hide"
    /** `agent` reacts with `emoji` to `seq` of `conversation`. */
    | "react"
    | "unreact"
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
  readonly emoji?: string
  readonly state?: OutcomeState
  readonly invoked: Tick
  /** When the outcome was known; NEVER for Unknown. */
  ended: Tick
  outcome: Outcome
  /** The code of the refusal, if the outcome is Refused. */
  code?: string
  /** For an `ack`, the count in the answer. */
  acked?: number
  /** Every 2xx answer to its Idempotency-Key, the first one first: fingerprints of status and body. */
  readonly answers: Array<number>
}

/** A second answer to a send that was sent again after its first answer. */
export interface Replay {
  readonly send: number
  readonly status: number
  readonly conversation: number
  readonly seq: number
  readonly message: number
  readonly invoked: Tick
  readonly ended: Tick
}

/** A request without a key, which has a limit for each address. */
export interface AddressRequest {
  readonly kind: "registration" | "code"
  readonly address: string
  readonly invoked: Tick
  ended: Tick
  /** Refused if its limit refused it. Any other answer except a 5xx counts as Ok. */
  outcome: Outcome
}

/** A span in which the nodes shared no Redis for their limits, or one that had lost its data. */
export interface WithoutRedis {
  readonly from: Tick
  /** The time from which every node counts in Redis again. */
  until: Tick
}

/** A span in which a fault was caused. */
export interface Fault {
  readonly name: string
  readonly from: Tick
  /** When the damage was undone. */
  until: Tick
  /** When every node was ready again. */
  healed: Tick
}

const NOTHING_SHOWN = { kind: "page", generation: 0, live: NEVER, closed: NEVER, code: 0, full: false } as const

/** Records operations as they happen. Tests can also fill it by hand with a made-up history. */
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
  /** Problems that were seen while recording and fit no type of record. */
  readonly oddities: Array<string> = []
  /** The text before the number in each `client_msg_id`. */
  readonly prefix: string
  /** The beginning of the history, on the clock of `performance.now()`. */
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

  /** The number of an agent, by its id or handle; -1 if it is not in this history. */
  agent(idOrHandle: string): number {
    return this.byAgentId.get(idOrHandle) ?? this.byHandle.get(idOrHandle) ?? -1
  }

  addGroup(id: string | undefined): number {
    const number = this.conversations.push({ id: undefined, pair: undefined }) - 1
    if (id !== undefined) this.name(number, id)
    return number
  }

  /** The number of the direct conversation of two agents, whether or not they have written. */
  direct(one: number, other: number): number {
    const pair = one < other ? [one, other] as const : [other, one] as const
    const key = pair[0] * 0x100000 + pair[1]
    const known = this.byPair.get(key)
    if (known !== undefined) return known
    const number = this.conversations.push({ id: undefined, pair }) - 1
    this.byPair.set(key, number)
    return number
  }

  /** The number of a conversation, by its id; -1 if the id is not known. */
  conversation(id: string): number {
    return this.byConversationId.get(id) ?? -1
  }

  /** Notes the id of a conversation from an answer. A pair must always have the same id. */
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

  /** The number of the send with this `client_msg_id`. */
  sendOf(clientMsgId: string): number {
    if (clientMsgId.startsWith("sys_")) return SYSTEM
    if (!clientMsgId.startsWith(this.prefix)) return FOREIGN
    const number = Number(clientMsgId.slice(this.prefix.length))
    return Number.isInteger(number) && number >= 0 && number < this.sends.length ? number : FOREIGN
  }

  openStream(stream: Pick<Stream, "kind" | "agent"> & Partial<Stream>): number {
    return this.streams.push({ ...NOTHING_SHOWN, fromStart: true, opened: this.now(), ...stream }) - 1
  }

  /** Begins an operation. Its outcome is written into the returned object. */
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
