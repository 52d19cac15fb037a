import { Cause, Effect, Exit } from "effect"
import { AgentSuspended } from "#domain/agents/Agent"
import type { CommitQueue, Settled } from "#ground/database/CommitQueue"
import { LogThrottle } from "#ground/platform/LogThrottle"
import { forRequest, requestIdOf } from "#ground/platform/RequestId"
import { forTrace, joinOrigin, recordSpan, type TraceContext, traceOf, traceTime } from "#ground/platform/Tracing"
import { Unauthorized, Unavailable } from "#ground/wire/WireError"
import {
  type Draft,
  type MessageSender,
  messageJson,
  renderMessage,
  sentMessage,
  type ShownContext
} from "./Message.ts"
import type { Published } from "./Published.ts"
import type { Sent } from "./Sent.ts"

/** The services that every queue of sends calls. */
export interface SendQueueDependencies<Append, Appended> {
  readonly appends: Pick<CommitQueue<Append, Appended>, "submit">
  readonly now: () => number
  /** Milliseconds of a monotonic clock, to measure how long something has waited. */
  readonly monotonic: () => number
  readonly newMessageId: () => string
  /** Pushes a committed message to the recipients' sockets, and its echo to the sender's. */
  readonly publish: (published: Published) => void
  readonly fork: (effect: Effect.Effect<void>) => void
}

/** A message as its batch stored it. */
export interface Stored extends Pick<Published, "envelopes" | "senderLastInboxNo" | "senderNextInboxNo"> {
  readonly seq: number
  /** The group that the message shows; `null` for a direct message. */
  readonly group: ShownContext["group"]
  /** As in `ShownContext`. */
  readonly mentions?: ReadonlyArray<string>
  /** As in `Sent`. */
  readonly backlog: number | null
}

/** The part of a write that is common to direct conversations and groups. */
interface Write {
  readonly messageId: string
  readonly at: number
}

/** The types in which direct conversations and groups differ. */
export interface SendKind {
  readonly dependencies: object
  readonly command: { readonly sender: typeof MessageSender.Type; readonly draft: Draft }
  /** What decisions are made on. */
  readonly state: unknown
  /** One item of the batch statement, and its result. */
  readonly write: Write
  readonly outcome: unknown
  readonly failure: unknown
  /** `null` if callers look up replays themselves, otherwise `never`. */
  readonly replay: null
}

/** The failures that every send may have. */
type Common = Unauthorized | AgentSuspended | Unavailable

type Failure<K extends SendKind> = K["failure"] | Common
type Result<K extends SendKind> = Exit.Exit<Sent | K["replay"], Failure<K>>

/** A send in progress. */
export interface Sending<K extends SendKind> {
  readonly _tag: "Send"
  readonly command: K["command"]
  readonly key: string
  /** The request of this send: its id, its trace, and when it arrived (`traceTime`). */
  readonly requestId: string | null
  readonly trace: TraceContext | undefined
  readonly arrived: number
  /** Answers the callers of this send. Empty once they have timed out or disconnected. */
  readonly callers: Array<(result: Result<K>) => void>
  /**
   * When the last caller came or the file store answered, in monotonic milliseconds. Infinity during a request to the
   * file store.
   */
  since: number
  /** How often the decision on this send was outdated. */
  attempts: number
  /** Whether the attachment has been checked. */
  attached: boolean
  /** Gives back what the send has taken from a rate window. Undefined if it has taken nothing. */
  giveBack: (() => void) | undefined
}

/** A command that runs while no send is decided. */
interface Exclusive {
  readonly _tag: "Exclusive"
  /** Runs the command and answers its caller. */
  readonly run: Effect.Effect<void>
  readonly fail: (exit: Exit.Exit<never, Unavailable>) => void
}

/** Returns the typed failure, Unavailable for an interruption, or undefined if there are only defects. */
const failureOf = <E>(cause: Cause.Cause<E>): E | Unavailable | undefined =>
  Cause.hasInterruptsOnly(cause) ? new Unavailable() : cause.reasons.find(Cause.isFailReason)?.error

/** Returns the caller's result: the typed failure, or the defect. A defect is logged where its request ends. */
export const exitOf = <E>(cause: Cause.Cause<E>): Exit.Exit<never, E | Unavailable> => {
  const failure = failureOf(cause)
  return failure === undefined ? Exit.failCause(cause) : Exit.fail(failure)
}

/** Returns what a later caller with the same key gets. */
const asRepeat = <Replay extends null>(answer: Sent | Replay): Sent | Replay =>
  answer === null ? answer : { ...answer, created: false }

/** Limits the log lines about commands that are answered with 503, over all conversations. */
const outdated = new LogThrottle()

/** Logs why a command is answered with 503. */
export const logUnavailable = (why: string): Effect.Effect<void> => outdated.log(Effect.logWarning(`${why}: the command is answered with 503`))

