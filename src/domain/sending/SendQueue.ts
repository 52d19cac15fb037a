import { AgentSuspended } from "#domain/agents/Agent"
import { messageJson, renderMessage, sentMessage } from "#domain/messages/Message"
import type { Published } from "#domain/messages/Published"
import type { CommitQueue, Settled } from "#infrastructure/database/CommitQueue"
import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { forRequest, requestIdOf } from "#infrastructure/platform/RequestId"
import {
  forTrace,
  joinOrigin,
  recordSpan,
  type TraceContext,
  traceOf,
  traceTime
} from "#infrastructure/platform/Tracing"
import { Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Effect, Exit } from "effect"
import type { Checked, Decision, SendKind, SendTypes, Settlement, Stored, Verdict } from "./SendKind.ts"
import type { Sent } from "./Sent.ts"

/** The functions and services that every queue of sends uses. */
export interface SendQueueDependencies<Append, Appended> {
  readonly appends: Pick<CommitQueue<Append, Appended>, "submit">
  readonly now: () => number
  /** Milliseconds of a monotonic clock, to measure how long callers have waited. */
  readonly monotonic: () => number
  readonly newMessageId: () => string
  /** Pushes a committed message to the sockets of the recipients, and its echo to the sockets of the sender. */
  readonly publish: (published: Published) => void
  readonly fork: (effect: Effect.Effect<void>) => void
}

/** The failures that every send can have. */
type Common = Unauthorized | AgentSuspended | Unavailable

type Failure<K extends SendTypes> = K["failure"] | Common
type Result<K extends SendTypes> = Exit.Exit<Sent | K["replay"], Failure<K>>

/** A send in progress. */
export interface Sending<K extends SendTypes> {
  readonly _tag: "Send"
  readonly command: K["command"]
  readonly key: string
  /** The request that caused this send: its id, its trace and its time of arrival (`traceTime`). */
  readonly requestId: string | null
  readonly trace: TraceContext | undefined
  readonly arrived: number
  /**
   * The callers of this send, each a function that takes the result. Empty after all of them have timed out or
   * disconnected.
   */
  readonly callers: Array<(result: Result<K>) => void>
  /**
   * When the last caller joined or the file store responded, in monotonic milliseconds. Infinity during a request to
   * the file store.
   */
  since: number
  /** How many decisions on this send turned out to be outdated. */
  attempts: number
  /** Whether the attachment has been checked. */
  attached: boolean
  /** Releases the slot in the rate window. Undefined if the send has taken none. */
  refund: (() => void) | undefined
}

/** A command that runs while no send is decided. */
interface Exclusive {
  readonly _tag: "Exclusive"
  /** Runs the command and passes the result to its caller. */
  readonly run: Effect.Effect<void>
  /** When the command was dispatched, in monotonic milliseconds. */
  readonly since: number
  readonly fail: (exit: Exit.Exit<never, Unavailable>) => void
}

/** Returns the typed failure, Unavailable for an interruption, or undefined if there are only defects. */
const failureOf = <E>(cause: Cause.Cause<E>): E | Unavailable | undefined =>
  Cause.hasInterruptsOnly(cause) ? new Unavailable() : cause.reasons.find(Cause.isFailReason)?.error

/** Returns the result for the caller: the typed failure, or the defect. A defect is logged where the request ends. */
export const exitOf = <E>(cause: Cause.Cause<E>): Exit.Exit<never, E | Unavailable> => {
  const failure = failureOf(cause)
  return failure === undefined ? Exit.failCause(cause) : Exit.fail(failure)
}

/** Returns the result for a later caller with the same key. */
const asRepeat = <Replay extends null>(answer: Sent | Replay): Sent | Replay =>
  answer === null ? answer : { ...answer, created: false }

/** Limits the log lines of all conversations about commands that fail with 503. */
const outdated = new LogThrottle()

/** Logs why a command fails with 503. */
export const logUnavailable = (why: string): Effect.Effect<void> =>
  outdated.log(Effect.logWarning(`${why}: the command is answered with 503`))

/** The reason that is logged if every decision on a command turned out to be outdated. */
export const CHANGED_EACH_TIME = "The conversation changed each time a command was decided"

