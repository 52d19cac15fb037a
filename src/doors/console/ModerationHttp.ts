import { Clock, Effect, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { statusAt } from "#domain/agents/Agent"
import { unavailableOnSqlError } from "#ground/database/UnavailableOnSqlError"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { AuditLog } from "#doors/operator/AuditLog"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { CursorId, decodeCursor, encodeCursor, pageSize } from "#ground/wire/Page"
import { iso, isoOrNull } from "#ground/wire/Text"
import { NotFound } from "#ground/wire/WireError"
import { Conflict, consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { ModerationApi } from "./ModerationApi.ts"
import { type GroupRow, ModerationRepo, type ReportRow, RETRIED_AT_ONCE } from "./ModerationRepo.ts"

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

const reportOf = (report: ReportRow, now: number) => ({
  id: report.id,
  created_at: iso(report.createdAt),
  reporter: report.reporter,
  reported: report.reported,
  reason: report.reason,
  counts: report.counts,
  state: report.decision ?? "open" as const,
  decided_at: isoOrNull(report.decidedAt),
  decided_by: report.decidedBy,
  note: report.note,
  reported_status: report.deletedAt === null ? statusAt(report.status, report.restrictedUntil, now) : "deleted" as const
})

const retriedOf = (retried: number) => ({
  ok: true as const,
  message: retried === 1 ? "1 delivery is tried again." : `${retried} deliveries are tried again.`,
  retried
})

export const ModerationHttp = HttpApiBuilder.group(consoleApiOf(ModerationApi), "moderation", (handlers) =>
  Effect.gen(function*() {
    const audit = yield* AuditLog
    const enforcement = yield* Enforcement
    const repo = yield* ModerationRepo
    const webhooks = yield* WebhookActors

    const find = Effect.fnUntraced(function*(id: string) {
      const report = yield* unavailableOnSqlError(repo.report(id))
      return report ?? (yield* new NotFound({ message: "There is no such report." }))
    })
    const decide = Effect.fnUntraced(function*(id: string, decision: "upheld" | "dismissed", note: string | null) {
      const { operator } = yield* CurrentOperator
      const now = yield* Clock.currentTimeMillis
      const { reportedId } = yield* find(id)
      const done = yield* unavailableOnSqlError(repo.decide({ id, decision, operator, note, at: now }))
      if (done && decision === "dismissed") yield* enforcement.recount(reportedId)
      const report = yield* find(id)
      return done
        ? reportOf(report, now)
        : yield* new Conflict({ message: `${report.decidedBy ?? "Somebody"} has ${report.decision ?? "decided"} it already.` })
    })
    const retry = Effect.fnUntraced(function*(which: { readonly no?: number; readonly webhook?: string; readonly agent?: string }) {
      const { operator } = yield* CurrentOperator
      const woken = new Set<string>()
      for (let retried = 0;;) {
        const some = yield* unavailableOnSqlError(repo.retry({
          no: which.no ?? null,
          webhook: which.webhook ?? null,
          agent: which.agent ?? null,
          operator,
          at: yield* Clock.currentTimeMillis
        }))
        for (const id of some) woken.add(id)
        retried += some.length
        if (some.length < RETRIED_AT_ONCE) {
          for (const id of woken) webhooks.wake(id)
          return retried
        }
      }
    })

    return handlers.handleAll({
      groups: Effect.fnUntraced(function*({ query }) {
        const limit = pageSize(query.limit)
        const after = query.cursor === undefined ? "" : yield* decodeCursor(CursorId)(query.cursor)
        const rows = yield* unavailableOnSqlError(repo.groups({ name: query.name ?? "", member: query.member ?? null, after, limit }))
        return { groups: rows.map(groupOf), next_cursor: rows.length < limit ? null : encodeCursor(rows.at(-1)!.id) }
      }),
      group: Effect.fnUntraced(function*({ params }) {
        const group = yield* unavailableOnSqlError(repo.group(params.id))
        if (group === undefined) return yield* new NotFound({ message: "There is no such group." })
        const members = yield* unavailableOnSqlError(repo.members(group.id))
        return {
          ...groupOf(group),
          members: members.map(({ handle, joinedAt, role }) => ({ handle, role, joined_at: iso(joinedAt) })),
          invites: yield* unavailableOnSqlError(repo.invites(group.id))
        }
      }),
      reports: Effect.fnUntraced(function*({ query }) {
        const now = yield* Clock.currentTimeMillis
        const limit = pageSize(query.limit)
        const after = query.cursor === undefined ? null : yield* decodeCursor(AfterReport)(query.cursor)
        const rows = yield* unavailableOnSqlError(repo.reports({ state: query.state ?? "open", agent: query.agent ?? null, after, limit }))
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
        const after = query.cursor === undefined ? null : yield* decodeCursor(AfterDelivery)(query.cursor)
        const rows = yield* unavailableOnSqlError(repo.dead({ agent: query.agent ?? null, webhook: query.webhook ?? null, after, limit }))
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
      retryAll: Effect.fnUntraced(function*({ payload }) {
        const { operator } = yield* CurrentOperator
        const retried = yield* retry(payload)
        if (retried === 0) {
          const note = { operator, action: "retry webhooks", handle: payload.agent ?? null, detail: `${payload.webhook ?? "all"}: none is dead` }
          yield* unavailableOnSqlError(audit.note(note))
        }
        return retriedOf(retried)
      })
    })
  }))
