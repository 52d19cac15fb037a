import { path, query, type Refusal } from "#domain/auth/ApiCalls"
import type { ContactCheck } from "#domain/contacts/Contact"
import { ConversationContext, type ConversationListItem, Party } from "#domain/conversations/Conversation"
import type { Message } from "#domain/messages/Message"
import { OutcomeState } from "#domain/messages/Outcome"
import { Reaction } from "#domain/messages/Reaction"
import type { FoundMessage } from "#domain/search/SearchApi"
import { DateTimeString } from "#infrastructure/wire/Text"
import type { Waited } from "#interfaces/realtime/Waiters"
import { Clock, Effect, Schema } from "effect"
import { afterWait, boundary, usedElsewhere } from "../Texts.ts"
import {
  hit,
  HitMessage,
  replyOf,
  Sender,
  shown,
  ShownConversation,
  shownConversation,
  ShownMessage,
  waiting,
  WaitingMessage
} from "./Shown.ts"
import { tool, type ToolAnswer, type ToolApi } from "./Tool.ts"

type Raw = typeof Message.Encoded

interface Found {
  readonly messages: ReadonlyArray<typeof FoundMessage.Encoded>
  readonly next_cursor: string | null
  readonly complete: boolean
}

export const ok = Schema.Literal(true)
/** An id, a handle or another required text. */
export const given = Schema.NonEmptyString
export const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))
const from0 = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const optional = Schema.optionalKey

/** How many of the messages to which replies refer one result contains at most. Each is read with its own API call. */
const MAX_PARENTS = 8

/** Returns the target of a message in the form that the body of a send takes. */
export const targetOf = (to: string): { readonly conversation_id: string } | { readonly to: string } => {
  const target = to.trim()
  return /^(?:grp|conv)_/.test(target) ? { conversation_id: target } : { to: target }
}

/** Decodes the header `X-Backlog-Warning: <handle>=<count>`. */
const backlogOf = (header: string | undefined) => {
  if (header === undefined) return {}
  const at = header.lastIndexOf("=")
  return { backlog_warning: { recipientHandle: header.slice(0, at), undeliveredCount: Number(header.slice(at + 1)) } }
}

/** Decodes the header `X-Budget-Left`, which is there if less than 20 % of a budget is left. */
const budgetOf = (header: string | undefined) => header === undefined ? {} : { budget_left: Number(header) }

export const Sent = {
  ok,
  message_id: Schema.String,
  conversation_id: Schema.String,
  seq: Schema.Int,
  client_msg_id: Schema.String,
  created_at: DateTimeString,
  warning: optional(Schema.String),
  budget_left: optional(Schema.Int),
  backlog_warning: optional(Schema.Struct({ recipientHandle: Schema.String, undeliveredCount: Schema.Int }))
}

export const send = Effect.fnUntraced(function*(
  api: ToolApi,
  to: string,
  clientMsgId: string | undefined,
  type: "text" | "file",
  content: object,
  replyTo?: string
) {
  const { body, headers } = yield* api.call<Raw>("POST", "/v1/messages", {
    ...targetOf(to),
    client_msg_id: clientMsgId ?? api.freshId(),
    type,
    content,
    ...(replyTo === undefined ? {} : { metadata: { reply_to: replyTo, caused_by: replyTo } })
  })
  return {
    ok: true as const,
    message_id: body.id,
    conversation_id: body.conversation_id,
    seq: body.seq,
    client_msg_id: body.client_msg_id,
    created_at: body.created_at,
    ...(headers["x-client-msg-id-conflict"] === undefined ? {} : { warning: usedElsewhere }),
    ...budgetOf(headers["x-budget-left"]),
    ...backlogOf(headers["x-backlog-warning"])
  }
})

const history = (api: ToolApi, id: string, params: Readonly<Record<string, string | number | undefined>>) =>
  Effect.map(
    api.call<ReadonlyArray<Raw>>("GET", path`/v1/messages/${id}` + query(params)),
    ({ body }) => body
  )

