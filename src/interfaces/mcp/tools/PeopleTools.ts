import { AgentRecord, Card, PolicySchema } from "#domain/agents/Agent"
import { path, query } from "#domain/auth/ApiCalls"
import { ContactPage } from "#domain/contacts/ContactsApi"
import { DirectoryEntry } from "#domain/directory/DirectoryApi"
import { Mute } from "#domain/mutes/Mute"
import { MutePage } from "#domain/mutes/MutesApi"
import { Presence, PresenceStatusSchema } from "#domain/presence/Presence"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect, Schema } from "effect"
import { between, given, ok } from "./MessageTools.ts"
import { tool } from "./Tool.ts"

const optional = Schema.optionalKey
const done = { ok, handle: Schema.String }
const shown = (handle: string): string => handle.trim().replace(/^@/, "").toLowerCase()

/** Returns the path of the API for a mute of an agent or of a conversation. */
const mutePath = (
  handle: string | undefined,
  conversationId: string | undefined
): Effect.Effect<string, ValidationFailed> =>
  handle !== undefined && conversationId === undefined
    ? Effect.succeed(path`/v1/mutes/agent/${handle}`)
    : conversationId !== undefined && handle === undefined
    ? Effect.succeed(path`/v1/mutes/conversation/${conversationId}`)
    : Effect.fail(ValidationFailed.field("handle", "give either handle or conversation_id"))

/** A skill as a model writes it. Only the API validates it, so that the schema that every model reads stays short. */
const SkillInput = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  description: Schema.String,
  tags: Schema.Array(Schema.String),
  examples: optional(Schema.Array(Schema.String))
})

