import type { Socket as NetSocket } from "node:net"

/** The first bytes of a connection for a line: other connections to RUNNER_PORT speak effect's RPC. */
export const PREFACE = Buffer.from("parley-line\n")

/** What a frame is about. Numbers that have landed never change; a new meaning gets a new number. */
export const TOPICS = {
  /** What one node tells another (Peers.ts). */
  deliver: 16,
  /** Calls to actors, and their answers (RemoteCalls.ts). */
  calls: 17,
  answers: 18
} as const
export type Topic = keyof typeof TOPICS
const TOPIC_OF = new Map<number, Topic>(Object.entries(TOPICS).map(([topic, kind]) => [kind, topic as Topic]))

const REPLY = 1
const FAILED = 2
const PING = 3

/** A frame: four bytes for the length of the rest, one for its kind, four for the number of its question, and UTF-8. */
const LENGTH = 4
const HEAD = LENGTH + 5
/** The most bytes of a text in a frame: a batch of at most two million characters, each up to six bytes, and some more. */
const MAX_TEXT = 16 * 1024 * 1024
/** If the other side reads nothing, the line is given up once so many bytes wait to be sent. */
const MAX_UNSENT = 256 * 1024 * 1024
/** How long a reply that nobody waits for may wait for company, in milliseconds. */
const LAZY_MS = 20

/**
 * Why a line has ended. `answer`: a text of the other side is not understood; `failure`: it failed on a question;
 * `silence`: it did not reply in time; `closed`: this side has closed it.
 */
export type LineEnd = "answer" | "failure" | "silence" | "connection" | "closed"

export interface LineEvents {
  /**
   * Takes a text. A result is the reply to it: at once, or after a promise; `lazily` as long as it needs, since nobody
   * waits. Throws: the text is not understood.
   */
  readonly hear: (line: NodeLine, topic: Topic, text: string) => void | Promise<string>
  /** The line has ended; nothing comes after this. */
  readonly ended: (end: LineEnd, cause: unknown) => void
}

interface Question {
  readonly askedAt: number
  readonly replied: (reply: string | undefined) => void
}

/**
 * One end of a connection between two nodes: texts on topics, of which some are questions with a reply. Everything that
 * a turn of the event loop sends goes out in one write. A line that has ended is not connected again.
 */
export class NodeLine {
  private readonly events: LineEvents
  private readonly now: () => number
  private connection: NetSocket | undefined
  private kinds: Array<number> = []
  private numbers: Array<number> = []
  private texts: Array<string> = []
  private scheduled = false
  private lazy: NodeJS.Timeout | undefined
  private readonly questions = new Map<number, Question>()
  private lastQuestion = 0
  private sentAt: number
  private received: Array<Buffer> = []
  private receivedBytes = 0
  /** How many bytes the first frame in `received` has, as far as its head is there. */
  private wanted = HEAD
  private over = false

  constructor(events: LineEvents, now: () => number) {
    this.events = events
    this.now = now
    this.sentAt = now()
  }

  get hasEnded(): boolean {
    return this.over
  }

  /** The connection is there. `first`: bytes that were read from it already. */
  attach(connection: NetSocket, first?: Buffer): void {
    if (this.over) return void connection.destroy()
    this.connection = connection
    connection.on("data", (chunk: Buffer) => this.read(chunk))
    connection.on("error", (error) => this.end("connection", error))
    connection.on("close", () => this.end("connection", new Error("closed")))
    if (connection.destroyed) return this.end("connection", new Error("closed"))
    connection.resume()
    if (first !== undefined && first.length > 0) this.read(first)
    this.flush()
  }

  /** Begins as the side that has connected: the other one learns that this is a line. */
  begin(connection: NetSocket): void {
    connection.write(PREFACE)
    this.attach(connection)
  }

  tell(topic: Topic, text: string): void {
    this.send(TOPICS[topic], 0, text)
  }

  /** Asks; `replied` gets undefined if the line ends before the reply. */
  ask(topic: Topic, text: string, replied: (reply: string | undefined) => void): void {
    if (this.over) return replied(undefined)
    this.question(TOPICS[topic], text, replied)
  }

  /** Sends what waits now, for callers that have gathered already. */
  flush(): void {
    const { connection, kinds, numbers, texts } = this
    if (this.lazy !== undefined) {
      clearTimeout(this.lazy)
      this.lazy = undefined
    }
    if (connection === undefined || this.over || texts.length === 0) return
    this.kinds = []
    this.numbers = []
    this.texts = []
    this.sentAt = this.now()
    connection.write(encode(kinds, numbers, texts))
    if (connection.writableLength > MAX_UNSENT) this.end("silence", new Error("it reads nothing"))
  }

