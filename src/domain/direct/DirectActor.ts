import { AgentNotFound, AgentSuspended } from "#domain/agents/Agent"
import {
  AgentRestricted,
  AwaitingReply,
  Blocked,
  type ColdCapExceeded,
  InboxRestricted,
  RecipientBacklogged
} from "#domain/sending/SendErrors"
import {
  type Decision,
  type Opening,
  RELOAD,
  REPLAY,
  type SendKind,
  type Settlement,
  type Stamp,
  type Verdict
} from "#domain/sending/SendKind"
import { SendQueue, type SendQueueDependencies } from "#domain/sending/SendQueue"
import type { Sent } from "#domain/sending/Sent"
import { iso } from "#infrastructure/wire/Text"
import { Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { decideSend, type DirectAppend, type DirectAppended, type DirectState } from "./DirectConversation.ts"
import type { SendCommand, SendFailure } from "./DirectEntity.ts"
import type { BlockChange, LoadedDirect, OutreachFacts } from "./DirectRepo.ts"

/** The functions and settings that the actor of a conversation uses. */
export interface DirectDependencies extends SendQueueDependencies<DirectAppend, DirectAppended> {
  readonly load: (conversationId: string, one: string, other: string) => Effect.Effect<LoadedDirect, Unavailable>
  readonly facts: (
    command: SendCommand,
    conversationId: string
  ) => Effect.Effect<OutreachFacts | undefined, Unavailable>
  readonly reserve: (
    senderId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<void, ColdCapExceeded | Unavailable>
  readonly release: (senderId: string, conversationId: string) => Effect.Effect<void>
  /**
   * Checks that this file may be sent to this recipient. The first use of a file sends a request to the file store:
   * `asks` is called with true before the request and with false after it.
   */
  readonly useAttachment: (
    senderId: string,
    recipientId: string,
    attachmentId: string,
    asks: (isAsked: boolean) => void
  ) => Effect.Effect<void, SendFailure>
  /** Returns the sender's earlier message with this client_msg_id, in its current state. */
  readonly original: (senderId: string, clientMsgId: string) => Effect.Effect<Sent | undefined, Unavailable>
  readonly backlogSoft: number
  readonly backlogHard: number
}

/** The cached row of the conversation and the pair's blocks. */
export interface CachedDirect {
  readonly epoch: number
  readonly version: number
  readonly state: DirectState
  /** Whether this owner has written, so that the row contains the owner's epoch. */
  readonly claimed: boolean
}

export interface DirectSends {
  readonly command: SendCommand
  readonly state: CachedDirect
  readonly write: DirectAppend
  readonly outcome: DirectAppended
  readonly failure: SendFailure
  readonly replay: never
}

const MAX_ATTEMPTS = 5

/** Decides a send (wire.md F, G.1, G.2, G.9). The first write of an owner is `alone`, because it raises the epoch. */
export const decideDirect = (
  { claimed, state }: CachedDirect,
  { recipient, sender }: SendCommand
): Decision<SendFailure> => {
  const decision = decideSend(state, sender.id)
  switch (decision._tag) {
    case "Continue":
    case "Establish":
      return claimed ? APPEND : APPEND_ALONE
    case "Open":
      return OPEN
    case "Blocked":
      return refuse(new Blocked())
    case "AwaitingReply":
      return refuse(
        new AwaitingReply({ details: { recipient_handle: recipient.handle, waiting_since: iso(decision.since) } })
      )
  }
}

const APPEND = { _tag: "Append", alone: false } as const
const APPEND_ALONE = { _tag: "Append", alone: true } as const
const OPEN = { _tag: "Open" } as const
const refuse = (failure: SendFailure) => ({ _tag: "Refuse", failure, forget: false }) as const

const writeDirect = (
  conversationId: string,
  { claimed, epoch, state, version }: CachedDirect,
  { draft, recipient, sender }: SendCommand,
  { at, messageId, requestId }: Stamp
): DirectAppend => {
  const opens = state.initiatorId === null
  return {
    conversationId,
    epoch,
    nextEpoch: claimed ? epoch : epoch + 1,
    version,
    opens,
    establishes: !opens && !state.established,
    senderId: sender.id,
    recipientId: recipient.id,
    messageId,
    at,
    draft,
    requestId
  }
}

/** Decides what follows from the outcome of a write. */
export const settleDirect = (
  current: CachedDirect | undefined,
  write: DirectAppend,
  outcome: DirectAppended,
  recipientHandle: string,
  backlogSoft: number
): Settlement<CachedDirect, SendFailure> => {
  switch (outcome._tag) {
    case "Stored":
      return {
        _tag: "Stored",
        state: advance(current, write),
        seq: outcome.seq,
        envelopes: [{ recipientId: write.recipientId, inboxNo: outcome.inboxNo }],
        senderLastInboxNo: outcome.senderLastInboxNo,
        senderNextInboxNo: outcome.senderNextInboxNo,
        group: null,
        backlog: outcome.undelivered >= backlogSoft ? outcome.undelivered : null
      }
    case "Fenced":
      return { _tag: "Retry", state: isDecidedOn(current, write) ? undefined : current }
    case "Replayed":
      return REPLAY
    case "SenderGone":
      return { _tag: "RefuseSender" }
    case "RecipientGone":
      return { _tag: "Refuse", failure: new AgentNotFound() }
    case "Backlogged":
      return { _tag: "Refuse", failure: backlogged(recipientHandle, outcome.undelivered) }
  }
}

const isDecidedOn = (current: CachedDirect | undefined, { epoch, version }: DirectAppend): boolean =>
  epoch === current?.epoch && version === current.version

/** Brings the cached state up to date with a committed message. */
const advance = (
  current: CachedDirect | undefined,
  { at, establishes, nextEpoch, opens, senderId }: DirectAppend
): CachedDirect | undefined => {
  if (current === undefined || nextEpoch < current.epoch) return current
  if (!opens && !establishes && current.claimed && current.epoch === nextEpoch) return current
  const state: DirectState = opens
    ? { initiatorId: senderId, createdAt: at, established: false, blocked: false }
    : establishes
    ? { ...current.state, established: true }
    : current.state
  return { epoch: nextEpoch, version: current.version, state, claimed: true }
}

const backlogged = (recipientHandle: string, undelivered: number): RecipientBacklogged =>
  new RecipientBacklogged({ details: { recipient_handle: recipientHandle, undelivered_count: undelivered } })

/**
 * Decides with facts from storage whether to refuse a send that the cached state refuses. A replay is tested first,
 * because a replay is never refused (wire.md C.6).
 */
export const confirmDirect = (
  failure: SendFailure,
  facts: OutreachFacts | undefined,
  { command: { recipient }, isLast }: { readonly command: SendCommand; readonly isLast: boolean }
): Verdict<SendFailure> => {
  if (facts?.senderStatus === "suspended") return { _tag: "Refuse", failure: new AgentSuspended() }
  if (facts !== undefined && facts.replayOf !== null) return REPLAY
  const isOutdated = (failure._tag === "Blocked" && facts?.blocked === false) ||
    (failure._tag === "AwaitingReply" && facts?.established === true)
  // Another owner has committed an unblock or a reply since the decision.
  if (isOutdated && !isLast) return RELOAD
  if (facts === undefined || facts.recipientDeleted) return { _tag: "Refuse", failure: new AgentNotFound() }
  if (facts.blocked) return { _tag: "Refuse", failure: new Blocked() }
  if (failure._tag === "AwaitingReply" && isClosedTo(facts))
    return { _tag: "Refuse", failure: inboxRestricted(recipient.handle) }
  return { _tag: "Refuse", failure }
}

/** Decides a first message with the guards of wire.md C.6, in their order, up to the cold slot. */
export const decideOpening = (
  facts: OutreachFacts | undefined,
  { recipient }: SendCommand
): Verdict<SendFailure> | { readonly _tag: "Append" } => {
  const refused = (failure: SendFailure) => ({ _tag: "Refuse", failure }) as const
  if (facts?.senderStatus === "suspended") return refused(new AgentSuspended())
  if (facts !== undefined && facts.replayOf !== null) return REPLAY
  // Another owner has stored the first message in the meantime.
  if (facts?.opened === true) return RELOAD
  if (facts === undefined || facts.recipientDeleted) return refused(new AgentNotFound())
  if (facts.blocked) return refused(new Blocked())
  if (facts.senderStatus === "restricted") return refused(new AgentRestricted())
  if (facts.senderStatus === null) return refused(new Unauthorized())
  if (isClosedTo(facts)) return refused(inboxRestricted(recipient.handle))
  return { _tag: "Append" }
}

const isClosedTo = ({ inboxMode, isContact }: OutreachFacts): boolean => inboxMode === "contacts_only" && !isContact

const inboxRestricted = (recipientHandle: string): InboxRestricted =>
  new InboxRestricted({ details: { recipient_handle: recipientHandle } })

const makeDirectSends = (deps: DirectDependencies): SendKind<DirectSends> => {
  const { backlogHard, backlogSoft, facts, load, original, release, reserve, useAttachment } = deps
  /** Reserves the cold slot after all other guards. Releases the slot if the message cannot be written after all. */
  const open = ({ attach, command, conversationId, isAbandoned }: Opening<DirectSends>) =>
    Effect.gen(function*() {
      const known = yield* facts(command, conversationId)
      if (isAbandoned()) return yield* new Unavailable()
      const opening = decideOpening(known, command)
      if (opening._tag !== "Append" || known === undefined) return opening
      const { sender } = command
      yield* reserve(sender.id, conversationId, deps.now())
      yield* Effect.gen(function*() {
        yield* attach
        if (isAbandoned()) return yield* new Unavailable()
        if (known.undelivered >= backlogHard && !known.recipientSuspended) {
          return yield* backlogged(command.recipient.handle, known.undelivered)
        }
      }).pipe(Effect.tapCause(() => release(sender.id, conversationId)))
      return opening
    })
  return {
    maxAttempts: MAX_ATTEMPTS,
    load: (conversationId, { recipient, sender }) =>
      Effect.map(load(conversationId, sender.id, recipient.id), (loaded) => ({ ...loaded, claimed: false })),
    decide: decideDirect,
    write: writeDirect,
    settle: (current, write, outcome, _decidedOn, { recipient }) =>
      settleDirect(current, write, outcome, recipient.handle, backlogSoft),
    admit: undefined,
    open,
    release: ({ conversationId, opens, senderId }) => opens ? release(senderId, conversationId) : undefined,
    confirm: ({ attempts, command, conversationId }, failure) =>
      Effect.map(
        facts(command, conversationId),
        (known) => confirmDirect(failure, known, { command, isLast: attempts + 1 >= MAX_ATTEMPTS })
      ),
    original: ({ draft, sender }) => original(sender.id, draft.clientMsgId),
    isSenderDeleted: (conversationId, command) =>
      Effect.map(facts(command, conversationId), (known) => known?.senderStatus === null),
    useAttachment: (_conversationId, { recipient, sender }, attachmentId, asks) =>
      useAttachment(sender.id, recipient.id, attachmentId, asks)
  }
}

/**
 * One direct conversation on this node: the single writer of its order and of whether it is cold or established.
 * `SendQueue` documents what direct conversations share with groups. The actor is rebuilt from the conversation's row
 * and the pair's blocks. Each write tests the epoch and the version of the row. A first message, the first write of a
 * new owner and a change of the blocks are barriers. Sends are safe to retry: sends in flight with equal client_msg_ids
 * share one result, and a later send finds the stored key.
 */
export class DirectActor extends SendQueue<DirectSends> {
  /** Returns the function that makes the actor of a conversation. */
  static make(deps: DirectDependencies): (id: string) => DirectActor {
    const kind = makeDirectSends(deps)
    return (id) => new DirectActor(id, kind, deps)
  }

  /** Runs the statement of a block between two sends. Each later send is decided on the resulting state. */
  block(statement: Effect.Effect<BlockChange, Unavailable>): Effect.Effect<BlockChange["outcome"], Unavailable> {
    return this.exclusive(Effect.map(statement, ({ fence, outcome }) => {
      const known = this.state
      if (fence !== null && known !== undefined) {
        const isNext = fence.epoch === known.epoch && fence.version === known.version + 1
        // If it is not the next version, the row contains changes that this actor has not seen.
        this.state = isNext ? { ...known, state: { ...known.state, blocked: true }, version: fence.version } : undefined
      }
      return outcome
    }))
  }

  /** Runs the statement of an unblock between two sends. The next send reads the state. */
  unblock<A>(statement: Effect.Effect<A, Unavailable>): Effect.Effect<A, Unavailable> {
    return this.exclusive(Effect.tap(statement, () =>
      Effect.sync(() => {
        this.state = undefined
      })))
  }
}
