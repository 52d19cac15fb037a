import { Clock, Effect, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { statusOf } from "#doors/operator/AgentAdmin"
import { DeadDeliveries, type Retried } from "#doors/operator/DeadDeliveries"
import { type Report, Reports } from "#doors/operator/Reports"
import { CursorId, decodeCursor, encodeCursor, pageSize } from "#ground/wire/Page"
import { iso, isoOrNull } from "#ground/wire/Text"
import { NotFound } from "#ground/wire/WireError"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { type GroupRow, GroupsLookRepo } from "./GroupsLookRepo.ts"
import { ModerationApi } from "./ModerationApi.ts"

const AfterReport = Schema.Struct({ at: Schema.Int, id: CursorId })
const AfterDelivery = Schema.Struct({ at: Schema.Int, id: Schema.String.check(Schema.isPattern(/^\d{1,15}$/)) })

const groupOf = (group: GroupRow) => ({
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

export const ModerationHttp = HttpApiBuilder.group(consoleApiOf(ModerationApi), "moderation", (handlers) =>
  Effect.gen(function*() {
    const deadDeliveries = yield* DeadDeliveries
    const groups = yield* GroupsLookRepo
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
        const limit = pageSize(query.limit)
        const after = query.cursor === undefined ? "" : yield* decodeCursor(CursorId)(query.cursor)
        const rows = yield* groups.find({ name: query.name ?? "", member: query.member ?? null, after, limit })
        return { groups: rows.map(groupOf), next_cursor: rows.length < limit ? null : encodeCursor(rows.at(-1)!.id) }
      }),
      group: Effect.fnUntraced(function*({ params }) {
        const group = yield* groups.one(params.id)
        if (group === undefined) return yield* new NotFound({ message: "There is no such group." })
        const members = yield* groups.members(group.id)
        return {
          ...groupOf(group),
          members: members.map(({ handle, joinedAt, role }) => ({ handle, role, joined_at: iso(joinedAt) })),
          invites: yield* groups.invites(group.id)
        }
      }),
      reports: Effect.fnUntraced(function*({ query }) {
        const now = yield* Clock.currentTimeMillis
        const limit = pageSize(query.limit)
        const after = query.cursor === undefined ? null : yield* decodeCursor(AfterReport)(query.cursor)
        const rows = yield* reports.list({ state: query.state ?? "open", agent: query.agent ?? null, after, limit })
        const last = rows.at(-1)
        return {
          reports: rows.map((row) => reportOf(row, now)),
          next_cursor: last === undefined || rows.length < limit ? null : encodeCursor({ at: last.createdAt, id: last.id })
        }
      }),
      uphold: ({ params, payload }) => decide(params.id, "upheld", payload.note ?? null),
      dismiss: ({ params, payload }) => decide(params.id, "dismissed", payload.note ?? null),
      dead: Effect.fnUntraced(function*({ query }) {
        const limit = pageSize(query.limit)
        const cursor = query.cursor === undefined ? null : yield* decodeCursor(AfterDelivery)(query.cursor)
        const after = cursor === null ? null : { at: cursor.at, no: Number(cursor.id) }
        const rows = yield* deadDeliveries.list({ agent: query.agent ?? null, webhook: query.webhook ?? null, after, limit })
        const last = rows.at(-1)
        return {
          deliveries: rows.map(({ active, createdAt, deadAt, webhookId, ...row }) => ({
            ...row,
            webhook_id: webhookId,
            webhook_active: active,
            created_at: iso(createdAt),
            dead_at: iso(deadAt)
          })),
          next_cursor: last === undefined || rows.length < limit ? null : encodeCursor({ at: last.deadAt, id: String(last.no) })
        }
      }),
      retry: Effect.fnUntraced(function*({ params }) {
        const retried = yield* retry({ no: params.no })
        return retried === 0 ? yield* new NotFound({ message: "There is no such dead delivery, or its webhook is deleted." }) : retriedOf(retried)
      }),
      retryAll: ({ payload }) => Effect.map(retry(payload), retriedOf)
    })
  }))
