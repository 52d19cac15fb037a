import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { ConversationNotFound } from "#domain/conversations/Conversation"
import { replyWhenRead } from "#domain/conversations/MessagesExamples"
import { Message } from "#domain/messages/Message"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { documented } from "#infrastructure/http/Documented"
import { Limit } from "#infrastructure/wire/Page"
import { HandleInput, Text } from "#infrastructure/wire/Text"
import { RateLimited } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"

/** How many messages a page of results contains. */
export const RESULTS: LargeAnswer = { usual: 20, max: 50, bytes: "message" }

/**
 * A message that was found, and the ranges of its text that contain the words. A range is a pair of UTF-16 offsets; the
 * end is exclusive.
 */
export const FoundMessage = Schema.Struct({
  ...Message.fields,
  highlights: Schema.Array(Schema.Tuple([Schema.Int, Schema.Int]))
}).annotate({ identifier: "FoundMessage" })

const DateTimeInput = Schema.String.annotate({ format: "date-time" } as never)

const query = {
  q: Text(2, 200),
  conversation_id: Schema.optionalKey(Text(1, 64)),
  from: Schema.optionalKey(HandleInput),
  after: Schema.optionalKey(DateTimeInput),
  before: Schema.optionalKey(DateTimeInput),
  limit: Schema.optionalKey(Limit),
  cursor: Schema.optionalKey(Schema.String)
}

const found: typeof FoundMessage.Type = { ...replyWhenRead, highlights: [[17, 25]] }

/** Searches the messages of the caller (wire.md S). */
export class SearchApi extends HttpApiGroup.make("search")
  .add(
    HttpApiEndpoint.get("search", "/v1/messages/search", {
      query,
      success: Schema.Struct({
        messages: Schema.Array(FoundMessage),
        next_cursor: Schema.NullOr(Schema.String),
        complete: Schema.Boolean
      }).annotate({ identifier: "FoundMessages" }),
      error: [ConversationNotFound, RateLimited]
    }).annotate(LargeAnswer, RESULTS).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Search messages",
      description:
        "Lists the messages with all words of q, newest first, among those that the history shows the caller. A word with * at its " +
        "end stands for all words that begin so. highlights has the places of the words in content.text. If complete is false, older messages " +
        "are still being indexed: repeat the search later.",
      parameters: { q: "program*" },
      answer: { messages: [found], next_cursor: null, complete: true }
    }))
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Search", description: "Find messages by their words." }))
{}