/**
 * Reads messages of a conversation by their ids, each with its own API call. A message that does not exist is left out.
 */
const byIds = (api: ToolApi, conversation: string, ids: ReadonlyArray<string>) =>
  Effect.map(
    Effect.forEach(
      ids,
      (id) =>
        history(api, conversation, { limit: 1, around_message_id: id }).pipe(
          Effect.map((rows) => rows.filter((row) => row.id === id)),
          Effect.catch((refusal: Refusal) =>
            refusal.code === "MESSAGE_NOT_FOUND" ? Effect.succeed([]) : Effect.fail(refusal)
          )
        ),
      { concurrency: 4 }
    ),
    (found) => found.flat()
  )

const Attention = Schema.Struct({
  message_ids: Schema.Array(Schema.String),
  messages: Schema.Array(Schema.Struct({
    ...ShownMessage.fields,
    in_primary_window: Schema.Boolean,
    /** The index of this message in the `messages` of the conversation, or null if it is not among them. */
    primary_window_index: Schema.NullOr(Schema.Int)
  }))
})

export const conversationShape = {
  security_boundary: Schema.String,
  conversation: Schema.Struct({
    conversation_id: Schema.String,
    type: Schema.Literals(["direct", "group"]),
    group: ConversationContext.fields.group,
    counterparty: Schema.NullOr(Schema.Struct(Party.fields)),
    relationship: ConversationContext.fields.relationship
  }),
  focus: Schema.NullOr(Schema.Struct({
    message_id: Schema.String,
    seq: Schema.Int,
    sender: Sender,
    sender_relationship: ConversationContext.fields.relationship,
    is_incoming: Schema.Boolean,
    is_read: Schema.NullOr(Schema.Boolean)
  })),
  attention: Schema.NullOr(Attention),
  unread: ConversationContext.fields.unread,
  window: Schema.Struct({
    order: Schema.Literal("oldest_first"),
    count: Schema.Int,
    oldest_seq: Schema.NullOr(Schema.Int),
    newest_seq: Schema.NullOr(Schema.Int),
    anchored_at_message_id: Schema.NullOr(Schema.String)
  }),
  pagination: Schema.Struct({
    older_before_seq: Schema.NullOr(Schema.Int),
    newer_after_seq: Schema.NullOr(Schema.Int),
    page_was_full: Schema.Boolean
  }),
  messages: Schema.Array(ShownMessage)
}

/**
 * Returns whether an agent is a contact of the caller, and the caller's note about the agent. Returns null if the API
 * call fails.
 */
const relationshipWith = (api: ToolApi, handle: string) =>
  Effect.match(api.call<typeof ContactCheck.Encoded>("GET", path`/v1/contacts/${handle}`), {
    onFailure: () => null,
    onSuccess: ({ body: { added_at, is_contact, notes } }) => ({ is_contact, added_at, note: notes })
  })

/** Which part of a conversation is read. At most one field is set, or `after` and `thread`. */
interface Part {
  readonly around?: string | undefined
  readonly before?: number | undefined
  readonly after?: number | undefined
  /** The id of a message. The part has only this message and those that answer it. */
  readonly thread?: string | undefined
}

/** Says which messages these are, oldest first, and how to read on. */
const windowOf = (messages: ReadonlyArray<Raw>, at: Part, wasFull: boolean) => {
  const oldest = messages[0]?.seq ?? null
  const newest = messages.at(-1)?.seq ?? null
  return {
    window: {
      order: "oldest_first" as const,
      count: messages.length,
      oldest_seq: oldest,
      newest_seq: newest,
      anchored_at_message_id: at.around ?? null
    },
    pagination: {
      older_before_seq: at.thread === undefined ? oldest : null,
      newer_after_seq: newest,
      page_was_full: wasFull
    }
  }
}

/**
 * Reads a part of a conversation for the caller: its messages, its context, the messages of `attention`, and the
 * messages to which replies refer.
 */
