import { Cause, Effect, Exit } from "effect"
import { AgentNotFound, AgentSuspended } from "../agents/Agent.ts"
import { Unauthorized, Unavailable } from "../wire/WireError.ts"
import type { GroupCommit, Settled } from "../database/GroupCommit.ts"
import { forRequest, requestIdOf } from "../platform/RequestId.ts"
import { joinOrigin, recordSpan, type TraceContext, traceOf, traceTime } from "../platform/Tracing.ts"
import { Seldom } from "../platform/Seldom.ts"
import { iso } from "../wire/Text.ts"
import type { Append, Appended } from "./Append.ts"
import { decideSend, type DirectState } from "./Conversation.ts"
import {
  AgentRestricted,
  AwaitingReply,
  Blocked,
  type ColdCapExceeded,
  InboxRestricted,
  RecipientBacklogged
} from "../messages/SendErrors.ts"
import type { SendCommand, SendFailure } from "./ConversationEntity.ts"
import type { Sent } from "../messages/Sent.ts"
import type { BlockChange, LoadedDirect, OutreachFacts } from "./ConversationsRepo.ts"
import { messageJson, type Rendered, renderMessage, type StoredMessage } from "../messages/Message.ts"

/** The services that a conversation calls. */
export interface Dependencies {
  readonly appends: Omit<GroupCommit<Append, Appended>, "hurry">
  readonly now: () => number
  /** Milliseconds of a monotonic clock, to measure how long something has waited. */
  readonly monotonic: () => number
  readonly newMessageId: () => string
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
  /** Pushes a committed message to the recipient's sockets, and its echo to the sender's. */
  readonly publish: (stored: Published) => void
  readonly backlogSoft: number
  readonly backlogHard: number
  readonly fork: (effect: Effect.Effect<void>) => void
}

/** A message that has just been committed. */
export interface Published {
  readonly message: StoredMessage
  readonly rendered: Rendered
  readonly recipientId: string
  readonly inboxNo: number
  /** `null` if the message's place among those in the sender's inbox is unknown. */
  readonly senderLastInboxNo: number | null
  readonly senderNextInboxNo: number | null
  /** `performance.now()` */
  readonly committedAt: number | undefined
  readonly trace: TraceContext | undefined
}

type Result = Exit.Exit<Sent, SendFailure>

interface Waiting {
  readonly _tag: "Send"
  readonly command: SendCommand
  readonly key: string
  /** The request of this send: its id, its trace, and when it arrived (`traceTime`). */
  readonly requestId: string | null
  readonly trace: TraceContext | undefined
  readonly arrived: number
  /** Answers the callers of this send. Empty once they have timed out. */
  readonly settle: Array<(result: Result) => void>
  /**
   * When the last caller came or the file store answered, in monotonic milliseconds. Infinity during a request to the
   * file store.
   */
  since: number
  attempts: number
  /** Whether its attachment has been checked. */
  attached: boolean
}

/** A change of the pair's blocks. */
interface Change {
  readonly _tag: "Change"
  /** Runs the statement and applies its result. */
  readonly run: Effect.Effect<void>
  readonly fail: (exit: Exit.Exit<never, Unavailable>) => void
}

/** Returns the typed failure, Unavailable for an interruption, or undefined if there are only defects. */
const failureOf = <E>(cause: Cause.Cause<E>): E | Unavailable | undefined =>
  Cause.hasInterruptsOnly(cause) ? new Unavailable() : cause.reasons.find(Cause.isFailReason)?.error

/** Returns the caller's result: the typed failure, or the defect. A defect is logged where its request ends. */
const exitOf = <E>(cause: Cause.Cause<E>): Exit.Exit<never, E | Unavailable> => {
  const failure = failureOf(cause)
  return failure === undefined ? Exit.failCause(cause) : Exit.fail(failure)
}

const tell = (waiting: Waiting, result: Result): void => {
  for (const settle of waiting.settle.splice(0)) settle(result)
}

/** Limits the log lines about sends that are answered with 503, over all conversations. */
const givenUp = new Seldom()

/**
 * How often a send may be decided. It is decided again each time a write is refused because the conversation has a
 * newer state.
 */
const MAX_ATTEMPTS = 5

