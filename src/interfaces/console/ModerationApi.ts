import { AgentStatusSchema } from "#domain/agents/Agent"
import { documented } from "#infrastructure/http/Documented"
import { Limit, QueryInt } from "#infrastructure/wire/Page"
import { DateTimeString, HandleInput, Storable, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Reason } from "#interfaces/operator/AuditLog"
import { Conflict } from "#interfaces/operator/Conflict"
import { ReportState } from "#interfaces/operator/Reports"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization } from "./ConsoleAuthorization.ts"

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

const Report = Schema.Struct({
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
}).annotate({ identifier: "Report" })

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

/** The endpoints for groups, reports and dead webhook deliveries (wire.md O.1). */
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
        parameters: { id: "grp_0f1e2d3c4b5a6978" }
      })),
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
      })),
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
      })),
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
    OpenApi.annotations({ title: "Moderation", description: "Groups, reports, and dead webhook deliveries." })
  )
{}
