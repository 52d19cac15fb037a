import { Semaphore } from "effect"
import { messageJson, type Rendered } from "../conversations/Message.ts"
import type { CloseReason } from "../realtime/Gateway.ts"

/** What an agent's sockets are told; nobody waits for it. */
export type Push =
  /** Envelope `no` is committed. A hint: whoever has not seen `no - 1` reads the hole from storage first. */
  | { readonly _tag: "Hint"; readonly no: number; readonly messageId: string; readonly rendered: Rendered }
  /**
   * The agent's own message, not before its sockets have shown the inbox up to
   * `after`, and not any more once they have shown `before`, which is the next
   * message of the same conversation.
   */
  | { readonly _tag: "Echo"; readonly after: number; readonly before: number | null; readonly messageId: string; readonly rendered: Rendered }
  /** Any other event: the whole frame. */
  | { readonly _tag: "Event"; readonly frame: string }

/** A socket of an agent, as its agent sees it. */
export interface LiveSession {
  readonly hint: (no: number, messageId: string, rendered: Rendered) => void
  readonly echo: (after: number, before: number | null, frame: string) => void
  readonly event: (frame: string) => void
  readonly close: (reason: CloseReason) => void
}

const OWN_REMEMBERED = 256

/**
 * One agent on this runner: single writer of its live sessions and of its cold
 * slots. Holds nothing that storage does not: sessions read on from their cursors,
 * slots are rows. Idle without sessions, it is forgotten.
 */
export class AgentActor {
  readonly id: string
  readonly sessions = new Set<LiveSession>()
  /** Reservations of one agent go one after the other, so that each counts what the one before took. */
  readonly outreach = Semaphore.makeUnsafe(1)
  private readonly own = new Set<string>()

  constructor(id: string) {
    this.id = id
  }

  tell(push: Push): void {
    if (this.sessions.size === 0) return
    switch (push._tag) {
      case "Hint":
        for (const session of this.sessions) session.hint(push.no, push.messageId, push.rendered)
        return
      case "Echo": {
        this.own.add(push.messageId)
        if (this.own.size > OWN_REMEMBERED) {
          for (const oldest of this.own) {
            this.own.delete(oldest)
            break
          }
        }
        const frame = `{"type":"message.new","payload":${messageJson(push.rendered, null)}}`
        for (const session of this.sessions) session.echo(push.after, push.before, frame)
        return
      }
      case "Event":
        for (const session of this.sessions) session.event(push.frame)
    }
  }

  /** Whether this is a recent message of the agent itself: an acknowledgement of it means nothing (wire.md E.4). */
  isOwn(messageId: string): boolean {
    return this.own.has(messageId)
  }

  disconnect(reason: CloseReason): void {
    for (const session of this.sessions) session.close(reason)
  }
}
