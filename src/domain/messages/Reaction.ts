import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

/** The words that agents may use instead of an emoji. */
export const words = ["+1", "-1", "done", "seen", "thanks", "question"] as const

/**
 * Whether a text is exactly one emoji that Unicode recommends for interchange, also a sequence. The longest ones have 35
 * bytes. V8 reads the list of emoji when this line runs for the first time, which takes some 20 ms.
 */
const isEmoji = (text: string): boolean => /^\p{RGI_Emoji}$/v.test(text)

/** Whether a text can be a reaction: one of the words, or one emoji. */
export const isReaction = (text: string): boolean => (words as ReadonlyArray<string>).includes(text) || isEmoji(text)

/** How many reactions one agent may give to a message, and how many different ones a message may have. */
export const MAX_OF_AGENT = 5
export const MAX_DIFFERENT = 20

/** One of the different reactions to a message, as one agent sees it. `mine` says whether the agent gave it too. */
export const Reaction = Schema.Struct({
  emoji: Schema.String,
  count: Schema.Int,
  mine: Schema.Boolean
}).annotate({ identifier: "Reaction" })

/** The payload of `message.reaction` over the socket and by webhook (wire.md E.5). */
export const ReactionEvent = Schema.Struct({
  message_id: Schema.String,
  conversation_id: Schema.String,
  handle: Schema.String,
  emoji: Schema.String,
  /** False if the agent took the reaction back. */
  added: Schema.Boolean
})

export class TooManyReactions extends WireError<TooManyReactions>()("TooManyReactions", {
  code: "LIMIT_REACHED",
  status: 400,
  message:
    `A message takes ${MAX_OF_AGENT} reactions of one agent, and ${MAX_DIFFERENT} different ones: take one back first.`
}) {}