/** The reason if each decision on a command was outdated when it was written. */
export const CHANGED_EACH_TIME = "The conversation changed each time a command was decided"

/**
 * The sends of one conversation on the node that owns it. `ConversationActor` and `GroupActor` extend it with their
 * state, their decisions and their writes. The queue is the single writer of the conversation's order on this node:
 *
 * - Sends are decided on the cached state in order of arrival, and join the group commit in that order. They do not
 *   wait for the commits of others.
 * - One command at a time may be a barrier: a read of the state, an exclusive command, or a send that its actor holds
 *   (`hold`). Commands that arrive meanwhile wait in the queue. Commits in flight go on.
 * - The state is a cache. Each write tests it on the locked row (the fence), and a fenced send is decided again.
 * - Sends of one sender with the same client_msg_id that are in flight share one result. Later callers get
 *   `created: false`.
 * - A send whose callers have timed out or disconnected is dropped, unless it is being committed. An exclusive command
 *   whose caller has disconnected is dropped while it waits, and runs to its end once it has begun.
 * - A message is published after its commit and before its callers are answered.
 * - A defect ends only the command that met it, and the state is read again. If the state cannot be read, all commands
 *   in the queue fail.
 */
export abstract class SendQueue<K extends SendKind> {
  readonly id: string
  /** When the last command was dispatched, in milliseconds. */
  lastUsed = 0
  protected readonly deps: SendQueueDependencies<K["write"], K["outcome"]> & K["dependencies"]
  /** Undefined if the state must be read before the next decision. */
  protected state: K["state"] | undefined
  private barrier: Sending<K> | Exclusive | undefined
  /** Whether a commit has changed the row during a read of the state. */
  private overtaken = false
  private queue: Array<Sending<K> | Exclusive> = []
  private inFlight = new Map<string, Sending<K>>()

  constructor(id: string, deps: SendQueueDependencies<K["write"], K["outcome"]> & K["dependencies"]) {
    this.id = id
    this.deps = deps
  }

  /** How often a command may be decided. */
  protected abstract readonly maxAttempts: number

  /** Reads the state. */
  protected abstract load(sending: Sending<K>): Effect.Effect<K["state"], Unavailable>

  /** Decides a send, and hands it to `proceed`, `refuse` or `retry`. */
  protected abstract decide(sending: Sending<K>, state: K["state"]): void

  /** Writes a send that the decision allows, with `commit`. */
  protected abstract append(sending: Sending<K>, state: K["state"]): void

  /** Handles the result of a write, and hands the send to `stored`, `retry`, `refuseSender`, `refuse` or `settle`. */
  protected abstract appended(
    sending: Sending<K>,
    write: K["write"],
    state: K["state"],
    outcome: K["outcome"],
    committedAt: number | undefined
  ): void

  /** Answers a send with a failure, or with the original message if the send is a replay. */
  protected abstract refuse(sending: Sending<K>, failure: Failure<K>): void

  /** Whether the account of a sender that may not write is deleted. The account is suspended otherwise. */
  protected abstract isSenderDeleted(sending: Sending<K>): Effect.Effect<boolean, Unavailable>

  /**
   * Checks that the attachment may be sent. The first use of a file asks the file store: `asks` is called with true
   * before the request and with false after it.
   */
  protected abstract useAttachment(
    sending: Sending<K>,
    attachmentId: string,
    asks: (isAsked: boolean) => void
  ): Effect.Effect<void, Failure<K>>

  /** Whether the actor can be removed from memory. */
  get idle(): boolean {
    return this.inFlight.size === 0 && this.barrier === undefined
  }

  send(command: K["command"]): Effect.Effect<Sent | K["replay"], Failure<K>> {
    return Effect.withFiber((fiber) => Effect.callback((resume) => {
      const key = `${command.sender.id} ${command.draft.clientMsgId}`
      const known = this.inFlight.get(key)
      if (known !== undefined) {
        known.since = Math.max(known.since, this.deps.monotonic())
        return this.join(known, (result) => resume(Exit.map(result, asRepeat<K["replay"]>)))
      }
      const trace = traceOf(fiber)
      const sending: Sending<K> = {
        _tag: "Send",
        command,
        key,
        requestId: requestIdOf(fiber) ?? null,
        trace,
        arrived: trace === undefined ? 0 : traceTime(),
        callers: [],
        since: this.deps.monotonic(),
        attempts: 0,
        attached: command.draft.attachmentId === undefined,
        giveBack: undefined
      }
      const leave = this.join(sending, resume)
      this.inFlight.set(key, sending)
      this.dispatch(sending)
      return leave
    }))
  }

