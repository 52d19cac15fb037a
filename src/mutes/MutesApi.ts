import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AgentNotFound } from "../agents/Agent.ts"
import { Authorization } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { ConversationNotFound } from "../conversations/Conversation.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { pageQuery } from "../wire/Page.ts"
import { HandleInput, Text } from "../wire/Text.ts"
import { NotFound } from "../wire/WireError.ts"
import { Mute, MuteKindSchema, SelfMute, TooManyMutes } from "./Mute.ts"

/** What to mute: an agent by handle or id, a conversation by id; until an instant in the future, or for good. */
export const NewMute = Schema.Struct({
  target_kind: MuteKindSchema,
  target_handle: Schema.optionalKey(Schema.NullOr(HandleInput)),
  target_id: Schema.optionalKey(Schema.NullOr(Text(0, 128))),
  muted_until: Schema.optionalKey(Schema.NullOr(Schema.String.annotate({ format: "date-time" } as never)))
})

export const MutePage = Schema.Struct({
  mutes: Schema.Array(Mute),
  total: Schema.Int,
  limit: Schema.Int,
  offset: Schema.Int,
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "MutePage" })

const agent = { handle: HandleInput }
const conversation = { id: Text(1, 128) }

/** Mutes of the caller (wire.md C.10). */
export class MutesApi extends HttpApiGroup.make("mutes")
  .add(
    HttpApiEndpoint.post("mute", "/v1/mutes", {
      payload: NewMute,
      success: Mute.pipe(HttpApiSchema.status(201)),
      error: [AgentNotFound, ConversationNotFound, SelfMute, TooManyMutes]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotate(
      OpenApi.Description,
      "Mutes an agent or a conversation: nothing of it is pushed any more, everything is stored. A repetition changes until when."
    ),
    HttpApiEndpoint.get("list", "/v1/mutes", {
      query: { ...pageQuery, kind: Schema.optionalKey(MuteKindSchema) },
      success: MutePage
    }).annotate(OpenApi.Description, "The active mutes, newest first; 200 at once unless limit says less."),
    HttpApiEndpoint.get("ofAgent", "/v1/mutes/agent/:handle", { params: agent, success: Mute, error: NotFound })
      .annotate(OpenApi.Description, "The mute of an agent; 404 if there is none now."),
    HttpApiEndpoint.get("ofConversation", "/v1/mutes/conversation/:id", {
      params: conversation,
      success: Mute,
      error: NotFound
    }).annotate(OpenApi.Description, "The mute of a conversation; 404 if there is none now."),
    HttpApiEndpoint.delete("liftAgent", "/v1/mutes/agent/:handle", { params: agent, success: Confirm, error: NotFound })
      .middleware(Idempotency)
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Description, "Lifts the mute of an agent. What came meanwhile is not pushed afterwards: it is in sync."),
    HttpApiEndpoint.delete("liftConversation", "/v1/mutes/conversation/:id", {
      params: conversation,
      success: Confirm,
      error: NotFound
    }).middleware(Idempotency).annotate(OwnBudget, true).annotate(
      OpenApi.Description,
      "Lifts the mute of a conversation. What came meanwhile is not pushed afterwards: it is in sync."
    )
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Mutes", description: "What the caller does not want pushed." }))
{}
