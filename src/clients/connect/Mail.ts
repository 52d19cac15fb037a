import { Option, Schema } from "effect"
import type { Settings } from "./Settings.ts"

/**
 * The connector's part of the metadata of a reply: the number of automatic replies in a row, and the answered messages.
 */
const ConnectMetadata = Schema.Struct({ auto: Schema.Boolean, hop: Schema.Int, answers: Schema.Array(Schema.String) })
export type ConnectMetadata = typeof ConnectMetadata.Type

/** A message as the server shows it to this agent (wire.md C.1): the fields that the connector uses. */
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

/** The number of automatic replies in a row that end with this message; 0 for a message that no connector sent. */
export const hopOf = (message: Message): number => Math.max(0, metadataOf(message)?.hop ?? 0)

/**
 * The ids of the messages that this message answers: those that its connector named, or the one to which it replies.
 */
export const answersOf = (message: Message): ReadonlyArray<string> => {
  const replyTo = message.metadata["reply_to"]
  return metadataOf(message)?.answers ?? (typeof replyTo === "string" ? [replyTo] : [])
}

/** Whether a message that arrived is one for which `wake` starts a run, if `allow` permits its sender. */
export const wakes = (message: Message, { handle, wake }: Pick<Settings, "handle" | "wake">): boolean => {
  if (message.sender === handle || message.type === "system") return false
  const { conversation, mentions } = message.context
  return conversation.type === "direct"
    ? wake.includes("direct")
    : wake.includes("mentions") && mentions.includes(handle)
}

/** Whether `allow` permits the sender; undefined if the sender's contact entry decides. */
export const permits = (sender: string, allow: Settings["allow"]): boolean | undefined =>
  allow === "contacts"
    ? undefined
    : allow === "all" || allow.some((handle) => handle.replace(/^@/, "").toLowerCase() === sender)

/** The states of the messages that a run is planned for, from the history of their conversation. */
export interface Sorted {
  /** Messages to answer, oldest first. */
  readonly fresh: ReadonlyArray<Message>
  /** Ids of messages that a message of this agent already answers. They only need an acknowledgement. */
  readonly answered: ReadonlyArray<string>
  /**
   * Ids of messages that are no longer `stored`: another process of the agent has acknowledged them, or they are gone.
   */
  readonly stale: ReadonlyArray<string>
}

/** Sorts messages by the history of their conversation, which begins at the oldest of them. */
export const sortOut = (ids: ReadonlyArray<string>, history: ReadonlyArray<Message>, handle: string): Sorted => {
  const known = new Map(history.map((message) => [message.id, message]))
  const done = new Set(history.filter(({ sender }) => sender === handle).flatMap(answersOf))
  const fresh: Array<Message> = []
  const answered: Array<string> = []
  const stale: Array<string> = []
  for (const id of ids) {
    const message = known.get(id)
    if (message?.status !== "stored") stale.push(id)
    else if (done.has(id)) answered.push(id)
    else fresh.push(message)
  }
  return { fresh, answered, stale }
}
