import { Effect, Exit } from "effect"
import { AgentNotFound, AgentSuspended } from "#domain/agents/Agent"
import {
  AgentRestricted,
  AwaitingReply,
  Blocked,
  type ColdCapExceeded,
  InboxRestricted,
  RecipientBacklogged
} from "#domain/messages/SendErrors"
import { exitOf, type Sending, SendQueue, type SendQueueDependencies } from "#domain/messages/SendQueue"
import type { Sent } from "#domain/messages/Sent"
import { iso } from "#ground/wire/Text"
import { Unauthorized, Unavailable } from "#ground/wire/WireError"
import { type Append, type Appended, decideSend, type DirectState } from "./Conversation.ts"
import type { SendCommand, SendFailure } from "./ConversationEntity.ts"
import type { BlockChange, LoadedDirect, OutreachFacts } from "./ConversationsRepo.ts"

/** The services that a conversation calls. */
export interface Dependencies extends SendQueueDependencies<Append, Appended> {
  readonly load: (conversationId: string, one: string, other: string) => Effect.Effect<LoadedDirect, Unavailable>
  readonly facts: (command: SendCommand, conversationId: string) => Effect.Effect<OutreachFacts | undefined, Unavailable>
  readonly reserve: (
    senderId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<void, ColdCapExceeded | Unavailable>
  readonly release: (senderId: string, conversationId: string) => Effect.Effect<void>
  /**
   * Checks that this file may be sent to this recipient. The first use of a file asks the file store: `asks` is called
   * with true before the request and with false after it.
   */
  readonly useAttachment: (
    senderId: string,
    recipientId: string,
    attachmentId: string,
    asks: (isAsked: boolean) => void
  ) => Effect.Effect<void, SendFailure>
  /** The sender's earlier message under this id, in its present state. */
  readonly original: (senderId: string, clientMsgId: string) => Effect.Effect<Sent | undefined, Unavailable>
  readonly backlogSoft: number
  readonly backlogHard: number
}

/** What the actor knows of its conversation. */
interface Known {
  epoch: number
  version: number
  state: DirectState
  /** Whether this owner has written, so that the row has its epoch. */
  claimed: boolean
}

interface Direct {
  readonly dependencies: Dependencies
  readonly command: SendCommand
  readonly state: Known
  readonly write: Append
  readonly outcome: Appended
  readonly failure: SendFailure
  readonly replay: never
}

/**
 * One direct conversation on this node: the single writer of its order and of whether it is cold or established.
 * `SendQueue` states what it shares with groups. It is rebuilt from its row and the pair's blocks, and each write tests
 * the row's epoch and version. A first message, the first write of a new owner and a change of the blocks are barriers.
 * Sends are safe to retry: equal client_msg_ids in flight share one result, and later ones find the stored key.
 */
export class ConversationActor extends SendQueue<Direct> {
  protected readonly maxAttempts = 5

  /** Runs the statement of a block between two sends. Each later send is decided on the resulting state. */
  block(statement: Effect.Effect<BlockChange, Unavailable>): Effect.Effect<BlockChange["outcome"], Unavailable> {
    return this.exclusive(Effect.map(statement, ({ fence, outcome }) => {
      const known = this.state
      if (fence !== null && known !== undefined) {
        if (fence.epoch === known.epoch && fence.version === known.version + 1) {
          known.state = { ...known.state, blocked: true }
          known.version = fence.version
        } else {
          // The row has changes that this actor has not seen.
          this.state = undefined
        }
      }
      return outcome
    }))
  }

  /** Runs the statement of an unblock between two sends. The next send reads the state. */
  unblock<A>(statement: Effect.Effect<A, Unavailable>): Effect.Effect<A, Unavailable> {
    return this.exclusive(Effect.tap(statement, () => Effect.sync(() => {
      this.state = undefined
    })))
  }

  protected load({ command: { recipient, sender } }: Sending<Direct>): Effect.Effect<Known, Unavailable> {
    return Effect.map(this.deps.load(this.id, sender.id, recipient.id), (loaded) => ({ ...loaded, claimed: false }))
  }