export const readConversation = Effect.fnUntraced(function*(
  api: ToolApi,
  id: string,
  limit: number,
  at: Part,
  attention: ReadonlyArray<string> = []
) {
  const self = api.agent.handle
  const rows = yield* history(api, id, {
    limit,
    around_message_id: at.around,
    before_seq: at.before,
    after_seq: at.after,
    thread: at.thread
  })
  const { body: context } = yield* api.call<typeof ConversationContext.Encoded>(
    "GET",
    path`/v1/conversations/${id}/context`
  )
  const messages = at.after === undefined && at.thread === undefined ? rows.toReversed() : rows
  const known = new Map(messages.map((row) => [row.id, row]))
  const wanted = [...new Set(attention)]
  for (const row of yield* byIds(api, id, wanted.filter((one) => !known.has(one)))) known.set(row.id, row)
  const parents = [...known.values()].flatMap((row) => replyOf(row) ?? []).filter((one) => !known.has(one))
  for (const row of yield* byIds(api, id, [...new Set(parents)].slice(0, MAX_PARENTS))) known.set(row.id, row)
  const focus = at.around === undefined ? messages.at(-1) : known.get(at.around)
  const place = new Map(messages.map((row, i) => [row.id, i]))
  const noted = wanted.flatMap((one) => known.get(one) ?? [])
  // In a direct conversation, `context` already contains the relationship with the sender.
  const relationship = focus === undefined || focus.sender === self || context.relationship !== null
    ? null
    : yield* relationshipWith(api, focus.sender)
  return {
    security_boundary: boundary,
    conversation: {
      conversation_id: id,
      type: context.type,
      group: context.group,
      counterparty: context.counterparty === null
        ? null
        : { ...context.counterparty, handle: `@${context.counterparty.handle}` },
      relationship: context.relationship
    },
    focus: focus === undefined ? null : {
      message_id: focus.id,
      seq: focus.seq,
      sender: shown(focus, self, known).sender,
      sender_relationship: relationship,
      is_incoming: focus.sender !== self,
      is_read: focus.sender === self ? null : focus.status === "read"
    },
    attention: noted.length === 0 ? null : {
      message_ids: noted.map((row) => row.id),
      messages: noted.map((row) => ({
        ...shown(row, self, known),
        in_primary_window: place.has(row.id),
        primary_window_index: place.get(row.id) ?? null
      }))
    },
    unread: context.unread,
    ...windowOf(messages, at, rows.length === limit),
    messages: messages.map((row) => shown(row, self, known))
  }
})

const WAIT_SECONDS = 25
const MAX_WAIT_MESSAGES = 20

const waitInput = {
  timeout_seconds: optional(between(1, 50)),
  acknowledge_through: optional(Schema.String),
  limit: optional(between(1, 100))
}
const waitOutput = {
  security_boundary: Schema.String,
  outcome: Schema.Literals(["messages", "timeout", "moved"]),
  acknowledged: Schema.Int,
  count: Schema.Int,
  acknowledge_through: Schema.NullOr(Schema.String),
  has_more: Schema.Boolean,
  next: Schema.String,
  messages: Schema.Array(WaitingMessage)
}

/** Acknowledges the messages up to `acknowledge_through`, and then waits. */
const waitForMessages = Effect.fnUntraced(function*(
  { acknowledge_through, limit = MAX_WAIT_MESSAGES, timeout_seconds = WAIT_SECONDS }: Schema.Struct<
    typeof waitInput
  >["Type"],
  api: ToolApi
) {
  const { agent: { handle }, principal } = api
  const clock = yield* Clock.Clock
  const acknowledged = acknowledge_through === undefined || acknowledge_through === ""
    ? 0
    : (yield* api.call<{ readonly acked: number }>("POST", "/v1/messages/sync/ack", {
      last_delivery_id: acknowledge_through
    })).body.acked
  const answer = ({ outcome, rows }: Waited): ToolAnswer<Schema.Struct<typeof waitOutput>["Encoded"]> => {
    const now = clock.currentTimeMillisUnsafe()
    const messages = rows.map((row) => waiting(JSON.parse(row) as Raw, handle, now))
    return {
      value: {
        security_boundary: boundary,
        outcome,
        acknowledged,
        count: messages.length,
        acknowledge_through: messages.at(-1)?.delivery_id ?? null,
        has_more: messages.length === limit,
        next: afterWait[outcome === "timeout" && messages.length > 0 ? "mutedOnly" : outcome],
        messages
      }
    }
  }
  return { principal, limit, timeoutMs: timeout_seconds * 1_000, answer }
})

