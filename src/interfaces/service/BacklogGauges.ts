import type { Batch } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { backlogMessages, backlogWebhooks } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"

/** Up to how many waiting deliveries of a webhook are counted, so that a count is always cheap. */
const MAX_PER_WEBHOOK = 1_000
/**
 * How long a node reports its last count, in milliseconds. A node without a newer count after that time no longer runs
 * the job.
 */
const SHOWN_MS = 180_000

const COUNT = `
SELECT
  (SELECT COALESCE(sum(undelivered), 0) FROM inboxes)::bigint AS messages,
  (SELECT COALESCE(sum(n), 0) FROM webhooks w JOIN LATERAL (
    SELECT count(*) AS n FROM (
      SELECT FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.due_at IS NOT NULL LIMIT ${MAX_PER_WEBHOOK}
    ) few
  ) d ON true WHERE w.active AND w.slot IS NOT NULL)::bigint AS deliveries`

/**
 * Counts the waiting messages and webhook deliveries of the whole cluster, for the metrics of the node that runs the
 * job. Nothing depends on these counts.
 */
export class BacklogGauges extends Context.Service<BacklogGauges, {
  readonly count: Effect.Effect<Batch, Unavailable>
}>()("parley/service/BacklogGauges") {
  static readonly layer = Layer.effect(
    BacklogGauges,
    Effect.gen(function*() {
      const read = (yield* Database).prepared<{ readonly messages: number; readonly deliveries: number }>(
        "backlog",
        COUNT
      )
      const now = monotonicMillis(yield* Clock.Clock)
      let counted: { readonly messages: number; readonly deliveries: number; readonly at: number } | undefined
      const recent = () => counted !== undefined && now() - counted.at < SHOWN_MS ? counted : undefined
      yield* backlogMessages.readsIn(() => recent()?.messages)
      yield* backlogWebhooks.readsIn(() => recent()?.deliveries)
      return BacklogGauges.of({
        count: Effect.map(read([]), ([row]) => {
          if (row !== undefined) counted = { ...row, at: now() }
          return { rows: 0, more: false }
        })
      })
    })
  )
}
