import type { Operation } from "#domain/groups/Group"
import type { Content } from "#domain/messages/Message"
import { CursorId, rowsOf } from "#infrastructure/wire/Page"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { MAX_ROWS, statusOf } from "#interfaces/operator/AgentAdmin"
import type { Because } from "#interfaces/operator/AuditLog"
import { DeadDeliveries, type Retried } from "#interfaces/operator/DeadDeliveries"
import { type GroupDetails, type OperatedGroup, OperatedGroups } from "#interfaces/operator/OperatedGroups"
import { Removals } from "#interfaces/operator/Removals"
import type { Report } from "#interfaces/operator/Report"
import { Reports } from "#interfaces/operator/Reports"
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

const detailsOf = (group: GroupDetails) => ({
  ...groupOf(group),
  members: group.members.map(({ handle, joinedAt, role }) => ({ handle, role, joined_at: iso(joinedAt) })),
  invites: group.invites
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
      const removals = yield* Removals
      const reports = yield* Reports

      const decide = Effect.fnUntraced(function*(id: string, state: "upheld" | "dismissed", note: string | null) {
        const { operator } = yield* CurrentOperator
        const now = yield* Clock.currentTimeMillis
        return reportOf(yield* reports.decide({ id, state, operator, note }), now)
      })
      const operate = (id: string, operation: Operation, handle: string | null, reason: string | null = null) =>
        Effect.flatMap(CurrentOperator, ({ operator }) =>
          Effect.map(groups.operate(id, operation, handle, { operator, reason }), detailsOf))
      const removing = <E>(
        act: (id: string, because: Because) => Effect.Effect<void, E>,
        id: string,
        reason: string | null | undefined,
        message: string
      ) =>
        Effect.flatMap(
          CurrentOperator,
          ({ operator }) =>
            Effect.as(act(id, { operator, reason: reason ?? null }), { ok: true as const, message })
        )
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
        group: ({ params }) => Effect.map(groups.one(params.id), detailsOf),
        promoteMember: ({ params, payload }) => operate(params.id, "promote", params.handle, payload.reason),
        removeMember: ({ params, payload }) => operate(params.id, "remove", params.handle, payload.reason),
        deleteGroup: ({ params, payload }) => operate(params.id, "delete", null, payload.reason),
        removeMessage: ({ params, payload }) =>
          removing(removals.message, params.id, payload.reason, "The message is removed."),
        quarantineFile: ({ params, payload }) =>
          removing(removals.file, params.id, payload.reason, "The file is in quarantine."),
        releaseFile: ({ params, payload }) =>
          removing(removals.releaseFile, params.id, payload.reason, "The file is released."),
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
        report: Effect.fnUntraced(function*({ params }) {
          const now = yield* Clock.currentTimeMillis
          const report = yield* reports.one(params.id)
          return {
            ...reportOf(report, now),
            messages: report.messages.map(({ at, content, id, sender, type }) => ({
              id,
              sender,
              at: iso(at),
              type,
              content: JSON.parse(content) as typeof Content.Type
            }))
          }
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
