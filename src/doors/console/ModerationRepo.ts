import { Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"

export interface GroupRow {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly memberCount: number
  readonly createdBy: string
  readonly createdAt: number
  readonly lastMessageAt: number | null
  readonly lastSeq: number
  readonly deletedAt: number | null
}

export interface ReportRow {
  readonly id: string
  readonly createdAt: number
  readonly reporter: string
  readonly reported: string
  readonly reportedId: string
  readonly reason: string | null
  readonly counts: boolean
  readonly decision: "upheld" | "dismissed" | null
  readonly decidedAt: number | null
  readonly decidedBy: string | null
  readonly note: string | null
  readonly status: "active" | "suspended"
  readonly restrictedUntil: number | null
  readonly deletedAt: number | null
}

export interface DeadRow {
  readonly no: number
  readonly agent: string
  readonly webhookId: string
  readonly active: boolean
  readonly url: string
  readonly event: string
  readonly attempts: number
  readonly failure: string | null
  readonly createdAt: number
  readonly deadAt: number
}

/** The last row of the page before, in the order of times and then of ids. */
export interface After {
  readonly at: number
  readonly id: string
}

/** Deliveries that one statement retries. */
export const RETRIED_AT_ONCE = 500

/** Groups, reports and dead deliveries as operators see them. A decision and a retry write their audit row in the same statement. */
export class ModerationRepo extends Context.Service<ModerationRepo, {
  /** In the order of ids. */
  readonly groups: (query: {
    readonly name: string
    readonly member: string | null
    readonly after: string
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<GroupRow>, SqlError.SqlError>
  readonly group: (id: string) => Effect.Effect<GroupRow | undefined, SqlError.SqlError>
  readonly members: (
    groupId: string
  ) => Effect.Effect<ReadonlyArray<{ readonly handle: string; readonly role: "admin" | "member"; readonly joinedAt: number }>, SqlError.SqlError>
  readonly invites: (groupId: string) => Effect.Effect<number, SqlError.SqlError>
  readonly reports: (query: {
    readonly state: "open" | "upheld" | "dismissed"
    readonly agent: string | null
    readonly after: After | null
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<ReportRow>, SqlError.SqlError>
  readonly report: (id: string) => Effect.Effect<ReportRow | undefined, SqlError.SqlError>
  /** Decides a report; false if it is decided already. A dismissal makes a recount of the agent due. */
  readonly decide: (decision: {
    readonly id: string
    readonly decision: "upheld" | "dismissed"
    readonly operator: string
    readonly note: string | null
    readonly at: number
  }) => Effect.Effect<boolean, SqlError.SqlError>
  readonly dead: (query: {
    readonly agent: string | null
    readonly webhook: string | null
    readonly after: After | null
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<DeadRow>, SqlError.SqlError>
  /** Makes dead deliveries due again, at most RETRIED_AT_ONCE; returns the webhook of each. */
  readonly retry: (which: {
    readonly no: number | null
    readonly webhook: string | null
    readonly agent: string | null
    readonly operator: string
    readonly at: number
  }) => Effect.Effect<ReadonlyArray<string>, SqlError.SqlError>
}>()("parley/console/ModerationRepo") {
  static readonly layer = Layer.effect(
    ModerationRepo,
    Effect.map(SqlClient.SqlClient, (sql) => {
      const groups = sql.literal(`
        SELECT g.id, g.name, g.description, g.member_count AS "memberCount", a.handle AS "createdBy", g.created_at AS "createdAt",
          c.last_message_at AS "lastMessageAt", c.last_seq AS "lastSeq", g.deleted_at AS "deletedAt"
        FROM groups g JOIN conversations c ON c.id = g.id JOIN agents a ON a.id = g.creator_id`)
      const reports = sql.literal(`
        SELECT r.id, r.created_at AS "createdAt", a.handle AS reporter, b.handle AS reported, b.id AS "reportedId", r.reason,
          r.decision IS DISTINCT FROM 'dismissed' AND EXISTS (
            SELECT FROM conversations c WHERE c.id = r.conversation_id AND c.initiator_id = r.reported_id
          ) AS counts,
          r.decision, r.decided_at AS "decidedAt", r.decided_by AS "decidedBy", r.note,
          b.status, b.restricted_until AS "restrictedUntil", b.deleted_at AS "deletedAt"
        FROM reports r JOIN agents a ON a.id = r.agent_id JOIN agents b ON b.id = r.reported_id`)
      return ModerationRepo.of({
        groups: ({ after, limit, member, name }) =>
          sql<GroupRow>`
            ${groups} WHERE g.id > ${after}
              AND ${name === "" ? sql`true` : sql`position(lower(${name}) IN lower(g.name)) > 0`}
              AND ${
            member === null ? sql`true` : sql`EXISTS (
                SELECT FROM group_members m WHERE m.group_id = g.id AND m.left_at IS NULL
                  AND m.agent_id = (SELECT id FROM agents WHERE handle = ${member}))`
          }
            ORDER BY g.id LIMIT ${limit}`,
        group: (id) => Effect.map(sql<GroupRow>`${groups} WHERE g.id = ${id}`, (rows) => rows[0]),
        members: (groupId) =>
          sql`
            SELECT a.handle, m.role, m.joined_at AS "joinedAt" FROM group_members m JOIN agents a ON a.id = m.agent_id
            WHERE m.group_id = ${groupId} AND m.left_at IS NULL ORDER BY m.joined_seq`,
        invites: (groupId) =>
          Effect.map(
            sql<{ readonly n: number }>`SELECT count(*) AS n FROM group_invites WHERE group_id = ${groupId}`,
            (rows) => rows[0]?.n ?? 0
          ),
        reports: ({ after, agent, limit, state }) =>
          sql<ReportRow>`
            ${reports}
            WHERE ${state === "open" ? sql`r.decision IS NULL` : sql`r.decision = ${state}`}
              AND ${agent === null ? sql`true` : sql`b.handle = ${agent}`}
              AND ${after === null ? sql`true` : sql`(r.created_at, r.id) < (${after.at}, ${after.id})`}
            ORDER BY r.created_at DESC, r.id DESC LIMIT ${limit}`,
        report: (id) => Effect.map(sql<ReportRow>`${reports} WHERE r.id = ${id}`, (rows) => rows[0]),
        decide: ({ at, decision, id, note, operator }) =>
          Effect.map(
            sql`
              WITH done AS (
                UPDATE reports SET decision = ${decision}, decided_at = ${at}, decided_by = ${operator}, note = ${note}
                WHERE id = ${id} AND decision IS NULL RETURNING reported_id
              ), due AS (
                INSERT INTO recounts (agent_id) SELECT reported_id FROM done WHERE ${decision} = 'dismissed'
              ), noted AS (
                INSERT INTO audit_log (at, operator, action, agent_id, reason)
                SELECT ${at}::bigint, ${operator}, ${decision === "upheld" ? "uphold report" : "dismiss report"}, reported_id,
                  ${note === null ? id : `${id}: ${note}`} FROM done
              )
              SELECT reported_id FROM done`,
            (rows) => rows.length > 0
          ),
        dead: ({ after, agent, limit, webhook }) =>
          sql<DeadRow>`
            SELECT d.no, a.handle AS agent, d.webhook_id AS "webhookId", w.active, w.url, d.event, d.attempts, d.failure,
              d.created_at AS "createdAt", d.finished_at AS "deadAt"
            FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id JOIN agents a ON a.id = w.agent_id
            WHERE d.delivered = false AND d.finished_at IS NOT NULL
              AND ${agent === null ? sql`true` : sql`a.handle = ${agent}`}
              AND ${webhook === null ? sql`true` : sql`w.id = ${webhook}`}
              AND ${after === null ? sql`true` : sql`(d.finished_at, d.no) < (${after.at}, ${Number(after.id)})`}
            ORDER BY d.finished_at DESC, d.no DESC LIMIT ${limit}`,
        retry: ({ agent, at, no, operator, webhook }) =>
          Effect.map(
            sql<{ readonly webhook_id: string }>`
              WITH these AS (
                SELECT d.no FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id AND w.deleted_at IS NULL
                WHERE d.delivered = false
                  AND ${no === null ? sql`true` : sql`d.no = ${no}`}
                  AND ${webhook === null ? sql`true` : sql`w.id = ${webhook}`}
                  AND ${agent === null ? sql`true` : sql`w.agent_id = (SELECT id FROM agents WHERE handle = ${agent})`}
                ORDER BY d.finished_at LIMIT ${RETRIED_AT_ONCE}
              ), due AS (
                UPDATE webhook_deliveries d SET attempts = 0, due_at = ${at}, finished_at = NULL, delivered = NULL
                FROM these t WHERE d.no = t.no AND d.delivered = false RETURNING d.webhook_id
              ), hooks AS (
                UPDATE webhooks SET active = true, dead_in_a_row = 0, paused_until = NULL
                WHERE id IN (SELECT webhook_id FROM due) RETURNING id, agent_id
              ), noted AS (
                INSERT INTO audit_log (at, operator, action, agent_id, reason)
                SELECT ${at}::bigint, ${operator}, 'retry webhook', agent_id, id FROM hooks
              )
              SELECT webhook_id FROM due`,
            (rows) => rows.map(({ webhook_id }) => webhook_id)
          )
      })
    })
  )
}
