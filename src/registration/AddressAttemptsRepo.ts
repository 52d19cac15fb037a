import { Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { type Batch, batchUpTo } from "../cluster/Job.ts"
import type { RateRule } from "../rates/RateRule.ts"
import { Database } from "../database/Sql.ts"

/** What became of an attempt, and how full the window is. */
export interface Attempted {
  /** Milliseconds until another one can succeed; 0: this one counts. */
  readonly waitMs: number
  readonly remaining: number
  /** Milliseconds until the window holds one attempt less. */
  readonly resetMs: number
}

/** Table address_attempts. */
export class AddressAttemptsRepo extends Context.Service<AddressAttemptsRepo, {
  /**
   * Counts an attempt, or refuses it and counts nothing, in one statement: the row is locked between the
   * test and the counting, so that the limit holds for any number of attempts at once in any number of
   * processes. A clock that goes back stands still meanwhile, unless that would take longer than a window.
   */
  readonly attempt: (rule: RateRule, address: string, now: number) => Effect.Effect<Attempted, SqlError.SqlError>
  /** Removes some rows that say nothing any more at that time. */
  readonly sweep: (now: number) => Effect.Effect<Batch, SqlError.SqlError>
}>()("parley/registration/AddressAttemptsRepo") {
  static readonly layer = Layer.effect(
    AddressAttemptsRepo,
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { prepared } = yield* Database
      const attempt = prepared<Row>("address_attempt", ATTEMPT)
      return AddressAttemptsRepo.of({
        attempt: (rule, address, now) =>
          Effect.flatMap(
            attempt([rule.name, address, now, rule.windowMs, rule.limit]),
            ([row]) => row === undefined ? Effect.die(new Error("no row")) : Effect.succeed(read(rule, row, now))
          ),
        sweep: (now) =>
          Effect.map(
            // The outer test is what still holds for a row that got another attempt meanwhile.
            sql`DELETE FROM address_attempts WHERE over_at <= ${now} AND (route, address) IN (
              SELECT route, address FROM address_attempts WHERE over_at <= ${now}
              ORDER BY over_at LIMIT ${SWEEP_ROWS}) RETURNING 1`,
            (rows) => batchUpTo(SWEEP_ROWS)(rows.length)
          )
      })
    })
  )
}

const SWEEP_ROWS = 500

interface Row {
  readonly refused: boolean
  readonly attemptedAt: ReadonlyArray<number>
}

const read = (rule: RateRule, { attemptedAt, refused }: Row, now: number): Attempted => {
  const at = Math.max(now, attemptedAt.at(-1) ?? now)
  const leaving = attemptedAt[attemptedAt.length - rule.limit]
  return {
    waitMs: refused && leaving !== undefined ? Math.max(1, leaving + rule.windowMs - at) : 0,
    remaining: Math.max(0, rule.limit - attemptedAt.length),
    resetMs: Math.max(0, (attemptedAt[0] ?? at) + rule.windowMs - at)
  }
}

// It writes the row even where it refuses: only that returns it as it is, also if it changed a moment ago.
const ATTEMPT = `
  INSERT INTO address_attempts AS a (route, address, attempted_at, refused, over_at)
  VALUES ($1, $2, ARRAY[$3::bigint], false, $3::bigint + $4::bigint)
  ON CONFLICT (route, address) DO UPDATE SET (attempted_at, refused, over_at) = (
    SELECT
      CASE WHEN full_up THEN within ELSE within || at END,
      full_up,
      CASE WHEN full_up THEN a.over_at ELSE at + $4::bigint END
    FROM (
      SELECT at, within, cardinality(within) >= $5::bigint AS full_up
      FROM (
        SELECT at, ARRAY(
          SELECT t FROM unnest(a.attempted_at) AS t WHERE t > at - $4::bigint AND t <= at ORDER BY t
        ) AS within
        FROM (
          SELECT CASE WHEN newest > $3::bigint + $4::bigint THEN $3::bigint ELSE greatest(newest, $3::bigint) END AS at
          FROM (SELECT a.attempted_at[cardinality(a.attempted_at)] AS newest) AS latest
        ) AS moment
      ) AS looked
    ) AS decided
  )
  RETURNING refused, attempted_at AS "attemptedAt"`