/**
 * One direct conversation on this node: the single writer of its order and of whether it is cold or established. It is
 * rebuilt from its row and the pair's blocks. Its memory is a cache: every write tests epoch and version (the fence),
 * so a stale cache does no harm. Sends join the group commit in order of arrival. A first message, the first write of a
 * new owner and a change of the blocks are barriers: later commands wait for them. Sends are safe to retry: equal
 * client_msg_ids in flight share one result, and later ones find the stored key. A defect ends only the command that
 * met it, and the actor then reads its state again.
 */
export class ConversationActor {
  readonly id: string
  private readonly deps: Dependencies
  private state: DirectState | undefined
  private epoch = 0
  private version = 0
  /** Whether this owner has written, so that the row has its epoch. */
  private claimed = false
  /** The command that runs alone now. Later commands wait in the queue. */
  private barrier: Waiting | Change | undefined
  /** Whether a write in flight has changed the row during a reload. */
  private overtaken = false
  private queue: Array<Waiting | Change> = []
  private inFlight = new Map<string, Waiting>()
  lastUsed = 0

  constructor(id: string, deps: Dependencies) {
    this.id = id
    this.deps = deps
  }

  get idle(): boolean {
    return this.inFlight.size === 0 && this.barrier === undefined
  }

  send(command: SendCommand): Effect.Effect<Sent, SendFailure> {
    return Effect.withFiber((fiber) => Effect.callback((resume) => {
      const key = `${command.sender.id} ${command.draft.clientMsgId}`
      const known = this.inFlight.get(key)
      if (known !== undefined) {
        known.settle.push((result) => resume(Exit.map(result, (sent) => ({ ...sent, created: false }))))
        known.since = Math.max(known.since, this.deps.monotonic())
        return
      }
      const requestId = requestIdOf(fiber) ?? null
      const trace = traceOf(fiber)
      const waiting: Waiting = {
        _tag: "Send",
        command,
        key,
        requestId,
        trace,
        arrived: trace === undefined ? 0 : traceTime(),
        settle: [resume],
        since: this.deps.monotonic(),
        attempts: 0,
        attached: false
      }
      this.inFlight.set(key, waiting)
      this.dispatch(waiting)
    }))
  }

  /**
   * Answers Unavailable to the callers of sends whose `since` is before this time. A send that is being committed goes
   * on. A send that is not decided yet is dropped.
   */
  giveUpCallers(before: number): void {
    for (const waiting of this.inFlight.values()) {
      if (waiting.since < before) tell(waiting, Exit.fail(new Unavailable()))
    }
  }

  /** Runs the statement of a block between two sends; every later send is decided on the resulting state. */
  block(statement: Effect.Effect<BlockChange, Unavailable>): Effect.Effect<BlockChange["outcome"], Unavailable> {
    return Effect.map(
      this.change(statement, ({ fence }) => {
        if (fence === null) return
        // Any other version means changes that this actor has not seen: read the state again.
        this.state = this.state !== undefined && fence.epoch === this.epoch && fence.version === this.version + 1
          ? { ...this.state, blocked: true }
          : undefined
        this.version = fence.version
      }),
      ({ outcome }) => outcome
    )
  }

  /** Runs the statement of an unblock between two sends; the next send reads the state again. */
  unblock<A>(statement: Effect.Effect<A, Unavailable>): Effect.Effect<A, Unavailable> {
    return this.change(statement, () => {
      this.state = undefined
    })
  }

  private change<A>(statement: Effect.Effect<A, Unavailable>, then: (value: A) => void): Effect.Effect<A, Unavailable> {
    return Effect.withFiber((fiber) => Effect.callback((resume) => {
      this.dispatch({
        _tag: "Change",
        run: Effect.matchCause(Effect.tap(forRequest(requestIdOf(fiber), statement), (value) => Effect.sync(() => then(value))), {
          onSuccess: (value) => resume(Effect.succeed(value)),
          onFailure: (cause) => {
            // Only the rows show whether the change was committed.
            this.state = undefined
            resume(exitOf(cause))
          }
        }),
        fail: resume
      })
    }))
  }

  private dispatch(waiting: Waiting | Change): void {
    try {
      this.take(waiting)
    } catch (defect) {
      this.broken(waiting, Cause.die(defect))
    }
  }