  /** Adds a caller to a send. Returns the effect that removes a caller that is interrupted. */
  private join({ callers }: Sending<K>, caller: (result: Result<K>) => void): Effect.Effect<void> {
    callers.push(caller)
    return Effect.sync(() => {
      const at = callers.indexOf(caller)
      if (at >= 0) callers.splice(at, 1)
    })
  }

  /**
   * Answers Unavailable to the callers of sends whose `since` is before this time. A send that is being committed goes
   * on. A send that is not decided yet is dropped.
   */
  timeOutCallers(before: number): void {
    for (const sending of this.inFlight.values()) {
      if (sending.since < before) this.answer(sending, Exit.fail(new Unavailable()))
    }
  }

  /**
   * Runs a command between two sends: earlier sends are decided before it, and later sends are decided on the state
   * that it leaves. If it fails, the next send reads the state, because only the rows show what was committed.
   */
  protected exclusive<A, E>(command: Effect.Effect<A, E>): Effect.Effect<A, E | Unavailable> {
    return Effect.withFiber((fiber) => Effect.callback((resume) => {
      const exclusive: Exclusive = {
        _tag: "Exclusive",
        run: Effect.matchCause(forTrace(traceOf(fiber), forRequest(requestIdOf(fiber), command)), {
          onSuccess: (value) => resume(Effect.succeed(value)),
          onFailure: (cause) => {
            this.state = undefined
            resume(exitOf(cause))
          }
        }),
        fail: resume
      }
      this.dispatch(exclusive)
      return Effect.sync(() => this.unqueue(exclusive))
    }))
  }

  /** Removes a command from the queue if it waits there. */
  private unqueue(command: Sending<K> | Exclusive): void {
    const at = this.queue.indexOf(command)
    if (at >= 0) this.queue.splice(at, 1)
  }

  /** Makes later commands wait for this send until `lift`. */
  protected hold(sending: Sending<K>): void {
    this.barrier = sending
  }

  /** Ends the barrier of this command, if it is one, and dispatches the commands that waited for it. */
  protected lift(command: Sending<K> | Exclusive): void {
    if (this.barrier !== command) return
    this.barrier = undefined
    const queued = this.queue
    this.queue = []
    for (const waiting of queued) this.dispatch(waiting)
  }

  private dispatch(command: Sending<K> | Exclusive): void {
    try {
      this.take(command)
    } catch (defect) {
      this.failed(command, Cause.die(defect))
    }
  }

  /** Ends a command that met a defect, and lets the commands behind it go on. */
  private failed(command: Sending<K> | Exclusive, cause: Cause.Cause<never>): void {
    this.state = undefined
    this.unqueue(command)
    if (command._tag === "Exclusive") command.fail(exitOf(cause))
    else this.settle(command, exitOf(cause))
    this.lift(command)
  }

  private take(command: Sending<K> | Exclusive): void {
    this.lastUsed = this.deps.now()
    if (this.barrier !== undefined) this.queue.push(command)
    else if (command._tag === "Exclusive") {
      this.barrier = command
      this.deps.fork(Effect.andThen(command.run, Effect.sync(() => this.lift(command))))
    } else if (command.callers.length === 0) this.settle(command, Exit.fail(new Unavailable()))
    else if (this.state === undefined) {
      this.queue.push(command)
      this.reload(command)
    } else this.decide(command, this.state)
  }

  private reload(sending: Sending<K>): void {
    this.barrier = sending
    this.overtaken = false
    this.run(sending, Effect.matchCause(this.load(sending), {
      onSuccess: (state) => {
        if (this.overtaken) return this.reload(sending)
        this.state = state
        this.lift(sending)
      },
      onFailure: (cause) => {
        const failure = failureOf(cause)
        // A defect ends only this command. The next command in the queue loads the state itself.
        if (failure === undefined) return this.failed(sending, cause as Cause.Cause<never>)
        const queued = this.queue
        this.queue = []
        this.barrier = undefined
        for (const one of queued) {
          if (one._tag === "Exclusive") one.fail(Exit.fail(failure))
          else this.settle(one, Exit.fail(failure))
        }
      }
    }))
  }

  /** Makes a read of the state that is in progress start over, because a commit has changed the row. */
  protected overtake(): void {
    this.overtaken = true
  }

  /** Goes on with a send that the decision allows: first its attachment, then its write. */
  protected proceed(sending: Sending<K>, state: K["state"]): void {
    if (sending.attached) return this.append(sending, state)
    // Other sends go on meanwhile, so this one is decided again after the check.
    this.run(sending, Effect.matchCause(this.checkAttachment(sending), {
      onSuccess: () => {
        sending.attached = true
        this.dispatch(sending)
      },
      onFailure: (cause) => {
        const failure = failureOf(cause)
        if (failure === undefined) this.settle(sending, exitOf(cause))
        else this.refuse(sending, failure)
      }
    }))
  }