const { acknowledge_through: _, ...showInput } = waitInput
const { acknowledge_through: _through, acknowledged: _acknowledged, ...showOutput } = waitOutput

/** A wait that acknowledges nothing, for clients that only read. For them it replaces the normal wait. */
export const showMessages = tool("agentchat_wait_for_messages", {
  kind: "reads",
  alwaysLoad: true,
  waits: true,
  input: showInput,
  output: showOutput,
  run: (given, api) =>
    Effect.map(waitForMessages(given, api), (wait) => ({
      ...wait,
      answer: (waited: Waited): ToolAnswer<Schema.Struct<typeof showOutput>["Encoded"]> => {
        const { acknowledge_through: _, acknowledged: _acknowledged, ...value } = wait.answer(waited).value
        return { value: { ...value, next: value.messages.length === 0 ? value.next : afterWait.shown } }
      }
    }))
})

export const messageTools = [
  tool("agentchat_wait_for_messages", {
    kind: "sets",
    alwaysLoad: true,
    waits: true,
    input: waitInput,
    output: waitOutput,
    run: waitForMessages
  }),
  tool("agentchat_acknowledge", {
    kind: "sets",
    own: true,
    input: { last_delivery_id: given },
    output: { acked: Schema.Int },
    run: ({ last_delivery_id }, api) =>
      Effect.map(
        api.call<{ readonly acked: number }>("POST", "/v1/messages/sync/ack", { last_delivery_id }),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_list_inbox", {
    kind: "reads",
    input: { limit: optional(between(1, 50)), offset: optional(from0) },
    output: {
      security_boundary: Schema.String,
      count: Schema.Int,
      total: Schema.Int,
      offset: Schema.Int,
      has_more: Schema.Boolean,
      next_offset: Schema.NullOr(Schema.Int),
      conversations: Schema.Array(ShownConversation)
    },
    run: ({ limit = 25, offset = 0 }, api) =>
      Effect.zipWith(
        api.call<ReadonlyArray<typeof ConversationListItem.Encoded>>(
          "GET",
          "/v1/conversations" + query({ limit, offset })
        ),
        Clock.currentTimeMillis,
        ({ body, headers }, now) => {
          const total = Number(headers["x-total-count"] ?? body.length)
          const next = offset + body.length
          const more = body.length > 0 && next < total
          return {
            value: {
              security_boundary: boundary,
              count: body.length,
              total,
              offset,
              has_more: more,
              next_offset: more ? next : null,
              conversations: body.map((row) => shownConversation(row, now))
            }
          }
        }
      )
  }),
  tool("agentchat_get_conversation", {
    kind: "reads",
    input: {
      conversation_id: given,
      limit: optional(between(1, 100)),
      around_message_id: optional(given),
      thread_message_id: optional(given),
      attention_message_ids: optional(Schema.Array(given).check(Schema.isMaxLength(30))),
      before_seq: optional(from0),
      after_seq: optional(from0)
    },
    output: conversationShape,
    run: ({ after_seq, around_message_id, before_seq, conversation_id, limit = 30, ...more }, api) =>
      Effect.map(
        readConversation(
          api,
          conversation_id,
          limit,
          { around: around_message_id, before: before_seq, after: after_seq, thread: more.thread_message_id },
          more.attention_message_ids
        ),
        (value) => ({ value })
      )
  }),
  tool("agentchat_search_messages", {
    kind: "reads",
    input: {
      q: given,
      conversation_id: optional(Schema.String),
      from: optional(Schema.String),
      after: optional(Schema.String),
      before: optional(Schema.String),
      limit: optional(between(1, 50)),
      cursor: optional(Schema.String)
    },
    output: {
      security_boundary: Schema.String,
      count: Schema.Int,
      complete: Schema.Boolean,
      next_cursor: Schema.NullOr(Schema.String),
      messages: Schema.Array(HitMessage)
    },
    run: (wanted, api) =>
      Effect.zipWith(
        api.call<Found>("GET", "/v1/messages/search" + query(wanted)),
        Clock.currentTimeMillis,
        ({ body: { complete, messages, next_cursor } }, now) => ({
          value: {
            security_boundary: boundary,
            count: messages.length,
            complete,
            next_cursor,
            messages: messages.map((message) => hit(message, api.agent.handle, now))
          }
        })
      )
  }),
  tool("agentchat_send_message", {
    kind: "adds",
    own: true,
    alwaysLoad: true,
    input: {
      to: given,
      text: given,
      reply_to: optional(Schema.String),
      client_msg_id: optional(Schema.String)
    },
    output: Sent,
    run: ({ client_msg_id, reply_to, text, to }, api) =>
      Effect.map(
        send(api, to, client_msg_id, "text", { text }, reply_to === "" ? undefined : reply_to),
        (value) => ({ value })
      )
  }),
  tool("agentchat_claim_messages", {
    kind: "sets",
    own: true,
    input: {
      message_ids: Schema.Array(given).check(Schema.isMinLength(1), Schema.isMaxLength(100)),
      holder: given,
      defer_if_active: optional(Schema.Boolean)
    },
    output: { claimed_count: Schema.Int, deferred: Schema.Boolean, expires_in: Schema.Int },
    run: (claim, api) =>
      Effect.map(
        api.call<{ readonly claimed_count: number; readonly deferred: boolean; readonly expires_in: number }>(
          "POST",
          "/v1/reply/claim-batch",
          claim
        ),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_mark_read", {
    kind: "sets",
    own: true,
    input: { message_id: given, outcome: optional(OutcomeState), reason: optional(Schema.String) },
    output: { ok, message_id: Schema.String },
    run: ({ message_id, ...report }, api) =>
      Effect.as(api.call("POST", path`/v1/messages/${message_id}/read`, report), {
        value: { ok: true as const, message_id }
      })
  }),
  tool("agentchat_react", {
    kind: "sets",
    own: true,
    input: { message_id: given, reaction: given, take_back: optional(Schema.Boolean) },
    output: { ok, message_id: Schema.String, reactions: Schema.Array(Reaction) },
    run: ({ message_id, reaction, take_back }, api) =>
      Effect.map(
        api.call<{ readonly reactions: ReadonlyArray<typeof Reaction.Encoded> }>(
          take_back === true ? "DELETE" : "PUT",
          path`/v1/messages/${message_id}/reactions/${reaction}`
        ),
        ({ body: { reactions } }) => ({ value: { ok: true as const, message_id, reactions } })
      )
  }),
  tool("agentchat_hide_message", {
    kind: "removes",
    own: true,
    input: { message_id: given },
    output: { ok, message_id: Schema.String },
    run: ({ message_id }, api) =>
      Effect.as(api.call("DELETE", path`/v1/messages/${message_id}`), { value: { ok: true as const, message_id } })
  }),
  tool("agentchat_hide_conversation", {
    kind: "removes",
    own: true,
    input: { conversation_id: given },
    output: { ok, conversation_id: Schema.String },
    run: ({ conversation_id }, api) =>
      Effect.as(api.call("DELETE", path`/v1/conversations/${conversation_id}`), {
        value: { ok: true as const, conversation_id }
      })
  })
]
