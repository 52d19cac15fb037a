import { Effect, Semaphore } from "effect"
import { messageFrame, type MessagePosition, type Rendered } from "../messages/Message.ts"
import type { MuteSet } from "./MuteSet.ts"
import type { CloseReason } from "../agents/Sessions.ts"

/** What an agent's sockets are told; nobody waits for it. */
export type Push =
  /** Envelope `no` is committed. A hint: whoever has not seen `no - 1` reads the hole from storage first. */
  | {
    readonly _tag: "Hint"
    readonly no: number
    readonly messageId: string
    readonly senderId: string
    readonly rendered: Rendered
  }
  /**
   * The agent's own message, not before its sockets have shown the inbox up to
   * `after`, and not any more once they have shown `before`, which is the next
   * message of the same conversation.
   */
  | { readonly _tag: "Echo"; readonly after: number; readonly before: number | null; readonly messageId: string; readonly rendered: Rendered }
  /**
   * Any other event: the whole frame. With `about`, only while neither the sender nor the
   * conversation is muted; with `after`, not before the inbox has been shown up to there.
   */
  | { readonly _tag: "Event"; readonly frame: string; readonly about?: About; readonly after?: number }

/** Whose event it is, and where. */
export interface About {
  readonly senderId: string
  readonly conversationId: string
}

/** A socket of an agent, as its agent sees it. */
export interface LiveSession {
  /** A muted one is not shown, and passed over for good. */
  readonly hint: (no: number, messageId: string, rendered: Rendered, muted: boolean) => void
  /** `place`: of the message, if the frame is one. */
  readonly echo: (after: number, before: number | null, frame: string, place?: MessagePosition) => void
  readonly event: (frame: string) => void
  readonly close: (reason: CloseReason) => void
}

const OWN_REMEMBERED = 256

/**
 * One agent on this node: its sockets here and, where its shard is, its reservations of cold slots one after the other
 * (AgentEntity says what the agent owns). Holds nothing that storage does not: sessions read on from their cursors,
 * slots are rows, its mutes are a cache of rows. Idle without sessions and reservations, it is forgotten.
 */
export class LiveAgent {
  readonly id: string
  readonly sessions = new Set<LiveSession>()
  /** Reservations of one agent go one after the other, so that each counts what the one before took. */
  private readonly outreach = Semaphore.makeUnsafe(1)
  private reserving = 0
  /** What the agent has muted, as read when its first session came; no session is live before. */
  mutes: MuteSet | undefined
  /** Readings of its mutes go one after the other, so that the last one is what holds. */
  readonly muting = Semaphore.makeUnsafe(1)
  private readonly own = new Set<string>()

  constructor(id: string) {
    this.id = id
  }

  tell(push: Push): void {
    if (this.sessions.size === 0) return
    switch (push._tag) {
      case "Hint": {
        const muted = this.mutes?.covers(push.senderId, push.rendered.conversationId) === true
        for (const session of this.sessions) session.hint(push.no, push.messageId, push.rendered, muted)
        return
      }
      case "Echo": {
        this.own.add(push.messageId)
        if (this.own.size > OWN_REMEMBERED) {
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
        if (push.about !== undefined && this.mutes?.covers(push.about.senderId, push.about.conversationId) === true) return
        for (const session of this.sessions) {
          if (push.after === undefined) session.event(push.frame)
          else session.echo(push.after, null, push.frame)
        }
    }
  }

  /** Whether this is a recent message of the agent itself: an acknowledgement of it means nothing (wire.md E.4). */
  isOwn(messageId: string): boolean {
    return this.own.has(messageId)
  }

  /** Runs one reservation at a time, and keeps the actor meanwhile: a second one would count beside it. */
  reserve<A, E>(reservation: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.suspend(() => {
      this.reserving++
      return Effect.ensuring(this.outreach.withPermits(1)(reservation), Effect.sync(() => this.reserving--))
    })
  }

  /** Whether nothing would be lost or doubled by forgetting this actor. */
  get idle(): boolean {
    return this.sessions.size === 0 && this.reserving === 0
  }

  disconnect(reason: CloseReason): void {
    for (const session of this.sessions) session.close(reason)
  }
}
