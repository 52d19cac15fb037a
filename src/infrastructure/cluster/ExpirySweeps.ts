import { Database } from "#infrastructure/database/Sql"
import type { Expiry, OwnedTable } from "#infrastructure/database/Tables"
import { Config } from "#infrastructure/platform/Config"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import type { Job } from "./Job.ts"

/** How many rows one statement deletes or changes. */
const BATCH_SIZE = 500

/**
 * Selects up to `$2` rows by a condition and locks them, so that no other session changes them before the statement
 * does. Skips rows that other sessions have locked. A later batch finds the skipped rows if they still meet the
 * condition.
 */
const upToRows = (table: string, condition: string): string =>
  `ctid = ANY (ARRAY(SELECT ctid FROM ${table} WHERE ${condition} LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1`

/** Makes the jobs that delete expired rows of these tables. */
export const expirySweeps = Effect.fnUntraced(function*(tables: ReadonlyArray<OwnedTable>) {
  const config = yield* Config
  const { prepared } = yield* Database

  /**
   * The statements for one table. Each statement takes the current time and returns the rows that it has deleted or
   * changed.
   */
  const statementsOf = (table: string, { column, job, keptMs, longestMs, only }: Expiry) => {
    const expired = `${only === undefined ? "" : `${only} AND `}${column} <= $1 ORDER BY ${column}`
    const remove = prepared(`sweep_${job}_${table}`, `DELETE FROM ${table} WHERE ${upToRows(table, expired)}`)
    const removed = (now: number) => remove([now - (keptMs?.(config) ?? 0), BATCH_SIZE])
    if (longestMs === undefined) return [removed]
    const ahead = upToRows(table, `${column} > $1`)
    const shorten = prepared(`shorten_${job}_${table}`, `UPDATE ${table} SET ${column} = $3 WHERE ${ahead}`)
    return [removed, (now: number) => shorten([now + longestMs + SET_BACK_MS, BATCH_SIZE, now + longestMs])]
  }

  const sweeps = tables.flatMap(({ retention, table }) =>
    "kept" in retention
      ? []
      : (retention.expires ?? []).map((expiry) => ({ ...expiry, statements: statementsOf(table, expiry) }))
  )
  return Array.from(Map.groupBy(sweeps, ({ job }) => job), ([name, parts]): Job<Unavailable, never> => ({
    name,
    every: parts[0]!.every,
    batch: Effect.gen(function*() {
      const now = yield* Clock.currentTimeMillis
      let total = 0
      let largest = 0
      for (const statement of parts.flatMap(({ statements }) => statements)) {
        const { length } = yield* statement(now)
        total += length
        largest = Math.max(largest, length)
      }
      return { rows: total, more: largest >= BATCH_SIZE }
    })
  }))
})
