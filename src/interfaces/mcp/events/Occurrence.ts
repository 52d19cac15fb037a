import type { UndeliveredMessage } from "#domain/deliveries/DeliveriesRepo"
import type { DeliveryIds } from "#domain/deliveries/Delivery"
import { mentionsIn } from "#domain/messages/Mentions"
import type { StoredMessage } from "#domain/messages/Message"
import { sha256 } from "#infrastructure/platform/Ids"
import { iso } from "#infrastructure/wire/Text"
import { fenced } from "#infrastructure/wire/UntrustedText"
import type { EventArguments, EventName } from "./EventTypes.ts"

/**
 * An event as a client receives it (wire.md Q). The response to a poll contains one cursor for all its events, so an
 * event itself contains none.
 */
export interface Occurrence {
  readonly eventId: string
  readonly name: EventName
  readonly timestamp: string
  readonly data: Readonly<Record<string, unknown>>
}

/** The agent that owns a subscription. */
export interface Owner {
  readonly id: string
  readonly handle: string
}

/** A message that waits in the owner's inbox, without its content and metadata. */
export interface Candidate extends UndeliveredMessage {
  readonly senderHandle: string
}

/** A message that waits in the owner's inbox, with its content and metadata. */
export interface ReadCandidate extends Candidate {
  readonly message: StoredMessage
}

export const isRead = (candidate: Candidate): candidate is ReadCandidate => "content" in candidate.message

const MAX_TEXT = 2_000
const MAX_CONVERSATIONS = 20

const textOf = ({ content }: StoredMessage): string | undefined =>
  (JSON.parse(content) as { readonly text?: string }).text

/** Whether a message mentions the owner. */
export const mentions = ({ handle }: Owner, { content }: StoredMessage): boolean => mentionsIn(content).includes(handle)

/**
 * Whether a subscription can report a waiting message. The owner must not have sent the message or muted its sender or
 * conversation, and the arguments must select the message. With `mentions_only`, the text of the message decides too
 * (`mentions`).
 */
export const isSelected = (
  args: EventArguments,
  owner: Owner,
  isMuted: (senderId: string, conversationId: string) => boolean,
  { message, senderHandle }: Candidate
): boolean =>
  message.senderId !== owner.id &&
  (args.conversationId === undefined || args.conversationId === message.conversationId) &&
  (args.from === undefined || (args.from === senderHandle && message.type !== "system")) &&
  !isMuted(message.senderId, message.conversationId)

const replyTo = ({ metadata }: StoredMessage): string | null => {
  const id = metadata.includes(`"reply_to"`)
    ? (JSON.parse(metadata) as { readonly reply_to?: unknown }).reply_to
    : undefined
  return typeof id === "string" && id !== "" ? id : null
}

/** Returns the beginning of a text, without half a surrogate pair at its end. */
const beginningOf = (text: string): string => text.slice(0, MAX_TEXT).replace(/[\ud800-\udbff]$/, "")

/** Makes the event `message.received` for one message. */
export const received = (
  args: EventArguments,
  owner: Owner,
  ids: DeliveryIds,
  { inboxNo, message, senderHandle }: ReadCandidate
): Occurrence => {
  const deliveryId = ids.encode(owner.id, inboxNo)
  const text = args.includeText ? textOf(message) : undefined
  return {
    eventId: deliveryId,
    name: "message.received",
    timestamp: iso(message.createdAt),
    data: {
      message_id: message.id,
      delivery_id: deliveryId,
      conversation_id: message.conversationId,
      conversation_type: message.conversationId.startsWith("grp_") ? "group" : "direct",
      sender: { handle: `@${senderHandle}`, kind: message.type === "system" ? "system" : "agent" },
      seq: message.seq,
      type: message.type,
      mentions_me: mentions(owner, message),
      reply_to: replyTo(message),
      ...(text === undefined ? {} : { text: fenced({ text: beginningOf(text) }) })
    }
  }
}

/**
 * Makes the event `inbox.waiting` for messages that came since the previous event, oldest first. Whenever the same
 * subscription reports the same messages, the id of the event is the same. `subscription` identifies the subscription
 * among those of its owner.
 */
export const waiting = (
  subscription: string,
  owner: Owner,
  came: readonly [Candidate, ...Array<Candidate>]
): Occurrence => {
  const counts = new Map<string, number>()
  for (const { message: { conversationId } } of came) counts.set(conversationId, (counts.get(conversationId) ?? 0) + 1)
  const newest = came.at(-1) ?? came[0]
  return {
    eventId: `wak_${
      sha256(`${owner.id} ${subscription} ${came[0].inboxNo} ${newest.inboxNo}`).toString("base64url").slice(0, 22)
    }`,
    name: "inbox.waiting",
    timestamp: iso(newest.message.createdAt),
    data: {
      waiting: came.length,
      conversation_count: counts.size,
      conversations: [...counts].sort(([, one], [, other]) => other - one).slice(0, MAX_CONVERSATIONS).map((
        [conversation_id, waiting]
      ) => ({
        conversation_id,
        waiting
      }))
    }
  }
}
