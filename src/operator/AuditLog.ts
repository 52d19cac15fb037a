import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"

export interface AuditEntry {
  readonly no: number
  readonly at: number
  /** Null: enforcement. */
  readonly operator: string | null
  readonly action: string
  /** A handle; null: it concerns no single agent. */
  readonly agent: string | null
  readonly detail: string | null
}

/** What is written down: who did, or looked at, what. Actions that only look begin with `show` or `list`. */
export interface AuditNote {
  readonly operator: string
  readonly action: string
  /** A normalised handle, or null. */
  readonly handle: string | null
  readonly detail: string | null
}

/** The audit log (wire.md O.1). Rows are only added; those of a change go into the change's transaction. */
export class AuditLog extends Context.Service<AuditLog, {
  readonly note: (note: AuditNote) => Effect.Effect<void, SqlError.SqlError>
  /** The newest first, older than `before`. */
  readonly list: (query: {
    readonly handle: string | null
    readonly operator: string | null
    readonly looks: boolean
    readonly before: number | null
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<AuditEntry>, SqlError.SqlError>
}>()("parley/operator/AuditLog") {
  static readonly layer = Layer.effect(
    AuditLog,
    Effect.map(SqlClient.SqlClient, (sql) =>
      AuditLog.of({
        note: Effect.fnUntraced(function*({ action, detail, handle, operator }) {
          const at = yield* Clock.currentTimeMillis
          yield* sql`
            INSERT INTO audit_log (at, operator, action, agent_id, reason)
            VALUES (${at}, ${operator}, ${action}, (SELECT id FROM agents WHERE handle = ${handle}), ${detail})`
        }),
        list: ({ before, handle, limit, looks, operator }) =>
          sql<AuditEntry>`
            SELECT l.no, l.at, l.operator, l.action, a.handle AS agent, l.reason AS detail
            FROM audit_log l LEFT JOIN agents a ON a.id = l.agent_id
            WHERE ${before === null ? sql`true` : sql`l.no < ${before}`}
              AND ${handle === null ? sql`true` : sql`l.agent_id = (SELECT id FROM agents WHERE handle = ${handle})`}
              AND ${operator === null ? sql`true` : sql`l.operator = ${operator}`}
              AND ${looks ? sql`true` : sql`l.action NOT LIKE 'show%' AND l.action NOT LIKE 'list%'`}
            ORDER BY l.no DESC LIMIT ${limit}`
      }))
  )
}