  protected decide(sending: Sending<Direct>, known: Known): void {
    const { recipient, sender } = sending.command
    const decision = decideSend(known.state, sender.id)
    switch (decision._tag) {
      case "Continue":
      case "Establish":
        return this.proceed(sending, known)
      case "Open":
        return this.open(sending, known)
      case "Blocked":
        return this.refuse(sending, new Blocked())
      case "AwaitingReply":
        return this.refuse(
          sending,
          new AwaitingReply({ details: { recipient_handle: recipient.handle, waiting_since: iso(decision.since) } })
        )
    }
  }

  /**
   * Handles a first message: checks all guards with one read, reserves the cold slot, then writes. The send is a
   * barrier meanwhile.
   */
  private open(sending: Sending<Direct>, known: Known): void {
    const { deps } = this
    const { command } = sending
    this.hold(sending)
    const ready = Effect.gen({ self: this }, function*() {
      const facts = yield* deps.facts(command, this.id)
      if (sending.callers.length === 0) return yield* new Unavailable()
      if (facts?.senderStatus === "suspended") return yield* new AgentSuspended()
      if (facts !== undefined && facts.replayOf !== null) return "replay" as const
      if (facts?.opened === true) return "reload" as const
      if (facts === undefined || facts.recipientDeleted) return yield* new AgentNotFound()
      if (facts.blocked) return yield* new Blocked()
      if (facts.senderStatus === "restricted") return yield* new AgentRestricted()
      if (facts.senderStatus === null) return yield* new Unauthorized()
      if (facts.inboxMode === "contacts_only" && !facts.isContact) {
        return yield* new InboxRestricted({ details: { recipient_handle: command.recipient.handle } })
      }
      yield* deps.reserve(command.sender.id, this.id, deps.now())
      if (!sending.attached) {
        yield* Effect.tapCause(this.checkAttachment(sending), () => deps.release(command.sender.id, this.id))
      }
      if (sending.callers.length === 0) {
        yield* deps.release(command.sender.id, this.id)
        return yield* new Unavailable()
      }
      if (facts.undelivered >= deps.backlogHard && !facts.recipientSuspended) {
        yield* deps.release(command.sender.id, this.id)
        return yield* new RecipientBacklogged({
          details: { recipient_handle: command.recipient.handle, undelivered_count: facts.undelivered }
        })
      }
      return "append" as const
    })
    this.run(sending, Effect.matchCause(ready, {
      onSuccess: (next) => {
        if (next === "append") {
          // The write raises the epoch. Its result lifts the barrier.
          known.claimed = false
          return this.append(sending, known)
        }
        if (next === "replay") this.replay(sending)
        else {
          // Another owner has stored the first message meanwhile.
          this.state = undefined
          this.retry(sending)
        }
        this.lift(sending)
      },
      onFailure: (cause) => {
        this.settle(sending, exitOf(cause))
        this.lift(sending)
      }
    }))
  }

  protected append(sending: Sending<Direct>, known: Known): void {
    const { deps } = this
    const { draft, recipient, sender } = sending.command
    const opens = known.state.initiatorId === null
    if (!known.claimed) this.hold(sending)
    this.commit(sending, {
      conversationId: this.id,
      epoch: known.epoch,
      nextEpoch: known.claimed ? known.epoch : known.epoch + 1,
      version: known.version,
      opens,
      establishes: !opens && !known.state.established,
      senderId: sender.id,
      recipientId: recipient.id,
      messageId: draft.messageId ?? deps.newMessageId(),
      at: deps.now(),
      draft,
      requestId: this.originOf(sending)
    }, known)
  }

