import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { AuditLog } from "./AuditLog.ts"

/**
 * By how much the counters are advanced. More seqs or inbox numbers cannot have been assigned between a backup and its
 * restoration.
 */
const SEQS_AHEAD = 1_000_000
const NUMBERS_AHEAD = 1_000_000_000

/** How many rows one statement updates. On PGlite, the server does nothing else until the statement ends. */
const BATCH_ROWS = 2_000

/**
 * Advances the counters of a database that was restored from a backup. The statements are not prepared, because they
 * run rarely.
 */
export class RestoredCounters extends Context.Service<RestoredCounters, {
  /**
   * Advances all counters whose numbers clients and webhooks know: seqs, inbox numbers and deliveries. The counters
   * pass every number that was assigned after the backup. May be repeated. Owners that have a conversation in memory
   * reload it. Works in slices, and writes the audit row at the end.
   */
  readonly moveOn: (
    operator: string
  ) => Effect.Effect<{ readonly conversations: number; readonly inboxes: number }, Unavailable>
}>()("parley/operator/RestoredCounters") {
  static readonly layer = Layer.effect(
    RestoredCounters,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const { query } = yield* Database
      /** Runs a statement for all rows, slice by slice, ordered by id. Returns the number of rows. */
      const inSlices = Effect.fnUntraced(function*(
        slice: (above: string) => Effect.Effect<ReadonlyArray<{ readonly id: string }>, Unavailable>
      ) {
        let above = ""
        for (let moved = 0;;) {
          const rows = yield* slice(above)
          moved += rows.length
          if (rows.length < BATCH_ROWS) return moved
          above = rows.reduce((last, { id }) => id > last ? id : last, above)
          yield* Effect.yieldNow
        }
      })
      return RestoredCounters.of({
        moveOn: Effect.fnUntraced(function*(operator) {
          const conversations = yield* inSlices((above) =>
            query`
              WITH held AS MATERIALIZED (
                SELECT id FROM conversations WHERE id > ${above} ORDER BY id LIMIT ${BATCH_ROWS} FOR NO KEY UPDATE
              )
              UPDATE conversations c SET last_seq = c.last_seq + ${SEQS_AHEAD}, version = c.version + 1
              FROM held h WHERE c.id = h.id RETURNING c.id`
          )
          const inboxes = yield* inSlices((above) =>
            query`
              WITH these AS MATERIALIZED (SELECT id FROM agents WHERE id > ${above} ORDER BY id LIMIT ${BATCH_ROWS}),
              held AS MATERIALIZED (
                SELECT i.agent_id FROM inboxes i JOIN these s ON s.id = i.agent_id ORDER BY i.agent_id FOR NO KEY UPDATE OF i
              )
              INSERT INTO inboxes (agent_id, last_no) SELECT id, ${NUMBERS_AHEAD} FROM these
              WHERE (SELECT count(*) FROM held) >= 0
              ON CONFLICT (agent_id) DO UPDATE SET last_no = inboxes.last_no + excluded.last_no,
                delivered_through = CASE WHEN inboxes.undelivered = 0 THEN inboxes.last_no + excluded.last_no
                  ELSE inboxes.delivered_through END
              RETURNING agent_id AS id`
          )
          yield* query`
            SELECT setval(pg_get_serial_sequence('webhook_deliveries', 'no'),
              nextval(pg_get_serial_sequence('webhook_deliveries', 'no')) + ${NUMBERS_AHEAD})`
          yield* audit.note({ operator, action: "restored", handle: null, detail: null })
          return { conversations, inboxes }
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
