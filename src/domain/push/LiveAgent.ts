import type { CloseReason } from "#domain/agents/Sessions"
import { messageFrame, type MessagePosition, type Rendered } from "#domain/messages/Message"
import { pushedHere } from "#infrastructure/platform/Metrics"
import { recordSpan, type TraceContext, traceTime } from "#infrastructure/platform/Tracing"
import type { WindowLog } from "#infrastructure/rates/SlidingWindows"
import { Effect, Semaphore } from "effect"
import type { MuteSet } from "./MuteSet.ts"

/** A push to an agent's sockets. No caller waits for it. */
export type Push =
  /**
   * Envelope `inboxNo` is committed. This is a hint: a session that has not seen `inboxNo - 1` reads the gap from
   * storage first.
   */
  | {
    readonly _tag: "Hint"
    readonly inboxNo: number
    readonly messageId: string
    readonly senderId: string
    readonly rendered: Rendered
    /** When this node committed it, as `performance.now()`. Undefined if another node committed it. */
    readonly committedAt?: number | undefined
    /** The trace of its send. */
    readonly trace?: TraceContext | undefined
  }
  /**
   * The agent's own message. Shown only after its sockets have shown the inbox up to `after`, and dropped
   * once they have shown `before`, the number of the next message of the same conversation.
   */
  | {
    readonly _tag: "Echo"
    readonly after: number
    readonly before: number | null
    readonly messageId: string
    readonly rendered: Rendered
  }
  /**
   * Any other event, as a whole frame. With `about`, the frame is dropped if the sender or the conversation is muted.
   * With `after`, it is held until the inbox has been shown up to that number.
   */
  | { readonly _tag: "Event"; readonly frame: string; readonly about?: About; readonly after?: number }

/** The sender and the conversation of an event. */
export interface About {
  readonly senderId: string
  readonly conversationId: string
}

/** A socket of an agent, as its LiveAgent sees it. */
export interface LiveSession {
  /** A muted message is not shown, and this socket never shows it later. */
  readonly hint: (inboxNo: number, messageId: string, rendered: Rendered, muted: boolean) => void
  /** `place` is given if the frame shows a message. */
  readonly echo: (after: number, before: number | null, frame: string, place?: MessagePosition) => void
  readonly event: (frame: string) => void
  readonly close: (reason: CloseReason) => void
  /** The state of the socket, for operators. Absent for a wait over HTTP. */
  readonly state?: () => SocketState
}

/** The state of a socket (wire.md O.1, Socket). */
export interface SocketState {
  /** When the socket was opened, in milliseconds. */
  readonly since: number
  readonly client: string | null
  readonly acknowledges: boolean
  readonly cursor: number
  readonly unsentBytes: number
  readonly unacknowledged: number
  /** False while the socket reads its backlog. */
  readonly isLive: boolean
}

const MAX_CACHED_OWN = 256

/**
 * One agent on this node: its sockets here and, on the node that owns its shard, its reservations of cold slots, one at
 * a time (AgentEntity documents what the agent owns). All of its data is in storage too: sessions continue from their
 * cursors, slots are rows, and mutes are a cache of rows. Removed from memory once it has neither sessions nor
 * reservations.
 */
export class LiveAgent {
  readonly id: string
  readonly sessions = new Set<LiveSession>()
  /**
   * Reservations of one agent run one at a time, so that each counts the one before. The first one creates the
   * semaphore.
   */
  private outreach: Semaphore.Semaphore | undefined
  private reserving = 0
  /** The agent's mutes. Undefined until they are read, which happens before the agent's first session goes live. */
  mutes: MuteSet | undefined
  /** Reads of the agent's mutes run one at a time, so that the last one wins. */
  readonly muting = Semaphore.makeUnsafe(1)
  /** The ids of the agent's newest own messages. Undefined until there is one. */
  private own: Set<string> | undefined
  /**
   * The times at which the latest look-ups for frames of the agent's sockets on this node began
   * (realtime/ReadBackpressure.ts).
   */
  lookups: WindowLog | undefined

  constructor(id: string) {
    this.id = id
  }

  push(push: Push): void {
    if (this.sessions.size === 0) return
    switch (push._tag) {
      case "Hint": {
        const began = push.trace === undefined ? 0 : traceTime()
        const muted = this.mutes?.covers(push.senderId, push.rendered.conversationId) === true
        for (const session of this.sessions) session.hint(push.inboxNo, push.messageId, push.rendered, muted)
        if (push.committedAt !== undefined) pushedHere.millis(performance.now() - push.committedAt)
        if (push.trace !== undefined)
          recordSpan(push.trace, "push", began, {
            kind: "consumer",
            attributes: { "parley.sockets": this.sessions.size }
          })
        return
      }
      case "Echo": {
        this.own ??= new Set()
        this.own.add(push.messageId)
        if (this.own.size > MAX_CACHED_OWN) {
          for (const oldest of this.own) {
            this.own.delete(oldest)
            break
          }
        }
        const frame = messageFrame(push.rendered, null)
        for (const session of this.sessions) session.echo(push.after, push.before, frame, push.rendered)
        return
      }
      case "Event":
        if (push.about !== undefined && this.mutes?.covers(push.about.senderId, push.about.conversationId) === true)
          return
        for (const session of this.sessions) {
          if (push.after === undefined) session.event(push.frame)
          else session.echo(push.after, null, push.frame)
        }
    }
  }

  /** Whether this is a recent message by the agent itself. An acknowledgement of it has no effect (wire.md E.4). */
  isOwn(messageId: string): boolean {
    return this.own?.has(messageId) === true
  }

  /**
   * Runs one reservation at a time, and keeps the actor in memory meanwhile. (A second actor would not wait for this
   * one.)
   */
  reserve<A, E>(reservation: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.suspend(() => {
      this.reserving++
      this.outreach ??= Semaphore.makeUnsafe(1)
      return Effect.ensuring(this.outreach.withPermits(1)(reservation), Effect.sync(() => this.reserving--))
    })
  }

  /** Whether the actor can be removed from memory without losing or doubling anything. */
  get idle(): boolean {
    return this.sessions.size === 0 && this.reserving === 0
  }

  disconnect(reason: CloseReason): void {
    for (const session of this.sessions) session.close(reason)
  }
}
