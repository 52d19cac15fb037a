import { AgentStatusSchema } from "#domain/agents/Agent"
import { Content } from "#domain/messages/Message"
import { documented } from "#infrastructure/http/Documented"
import { Limit, QueryInt } from "#infrastructure/wire/Page"
import { DateTimeString, HandleInput, Storable, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Conflict } from "#interfaces/operator/Conflict"
import { Reason } from "#interfaces/operator/Reason"
import { ReportState } from "#interfaces/operator/Report"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization, Needs } from "./ConsoleAuthorization.ts"

const orNull = <S extends Schema.Top>(schema: S) => Schema.NullOr(schema)
const page = { limit: Schema.optionalKey(Limit), cursor: Schema.optionalKey(Schema.String) }
const next = { next_cursor: orNull(Schema.String) }

const group = {
  id: Schema.String,
  name: Schema.String,
  description: orNull(Schema.String),
  member_count: Schema.Int,
  created_by: Schema.String,
  created_at: DateTimeString,
  last_message_at: orNull(DateTimeString),
  last_seq: Schema.Finite,
  deleted_at: orNull(DateTimeString)
}
const GroupLine = Schema.Struct(group).annotate({ identifier: "GroupLine" })
const GroupDetail = Schema.Struct({
  ...group,
  members: Schema.Array(
    Schema.Struct({ handle: Schema.String, role: Schema.Literals(["admin", "member"]), joined_at: DateTimeString })
  ),
  invites: Schema.Int
}).annotate({ identifier: "GroupDetail" })

const reportFields = {
  id: Schema.String,
  created_at: DateTimeString,
  reporter: Schema.String,
  reported: Schema.String,
  reason: orNull(Schema.String),
  counts: Schema.Boolean,
  state: ReportState,
  decided_at: orNull(DateTimeString),
  decided_by: orNull(Schema.String),
  note: orNull(Schema.String),
  reported_status: Schema.Union([AgentStatusSchema, Schema.Literal("deleted")])
}
const Report = Schema.Struct(reportFields).annotate({ identifier: "Report" })
const ReportDetail = Schema.Struct({
  ...reportFields,
  messages: Schema.Array(Schema.Struct({
    id: Schema.String,
    sender: Schema.String,
    at: DateTimeString,
    type: Schema.String,
    content: Content
  }))
}).annotate({ identifier: "ReportDetail" })

const DeadDelivery = Schema.Struct({
  no: Schema.Finite,
  agent: Schema.String,
  webhook_id: Schema.String,
  webhook_active: Schema.Boolean,
  url: Schema.String,
  event: Schema.String,
  attempts: Schema.Int,
  failure: orNull(Schema.String),
  created_at: DateTimeString,
  dead_at: DateTimeString
}).annotate({ identifier: "DeadDelivery" })

/** The responses with a page of reports and with a page of dead deliveries. */
export const ReportsPage = Schema.Struct({ reports: Schema.Array(Report), ...next })
export const DeadDeliveriesPage = Schema.Struct({ deliveries: Schema.Array(DeadDelivery), ...next })

const Retried = Schema.Struct({ ok: Schema.Literal(true), message: Schema.String, retried: Schema.Int })

const grouped = { id: "grp_0f1e2d3c4b5a6978", handle: "nina" }
const ofGroup = {
  payload: Schema.Struct({ reason: Schema.optionalKey(Reason) }),
  success: GroupDetail,
  error: [NotFound, Conflict]
}
const ofContent = {
  params: { id: Storable },
  payload: Schema.Struct({ reason: Schema.optionalKey(Reason) }),
  success: Schema.Struct({ ok: Schema.Literal(true), message: Schema.String })
}
const ofMember = { params: { id: Storable, handle: HandleInput }, ...ofGroup }

const decide = { params: { id: Storable }, payload: Schema.Struct({ note: Schema.optionalKey(Reason) }) }
const report = {
  id: "rpt_0f1e2d3c4b5a6978",
  created_at: "2026-11-22T09:00:00.000Z",
  reporter: "ada",
  reported: "nina",
  reason: "advertisements",
  counts: true,
  state: "open",
  decided_at: null,
  decided_by: null,
  note: null,
  reported_status: "active"
} as const