/**
 * The sends of one conversation on the node that owns it. The queue is the single writer of the conversation's order on
 * this node. `SendKind` defines how direct conversations and groups decide. Only the queue acts on these decisions:
 *
 * 1. `send` joins an equal send in flight, or dispatches a new one.
 * 2. `take` makes a send wait for a barrier or for the state. Otherwise it acts on `decide`: `append`, `open` or
 *    `refuse`.
 * 3. `append` checks the attachment and hands the write to the group commit.
 * 4. `committed` acts on `settle`: it publishes the message and passes it to the callers, or decides the send again, or
 *    refuses the send.
 *
 * Its rules:
 *
 * - Sends are decided on the cached state in order of arrival, and join the group commit in that order. A send does not
 *   wait for the commits of other sends.
 * - One command at a time may be a barrier: a read of the state, an exclusive command, a first message, or a write that
 *   the decision marks as `alone`. Commands that arrive during the barrier wait in the queue. Commits in flight
 *   continue.
 * - The state is a cache. Each write tests it on the locked row (the fence), and a fenced send is decided again.
 * - Sends of one sender with the same client_msg_id that are in flight share one result. Later callers get
 *   `created: false`.
 * - A send whose callers have timed out or disconnected is dropped, unless it is being committed. An exclusive command
 *   whose caller has timed out or disconnected is dropped if it still waits. If it has begun, it runs to its end.
 * - A message is published after its commit and before its callers get the result.
 * - A defect ends only the command in which it occurred, and the state is read again. If the state cannot be read, all
 *   commands in the queue fail.
 */
export class SendQueue<K extends SendTypes> {
  readonly id: string
  /** When the last command was dispatched, in milliseconds. */
  lastUsed = 0
  /** Undefined if the state must be read before the next decision. Exclusive commands may set it. */
  protected state: K["state"] | undefined
  private readonly kind: SendKind<K>
  private readonly deps: SendQueueDependencies<K["write"], K["outcome"]>
  private barrier: Sending<K> | Exclusive | undefined
  /** Whether a write was stored during a read of the state. The read may have missed the write. */
  private overtaken = false
  private queue: Array<Sending<K> | Exclusive> = []
  private inFlight = new Map<string, Sending<K>>()

  constructor(id: string, kind: SendKind<K>, deps: SendQueueDependencies<K["write"], K["outcome"]>) {
    this.id = id
    this.kind = kind
    this.deps = deps
  }

  /** Whether the queue can be removed from memory. */
  get idle(): boolean {
    return this.inFlight.size === 0 && this.barrier === undefined
  }

