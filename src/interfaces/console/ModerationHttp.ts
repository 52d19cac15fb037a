import { CursorId, rowsOf } from "#infrastructure/wire/Page"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { MAX_ROWS, statusOf } from "#interfaces/operator/AgentAdmin"
import { DeadDeliveries, type Retried } from "#interfaces/operator/DeadDeliveries"
import { type OperatedGroup, OperatedGroups } from "#interfaces/operator/OperatedGroups"
import { type Report, Reports } from "#interfaces/operator/Reports"
import { Clock, Effect, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { ModerationApi } from "./ModerationApi.ts"

const AfterReport = Schema.Struct({ at: Schema.Int, id: CursorId })
const AfterDelivery = Schema.Struct({ at: Schema.Int, id: Schema.String.check(Schema.isPattern(/^\d{1,15}$/)) })

const groupOf = (group: OperatedGroup) => ({
  id: group.id,
  name: group.name,
  description: group.description,
  member_count: group.memberCount,
  created_by: group.createdBy,
  created_at: iso(group.createdAt),
  last_message_at: isoOrNull(group.lastMessageAt),
  last_seq: group.lastSeq,
  deleted_at: isoOrNull(group.deletedAt)
})

const reportOf = (report: Report, now: number) => ({
  id: report.id,
  created_at: iso(report.createdAt),
  reporter: report.reporter,
  reported: report.reported,
  reason: report.reason,
  counts: report.counts,
  state: report.state,
  decided_at: isoOrNull(report.decidedAt),
  decided_by: report.decidedBy,
  note: report.note,
  reported_status: statusOf(report, now)
})

const retriedOf = (retried: number) => ({
  ok: true as const,
  message: retried === 1 ? "1 delivery is tried again." : `${retried} deliveries are tried again.`,
  retried
})

export const ModerationHttp = HttpApiBuilder.group(
  consoleApiOf(ModerationApi),
  "moderation",
  (handlers) =>
    Effect.gen(function*() {
      const deadDeliveries = yield* DeadDeliveries
      const groups = yield* OperatedGroups
      const reports = yield* Reports

      const decide = Effect.fnUntraced(function*(id: string, state: "upheld" | "dismissed", note: string | null) {
        const { operator } = yield* CurrentOperator
        const now = yield* Clock.currentTimeMillis
        return reportOf(yield* reports.decide({ id, state, operator, note }), now)
      })
      const retry = (which: Retried) =>
        Effect.flatMap(CurrentOperator, ({ operator }) => deadDeliveries.retry(which, operator))

      return handlers.handleAll({
        groups: Effect.fnUntraced(function*({ query }) {
          const { nextCursor, rows } = yield* rowsOf(query, {
            max: MAX_ROWS,
            position: CursorId,
            rows: (after, limit) =>
              groups.find({ name: query.name ?? "", member: query.member ?? null, after: after ?? "", limit }),
            positionOf: ({ id }) => id
          })
          return { groups: rows.map(groupOf), next_cursor: nextCursor }
        }),
        group: Effect.fnUntraced(function*({ params }) {
          const group = yield* groups.one(params.id)
          return {
            ...groupOf(group),
            members: group.members.map(({ handle, joinedAt, role }) => ({ handle, role, joined_at: iso(joinedAt) })),
            invites: group.invites
          }
        }),
        reports: Effect.fnUntraced(function*({ query }) {
          const now = yield* Clock.currentTimeMillis
          const { nextCursor, rows } = yield* rowsOf(query, {
            max: MAX_ROWS,
            position: AfterReport,
            rows: (after, limit) =>
              reports.list({
                state: query.state === "all" ? null : query.state ?? "open",
                agent: query.agent ?? null,
                after,
                limit
              }),
            positionOf: ({ createdAt, id }) => ({ at: createdAt, id })
          })
          return { reports: rows.map((row) => reportOf(row, now)), next_cursor: nextCursor }
        }),
        uphold: ({ params, payload }) => decide(params.id, "upheld", payload.note ?? null),
        dismiss: ({ params, payload }) => decide(params.id, "dismissed", payload.note ?? null),
        dead: Effect.fnUntraced(function*({ query }) {
          const { nextCursor, rows } = yield* rowsOf(query, {
            max: MAX_ROWS,
            position: AfterDelivery,
            rows: (after, limit) =>
              deadDeliveries.list({
                agent: query.agent ?? null,
                webhook: query.webhook ?? null,
                after: after === null ? null : { at: after.at, no: Number(after.id) },
                limit
              }),
            positionOf: ({ deadAt, no }) => ({ at: deadAt, id: String(no) })
          })
          return {
            deliveries: rows.map(({ active, createdAt, deadAt, webhookId, ...row }) => ({
              ...row,
              webhook_id: webhookId,
              webhook_active: active,
              created_at: iso(createdAt),
              dead_at: iso(deadAt)
            })),
            next_cursor: nextCursor
          }
        }),
        retry: Effect.fnUntraced(function*({ params }) {
          const retried = yield* retry({ no: params.no })
          return retried === 0
            ? yield* new NotFound({ message: "No dead delivery has this number, or its webhook was deleted." })
            : retriedOf(retried)
        }),
        retryAll: ({ payload }) => Effect.map(retry(payload), retriedOf)
      })
    })
)