  /** Ends a command that met a defect, and lets the commands behind it go on. */
  private broken(waiting: Waiting | Change, cause: Cause.Cause<never>): void {
    this.state = undefined
    const at = this.queue.indexOf(waiting)
    if (at >= 0) this.queue.splice(at, 1)
    if (waiting._tag === "Change") waiting.fail(exitOf(cause))
    else this.settle(waiting, exitOf(cause))
    if (this.barrier === waiting) this.lift()
  }

  private take(waiting: Waiting | Change): void {
    this.lastUsed = this.deps.now()
    if (this.barrier !== undefined) {
      this.queue.push(waiting)
      return
    }
    if (waiting._tag === "Send" && waiting.settle.length === 0) {
      this.settle(waiting, Exit.fail(new Unavailable()))
      return
    }
    if (waiting._tag === "Change") {
      this.barrier = waiting
      this.deps.fork(Effect.andThen(waiting.run, Effect.sync(() => this.lift())))
      return
    }
    if (this.state === undefined) {
      this.queue.push(waiting)
      this.reload(waiting)
      return
    }
    const decision = decideSend(this.state, waiting.command.sender.id)
    switch (decision._tag) {
      case "Continue":
      case "Establish":
        if (waiting.command.draft.attachmentId !== undefined && !waiting.attached) this.attach(waiting)
        else this.append(waiting, { opens: false, establishes: decision._tag === "Establish" })
        return
      case "Open":
        this.open(waiting)
        return
      case "Blocked":
        this.refuse(waiting, new Blocked())
        return
      case "AwaitingReply": {
        const { recipient } = waiting.command
        this.refuse(
          waiting,
          new AwaitingReply({ details: { recipient_handle: recipient.handle, waiting_since: iso(decision.since) } })
        )
      }
    }
  }

  private reload(waiting: Waiting): void {
    const { recipient, sender } = waiting.command
    this.barrier = waiting
    this.overtaken = false
    this.fork(waiting, Effect.matchCause(this.deps.load(this.id, sender.id, recipient.id), {
      onSuccess: (loaded) => {
        if (this.overtaken) return this.reload(waiting)
        this.state = loaded.state
        this.epoch = loaded.epoch
        this.version = loaded.version
        this.claimed = false
        this.lift()
      },
      onFailure: (cause) => {
        const failure = failureOf(cause)
        // A defect ends only this command: the next one in the queue loads the state itself.
        if (failure === undefined) return this.broken(waiting, cause as Cause.Cause<never>)
        const queued = this.queue
        this.queue = []
        this.barrier = undefined
        for (const one of queued) {
          if (one._tag === "Change") one.fail(Exit.fail(failure))
          else this.settle(one, Exit.fail(failure))
        }
      }
    }))
  }

  private lift(): void {
    this.barrier = undefined
    const queued = this.queue
    this.queue = []
    for (const waiting of queued) this.dispatch(waiting)
  }

  /** Checks the send's file while other sends go on, then decides the send again. */
  private attach(waiting: Waiting): void {
    this.fork(waiting, Effect.matchCause(this.useAttachment(waiting), {
      onSuccess: () => {
        waiting.attached = true
        this.dispatch(waiting)
      },
      onFailure: (cause) => {
        const failure = failureOf(cause)
        if (failure === undefined) this.settle(waiting, exitOf(cause))
        else this.refuse(waiting, failure)
      }
    }))
  }

  /** Checks the attachment. The send's callers do not time out during a request to the file store. */
  private useAttachment(waiting: Waiting): Effect.Effect<void, SendFailure> {
    const { draft, recipient, sender } = waiting.command
    return this.deps.useAttachment(sender.id, recipient.id, draft.attachmentId ?? "", (isAsked) => {
      waiting.since = isAsked ? Number.POSITIVE_INFINITY : this.deps.monotonic()
    })
  }

  private append(waiting: Waiting, kind: { readonly opens: boolean; readonly establishes: boolean }): void {
    const { deps } = this
    const { draft, recipient, sender } = waiting.command
    const claims = !this.claimed
    if (claims) this.barrier = waiting
    const append: Append = {
      conversationId: this.id,
      epoch: this.epoch,
      nextEpoch: claims ? this.epoch + 1 : this.epoch,
      version: this.version,
      opens: kind.opens,
      establishes: kind.establishes,
      senderId: sender.id,
      recipientId: recipient.id,
      messageId: draft.messageId ?? deps.newMessageId(),
      at: deps.now(),
      draft,
      requestId: joinOrigin(waiting.requestId, waiting.trace)
    }
    recordSpan(waiting.trace, "decide", waiting.arrived)
    deps.appends.submit(append, (settled) => this.appended(waiting, append, settled), deps.monotonic() - waiting.since, waiting.trace)
  }

