import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { Counted } from "./EnforcementPolicy.ts"

/** The data for the evaluation of an agent, from one snapshot. */
export interface Case extends Counted {
  readonly status: "active" | "suspended"
  readonly judged: number
  /** The recounts that an evaluation of this snapshot covers. */
  readonly due: ReadonlyArray<number>
}

export interface Evaluation {
  readonly agentId: string
  /** `Case.judged` of the snapshot. If another evaluation has been committed since, this evaluation is not written. */
  readonly judged: number
  readonly due: ReadonlyArray<number>
  readonly restrictedUntil: number | null
  /** The reason why this evaluation suspends the agent, or `null` if it does not suspend the agent. */
  readonly suspension: string | null
  readonly at: number
}

/** An operator's decision, with its time. */
export interface Decree {
  readonly agentId: string
  readonly operator: string
  readonly reason: string | null
  readonly at: number
}

export interface Suspended {
  readonly id: string
  readonly suspendedAt: number
}

/** How many counted blocks and reports are in each window. */
export interface Tally {
  readonly blocksToRestrict: number
  readonly blocksToSuspend: number
  readonly reportsToSuspend: number
}

/**
 * SQL condition: the account is not deleted. With `deleted_at IS NULL`, the planner would read an index of all live
 * accounts when its statistics say that the table is empty.
 */
const live = (alias = ""): string => `COALESCE(${alias}deleted_at, 0) = 0`

const COUNTED_BLOCKS = `
  FROM blocks b
  WHERE b.blocked_id = $1 AND b.counts`

const COUNTED_REPORTS = `
  FROM reports r
  WHERE r.reported_id = $1 AND r.decision IS DISTINCT FROM 'dismissed' AND EXISTS (SELECT FROM conversations c WHERE c.id = r.conversation_id AND c.initiator_id = $1)`

const CASE = `
SELECT a.status, a.judged,
  ARRAY(
    SELECT b.created_at ${COUNTED_BLOCKS} AND b.created_at > GREATEST(a.counted_from, $2::bigint)
    ORDER BY b.created_at DESC LIMIT $3
  ) AS blocks,
  ARRAY(
    SELECT r.created_at ${COUNTED_REPORTS} AND r.created_at > GREATEST(a.counted_from, $2::bigint)
    ORDER BY r.created_at DESC LIMIT $4
  ) AS reports,
  ARRAY(SELECT no FROM recounts WHERE agent_id = $1) AS due
FROM agents a WHERE a.id = $1 AND ${live("a.")}`

/**
 * Queues the handover of a suspended agent's groups. In each group in which the agent is the last admin, a job makes
 * another member admin.
 */
const announced = (source: string, at: string): string => `
  INSERT INTO handovers (agent_id, since) SELECT id, ${at} FROM ${source}
  ON CONFLICT (agent_id) DO UPDATE SET since = excluded.since`

const JUDGE = `
WITH done AS (
  UPDATE agents SET
    judged = judged + 1,
    restricted_until = $4,
    status = CASE WHEN $5::text IS NULL THEN status ELSE 'suspended' END,
    suspended_at = CASE WHEN $5::text IS NULL THEN suspended_at ELSE $6::bigint END
  WHERE id = $1 AND judged = $2 AND ${live()}
  RETURNING id
), suspended AS (
  SELECT id FROM done WHERE $5::text IS NOT NULL
), answered AS (
  DELETE FROM recounts r USING done d WHERE r.no = ANY ($3::bigint[])
), announced AS (${announced("suspended", "$6::bigint")}
), noted AS (
  INSERT INTO audit_log (at, action, agent_id, reason) SELECT $6::bigint, 'suspend', id, $5::text FROM suspended
)
SELECT id FROM done`

const SUSPEND = `
WITH done AS (
  UPDATE agents SET judged = judged + 1, status = 'suspended', suspended_at = $2::bigint
  WHERE id = $1 AND ${live()} AND suspended_at IS NULL
  RETURNING id
), announced AS (${announced("done", "$2::bigint")}
), noted AS (
  INSERT INTO audit_log (at, operator, action, agent_id, reason) SELECT $2::bigint, $3, 'suspend', id, $4 FROM done
)
SELECT id FROM done`

const RESTORE = `
WITH done AS (
  UPDATE agents SET judged = judged + 1, status = 'active', suspended_at = NULL, restricted_until = NULL, counted_from = $2::bigint
  WHERE id = $1 AND ${live()}
  RETURNING id
), withdrawn AS (
  DELETE FROM handovers h USING done d WHERE h.agent_id = d.id
), noted AS (
  INSERT INTO audit_log (at, operator, action, agent_id, reason) SELECT $2::bigint, $3, 'restore', id, $4 FROM done
)
SELECT id FROM done`

const TALLY = `
SELECT
  (SELECT count(*) ${COUNTED_BLOCKS} AND b.created_at > GREATEST($2::bigint, $3::bigint)) AS blocks_to_restrict,
  (SELECT count(*) ${COUNTED_BLOCKS} AND b.created_at > GREATEST($2::bigint, $4::bigint)) AS blocks_to_suspend,
  (SELECT count(*) ${COUNTED_REPORTS} AND r.created_at > GREATEST($2::bigint, $4::bigint)) AS reports_to_suspend`

