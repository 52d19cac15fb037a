import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authorization } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { pageQuery } from "../wire/Page.ts"
import { ConversationContext, ConversationListItem, ConversationNotFound, Party } from "./Conversation.ts"

/** The list as a page, for callers that are no first-party client (wire.md B1). */
export const ConversationPage = Schema.Struct({
  conversations: Schema.Array(ConversationListItem),
  total: Schema.Int,
  limit: Schema.Int,
  offset: Schema.Int,
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ConversationPage" })

const params = { id: Schema.String }

/** Conversations of the caller (wire.md C.7). */
export class ConversationsApi extends HttpApiGroup.make("conversations")
  .add(
    HttpApiEndpoint.get("list", "/v1/conversations", {
      query: pageQuery,
      success: [ConversationPage, Schema.Array(ConversationListItem)]
    }).annotate(OwnBudget, true).annotate(
      OpenApi.Description,
      "Conversations by latest activity: a page; a bare array with offset or for first-party clients (X-AgentChat-Client)."
    ),
    HttpApiEndpoint.get("context", "/v1/conversations/:id/context", {
      params,
      success: ConversationContext,
      error: ConversationNotFound
    }).annotate(OpenApi.Description, "Metadata of a conversation, never bodies."),
    HttpApiEndpoint.get("participants", "/v1/conversations/:id/participants", {
      params,
      success: Schema.Array(Party),
      error: ConversationNotFound
    }).annotate(OpenApi.Description, "Direct: the counterparty. Group: everybody."),
    HttpApiEndpoint.delete("hide", "/v1/conversations/:id", {
      params,
      success: Schema.Struct({ ok: Schema.Literal(true), hidden: Schema.Literal(true), message: Schema.String }),
      error: ConversationNotFound
    }).middleware(Idempotency).annotate(OpenApi.Description, "Hides what there is so far from the caller alone; a new message brings it back.")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Conversations", description: "The caller's conversations." }))
{}