  private appended(waiting: Waiting, append: Append, settled: Settled<Appended>): void {
    const claims = append.epoch !== append.nextEpoch
    if (settled._tag === "Failed") {
      // Only the row shows whether the message was stored. A retry finds its key.
      this.state = undefined
      this.settle(waiting, settled.exit)
    } else {
      const outcome = settled.value
      if (outcome._tag === "Stored") this.stored(waiting, append, outcome, settled.at)
      else if (append.opens) {
        // Release the slot before the next attempt. A later release would delete that attempt's reservation.
        this.fork(waiting, Effect.andThen(
          this.deps.release(append.senderId, this.id),
          Effect.sync(() => {
            this.refused(waiting, append, outcome)
            this.lift()
          })
        ))
        return
      } else this.refused(waiting, append, outcome)
    }
    if (claims && this.barrier === waiting) this.lift()
  }

  private stored(waiting: Waiting, append: Append, outcome: Extract<Appended, { _tag: "Stored" }>, committedAt: number | undefined): void {
    const { sender } = waiting.command
    if (append.opens || append.establishes) this.overtaken = true
    if (append.nextEpoch >= this.epoch) {
      this.epoch = append.nextEpoch
      this.claimed = true
      if (append.opens) {
        this.state = { initiatorId: sender.id, createdAt: append.at, established: false, blocked: false }
      } else if (append.establishes && this.state !== undefined) {
        this.state = { ...this.state, established: true }
      }
    }
    const message: StoredMessage = {
      id: append.messageId,
      conversationId: this.id,
      seq: outcome.seq,
      senderId: sender.id,
      clientMsgId: append.draft.clientMsgId,
      type: append.draft.type,
      content: append.draft.content,
      metadata: append.draft.metadata,
      createdAt: append.at
    }
    const rendered = renderMessage(message, {
      senderHandle: sender.handle,
      senderDisplayName: sender.displayName,
      group: null
    })
    this.deps.publish({
      message,
      rendered,
      recipientId: append.recipientId,
      inboxNo: outcome.inboxNo,
      senderLastInboxNo: outcome.senderLastInboxNo,
      senderNextInboxNo: outcome.senderNextInboxNo,
      committedAt,
      trace: waiting.trace
    })
    this.settle(
      waiting,
      Exit.succeed({
        created: true,
        body: messageJson(rendered, null),
        backlog: outcome.undelivered >= this.deps.backlogSoft ? outcome.undelivered : null
      })
    )
  }

  private refused(waiting: Waiting, append: Append, outcome: Exclude<Appended, { _tag: "Stored" }>): void {
    const { recipient } = waiting.command
    switch (outcome._tag) {
      case "Fenced":
        if (append.epoch === this.epoch && append.version === this.version) this.state = undefined
        if (++waiting.attempts >= MAX_ATTEMPTS) this.giveUp(waiting, "Another owner changed the conversation each time a send was decided")
        else this.dispatch(waiting)
        return
      case "Replayed":
        this.replay(waiting)
        return
      case "SenderGone":
        this.turnAway(waiting)
        return
      case "RecipientGone":
        this.refuse(waiting, new AgentNotFound())
        return
      case "Backlogged":
        this.refuse(
          waiting,
          new RecipientBacklogged({
            details: { recipient_handle: recipient.handle, undelivered_count: outcome.undelivered }
          })
        )
    }
  }

  /**
   * Refuses a send because its sender was suspended or deleted meanwhile. Replays are refused for this reason only
   * (wire.md C.6).
   */
  private turnAway(waiting: Waiting): void {
    this.fork(waiting, Effect.matchCause(this.deps.facts(waiting.command, this.id), {
      onSuccess: (facts) =>
        this.settle(waiting, Exit.fail(facts?.senderStatus === null ? new Unauthorized() : new AgentSuspended())),
      onFailure: (cause) => this.settle(waiting, exitOf(cause))
    }))
  }