  protected appended(
    sending: Sending<Direct>,
    append: Append,
    _known: Known,
    outcome: Appended,
    committedAt: number | undefined
  ): void {
    if (outcome._tag === "Stored") {
      this.advance(sending, append)
      this.stored(sending, append, {
        seq: outcome.seq,
        envelopes: [{ recipientId: append.recipientId, inboxNo: outcome.inboxNo }],
        senderLastInboxNo: outcome.senderLastInboxNo,
        senderNextInboxNo: outcome.senderNextInboxNo,
        group: null,
        backlog: outcome.undelivered >= this.deps.backlogSoft ? outcome.undelivered : null
      }, committedAt)
    } else if (append.opens) {
      // Release the slot before the next attempt. A later release would delete that attempt's reservation.
      return this.run(sending, Effect.map(this.deps.release(append.senderId, this.id), () => {
        this.rejected(sending, append, outcome)
        this.lift(sending)
      }))
    } else this.rejected(sending, append, outcome)
    this.lift(sending)
  }

  /** Brings the cached state up to date with a committed message. */
  private advance({ command: { sender } }: Sending<Direct>, append: Append): void {
    if (append.opens || append.establishes) this.overtake()
    const known = this.state
    if (known === undefined || append.nextEpoch < known.epoch) return
    known.epoch = append.nextEpoch
    known.claimed = true
    if (append.opens) known.state = { initiatorId: sender.id, createdAt: append.at, established: false, blocked: false }
    else if (append.establishes) known.state = { ...known.state, established: true }
  }

  private rejected(sending: Sending<Direct>, append: Append, outcome: Exclude<Appended, { _tag: "Stored" }>): void {
    const { recipient } = sending.command
    switch (outcome._tag) {
      case "Fenced":
        if (append.epoch === this.state?.epoch && append.version === this.state.version) this.state = undefined
        return this.retry(sending)
      case "Replayed":
        return this.replay(sending)
      case "SenderGone":
        return this.refuseSender(sending)
      case "RecipientGone":
        return this.refuse(sending, new AgentNotFound())
      case "Backlogged":
        return this.refuse(
          sending,
          new RecipientBacklogged({
            details: { recipient_handle: recipient.handle, undelivered_count: outcome.undelivered }
          })
        )
    }
  }

  /** Refuses a send after a look-up of its key. If the send is a replay, it gets the original message instead (wire.md C.6). */
  protected refuse(sending: Sending<Direct>, failure: SendFailure): void {
    this.ask(sending, this.deps.facts(sending.command, this.id), (facts) => {
      if (facts?.senderStatus === "suspended") return this.settle(sending, Exit.fail(new AgentSuspended()))
      if (facts !== undefined && facts.replayOf !== null) return this.replay(sending)
      const isOutdated = (failure._tag === "Blocked" && facts?.blocked === false) ||
        (failure._tag === "AwaitingReply" && facts?.established === true)
      if (isOutdated && sending.attempts + 1 < this.maxAttempts) {
        // Another owner has committed an unblock or a reply since the decision.
        this.state = undefined
        return this.retry(sending)
      }
      this.settle(sending, Exit.fail(weigh(sending.command, facts, failure)))
    })
  }

  private replay(sending: Sending<Direct>): void {
    const { draft, sender } = sending.command
    this.ask(sending, this.deps.original(sender.id, draft.clientMsgId), (sent) => {
      if (sent === undefined) this.giveUp(sending, "The key of a send is known, but its message cannot be found")
      else this.settle(sending, Exit.succeed(sent))
    })
  }

  protected isSenderDeleted({ command }: Sending<Direct>): Effect.Effect<boolean, Unavailable> {
    return Effect.map(this.deps.facts(command, this.id), (facts) => facts?.senderStatus === null)
  }

  protected useAttachment(
    { command: { recipient, sender } }: Sending<Direct>,
    attachmentId: string,
    asks: (isAsked: boolean) => void
  ): Effect.Effect<void, SendFailure> {
    return this.deps.useAttachment(sender.id, recipient.id, attachmentId, asks)
  }
}

/** Applies the guards that need storage, in the order of wire.md C.6. */
const weigh = (command: SendCommand, facts: OutreachFacts | undefined, failure: SendFailure): SendFailure => {
  if (facts === undefined || facts.recipientDeleted) return new AgentNotFound()
  if (facts.blocked) return new Blocked()
  if (failure._tag === "AwaitingReply" && facts.inboxMode === "contacts_only" && !facts.isContact) {
    return new InboxRestricted({ details: { recipient_handle: command.recipient.handle } })
  }
  return failure
}
