import type { Rendered } from "#domain/messages/Message"
import type { Entry, PeerConnection } from "#infrastructure/cluster/PeerConnection"
import { remotePushes } from "#infrastructure/platform/Metrics"
import type { About, Push } from "./LiveAgent.ts"
import type { SocketPlace } from "./SocketPlaces.ts"

/**
 * How many pushes to one other node may wait to be sent, and how many characters they may have together. When a bound
 * is reached, all waiting pushes are dropped, and the node gets one `missed` entry instead.
 */
const MAX_WAITING = 20_000
const MAX_WAITING_CHARS = 16_000_000
/** How many agents one announcement may contain. */
const MAX_ANNOUNCED = 10_000

/** One push on its way to the sockets of one or more agents. */
class PushEntry {
  readonly to: Array<readonly [agentId: string, no: number | null]> = []
  readonly push: Push
  readonly chars: number
  private readonly left: (entry: PushEntry) => void

  constructor(push: Push, left: (entry: PushEntry) => void) {
    this.push = push
    this.left = left
    this.chars = push._tag === "Event" ? push.frame.length : push.rendered.before.length + push.rendered.after.length
  }

  /** Whether a push differs from the push of this entry only in its receiver. */
  isLike(push: Push): boolean {
    const own = this.push
    if (own._tag === "Hint") return push._tag === "Hint" && push.rendered === own.rendered
    return own._tag === "Event" && push._tag === "Event" && push.frame === own.frame && push.about === own.about
  }

  encode(): string {
    this.left(this)
    const { push, to } = this
    switch (push._tag) {
      case "Hint":
        return JSON.stringify([
          "hint",
          to,
          push.messageId,
          push.senderId,
          parts(push.rendered),
          push.committedAt === undefined ? null : Math.round(performance.timeOrigin + push.committedAt),
          push.trace ?? null
        ])
      case "Echo":
        return JSON.stringify(["echo", to, push.before, push.messageId, parts(push.rendered)])
      case "Event":
        return JSON.stringify([
          "event",
          to,
          push.frame,
          push.about === undefined ? null : [push.about.senderId, push.about.conversationId]
        ])
    }
  }
}

type Parts = readonly [conversationId: string, seq: number, before: string, after: string]
const parts = ({ after, before, conversationId, seq }: Rendered): Parts => [conversationId, seq, before, after]

/**
 * The pushes and announcements to one other node. A queue exists as long as the connection to that node.
 */
export class PushQueue {
  readonly line: PeerConnection
  /** The number of the node in `RemoteSockets`. */
  readonly no: number
  /** How many pushes are not sent yet. A push to several receivers counts once for each receiver. */
  waiting = 0
  private waitingChars = 0
  private last: PushEntry | undefined
  /** Agents whose sockets the queued announcement will list. Undefined if no announcement is queued. */
  private announced: Set<string> | undefined

  constructor(line: PeerConnection, no: number) {
    this.line = line
    this.no = no
  }

  /** Queues an announcement of the agent's sockets on this node. It lists the sockets that exist when it is sent. */
  announce(agentId: string, here: ReadonlyMap<string, ReadonlyArray<SocketPlace>>): void {
    if (this.announced === undefined || this.announced.size >= MAX_ANNOUNCED) {
      const agents = this.announced = new Set<string>()
      this.line.send({
        encode: () => {
          if (this.announced === agents) this.announced = undefined
          return JSON.stringify([
            "sockets",
            Array.from(agents, (id) => [id, (here.get(id) ?? []).map(({ since }) => since)])
          ])
        }
      })
    }
    this.announced.add(agentId)
  }

  push(agentId: string, push: Push): void {
    remotePushes.add()
    if (this.waiting >= MAX_WAITING || this.waitingChars >= MAX_WAITING_CHARS) {
      this.line.drop((entry: Entry) => entry instanceof PushEntry)
      this.last = undefined
      this.waiting = this.waitingChars = 0
      this.line.send(MISSED)
    }
    let entry = this.last
    if (entry?.isLike(push) !== true) {
      entry = this.last = new PushEntry(push, (left) => {
        this.waiting -= left.to.length
        this.waitingChars -= left.chars
        if (this.last === left) this.last = undefined
      })
      this.waitingChars += entry.chars
      this.line.send(entry)
    }
    entry.to.push([agentId, push._tag === "Hint" ? push.inboxNo : push.after ?? null])
    this.waiting++
  }
}

const MISSED = JSON.stringify(["missed"])

/** Fails because an entry about a push cannot be read. */
const misread = (): never => {
  throw new Error("a push of another node has another shape")
}
const text = (value: unknown): string => typeof value === "string" ? value : misread()
const int = (value: unknown): number => Number.isSafeInteger(value) ? value as number : misread()
const list = (value: unknown): ReadonlyArray<unknown> => Array.isArray(value) ? value : misread()
const orNull = <A>(value: unknown, read: (value: unknown) => A): A | null => value === null ? null : read(value)
const rendered = (value: unknown): Rendered => {
  const [conversationId, seq, before, after] = list(value)
  return { conversationId: text(conversationId), seq: int(seq), before: text(before), after: text(after) }
}
const about = (value: unknown): About => {
  const [senderId, conversationId] = list(value)
  return { senderId: text(senderId), conversationId: text(conversationId) }
}

/**
 * Reads an announcement: for each agent, when each of its sockets was accepted, in milliseconds. An empty list means
 * that the agent has no sockets on that node.
 */
export const readSockets = (
  [, agents]: ReadonlyArray<unknown>
): ReadonlyArray<readonly [agentId: string, since: ReadonlyArray<number>]> =>
  list(agents).map((agent) => {
    const [agentId, since] = list(agent)
    return [text(agentId), list(since).map(int)]
  })

/** A push that another node has sent. */
export interface Arrived {
  readonly push: Push
  readonly to: ReadonlyArray<readonly [agentId: string, no: number | null]>
  /** When the message was committed, in milliseconds on the clock of the node that sent the push. `null` if unknown. */
  readonly committedAt: number | null
}

/** Reads an entry about a push. Each receiver of a hint or an event gets a push with its own number (`pushTo`). */
export const readPush = ([topic, receivers, ...rest]: ReadonlyArray<unknown>): Arrived => {
  const to = list(receivers).map((receiver) => {
    const [agentId, no] = list(receiver)
    return [text(agentId), orNull(no, int)] as const
  })
  if (topic === "hint") {
    const [messageId, senderId, message, at, trace] = rest
    return {
      push: {
        _tag: "Hint",
        inboxNo: 0,
        messageId: text(messageId),
        senderId: text(senderId),
        rendered: rendered(message),
        trace: orNull(trace, text) ?? undefined
      },
      to,
      committedAt: orNull(at, int)
    }
  }
  if (topic === "echo") {
    const [before, messageId, message] = rest
    return {
      push: {
        _tag: "Echo",
        after: 0,
        before: orNull(before, int),
        messageId: text(messageId),
        rendered: rendered(message)
      },
      to,
      committedAt: null
    }
  }
  const [frame, whom] = rest
  return {
    push: { _tag: "Event", frame: text(frame), ...whom === null ? {} : { about: about(whom) } },
    to,
    committedAt: null
  }
}

/** Returns the push with the number of one of its receivers. */
export const pushTo = (push: Push, no: number | null): Push => {
  switch (push._tag) {
    case "Hint":
      return { ...push, inboxNo: no ?? misread() }
    case "Echo":
      return { ...push, after: no ?? misread() }
    case "Event":
      return no === null ? push : { ...push, after: no }
  }
}