  /** Checks the attachment. The send's callers do not time out during a request to the file store. */
  protected checkAttachment(sending: Sending<K>): Effect.Effect<void, Failure<K>> {
    return this.useAttachment(sending, sending.command.draft.attachmentId ?? "", (isAsked) => {
      sending.since = isAsked ? Number.POSITIVE_INFINITY : this.deps.monotonic()
    })
  }

  /** The request that causes a write, as the outbox keeps it. */
  protected originOf({ requestId, trace }: Sending<K>): string | null {
    return joinOrigin(requestId, trace)
  }

  /** Hands a write to the group commit. Its result goes to `appended`. */
  protected commit(sending: Sending<K>, write: K["write"], state: K["state"]): void {
    recordSpan(sending.trace, "decide", sending.arrived)
    this.deps.appends.submit(
      write,
      (settled) => this.committed(sending, write, state, settled),
      this.deps.monotonic() - sending.since,
      sending.trace
    )
  }

  private committed(sending: Sending<K>, write: K["write"], state: K["state"], settled: Settled<K["outcome"]>): void {
    if (settled._tag === "Done") return this.appended(sending, write, state, settled.value, settled.at)
    // Only the row shows whether the message was stored. A retry finds its key.
    this.state = undefined
    this.settle(sending, settled.exit)
    this.lift(sending)
  }

  /** Publishes a message that was stored, then answers its callers. */
  protected stored(sending: Sending<K>, { at, messageId }: K["write"], stored: Stored, committedAt: number | undefined): void {
    const { draft, sender } = sending.command
    const place = { id: messageId, conversationId: this.id, seq: stored.seq, senderId: sender.id, createdAt: at }
    const message = sentMessage(draft, place)
    const rendered = renderMessage(message, {
      senderHandle: sender.handle,
      senderDisplayName: sender.displayName,
      group: stored.group,
      mentions: stored.mentions
    })
    this.deps.publish({
      message,
      rendered,
      envelopes: stored.envelopes,
      senderLastInboxNo: stored.senderLastInboxNo,
      senderNextInboxNo: stored.senderNextInboxNo,
      committedAt,
      trace: sending.trace
    })
    this.settle(sending, Exit.succeed({ created: true, body: messageJson(rendered, null), backlog: stored.backlog }))
  }

  /** Decides a send again because its decision was outdated, `maxAttempts` times at most. */
  protected retry(sending: Sending<K>): void {
    if (++sending.attempts >= this.maxAttempts) this.giveUp(sending, CHANGED_EACH_TIME)
    // The commands in the queue arrived after the send that they wait for.
    else if (this.barrier === sending) this.queue.unshift(sending)
    else this.dispatch(sending)
  }

  /** Answers a send with Unavailable, and logs why. */
  protected giveUp(sending: Sending<K>, why: string): void {
    this.settle(sending, Exit.fail(new Unavailable()))
    this.deps.fork(forRequest(sending.requestId, logUnavailable(why)))
  }

  /**
   * Refuses a send because its sender was suspended or deleted meanwhile. Replays are refused for this reason only
   * (wire.md C.6).
   */
  protected refuseSender(sending: Sending<K>): void {
    this.ask(sending, this.isSenderDeleted(sending), (isDeleted) =>
      this.settle(sending, Exit.fail(isDeleted ? new Unauthorized() : new AgentSuspended())))
  }

  /** Goes on with the answer to a question that a send waits for. If there is no answer, the send fails. */
  protected ask<A>(sending: Sending<K>, question: Effect.Effect<A, Failure<K>>, then: (answer: A) => void): void {
    this.run(sending, Effect.matchCause(question, {
      onSuccess: then,
      onFailure: (cause) => this.settle(sending, exitOf(cause))
    }))
  }

  /** Runs an effect for a send. A defect of the effect ends the send. */
  protected run(sending: Sending<K>, effect: Effect.Effect<void>): void {
    this.deps.fork(forRequest(
      sending.requestId,
      Effect.catchCause(effect, (cause) => Effect.sync(() => this.failed(sending, cause)))
    ))
  }

  /** Ends a send and answers its callers. */
  protected settle(sending: Sending<K>, result: Result<K>): void {
    if (this.inFlight.get(sending.key) === sending) {
      // Use a new map: the table of a long-lived map references old entries until a full garbage collection
      // (http/SlotList.ts).
      if (this.inFlight.size === 1) this.inFlight = new Map()
      else this.inFlight.delete(sending.key)
    }
    if (sending.callers.length === 0 && Exit.isFailure(result) && Cause.hasDies(result.cause)) {
      this.deps.fork(forRequest(
        sending.requestId,
        Effect.logError("A send failed after its callers had timed out or disconnected", result.cause)
      ))
    }
    this.answer(sending, result)
  }

  private answer({ callers }: Sending<K>, result: Result<K>): void {
    for (const caller of callers.splice(0)) caller(result)
  }
}
