import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AuditLog } from "./AuditLog.ts"

/** A webhook delivery that has failed in all attempts. Times are in milliseconds. */
export interface DeadDelivery {
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

/** Selects one delivery, the deliveries of a webhook or of an agent, or all deliveries. */
export interface Retried {
  readonly no?: number
  readonly webhook?: string
  readonly agent?: string
}

/** How many deliveries one statement retries. */
const BATCH_ROWS = 500

/** Lists and retries dead webhook deliveries. The statement of a retry also writes an audit row for each webhook. */
export class DeadDeliveries extends Context.Service<DeadDeliveries, {
  /**
   * The dead deliveries, the last ones to die first. `null` selects all agents, or all webhooks. `after` is the last
   * delivery of the previous page.
   */
  readonly list: (query: {
    readonly agent: string | null
    readonly webhook: string | null
    readonly after: { readonly at: number; readonly no: number } | null
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<DeadDelivery>, Unavailable>
  /**
   * Makes dead deliveries due again, beginning with the first attempt, and returns their number. Activates their
   * webhooks and ends the pauses of these webhooks. A retry of several deliveries writes an audit row even if it finds
   * none.
   */
  readonly retry: (which: Retried, operator: string) => Effect.Effect<number, Unavailable>
}>()("parley/operator/DeadDeliveries") {
  static readonly layer = Layer.effect(
    DeadDeliveries,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const signals = yield* WebhookSignals
      const { query } = yield* Database
      const sql = yield* SqlClient.SqlClient

      /** Retries up to BATCH_ROWS deliveries. Returns the agent of each delivery. */
      const retrySome = Effect.fnUntraced(function*({ agent, no, webhook }: Retried, operator: string) {
        const at = yield* Clock.currentTimeMillis
        return yield* query<{ readonly agent_id: string }>`
          WITH these AS (
            SELECT d.no FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id AND w.deleted_at IS NULL
            WHERE d.delivered = false
              AND ${no === undefined ? sql`true` : sql`d.no = ${no}`}
              AND ${webhook === undefined ? sql`true` : sql`w.id = ${webhook}`}
              AND ${agent === undefined ? sql`true` : sql`w.agent_id = (SELECT id FROM agents WHERE handle = ${agent})`}
            ORDER BY d.finished_at LIMIT ${BATCH_ROWS}
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
          SELECT w.agent_id FROM due d JOIN webhooks w ON w.id = d.webhook_id`
      })

      return DeadDeliveries.of({
        list: ({ after, agent, limit, webhook }) =>
          query<DeadDelivery>`
            SELECT d.no, a.handle AS agent, d.webhook_id AS "webhookId", w.active, w.url, d.event, d.attempts, d.failure,
              d.created_at AS "createdAt", d.finished_at AS "deadAt"
            FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id JOIN agents a ON a.id = w.agent_id
            WHERE d.delivered = false AND d.finished_at IS NOT NULL
              AND ${agent === null ? sql`true` : sql`a.handle = ${agent}`}
              AND ${webhook === null ? sql`true` : sql`w.id = ${webhook}`}
              AND ${after === null ? sql`true` : sql`(d.finished_at, d.no) < (${after.at}, ${after.no})`}
            ORDER BY d.finished_at DESC, d.no DESC LIMIT ${limit}`,
        retry: Effect.fn("DeadDeliveries.retry")(function*(which, operator) {
          const agents = new Set<string>()
          let retried = 0
          for (let some = BATCH_ROWS; some === BATCH_ROWS; retried += some) {
            const rows = yield* retrySome(which, operator)
            for (const { agent_id } of rows) agents.add(agent_id)
            some = rows.length
          }
          for (const id of agents) signals.raise(id)
          if (retried === 0 && which.no === undefined) {
            const detail = `${which.webhook ?? "all"}: none is dead`
            yield* audit.note({ operator, action: "retry webhooks", handle: which.agent ?? null, detail })
          }
          return retried
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
