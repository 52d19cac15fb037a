import type { CloseReason } from "#domain/agents/Sessions"
import { messageFrame, type MessagePosition, type Rendered } from "#domain/messages/Message"
import { pushedHere } from "#infrastructure/platform/Metrics"
import { recordSpan, type TraceContext, traceTime } from "#infrastructure/platform/Tracing"
import type { WindowLog } from "#infrastructure/rates/SlidingWindows"
import { Effect, Semaphore } from "effect"
import type { MuteSet } from "./MuteSet.ts"

/** A push to an agent's sockets. No caller waits for it. */
export type Push =
  /** Envelope `inboxNo` is committed. A session that has not shown `inboxNo - 1` first reads the gap from storage. */
  | {
    readonly _tag: "Hint"
    readonly inboxNo: number
    readonly messageId: string
    readonly senderId: string
    readonly rendered: Rendered
    /** When this node committed the message, as `performance.now()`. Undefined if another node committed it. */
    readonly committedAt?: number | undefined
    /** The trace of the send. */
    readonly trace?: TraceContext | undefined
  }
  /**
   * The agent's own message. A socket shows it after it has shown the inbox up to `after`. A socket drops it if it has
   * already shown `before`, the number of the next message of the same conversation.
   */
  | {
    readonly _tag: "Echo"
    readonly after: number
    readonly before: number | null
    readonly messageId: string
    readonly rendered: Rendered
  }
  /**
   * Any other event, as a complete frame. With `about`, the frame is dropped if the sender or the conversation is
   * muted. With `after`, a socket shows the frame only after it has shown the inbox up to that number.
   */
  | { readonly _tag: "Event"; readonly frame: string; readonly about?: About; readonly after?: number }

/** The sender and the conversation of an event. */
export interface About {
  readonly senderId: string
  readonly conversationId: string
}

/** A socket of an agent, as its LiveAgent sees it. */
export interface LiveSession {
  /** Passes a committed envelope to the socket. A muted message is not shown, neither now nor later by this socket. */
  readonly hint: (inboxNo: number, messageId: string, rendered: Rendered, muted: boolean) => void
  /**
   * Shows a frame after the inbox has been shown up to `after`. `place` is the position of the message that the frame
   * shows; undefined if the frame shows no message.
   */
  readonly echo: (after: number, before: number | null, frame: string, place?: MessagePosition) => void
  readonly event: (frame: string) => void
  readonly close: (reason: CloseReason) => void
  /** The state of the socket, for operators. Absent for a long poll over HTTP. */
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
  /** Whether the socket has finished reading its backlog. */
  readonly isLive: boolean
}

const MAX_CACHED_OWN = 256

/**
 * One agent on this node: its sockets on this node and, if this node owns the agent's shard, its reservations of cold
 * slots, one at a time. AgentEntity documents what the agent owns. The actor contains nothing that is not in storage:
 * sessions continue from their cursors, slots are rows, and mutes are a cache of rows. It is removed from memory when
 * it has neither sessions nor reservations.
 */
export class LiveAgent {
  readonly id: string
  readonly sessions = new Set<LiveSession>()
  /**
   * Makes the reservations of the agent run one at a time, so that each counts the earlier ones. The first reservation
   * creates the semaphore.
   */
  private outreach: Semaphore.Semaphore | undefined
  private reserving = 0
  /** The agent's mutes. Undefined until they are read, which happens before the agent's first session goes live. */
  mutes: MuteSet | undefined
  /** Makes reads of the agent's mutes run one at a time, so that the last read wins. */
  readonly muting = Semaphore.makeUnsafe(1)
  /** The ids of the newest messages that the agent itself has sent. Undefined until there is one. */
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

  /**
   * Whether the agent itself sent this message recently. Acknowledgements of own messages have no effect (wire.md E.4).
   */
  isOwn(messageId: string): boolean {
    return this.own?.has(messageId) === true
  }

  /**
   * Runs one reservation at a time. The actor stays in memory until the reservation ends, because a second actor of the
   * same agent would not wait for it.
   */
  reserve<A, E>(reservation: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.suspend(() => {
      this.reserving++
      this.outreach ??= Semaphore.makeUnsafe(1)
      return Effect.ensuring(this.outreach.withPermits(1)(reservation), Effect.sync(() => this.reserving--))
    })
  }

  /** Whether the actor can be removed from memory. */
  get idle(): boolean {
    return this.sessions.size === 0 && this.reserving === 0
  }

  disconnect(reason: CloseReason): void {
    for (const session of this.sessions) session.close(reason)
  }
}
