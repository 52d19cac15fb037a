import type { Batch } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { type TurnWait, Vacuum } from "#infrastructure/database/Vacuum"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Duration, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { AuditLog } from "./AuditLog.ts"

/** Large tables without data that an erasure removes. They are not rewritten. */
const HISTORY = ["messages", "envelopes", "conversations", "inboxes", "a2a_tasks", "a2a_conversations"]
/**
 * How long after an erasure the tables are rewritten again. Some steps of an erasure take up to a day (`removed` in
 * Erasure.ts).
 */
const SECOND_REWRITE_AFTER_MS = Duration.toMillis("25 hours")
/** For how long an unfinished erasure delays the rewriting of the tables. */
const UNFINISHED_MS = Duration.toMillis("1 hour")
const REWRITTEN = "rewrite files"
/** The planner's statistics. They contain values from the rows of all tables, so they are rewritten last. */
const STATISTICS = "pg_statistic"

const NOTHING: Batch = { rows: 0, more: false }

/**
 * After erasures, removes the bytes of updated and deleted rows from PGlite's files, because vacuum frees the space of
 * such rows and does not overwrite it. The tables are rewritten one by one. Then the write-ahead log is cleared. The
 * audit log shows what is due, so a crash loses nothing. On PostgreSQL the operator does this, because `VACUUM FULL`
 * locks a table on all nodes.
 */
export class ErasedFiles extends Context.Service<ErasedFiles, {
  /** Rewrites the next table. */
  readonly sweep: Effect.Effect<Batch, SqlError.SqlError | Unavailable>
}>()("parley/operator/ErasedFiles") {
  static readonly layer = Layer.effect(
    ErasedFiles,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const { driver, query } = yield* Database
      const vacuum = yield* Vacuum
      /** The number up to which the audit log has been read. */
      let read = 0
      let erased = { no: 0, at: 0 }
      let rewritten = { no: 0, at: 0 }
      /** The tables that the current round has not rewritten yet; undefined if there is no round. */
      let left: Array<string> | undefined
      let large: Array<string> = []
      /** The tables of the round for which the disk had too little free space. They are retried after the others. */
      let waiting: Array<string> = []
      const wait: TurnWait = { waitsSince: undefined }
      /** The newest erasure before the round, as the number of its audit row. */
      let through = 0

      const lookAtLog = Effect.gen(function*() {
        const [row] = yield* query<Record<"last" | "erase" | "erasedAt" | "rewrite" | "rewrittenAt", number | null>>`
          SELECT max(no) AS last, max(no) FILTER (WHERE action = 'erase') AS erase, max(at) FILTER (WHERE action = 'erase') AS "erasedAt",
            max(no) FILTER (WHERE action = ${REWRITTEN}) AS rewrite, max(at) FILTER (WHERE action = ${REWRITTEN}) AS "rewrittenAt"
          FROM audit_log WHERE no > ${read}`
        read = row?.last ?? read
        erased = { no: row?.erase ?? erased.no, at: row?.erasedAt ?? erased.at }
        rewritten = { no: row?.rewrite ?? rewritten.no, at: row?.rewrittenAt ?? rewritten.at }
      })

      const isDue = Effect.gen(function*() {
        yield* lookAtLog
        if (erased.no === 0) return false
        const now = yield* Clock.currentTimeMillis
        const second = erased.at + SECOND_REWRITE_AFTER_MS
        if (rewritten.no > erased.no && (now < second || rewritten.at >= second)) return false
        const unfinished = yield* query`SELECT 1 FROM deletions WHERE erase LIMIT 1`
        return unfinished.length === 0 || now > erased.at + UNFINISHED_MS
      })

      const begin = Effect.gen(function*() {
        const tables = yield* query<{ readonly name: string }>`
          SELECT oid::regclass::text AS name FROM pg_class
          WHERE relkind = 'r' AND relpersistence = 'p' AND relnamespace = 'public'::regnamespace AND relname <> ALL(${HISTORY}::text[])
          ORDER BY relname`
        large = []
        waiting = []
        through = erased.no
        return [...tables.map(({ name }) => name), STATISTICS]
      })

      const end = Effect.gen(function*() {
        yield* lookAtLog
        if (erased.no !== through) {
          // Another agent was erased after some tables had been rewritten, so another round is due.
          left = undefined
          return NOTHING
        }
        if (waiting.length > 0) {
          left = waiting
          waiting = []
          return NOTHING
        }
        if (!(yield* vacuum.clearLog)) return NOTHING
        if (large.length > 0) {
          yield* Effect.logWarning(
            `Files of the database may still contain erased bytes, because these tables are too large to be rewritten while the server runs: ${
              large.join(", ")
            }. Stop the server and run npm run admin -- compact, or raise VACUUM_TABLE_MB.`
          )
        }
        const detail = large.length === 0
          ? "all tables with data of agents"
          : `all tables with data of agents but ${large.join(", ")}`
        yield* audit.note({ operator: "server", action: REWRITTEN, handle: null, detail })
        left = undefined
        return NOTHING
      })

      return ErasedFiles.of({
        sweep: driver === "pg" ? Effect.succeed(NOTHING) : Effect.gen(function*() {
          if (left === undefined && (yield* isDue)) left = yield* begin
          if (left === undefined) {
            wait.waitsSince = undefined
            return NOTHING
          }
          if (!(yield* vacuum.turn(wait))) return NOTHING
          const next = left[0]
          if (next === undefined) return yield* end
          const made = next === STATISTICS && waiting.length > 0 ? "no room" : yield* vacuum.rewrite(next)
          if (made === "no room") waiting.push(next)
          if (made === "too large") large.push(next)
          left.shift()
          return { rows: made === "no room" ? 0 : 1, more: true }
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
