import { Database } from "#infrastructure/database/Sql"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { RateRule } from "#infrastructure/rates/RateRule"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** Whether an attempt was counted, and how many attempts the window still allows. */
export interface Attempted {
  /** 0 if the attempt was counted. If the attempt was refused, the milliseconds until another attempt can succeed. */
  readonly waitMs: number
  readonly remaining: number
  /** Milliseconds until the oldest attempt leaves the window. */
  readonly resetMs: number
}

/** All SQL on the table address_attempts. */
export class AddressAttemptsRepo extends Context.Service<AddressAttemptsRepo, {
  /**
   * Counts an attempt, or refuses it without counting it, in one statement. The row is locked between the test and the
   * count, so the limit holds for any number of concurrent attempts in any number of processes. If `now` is earlier
   * than the newest attempt, the time of that attempt is used instead. If that time is ahead by more than a window or
   * more than `SET_BACK_MS`, the clock was set back, and attempts later than `now` do not count.
   */
  readonly attempt: (rule: RateRule, address: string, now: number) => Effect.Effect<Attempted, Unavailable>
}>()("parley/registration/AddressAttemptsRepo") {
  static readonly layer = Layer.effect(
    AddressAttemptsRepo,
    Effect.gen(function*() {
      const { prepared } = yield* Database
      const attempt = prepared<Row>("address_attempt", ATTEMPT)
      return AddressAttemptsRepo.of({
        attempt: (rule, address, now) =>
          Effect.flatMap(
            attempt([rule.name, address, now, rule.windowMs, rule.limit, Math.min(rule.windowMs, SET_BACK_MS)]),
            ([row]) => row === undefined ? Effect.die(new Error("no row")) : Effect.succeed(read(rule, row, now))
          )
      })
    })
  )
}

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

// Updates the row even if it refuses the attempt, because only an update returns the latest version of a row that other
// sessions change.
const ATTEMPT = `
  INSERT INTO address_attempts AS a (route, address, attempted_at, refused, over_at)
  VALUES ($1, $2, ARRAY[$3::bigint], false, $3::bigint + $4::bigint)
  ON CONFLICT (route, address) DO UPDATE SET (attempted_at, refused, over_at) = (
    SELECT
      CASE WHEN full_up THEN within ELSE within || at END,
      full_up,
      CASE WHEN full_up THEN LEAST(a.over_at, at + $4::bigint) ELSE at + $4::bigint END
    FROM (
      SELECT at, within, cardinality(within) >= $5::bigint AS full_up
      FROM (
        SELECT at, ARRAY(
          SELECT t FROM unnest(a.attempted_at) AS t WHERE t > at - $4::bigint AND t <= at ORDER BY t
        ) AS within
        FROM (
          SELECT CASE WHEN newest > $3::bigint + $6::bigint THEN $3::bigint ELSE greatest(newest, $3::bigint) END AS at
          FROM (SELECT a.attempted_at[cardinality(a.attempted_at)] AS newest) AS latest
        ) AS moment
      ) AS looked
    ) AS decided
  )
  RETURNING refused, attempted_at AS "attemptedAt"`
