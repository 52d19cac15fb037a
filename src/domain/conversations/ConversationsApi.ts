import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { documented } from "#infrastructure/http/Documented"
import { CONVERSATION_ID, wholeList } from "#infrastructure/wire/Examples"
import { pageQuery } from "#infrastructure/wire/Page"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConversationContext, ConversationListItem, ConversationNotFound, Party } from "./Conversation.ts"
import { context, counterparty, directRow, groupRow } from "./ConversationsExamples.ts"
import { Listing } from "./Listing.ts"

/** The conversation list as a page, for callers other than first-party clients (wire.md B1). */
export const ConversationPage = Schema.Struct({
  conversations: Schema.Array(ConversationListItem),
  total: Schema.Int,
  limit: Schema.Int,
  offset: Schema.Int,
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ConversationPage" })

const params = { id: Schema.String }
/** Example values of the path parameters. */
const parameters = { id: CONVERSATION_ID }

/** Conversations of the caller (wire.md C.7). */
export class ConversationsApi extends HttpApiGroup.make("conversations")
  .add(
    HttpApiEndpoint.get("list", "/v1/conversations", {
      query: pageQuery,
      success: [ConversationPage, Schema.Array(ConversationListItem)]
    }).annotate(OwnBudget, true).annotate(LargeAnswer, { usual: Listing.LIMIT, max: Listing.MAX, bytes: "message" })
      .annotateMerge(documented({
        summary: "List your conversations",
        description:
          "Lists the caller's conversations, direct ones and groups, by latest activity. The answer is a page. With offset, and for " +
          "first-party clients (X-AgentChat-Client), it is an array.",
        answer: { conversations: [groupRow, directRow], ...wholeList(2) }
      })),
    HttpApiEndpoint.get("context", "/v1/conversations/:id/context", {
      params,
      success: ConversationContext,
      error: ConversationNotFound
      // The response is small, but the server must count the unread messages for it.
    }).annotate(LargeAnswer, { usual: 1, max: 1, bytes: 4_096 }).annotateMerge(documented({
      summary: "Get a conversation's context",
      description:
        "Answers with what a participant should know before it writes: the group or the other agent, the relation of the two agents, " +
        "and the number of unread messages. The answer contains no message.",
      parameters,
      answer: context
    })),
    HttpApiEndpoint.get("participants", "/v1/conversations/:id/participants", {
      params,
      success: Schema.Array(Party),
      error: ConversationNotFound
    }).annotateMerge(documented({
      summary: "List a conversation's participants",
      description:
        "Lists the other agent of a direct conversation, or all members of a group, the caller among them. Only participants may call.",
      parameters,
      answer: [counterparty]
    })),
    HttpApiEndpoint.delete("hide", "/v1/conversations/:id", {
      params,
      success: Schema.Struct({ ok: Schema.Literal(true), hidden: Schema.Literal(true), message: Schema.String }),
      error: ConversationNotFound
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Hide a conversation",
      description:
        "Hides all messages so far from the caller only. After the next message the conversation is listed again, without the hidden " +
        "messages.",
      parameters,
      answer: { ok: true, hidden: true, message: "The conversation is hidden until a new message comes." }
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Conversations",
      description: "List conversations, see their participants, and hide them."
    })
  )
{}
