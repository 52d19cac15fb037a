import { Option, Schema } from "effect"
import type { Settings } from "./Settings.ts"

/**
 * The fields that the connector adds to the metadata of a reply. `hop` is the number of automatic replies in a row.
 * `answers` contains the ids of the answered messages.
 */
const ConnectMetadata = Schema.Struct({ auto: Schema.Boolean, hop: Schema.Int, answers: Schema.Array(Schema.String) })
export type ConnectMetadata = typeof ConnectMetadata.Type

/** The fields of a message that the connector uses, as the server shows them to this agent (wire.md C.1). */
export const Message = Schema.Struct({
  id: Schema.String.check(Schema.isPattern(/^msg_[\w-]+$/)),
  conversation_id: Schema.String.check(Schema.isPattern(/^(conv|grp)_[\w-]+$/)),
  sender: Schema.String,
  seq: Schema.Int,
  type: Schema.String,
  content: Schema.Record(Schema.String, Schema.Unknown),
  metadata: Schema.Record(Schema.String, Schema.Unknown),
  status: Schema.String,
  created_at: Schema.String,
  context: Schema.Struct({
    conversation: Schema.Struct({
      type: Schema.Literals(["direct", "group"]),
      group_name: Schema.NullOr(Schema.String)
    }),
    mentions: Schema.Array(Schema.String)
  })
})
export type Message = typeof Message.Type

const decodeMetadata = Schema.decodeUnknownOption(ConnectMetadata)

const metadataOf = ({ metadata }: Message): ConnectMetadata | undefined =>
  Option.getOrUndefined(decodeMetadata(metadata["connect"]))

/** The id of the message by which the server counts the hops of a reply: of those with the most hops, the newest. */
export const causeOf = (messages: ReadonlyArray<Message>): string | undefined =>
  messages.reduce<Message | undefined>(
    (most, message) => most === undefined || hopsOf(message) >= hopsOf(most) ? message : most,
    undefined
  )?.id

/** Without `caused_by`, `hops` is a key of the sender, and not the server's count. */
const hopsOf = ({ metadata }: Message): number =>
  typeof metadata["caused_by"] === "string" && typeof metadata["hops"] === "number" ? metadata["hops"] : 0

/** How many automatic replies in a row end with this message; 0 for a message that was not sent by a connector. */
export const hopOf = (message: Message): number => Math.max(0, metadataOf(message)?.hop ?? 0)

/**
 * The ids of the messages that this message answers. They are the ids that its connector listed, or the id of the
 * message to which it replies.
 */
export const answersOf = (message: Message): ReadonlyArray<string> => {
  const replyTo = message.metadata["reply_to"]
  return metadataOf(message)?.answers ?? (typeof replyTo === "string" ? [replyTo] : [])
}

/** Whether an operator has removed the message for all: no sender can store one without content. */
const isRemoved = ({ content }: Message): boolean => Object.keys(content).length === 0

/** Whether a received message starts a run according to `wake`. `allow` must also permit its sender. */
export const wakes = (message: Message, { handle, wake }: Pick<Settings, "handle" | "wake">): boolean => {
  if (message.sender === handle || message.type === "system" || isRemoved(message)) return false
  const { conversation, mentions } = message.context
  return conversation.type === "direct"
    ? wake.includes("direct")
    : wake.includes("mentions") && mentions.includes(handle)
}

/** Whether `allow` permits the sender; undefined if this depends on whether the sender is a contact. */
export const permits = (sender: string, allow: Settings["allow"]): boolean | undefined =>
  allow === "contacts"
    ? undefined
    : allow === "all" || allow.some((handle) => handle.replace(/^@/, "").toLowerCase() === sender)

/** The messages for which a run is planned, sorted according to the history of their conversation. */
export interface Sorted {
  /** Messages to answer, oldest first. */
  readonly fresh: ReadonlyArray<Message>
  /** The ids of messages that this agent has already answered, or that were removed. They need only an acknowledgement. */
  readonly answered: ReadonlyArray<string>
  /**
   * The ids of messages that are no longer in state `stored`. Another process of the agent has acknowledged them, or
   * they no longer exist.
   */
  readonly stale: ReadonlyArray<string>
}

/** Sorts messages according to the history of their conversation. `history` begins at the oldest of these messages. */
export const sortOut = (ids: ReadonlyArray<string>, history: ReadonlyArray<Message>, handle: string): Sorted => {
  const known = new Map(history.map((message) => [message.id, message]))
  const done = new Set(history.filter(({ sender }) => sender === handle).flatMap(answersOf))
  const fresh: Array<Message> = []
  const answered: Array<string> = []
  const stale: Array<string> = []
  for (const id of ids) {
    const message = known.get(id)
    if (message?.status !== "stored") stale.push(id)
    else if (done.has(id) || isRemoved(message)) answered.push(id)
    else fresh.push(message)
  }
  return { fresh, answered, stale }
}
