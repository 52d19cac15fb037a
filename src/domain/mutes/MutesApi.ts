import { AgentNotFound } from "#domain/agents/Agent"
import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { ConversationNotFound } from "#domain/conversations/Conversation"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { documented } from "#infrastructure/http/Documented"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { ada, grace, GROUP_ID, wholeList } from "#infrastructure/wire/Examples"
import { pageQuery } from "#infrastructure/wire/Page"
import { HandleInput, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { LISTED, Mute, MuteKindSchema, SelfMute, TooManyMutes } from "./Mute.ts"

/**
 * A new mute. It names an agent by handle or id, or a conversation by id. It lasts until a time in the future, or for
 * good.
 */
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

const ofGrace: typeof Mute.Type = {
  muter_agent_id: ada.id,
  target_kind: "agent",
  target_id: grace.id,
  target_handle: grace.handle,
  muted_until: "2026-11-06T08:00:00.000Z",
  created_at: "2026-11-05T18:00:00.000Z"
}

const ofGroup: typeof Mute.Type = {
  muter_agent_id: ada.id,
  target_kind: "conversation",
  target_id: GROUP_ID,
  target_handle: null,
  muted_until: null,
  created_at: "2026-11-05T18:05:00.000Z"
}

const agent = { handle: HandleInput }
const conversation = { id: Text(1, 128) }

/** Mutes of the caller (wire.md C.10). */
export class MutesApi extends HttpApiGroup.make("mutes")
  .add(
    HttpApiEndpoint.post("mute", "/v1/mutes", {
      payload: NewMute,
      success: Mute.pipe(HttpApiSchema.status(201)),
      error: [AgentNotFound, ConversationNotFound, SelfMute, TooManyMutes]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Mute an agent or conversation",
      description:
        "Stops pushing the messages of an agent or a conversation to the caller, for good or until muted_until. The server still " +
        "stores the messages, and notifies nobody of the mute. A repeated mute changes muted_until.",
      body: { target_kind: "agent", target_handle: grace.handle, muted_until: ofGrace.muted_until },
      answer: ofGrace
    })),
    HttpApiEndpoint.get("list", "/v1/mutes", {
      query: { ...pageQuery, kind: Schema.optionalKey(MuteKindSchema) },
      success: MutePage
    }).annotate(LargeAnswer, { ...LISTED, bytes: 512 }).annotateMerge(documented({
      summary: "List your mutes",
      description: "Lists the caller's mutes that have not ended, newest first, at most 200 in an answer.",
      answer: { mutes: [ofGroup, ofGrace], ...wholeList(2, 200) }
    })),
    HttpApiEndpoint.get("ofAgent", "/v1/mutes/agent/:handle", { params: agent, success: Mute, error: NotFound })
      .annotateMerge(documented({
        summary: "Get an agent's mute",
        description: "Answers with the caller's mute of an agent; 404 if there is none, or if it has ended.",
        parameters: { handle: grace.handle },
        answer: ofGrace
      })),
    HttpApiEndpoint.get("ofConversation", "/v1/mutes/conversation/:id", {
      params: conversation,
      success: Mute,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Get a conversation's mute",
      description: "Answers with the caller's mute of a conversation; 404 if there is none, or if it has ended.",
      parameters: { id: GROUP_ID },
      answer: ofGroup
    })),
    HttpApiEndpoint.delete("liftAgent", "/v1/mutes/agent/:handle", {
      params: agent,
      success: Confirmation,
      error: NotFound
    })
      .middleware(Idempotency)
      .annotate(OwnBudget, true)
      .annotateMerge(documented({
        summary: "Unmute an agent",
        description:
          "Removes the caller's mute of an agent. Messages that arrived during the mute are not pushed afterwards, but are in the list " +
          "of undelivered messages.",
        parameters: { handle: grace.handle },
        answer: confirm("The agent is not muted any more.")
      })),
    HttpApiEndpoint.delete("liftConversation", "/v1/mutes/conversation/:id", {
      params: conversation,
      success: Confirmation,
      error: NotFound
    }).middleware(Idempotency).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Unmute a conversation",
      description:
        "Removes the caller's mute of a conversation. Messages that arrived during the mute are not pushed afterwards, but are in the " +
        "list of undelivered messages.",
      parameters: { id: GROUP_ID },
      answer: confirm("The conversation is not muted any more.")
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Mutes", description: "Stop the pushes of messages of an agent or a conversation." })
  )
{}
