import type { Draft } from "#domain/messages/Message"
import { createHmac } from "node:crypto"

const MAX_CACHED_IDS = 50_000

/**
 * Makes the function that computes the id of the only direct conversation of two agents. The id is an HMAC of the
 * sorted pair, so it needs no look-up, is unique by construction and cannot be computed without the secret. Ids of
 * recent pairs are cached, because computing the HMAC is a large part of the cost of a send.
 */
export const makeDirectIds = (secret: Uint8Array): (one: string, other: string) => string => {
  const known = new Map<string, string>()
  return (one, other) => {
    const pair = one < other ? `${one} ${other}` : `${other} ${one}`
    const remembered = known.get(pair)
    if (remembered !== undefined) return remembered
    const id = `conv_${createHmac("sha256", secret).update(pair).digest().subarray(0, 12).toString("base64url")}`
    if (known.size >= MAX_CACHED_IDS) known.clear()
    known.set(pair, id)
    return id
  }
}

/** The part of a direct conversation's state that decisions need. */
export interface DirectState {
  /** The agent that sent the first message; `null` if no message is stored. */
  readonly initiatorId: string | null
  /** When the first message was stored, in milliseconds; `null` if no message is stored. */
  readonly createdAt: number | null
  readonly established: boolean
  /** Whether either agent has blocked the other. */
  readonly blocked: boolean
}

export type SendDecision =
  | { readonly _tag: "Blocked" }
  | { readonly _tag: "AwaitingReply"; readonly since: number }
  /**
   * The first message. It needs a free cold slot. If the recipient accepts only contacts, the sender must be a contact.
   */
  | { readonly _tag: "Open" }
  /** The first message from the other side. */
  | { readonly _tag: "Establish" }
  | { readonly _tag: "Continue" }

/** Classifies a send by `senderId`, given the committed state (wire.md F, G.1, G.2, G.9). */
export const decideSend = (state: DirectState, senderId: string): SendDecision => {
  if (state.blocked) return { _tag: "Blocked" }
  if (state.initiatorId === null) return { _tag: "Open" }
  if (state.established) return { _tag: "Continue" }
  if (state.initiatorId === senderId) return { _tag: "AwaitingReply", since: state.createdAt ?? 0 }
  return { _tag: "Establish" }
}

/** A send that its conversation has accepted, based on the cached state. */
export interface DirectAppend {
  readonly conversationId: string
  /**
   * The row must have this epoch and this version. Otherwise the outcome is `Fenced`. The write sets the epoch to
   * `nextEpoch`.
   */
  readonly epoch: number
  readonly nextEpoch: number
  readonly version: number
  /** Whether this is the first message. It creates the conversation, and needs the sender's reserved cold slot. */
  readonly opens: boolean
  /** Whether this is the first message from the other side. */
  readonly establishes: boolean
  readonly senderId: string
  readonly recipientId: string
  readonly messageId: string
  readonly at: number
  readonly draft: Draft
  /** The id and the trace of the request that caused the send (`joinOrigin`), for webhooks. */
  readonly requestId: string | null
}

/** The outcome of an append in the database. Only `Stored` means that something was written. */
export type DirectAppended =
  | {
    readonly _tag: "Stored"
    readonly seq: number
    /** The envelope's number in the recipient's inbox. */
    readonly inboxNo: number
    /** The number of the recipient's undelivered envelopes, including this one. */
    readonly undelivered: number
    /**
     * The highest number in the sender's own inbox, or `null` if unknown. The sender's echo is shown after that number.
     */
    readonly senderLastInboxNo: number | null
    /**
     * The number that the next message of this conversation has in the sender's inbox, if the same batch stored that
     * message; otherwise `null`.
     */
    readonly senderNextInboxNo: number | null
  }
  /** The sender has used this client_msg_id before. */
  | { readonly _tag: "Replayed" }
  /**
   * Another owner has written, the conversation has changed since the decision, or another send of the batch has the
   * same key and was not stored. The caller reads the state and decides again.
   */
  | { readonly _tag: "Fenced" }
  | { readonly _tag: "SenderGone" }
  | { readonly _tag: "RecipientGone" }
  | { readonly _tag: "Backlogged"; readonly undelivered: number }