  /**
   * Ends the line if a question is older than `silenceMs`, and asks for a sign of life if nothing was sent for `quietMs`.
   */
  check(silenceMs: number, quietMs: number): void {
    const now = this.now()
    for (const { askedAt } of this.questions.values()) {
      if (now - askedAt >= silenceMs) this.end("silence", new Error(`no reply within ${silenceMs} ms`))
      break
    }
    if (this.connection !== undefined && now - this.sentAt >= quietMs) this.question(PING, "", () => {})
  }

  end(end: LineEnd, cause?: unknown): void {
    if (this.over) return
    this.flush()
    this.over = true
    clearTimeout(this.lazy)
    this.received = []
    if (end === "closed") this.connection?.destroySoon()
    else this.connection?.destroy()
    this.events.ended(end, cause)
    const questions = [...this.questions.values()]
    this.questions.clear()
    for (const { replied } of questions) replied(undefined)
  }

  private question(kind: number, text: string, replied: Question["replied"]): void {
    const number = this.lastQuestion = (this.lastQuestion + 1) >>> 0 || 1
    this.questions.set(number, { askedAt: this.now(), replied })
    this.send(kind, number, text)
  }

  private send(kind: number, number: number, text: string): void {
    if (this.over) return
    this.kinds.push(kind)
    this.numbers.push(number)
    this.texts.push(text)
    if (this.scheduled) return
    this.scheduled = true
    setImmediate(() => {
      this.scheduled = false
      this.flush()
    })
  }

  /** A reply that nobody waits for: it goes with what is sent next. */
  private sendLazily(kind: number, number: number, text: string): void {
    this.kinds.push(kind)
    this.numbers.push(number)
    this.texts.push(text)
    if (!this.scheduled) this.lazy ??= setTimeout(() => this.flush(), LAZY_MS)
  }

  private read(chunk: Buffer): void {
    this.received.push(chunk)
    this.receivedBytes += chunk.length
    if (this.receivedBytes < this.wanted) return
    let all = this.received.length === 1 ? this.received[0]! : Buffer.concat(this.received)
    let at = 0
    this.wanted = HEAD
    while (!this.over && all.length - at >= HEAD) {
      const length = all.readUInt32BE(at)
      if (length < HEAD - LENGTH || length > MAX_TEXT + HEAD) return this.end("answer", new Error(`a frame of ${length} bytes`))
      if (all.length - at < LENGTH + length) {
        this.wanted = LENGTH + length
        break
      }
      const next = at + LENGTH + length
      this.frame(all[at + LENGTH]!, all.readUInt32BE(at + LENGTH + 1), all.toString("utf8", at + HEAD, next))
      at = next
    }
    all = all.subarray(at)
    this.received = all.length === 0 ? [] : [all]
    this.receivedBytes = all.length
  }

  private frame(kind: number, number: number, text: string): void {
    if (kind === REPLY || kind === FAILED) {
      const question = this.questions.get(number)
      this.questions.delete(number)
      if (kind === FAILED) this.end("failure", new Error(text))
      return question?.replied(kind === REPLY ? text : undefined)
    }
    if (kind === PING) return this.send(REPLY, number, "")
    const topic = TOPIC_OF.get(kind)
    if (topic === undefined) return this.end("answer", new Error(`a frame of kind ${kind}`))
    let reply: void | Promise<string>
    try {
      reply = this.events.hear(this, topic, text)
    } catch (error) {
      if (number === 0) return this.end("answer", error)
      return this.send(FAILED, number, messageOf(error))
    }
    if (number === 0) return
    if (reply === undefined) return this.sendLazily(REPLY, number, "")
    reply.then((said) => this.send(REPLY, number, said), (error: unknown) => this.send(FAILED, number, messageOf(error)))
  }
}

const messageOf = (error: unknown): string => error instanceof Error ? error.message : String(error)

const encode = (kinds: ReadonlyArray<number>, numbers: ReadonlyArray<number>, texts: ReadonlyArray<string>): Buffer => {
  let total = 0
  const sizes = texts.map((text) => {
    const size = Buffer.byteLength(text)
    total += HEAD + size
    return size
  })
  const bytes = Buffer.allocUnsafe(total)
  let at = 0
  for (let i = 0; i < texts.length; i++) {
    const text = texts[i]!
    const size = sizes[i]!
    bytes.writeUInt32BE(size + HEAD - LENGTH, at)
    bytes[at + LENGTH] = kinds[i]!
    bytes.writeUInt32BE(numbers[i]!, at + LENGTH + 1)
    // A text with as many bytes as characters is ASCII, for which this is faster.
    bytes.write(text, at + HEAD, size, size === text.length ? "latin1" : "utf8")
    at += HEAD + size
  }
  return bytes
}