  /** Refuses a send after a look-up of its key. If the send is a replay, it gets the original message instead (wire.md C.6). */
  private refuse(waiting: Waiting, failure: SendFailure): void {
    this.fork(waiting, Effect.matchCause(this.deps.facts(waiting.command, this.id), {
      onSuccess: (facts) => {
        if (facts?.senderStatus === "suspended") return this.settle(waiting, Exit.fail(new AgentSuspended()))
        if (facts !== undefined && facts.replayOf !== null) return this.replay(waiting)
        const overtaken = (failure._tag === "Blocked" && facts?.blocked === false) ||
          (failure._tag === "AwaitingReply" && facts?.established === true)
        if (overtaken && ++waiting.attempts < MAX_ATTEMPTS) {
          // Another owner has committed an unblock or a reply since the decision.
          this.state = undefined
          return this.dispatch(waiting)
        }
        this.settle(waiting, Exit.fail(this.weigh(waiting.command, facts, failure)))
      },
      onFailure: (cause) => this.settle(waiting, exitOf(cause))
    }))
  }

  private replay(waiting: Waiting): void {
    const { draft, sender } = waiting.command
    this.fork(waiting, Effect.matchCause(this.deps.original(sender.id, draft.clientMsgId), {
      onSuccess: (sent) => {
        if (sent === undefined) this.giveUp(waiting, "The key of a send is known, but its message cannot be found")
        else this.settle(waiting, Exit.succeed(sent))
      },
      onFailure: (cause) => this.settle(waiting, exitOf(cause))
    }))
  }

  private giveUp(waiting: Waiting, why: string): void {
    this.settle(waiting, Exit.fail(new Unavailable()))
    this.deps.fork(forRequest(waiting.requestId, givenUp.log(Effect.logWarning(`${why}: the send is answered with 503`))))
  }

  /** Applies the guards that need storage, in the order of wire.md C.6. */
  private weigh(command: SendCommand, facts: OutreachFacts | undefined, failure: SendFailure): SendFailure {
    if (facts === undefined || facts.recipientDeleted) return new AgentNotFound()
    if (facts.blocked) return new Blocked()
    if (failure._tag === "AwaitingReply" && facts.inboxMode === "contacts_only" && !facts.isContact) {
      return new InboxRestricted({ details: { recipient_handle: command.recipient.handle } })
    }
    return failure
  }

  /**
   * Handles a first message: checks all guards with one read, reserves the cold slot, then writes. The send is a
   * barrier meanwhile.
   */
  private open(waiting: Waiting): void {
    const { deps } = this
    const { command } = waiting
    this.barrier = waiting
    const ready = Effect.gen({ self: this }, function*() {
      const facts = yield* deps.facts(command, this.id)
      if (waiting.settle.length === 0) return yield* new Unavailable()
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
      if (command.draft.attachmentId !== undefined) {
        yield* Effect.tapCause(
          this.useAttachment(waiting),
          () => deps.release(command.sender.id, this.id)
        )
      }
      if (waiting.settle.length === 0) {
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
    this.fork(waiting, Effect.matchCause(ready, {
      onSuccess: (next) => {
        if (next === "append") {
          // The write itself raises the epoch, and lifts the barrier when it is done.
          this.claimed = false
          this.append(waiting, { opens: true, establishes: false })
        } else if (next === "reload") {
          // Another owner has stored the first message meanwhile.
          this.state = undefined
          this.queue.unshift(waiting)
          this.lift()
        } else {
          this.replay(waiting)
          this.lift()
        }
      },
      onFailure: (cause) => {
        this.settle(waiting, exitOf(cause))
        this.lift()
      }
    }))
  }

  private fork(waiting: Waiting, effect: Effect.Effect<void>): void {
    this.deps.fork(forRequest(
      waiting.requestId,
      Effect.catchCause(effect, (cause) => Effect.sync(() => this.broken(waiting, cause)))
    ))
  }

  private settle(waiting: Waiting, result: Result): void {
    if (this.inFlight.get(waiting.key) === waiting) {
      // Use a new map: the table of a long-lived map references old entries until a full garbage collection
      // (http/UnderWay.ts).
      if (this.inFlight.size === 1) this.inFlight = new Map()
      else this.inFlight.delete(waiting.key)
    }
    if (waiting.settle.length === 0 && Exit.isFailure(result) && Cause.hasDies(result.cause)) {
      this.deps.fork(forRequest(waiting.requestId, Effect.logError("A send failed after its callers had timed out", result.cause)))
    }
    tell(waiting, result)
  }
}