  send(command: K["command"]): Effect.Effect<Sent | K["replay"], Failure<K>> {
    return Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
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
          refund: undefined
        }
        const leave = this.join(sending, resume)
        this.inFlight.set(key, sending)
        this.dispatch(sending)
        return leave
      })
    )
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
   * Ends the wait of the callers of commands whose `since` is before this time, with Unavailable. A send that is being
   * committed continues, and so does an exclusive command that has begun. Other commands are dropped.
   */
  timeOutCallers(before: number): void {
    const late = this.queue.filter((one): one is Exclusive => one._tag === "Exclusive" && one.since < before)
    for (const command of late) {
      this.unqueue(command)
      command.fail(Exit.fail(new Unavailable()))
    }
    for (const sending of this.inFlight.values()) {
      if (sending.since < before) this.answer(sending, Exit.fail(new Unavailable()))
    }
  }

  /**
   * Runs a command between two sends: earlier sends are decided before it, and later sends are decided on the state
   * that it leaves. If the command fails, the next send reads the state, because only the rows show what was committed.
   */
  protected exclusive<A, E>(command: Effect.Effect<A, E>): Effect.Effect<A, E | Unavailable> {
    return Effect.withFiber((fiber) =>
      Effect.callback((resume) => {
        const exclusive: Exclusive = {
          _tag: "Exclusive",
          run: Effect.matchCause(forTrace(traceOf(fiber), forRequest(requestIdOf(fiber), command)), {
            onSuccess: (value) => resume(Effect.succeed(value)),
            onFailure: (cause) => {
              this.state = undefined
              resume(exitOf(cause))
            }
          }),
          since: this.deps.monotonic(),
          fail: resume
        }
        this.dispatch(exclusive)
        return Effect.sync(() => this.unqueue(exclusive))
      })
    )
  }

  /** Removes a command from the queue if it waits there. */
  private unqueue(command: Sending<K> | Exclusive): void {
    const at = this.queue.indexOf(command)
    if (at >= 0) this.queue.splice(at, 1)
  }

  /** Ends the barrier if this command is the barrier, and dispatches the commands that waited for it. */
  private lift(command: Sending<K> | Exclusive): void {
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

  /** Ends a command in which a defect occurred. The commands after it continue. */
  private failed(command: Sending<K> | Exclusive, cause: Cause.Cause<never>): void {
    this.state = undefined
    this.unqueue(command)
    if (command._tag === "Exclusive") command.fail(exitOf(cause))
    else this.finish(command, exitOf(cause))
    this.lift(command)
  }

  private take(command: Sending<K> | Exclusive): void {
    this.lastUsed = this.deps.now()
    if (this.barrier !== undefined) this.queue.push(command)
    else if (command._tag === "Exclusive") {
      this.barrier = command
      this.deps.fork(Effect.andThen(command.run, Effect.sync(() => this.lift(command))))
    } else if (command.callers.length === 0) this.finish(command, Exit.fail(new Unavailable()))
    else if (this.state === undefined) {
      this.queue.push(command)
      this.reload(command)
    } else this.act(command, this.state, this.kind.decide(this.state, command.command))
  }

  /** Reads the state. The commands in the queue wait. */
  private reload(sending: Sending<K>): void {
    this.barrier = sending
    this.overtaken = false
    this.run(
      sending,
      Effect.matchCause(this.kind.load(this.id, sending.command), {
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
            else this.finish(one, Exit.fail(failure))
          }
        }
      })
    )
  }

  private act(sending: Sending<K>, state: K["state"], decision: Decision<K["failure"]>): void {
    switch (decision._tag) {
      case "Append":
        return this.append(sending, state, decision.alone)
      case "Open":
        return this.open(sending, state)
      case "Refuse":
        if (decision.forget) this.state = undefined
        return this.refuse(sending, decision.failure, state)
    }
  }

  /** Writes a send that the decision allows, after the check of its attachment. */
  private append(sending: Sending<K>, state: K["state"], alone: boolean): void {
    const { admit } = this.kind
    if (admit !== undefined && sending.refund === undefined) {
      const admitted = admit(this.id)
      if (typeof admitted !== "function") return this.finish(sending, Exit.fail(admitted.failure))
      sending.refund = admitted
    }
    if (sending.attached) return this.commit(sending, state, alone)
    // Other sends continue during the check, so this one is decided again after it.
    this.run(
      sending,
      Effect.matchCause(this.attach(sending), {
        onSuccess: () => {
          sending.attached = true
          this.dispatch(sending)
        },
        onFailure: (cause) => {
          const failure = failureOf(cause)
          if (failure === undefined) this.finish(sending, exitOf(cause))
          else this.refuse(sending, failure, this.state)
        }
      })
    )
  }

  /** Checks the attachment. The send's callers do not time out during a request to the file store. */
  private attach(sending: Sending<K>): Effect.Effect<void, Failure<K>> {
    const { attachmentId = "" } = sending.command.draft
    return this.kind.useAttachment(this.id, sending.command, attachmentId, (isAsked) => {
      sending.since = isAsked ? Number.POSITIVE_INFINITY : this.deps.monotonic()
    })
  }

  /**
   * Checks and reserves what a first message needs, then writes it. Later commands wait until it is stored or refused.
   */
  private open(sending: Sending<K>, state: K["state"]): void {
    if (this.kind.open === undefined) throw new Error("a conversation of this kind is not opened by a message")
    this.barrier = sending
    const opened = this.kind.open({
      ...this.checked(sending),
      isAbandoned: () => sending.callers.length === 0,
      attach: Effect.suspend(() => sending.attached ? Effect.void : this.attach(sending))
    })
    this.ask(sending, opened, (verdict) => {
      if (verdict._tag === "Append") return this.commit(sending, state, true)
      this.apply(sending, verdict)
      this.lift(sending)
    })
  }

  /** Hands a write to the group commit. If `alone`, later commands wait for its result. */
  private commit(sending: Sending<K>, state: K["state"], alone: boolean): void {
    const { deps, kind } = this
    if (alone) this.barrier = sending
    const write = kind.write(this.id, state, sending.command, {
      messageId: sending.command.draft.messageId ?? deps.newMessageId(),
      at: deps.now(),
      requestId: joinOrigin(sending.requestId, sending.trace)
    })
    recordSpan(sending.trace, "decide", sending.arrived)
    deps.appends.submit(
      write,
      (settled) => this.committed(sending, write, state, settled),
      deps.monotonic() - sending.since,
      sending.trace
    )
  }

  private committed(sending: Sending<K>, write: K["write"], state: K["state"], settled: Settled<K["outcome"]>): void {
    if (settled._tag === "Failed") {
      // Only the row shows whether the message was stored. A retry finds the key of the message.
      this.state = undefined
      this.finish(sending, settled.exit)
      return this.lift(sending)
    }
    const settlement = this.kind.settle(this.state, write, settled.value, state, sending.command)
    if (settlement._tag === "Stored") {
      this.overtaken = true
      this.state = settlement.state
      this.stored(sending, write, settlement, settled.at)
      return this.lift(sending)
    }
    const released = this.kind.release(write)
    if (released === undefined) return this.unstored(sending, state, settlement)
    // Release before the next attempt. A later release would delete what that attempt reserves.
    this.run(sending, Effect.map(released, () => this.unstored(sending, state, settlement)))
  }

  /** Publishes a message that was stored, then passes it to the callers. */
  private stored(
    sending: Sending<K>,
    { at, messageId }: K["write"],
    stored: Stored,
    committedAt: number | undefined
  ): void {
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
    this.finish(sending, Exit.succeed({ created: true, body: messageJson(rendered, null), backlog: stored.backlog }))
  }

  /** Acts on the result of a write that stored nothing. */
  private unstored(
    sending: Sending<K>,
    state: K["state"],
    settlement: Exclude<Settlement<K["state"], K["failure"]>, { readonly _tag: "Stored" }>
  ): void {
    switch (settlement._tag) {
      case "Retry":
        this.state = settlement.state
        this.retry(sending)
        break
      case "Replay":
        this.replay(sending)
        break
      case "Refuse":
        this.refuse(sending, settlement.failure, state)
        break
      case "RefuseSender":
        this.refuseSender(sending)
        break
    }
    this.lift(sending)
  }

  /** Ends a send with a failure that storage confirms. A replay gets the original message instead (wire.md C.6). */
  private refuse(sending: Sending<K>, failure: K["failure"] | Unavailable, state: K["state"] | undefined): void {
    this.ask(
      sending,
      this.kind.confirm(this.checked(sending), failure, state),
      (verdict) => this.apply(sending, verdict)
    )
  }

  private checked({ attempts, command }: Sending<K>): Checked<K> {
    return { conversationId: this.id, command, attempts }
  }

  private apply(sending: Sending<K>, verdict: Verdict<K["failure"]>): void {
    switch (verdict._tag) {
      case "Refuse":
        return this.finish(sending, Exit.fail(verdict.failure))
      case "Replay":
        return this.replay(sending)
      case "Reload":
        this.state = undefined
        return this.retry(sending)
    }
  }

  /** Ends a repeated send with the original message. The send does not count towards the conversation's rate. */
  private replay(sending: Sending<K>): void {
    sending.refund?.()
    this.ask(sending, this.kind.original(sending.command), (sent) => {
      if (sent === undefined) this.giveUp(sending, "The key of a send is known, but its message cannot be found")
      else this.finish(sending, Exit.succeed(sent))
    })
  }

  /**
   * Refuses a send because its sender has been suspended or deleted. This is the only reason for which replays are
   * refused (wire.md C.6).
   */
  private refuseSender(sending: Sending<K>): void {
    this.ask(
      sending,
      this.kind.isSenderDeleted(this.id, sending.command),
      (isDeleted) => this.finish(sending, Exit.fail(isDeleted ? new Unauthorized() : new AgentSuspended()))
    )
  }

  /** Decides a send again because its decision was outdated. A send is decided at most `maxAttempts` times. */
  private retry(sending: Sending<K>): void {
    if (++sending.attempts >= this.kind.maxAttempts) this.giveUp(sending, CHANGED_EACH_TIME)
    // The commands in the queue arrived after this send, so it goes to the front.
    else if (this.barrier === sending) this.queue.unshift(sending)
    else this.dispatch(sending)
  }

  /** Ends a send with Unavailable, and logs why. */
  private giveUp(sending: Sending<K>, why: string): void {
    this.finish(sending, Exit.fail(new Unavailable()))
    this.deps.fork(forRequest(sending.requestId, logUnavailable(why)))
  }

  /** Runs a query for which a send waits, and continues with its result. If the query fails, the send fails. */
  private ask<A>(sending: Sending<K>, question: Effect.Effect<A, Failure<K>>, then: (answer: A) => void): void {
    this.run(
      sending,
      Effect.matchCause(question, {
        onSuccess: then,
        onFailure: (cause) => {
          this.finish(sending, exitOf(cause))
          this.lift(sending)
        }
      })
    )
  }

  /** Runs an effect for a send. A defect of the effect ends the send. */
  private run(sending: Sending<K>, effect: Effect.Effect<void>): void {
    this.deps.fork(forRequest(
      sending.requestId,
      Effect.catchCause(effect, (cause) => Effect.sync(() => this.failed(sending, cause)))
    ))
  }

  /** Ends a send and passes the result to its callers. */
  private finish(sending: Sending<K>, result: Result<K>): void {
    if (this.inFlight.get(sending.key) === sending) {
      // Use a new map, because the table of a long-lived map references old entries until a full garbage collection
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