export const peopleTools = [
  tool("agentchat_get_my_status", {
    kind: "reads",
    own: true,
    input: {},
    output: AgentRecord.fields,
    run: (_, api) =>
      Effect.map(api.call<typeof AgentRecord.Encoded>("GET", "/v1/agents/me"), ({ body }) => ({ value: body }))
  }),
  tool("agentchat_update_profile", {
    kind: "sets",
    own: true,
    input: {
      display_name: optional(Schema.String),
      description: optional(Schema.String),
      inbox_mode: optional(PolicySchema),
      invite_policy: optional(PolicySchema),
      skills: optional(Schema.Array(SkillInput))
    },
    output: AgentRecord.fields,
    run: ({ description, display_name, inbox_mode, invite_policy, skills }, api) =>
      Effect.map(
        api.call<typeof AgentRecord.Encoded>("PATCH", path`/v1/agents/${api.agent.handle}`, {
          display_name,
          description,
          settings: { inbox_mode, group_invite_policy: invite_policy },
          skills
        }),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_get_agent_profile", {
    kind: "reads",
    input: { handle: given },
    output: Card.fields,
    run: ({ handle }, api) =>
      Effect.map(api.call<typeof Card.Encoded>("GET", path`/v1/agents/${handle}`), ({ body }) => ({ value: body }))
  }),
  tool("agentchat_search_directory", {
    kind: "reads",
    input: {
      prefix: optional(given),
      tag: optional(given),
      limit: optional(between(1, 50)),
      cursor: optional(Schema.String)
    },
    output: {
      count: Schema.Int,
      total: Schema.Int,
      agents: Schema.Array(DirectoryEntry),
      next_cursor: Schema.NullOr(Schema.String)
    },
    run: ({ cursor, limit, prefix, tag }, api) =>
      Effect.map(
        api.call<{
          readonly total: number
          readonly agents: ReadonlyArray<typeof DirectoryEntry.Encoded>
          readonly next_cursor: string | null
        }>("GET", "/v1/directory" + query({ q: prefix, tag, limit, cursor: cursor === "" ? undefined : cursor })),
        ({ body: { agents, next_cursor, total } }) => ({ value: { count: agents.length, total, agents, next_cursor } })
      )
  }),
  tool("agentchat_list_contacts", {
    kind: "reads",
    input: { limit: optional(between(1, 100)), offset: optional(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))) },
    output: { count: Schema.Int, ...ContactPage.fields },
    run: ({ limit, offset }, api) =>
      Effect.map(
        api.call<typeof ContactPage.Encoded>("GET", "/v1/contacts" + query({ limit: limit ?? 50, offset })),
        ({ body }) => ({ value: { count: body.contacts.length, ...body } })
      )
  }),
  tool("agentchat_add_contact", {
    kind: "sets",
    own: true,
    input: { handle: given, note: optional(Schema.String) },
    output: { ...done, note_saved: Schema.Boolean },
    run: Effect.fnUntraced(function*({ handle, note }, api) {
      yield* api.call("POST", "/v1/contacts", note === undefined ? { handle } : { handle, notes: note })
      // POST does not change the note of an agent that is already a contact.
      if (note !== undefined) yield* api.call("PATCH", path`/v1/contacts/${handle}`, { notes: note })
      return { value: { ok: true as const, handle: shown(handle), note_saved: note !== undefined } }
    })
  }),
  tool("agentchat_remove_contact", {
    kind: "removes",
    own: true,
    input: { handle: given },
    output: done,
    run: ({ handle }, api) =>
      Effect.as(api.call("DELETE", path`/v1/contacts/${handle}`), {
        value: { ok: true as const, handle: shown(handle) }
      })
  }),
  tool("agentchat_block_agent", {
    kind: "removes",
    own: true,
    input: { handle: given },
    output: { ...done, blocked: ok },
    run: ({ handle }, api) =>
      Effect.as(api.call("POST", path`/v1/contacts/${handle}/block`), {
        value: { ok: true as const, handle: shown(handle), blocked: true as const }
      })
  }),
  tool("agentchat_unblock_agent", {
    kind: "sets",
    own: true,
    input: { handle: given },
    output: { ...done, outcome: Schema.Literal("unblocked") },
    run: ({ handle }, api) =>
      Effect.as(api.call("DELETE", path`/v1/contacts/${handle}/block`), {
        value: { ok: true as const, handle: shown(handle), outcome: "unblocked" as const }
      })
  }),
  tool("agentchat_report_agent", {
    kind: "removes",
    own: true,
    input: { handle: given, reason: optional(Schema.String) },
    output: { ...done, reported: ok, blocked: ok },
    run: ({ handle, reason }, api) =>
      Effect.as(api.call("POST", path`/v1/contacts/${handle}/report`, reason === undefined ? undefined : { reason }), {
        value: { ok: true as const, handle: shown(handle), reported: true as const, blocked: true as const }
      })
  }),
  tool("agentchat_set_presence", {
    kind: "sets",
    own: true,
    input: { status: PresenceStatusSchema, custom_message: optional(Schema.String) },
    output: Presence.fields,
    run: ({ custom_message, status }, api) =>
      Effect.map(
        api.call<typeof Presence.Encoded>("PUT", "/v1/presence", { status, custom_message }),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_get_presence", {
    kind: "reads",
    input: { handles: Schema.Array(given).check(Schema.isMinLength(1), Schema.isMaxLength(100)) },
    output: { presences: Schema.Array(Presence) },
    run: ({ handles }, api) =>
      Effect.map(
        api.call<{ readonly presences: ReadonlyArray<typeof Presence.Encoded> }>("POST", "/v1/presence/batch", {
          handles
        }),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_mute", {
    kind: "sets",
    own: true,
    input: { handle: optional(given), conversation_id: optional(given), muted_until: optional(Schema.String) },
    output: Mute.fields,
    run: Effect.fnUntraced(function*({ conversation_id, handle, muted_until }, api) {
      yield* mutePath(handle, conversation_id)
      const { body } = yield* api.call<typeof Mute.Encoded>("POST", "/v1/mutes", {
        ...(handle === undefined
          ? { target_kind: "conversation", target_id: conversation_id }
          : { target_kind: "agent", target_handle: handle }),
        muted_until
      })
      return { value: body }
    })
  }),
  tool("agentchat_unmute", {
    kind: "sets",
    own: true,
    input: { handle: optional(given), conversation_id: optional(given) },
    output: { ok },
    run: ({ conversation_id, handle }, api) =>
      Effect.flatMap(
        mutePath(handle, conversation_id),
        (url) => Effect.as(api.call("DELETE", url), { value: { ok: true as const } })
      )
  }),
  tool("agentchat_list_mutes", {
    kind: "reads",
    own: true,
    input: { limit: optional(between(1, 200)), cursor: optional(Schema.String) },
    output: { count: Schema.Int, ...MutePage.fields },
    run: ({ cursor, limit }, api) =>
      Effect.map(
        api.call<typeof MutePage.Encoded>(
          "GET",
          "/v1/mutes" + query({ limit: limit ?? 50, cursor: cursor === "" ? undefined : cursor })
        ),
        ({ body }) => ({ value: { count: body.mutes.length, ...body } })
      )
  })
]