const DUE = `SELECT DISTINCT agent_id FROM (SELECT agent_id FROM recounts ORDER BY no LIMIT $1) oldest`

const DISMISS = `DELETE FROM recounts WHERE agent_id = $1`

/** The suspended agents after a time `$1` and an id `$2`, at most `$3`, in the order of their suspension. */
export const SUSPENDED_SINCE = `
SELECT id, suspended_at AS "suspendedAt" FROM agents WHERE status = 'suspended' AND (suspended_at, id) > ($1, $2)
ORDER BY suspended_at, id LIMIT $3`

const HANDOVERS = `SELECT agent_id, since FROM handovers ORDER BY agent_id LIMIT $1`

const HANDED_OVER = `DELETE FROM handovers WHERE agent_id = $1 AND since = $2`

/** The statements that restrict, suspend and restore agents. Each change and its audit row are one statement. */
export class EnforcementRepo extends Context.Service<EnforcementRepo, {
  /**
   * Returns the data of an agent, with the newest blocks and reports after `since`. Returns undefined for a deleted
   * account.
   */
  readonly load: (
    agentId: string,
    since: number,
    limits: { readonly blocks: number; readonly reports: number }
  ) => Effect.Effect<Case | undefined, Unavailable>
  /** Writes an evaluation. Returns false if another evaluation was committed first. */
  readonly judge: (evaluation: Evaluation) => Effect.Effect<boolean, Unavailable>
  /** Returns false if the agent is already suspended, or deleted. */
  readonly suspend: (decree: Decree) => Effect.Effect<boolean, Unavailable>
  /** Returns false if the agent is deleted. */
  readonly restore: (decree: Decree) => Effect.Effect<boolean, Unavailable>
  readonly tally: (
    agentId: string,
    from: number | null,
    since: { readonly restrict: number; readonly suspend: number }
  ) => Effect.Effect<Tally, Unavailable>
  /** Returns the agents of the oldest recounts that are due. */
  readonly due: (limit: number) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /** Deletes the recounts of a deleted account. */
  readonly dismiss: (agentId: string) => Effect.Effect<void, Unavailable>
  /** Returns the suspended agents after `after`, in the order of their suspension. */
  readonly suspendedSince: (after: Suspended, limit: number) => Effect.Effect<ReadonlyArray<Suspended>, Unavailable>
  readonly handovers: (
    limit: number
  ) => Effect.Effect<ReadonlyArray<{ readonly agentId: string; readonly since: number }>, Unavailable>
  /** Deletes a handover that is done. Keeps the handover of a later suspension. */
  readonly handedOver: (agentId: string, since: number) => Effect.Effect<void, Unavailable>
}>()("parley/enforcement/EnforcementRepo") {
  static readonly layer = Layer.effect(
    EnforcementRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const load = database.prepared<Case>("enforcement_case", CASE)
      const judge = database.prepared("judge_agent", JUDGE)
      const suspend = database.prepared("suspend_agent", SUSPEND)
      const restore = database.prepared("restore_agent", RESTORE)
      const tally = database.prepared<
        { blocks_to_restrict: number; blocks_to_suspend: number; reports_to_suspend: number }
      >("enforcement_tally", TALLY)
      const due = database.prepared<{ agent_id: string }>("recounts_due", DUE)
      const dismiss = database.prepared("dismiss_recounts", DISMISS)
      const suspendedSince = database.prepared<Suspended>("suspended_since", SUSPENDED_SINCE)
      const handovers = database.prepared<{ agent_id: string; since: number }>("handovers", HANDOVERS)
      const handedOver = database.prepared("handed_over", HANDED_OVER)
      const some = Effect.map((rows: ReadonlyArray<object>) => rows.length > 0)
      return EnforcementRepo.of({
        load: (agentId, since, limits) =>
          Effect.map(load([agentId, since, limits.blocks, limits.reports]), (rows) => rows[0]),
        judge: ({ agentId, at, due: answered, judged, restrictedUntil, suspension }) =>
          some(judge([agentId, judged, answered, restrictedUntil, suspension, at])),
        suspend: ({ agentId, at, operator, reason }) => some(suspend([agentId, at, operator, reason])),
        restore: ({ agentId, at, operator, reason }) => some(restore([agentId, at, operator, reason])),
        tally: (agentId, from, since) =>
          Effect.map(tally([agentId, from, since.restrict, since.suspend]), ([row]) => ({
            blocksToRestrict: row?.blocks_to_restrict ?? 0,
            blocksToSuspend: row?.blocks_to_suspend ?? 0,
            reportsToSuspend: row?.reports_to_suspend ?? 0
          })),
        due: (limit) => Effect.map(due([limit]), (rows) => rows.map((row) => row.agent_id)),
        dismiss: (agentId) => Effect.asVoid(dismiss([agentId])),
        suspendedSince: (after, limit) => suspendedSince([after.suspendedAt, after.id, limit]),
        handovers: (limit) =>
          Effect.map(handovers([limit]), (rows) => rows.map((row) => ({ agentId: row.agent_id, since: row.since }))),
        handedOver: (agentId, since) => Effect.asVoid(handedOver([agentId, since]))
      })
    })
  )
}