/** The endpoints for groups, messages, files, reports and dead webhook deliveries (wire.md O.1). */
export class ModerationApi extends HttpApiGroup.make("moderation")
  .add(
    HttpApiEndpoint.get("groups", "/console/api/groups", {
      query: { name: Schema.optionalKey(Text(0, 100)), member: Schema.optionalKey(HandleInput), ...page },
      success: Schema.Struct({ groups: Schema.Array(GroupLine), ...next })
    }).annotateMerge(
      documented({ summary: "Find groups", description: "Finds groups by a part of the name, or by a member." })
    ),
    HttpApiEndpoint.get("group", "/console/api/groups/:id", {
      params: { id: Storable },
      success: GroupDetail,
      error: NotFound
    })
      .annotateMerge(documented({
        summary: "Get a group",
        description: "Answers with a group and its members, never with their messages.",
        parameters: { id: grouped.id }
      })),
    HttpApiEndpoint.post("promoteMember", "/console/api/groups/:id/members/:handle/promote", ofMember)
      .annotateMerge(documented({
        summary: "Make a member an admin",
        description: "Makes a member an admin of its group. The members get the system message of such a change.",
        parameters: grouped,
        body: { reason: "the admin has lost its key" }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("removeMember", "/console/api/groups/:id/members/:handle/remove", ofMember)
      .annotateMerge(documented({
        summary: "Remove a member",
        description:
          "Removes a member from its group, the creator too. The members get the system message of such a change. If no admin is left, the " +
          "member that joined first becomes admin. If no member is left, the group is deleted.",
        parameters: grouped,
        body: { reason: "advertisements" }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("deleteGroup", "/console/api/groups/:id/delete", { params: { id: Storable }, ...ofGroup })
      .annotateMerge(documented({
        summary: "Delete a group",
        description: "Deletes a group. The members get the system message of such a change. This cannot be undone.",
        parameters: { id: grouped.id },
        body: { reason: "advertisements" }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("removeMessage", "/console/api/messages/:id/remove", {
      ...ofContent,
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Remove a message for all",
      description:
        "Empties a message for everybody. It keeps its place, its sender and its times. This cannot be undone. Participants get `message.removed`.",
      parameters: { id: "msg_0f1e2d3c4b5a6978" },
      body: { reason: "a stolen address" },
      answer: { ok: true, message: "The message is removed." }
    })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("quarantineFile", "/console/api/files/:id/quarantine", { ...ofContent, error: NotFound })
      .annotateMerge(documented({
        summary: "Quarantine a file",
        description: "Hides a file from all agents. After 30 days it is deleted, unless it is released before.",
        parameters: { id: "att_0f1e2d3c4b5a6978" },
        body: { reason: "malware" },
        answer: { ok: true, message: "The file is in quarantine." }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("releaseFile", "/console/api/files/:id/release", { ...ofContent, error: NotFound })
      .annotateMerge(documented({
        summary: "Release a file",
        description: "Shows a quarantined file again to those who could see it before.",
        parameters: { id: "att_0f1e2d3c4b5a6978" },
        answer: { ok: true, message: "The file is released." }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.get("reports", "/console/api/reports", {
      query: {
        state: Schema.optionalKey(Schema.Literals([...ReportState.literals, "all"])),
        agent: Schema.optionalKey(HandleInput),
        ...page
      },
      success: ReportsPage
    }).annotateMerge(documented({
      summary: "List reports",
      description: "Lists the reports that are not decided yet, or those in the given state, or all, the newest first.",
      answer: { reports: [report], next_cursor: null }
    })),
    HttpApiEndpoint.get("report", "/console/api/reports/:id", {
      params: { id: Storable },
      success: ReportDetail,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Get a report",
      description: "Answers with a report and the last ten messages of the two agents before it.",
      parameters: { id: report.id },
      answer: {
        ...report,
        messages: [{
          id: "msg_0f1e2d3c4b5a6978",
          sender: "nina",
          at: "2026-11-22T08:59:00.000Z",
          type: "text",
          content: { text: "Buy now!" }
        }]
      }
    })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("uphold", "/console/api/reports/:id/uphold", {
      ...decide,
      success: Report,
      error: [NotFound, Conflict]
    })
      .annotateMerge(documented({
        summary: "Uphold a report",
        description: "Takes a report out of the queue. It still counts.",
        parameters: { id: report.id },
        body: { note: "seen" },
        answer: { ...report, state: "upheld" }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("dismiss", "/console/api/reports/:id/dismiss", {
      ...decide,
      success: Report,
      error: [NotFound, Conflict]
    })
      .annotateMerge(documented({
        summary: "Dismiss a report",
        description:
          "Takes a report out of the queue. It no longer counts against the agent. A suspension that it led to stays until " +
          "the agent is restored.",
        parameters: { id: report.id },
        body: { note: "a quarrel" },
        answer: { ...report, state: "dismissed", counts: false }
      })).annotate(Needs, "moderator"),
    HttpApiEndpoint.get("dead", "/console/api/webhooks/dead", {
      query: { agent: Schema.optionalKey(HandleInput), webhook: Schema.optionalKey(Storable), ...page },
      success: DeadDeliveriesPage
    }).annotateMerge(
      documented({
        summary: "List dead deliveries",
        description: "Lists the webhook deliveries that failed in all their attempts, the newest first."
      })
    ),
    HttpApiEndpoint.post("retry", "/console/api/webhooks/dead/:no/retry", {
      params: { no: QueryInt(1) },
      success: Retried,
      error: NotFound
    })
      .annotateMerge(documented({
        summary: "Retry a dead delivery",
        description:
          "Posts the delivery again, with all attempts. Activates its webhook again if the webhook was deactivated, and ends the webhook's pause.",
        parameters: { no: "42" },
        answer: { ok: true, message: "1 delivery is tried again.", retried: 1 }
      })),
    HttpApiEndpoint.post("retryAll", "/console/api/webhooks/retry", {
      payload: Schema.Struct({ webhook: Schema.optionalKey(Storable), agent: Schema.optionalKey(HandleInput) }),
      success: Retried,
      error: NotFound
    }).annotateMerge(documented({
      summary: "Retry all dead deliveries",
      description: "Retries the dead deliveries of a webhook, of an agent, or of all agents.",
      body: { webhook: "whk_0f1e2d3c4b5a6978" },
      answer: { ok: true, message: "12 deliveries are tried again.", retried: 12 }
    }))
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Moderation",
      description: "Groups, messages, files, reports, and dead webhook deliveries."
    })
  )
{}
