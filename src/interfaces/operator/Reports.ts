import { Enforcement } from "#domain/enforcement/Enforcement"
import { Database } from "#infrastructure/database/Sql"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Conflict } from "./Conflict.ts"
import type { Report, ReportedMessage, ReportState } from "./Report.ts"

/** How many messages before a report operators see. */
const CONTEXT_MESSAGES = 10

/**
 * The reports of agents about agents, and the decisions of operators about these reports. The statement of a decision
 * also writes its audit row.
 */
export class Reports extends Context.Service<Reports, {
  /**
   * The reports, the newest first. `null` selects all states, or all reported agents. `after` is the last report of the
   * previous page.
   */
  readonly list: (query: {
    readonly state: ReportState | null
    readonly agent: string | null
    readonly after: { readonly at: number; readonly id: string } | null
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<Report>, Unavailable>
  /** A report, with the last messages of the two agents before it, the oldest first. */
  readonly one: (
    id: string
  ) => Effect.Effect<Report & { readonly messages: ReadonlyArray<ReportedMessage> }, NotFound | Unavailable>
  /**
   * Decides an open report. A dismissed report no longer counts, and the reported agent is evaluated again before
   * `decide` returns.
   */
  readonly decide: (decision: {
    readonly id: string
    readonly state: "upheld" | "dismissed"
    readonly operator: string
    readonly note: string | null
  }) => Effect.Effect<Report, NotFound | Conflict | Unavailable>
}>()("parley/operator/Reports") {
  static readonly layer = Layer.effect(
    Reports,
    Effect.gen(function*() {
      const enforcement = yield* Enforcement
      const { query } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const reports = sql.literal(`
        SELECT r.id, r.created_at AS "createdAt", a.handle AS reporter, b.handle AS reported, r.reason,
          r.decision IS DISTINCT FROM 'dismissed' AND EXISTS (
            SELECT FROM conversations c WHERE c.id = r.conversation_id AND c.initiator_id = r.reported_id
          ) AS counts,
          COALESCE(r.decision, 'open') AS state, r.decided_at AS "decidedAt", r.decided_by AS "decidedBy", r.note,
          b.status, b.restricted_until AS "restrictedUntil", b.deleted_at AS "deletedAt"
        FROM reports r JOIN agents a ON a.id = r.agent_id JOIN agents b ON b.id = r.reported_id`)
      const find = Effect.fnUntraced(function*(id: string) {
        const [report] = yield* query<Report>`${reports} WHERE r.id = ${id}`
        return report ?? (yield* new NotFound({ message: "No report has this id." }))
      })
      return Reports.of({
        one: Effect.fn("Reports.one")(function*(id) {
          const report = yield* find(id)
          const messages = yield* query<ReportedMessage>`
            SELECT m.id, a.handle AS sender, m.created_at AS at, m.type, m.content
            FROM reports r
            JOIN LATERAL (
              SELECT * FROM messages
              WHERE conversation_id = r.conversation_id AND created_at <= r.created_at
              ORDER BY seq DESC LIMIT ${CONTEXT_MESSAGES}
            ) m ON true
            JOIN agents a ON a.id = m.sender_id
            WHERE r.id = ${id} ORDER BY m.seq`
          return { ...report, messages }
        }),
        list: ({ after, agent, limit, state }) =>
          query<Report>`
            ${reports}
            WHERE ${
            state === null ? sql`true` : state === "open" ? sql`r.decision IS NULL` : sql`r.decision = ${state}`
          }
              AND ${agent === null ? sql`true` : sql`b.handle = ${agent}`}
              AND ${after === null ? sql`true` : sql`(r.created_at, r.id) < (${after.at}, ${after.id})`}
            ORDER BY r.created_at DESC, r.id DESC LIMIT ${limit}`,
        decide: Effect.fn("Reports.decide")(function*({ id, note, operator, state }) {
          const at = yield* Clock.currentTimeMillis
          // A dismissal also makes a new evaluation of the reported agent due.
          const [decided] = yield* query<{ readonly reported_id: string }>`
            WITH done AS (
              UPDATE reports SET decision = ${state}, decided_at = ${at}, decided_by = ${operator}, note = ${note}
              WHERE id = ${id} AND decision IS NULL RETURNING reported_id
            ), due AS (
              INSERT INTO recounts (agent_id) SELECT reported_id FROM done WHERE ${state} = 'dismissed'
            ), noted AS (
              INSERT INTO audit_log (at, operator, action, agent_id, reason)
              SELECT ${at}::bigint, ${operator}, ${
            state === "upheld" ? "uphold report" : "dismiss report"
          }, reported_id,
                ${note === null ? id : `${id}: ${note}`} FROM done
            )
            SELECT reported_id FROM done`
          if (decided !== undefined && state === "dismissed") yield* enforcement.recount(decided.reported_id)
          const report = yield* find(id)
          if (decided !== undefined) return report
          return yield* new Conflict({
            message: `${report.decidedBy ?? "Somebody"} has already ${report.state} this report.`
          })
        })
      })
    })
  )
}
