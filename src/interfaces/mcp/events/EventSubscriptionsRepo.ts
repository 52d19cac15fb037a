import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A subscription by webhook, or the wake webhook of an agent. Times are in milliseconds. */
export interface StoredSubscription {
  readonly webhookId: string
  readonly id: string
  readonly agentId: string
  readonly handle: string
  readonly name: string
  readonly arguments: string
  readonly expiresAt: number | null
  readonly verifiedAt: number
  readonly oldSecret: string | null
  readonly oldSecretUntil: number | null
  readonly secret: string
  /** False if the posts of the subscription are suspended. */
  readonly active: boolean
  readonly inboxNo: number
  readonly reportedAt: number | null
  readonly lookAt: number | null
}

/** A subscription to store. */
export interface NewSubscription {
  readonly webhookId: string
  readonly id: string
  readonly agentId: string
  readonly name: string
  readonly arguments: string
  readonly connectionId: string | null
  readonly expiresAt: number | null
  readonly verifiedAt: number
}

/** The state of a subscription's posts. */
export interface Delivery {
  /** The subject of the event that waits to be posted, or `null` if none waits. */
  readonly subject: string | null
  readonly failure: string | null
  readonly lastDeliveryAt: number | null
}

/**
 * Selects the subscriptions that are in effect at the time $1. The webhook must not be removed, and the subscription
 * must not have expired. The agent must still have the same key and must not be suspended. The OAuth connection, if
 * there is one, must still be valid.
 */
const LIVE = `
FROM event_subscriptions s
JOIN webhooks w ON w.id = s.webhook_id AND w.deleted_at IS NULL
JOIN agents a ON a.id = s.agent_id AND a.key_hash = s.key_hash AND a.deleted_at IS NULL AND a.status <> 'suspended'
WHERE (s.expires_at IS NULL OR s.expires_at > $1)
  AND (s.connection_id IS NULL OR (SELECT c.expires_at > $1 FROM oauth_connections c WHERE c.id = s.connection_id) IS TRUE)`

const COLUMNS =
  `s.webhook_id AS "webhookId", s.id, s.agent_id AS "agentId", a.handle, s.name, s.arguments, s.expires_at AS "expiresAt",
  s.verified_at AS "verifiedAt", s.old_secret AS "oldSecret", s.old_secret_until AS "oldSecretUntil", w.secret, w.active,
  w.inbox_no AS "inboxNo", w.told_at AS "reportedAt", w.look_at AS "lookAt"`

const FIND = `SELECT ${COLUMNS} ${LIVE} AND s.id = $2`
const OF_WEBHOOK = `SELECT ${COLUMNS} ${LIVE} AND s.webhook_id = $2`
const COUNT = `SELECT count(*) AS total ${LIVE} AND s.agent_id = $2 AND s.expires_at IS NOT NULL`
const VERIFIED = `SELECT max(s.verified_at) AS at ${LIVE} AND s.agent_id = $2 AND w.url = $3`

const KEY = `SELECT encode(key_hash, 'hex') AS key FROM agents WHERE id = $1`

/** The row stores the hash of the agent's current key, so a rotation that is committed later ends the subscription. */
const INSERT = `
INSERT INTO event_subscriptions (webhook_id, id, agent_id, name, arguments, key_hash, connection_id, verified_at, created_at, expires_at)
SELECT $1, $2, id, $4, $5, key_hash, $6, $7::bigint, $8::bigint, $9::bigint FROM agents WHERE id = $3 AND key_hash IS NOT NULL
RETURNING id`

const REFRESH = `
UPDATE event_subscriptions SET expires_at = $2, verified_at = GREATEST(verified_at, $3), connection_id = $4,
  old_secret = COALESCE($5, old_secret), old_secret_until = COALESCE($6, old_secret_until)
WHERE webhook_id = $1`

const DELIVERY = `
SELECT d.subject, d.failure,
  (SELECT max(finished_at) FROM webhook_deliveries WHERE webhook_id = $1 AND delivered) AS "lastDeliveryAt"
FROM (SELECT 1) AS always
LEFT JOIN LATERAL (
  SELECT subject, failure FROM webhook_deliveries WHERE webhook_id = $1 AND due_at IS NOT NULL ORDER BY due_at, no LIMIT 1
) d ON true`

const REMOVE = `DELETE FROM event_subscriptions WHERE id = $1 AND agent_id = $2 RETURNING webhook_id AS "webhookId"`

/**
 * Removes those subscriptions of one slice that have ended. The audit log records those that ended before they expired,
 * because the access by which they were made had ended. It does not record expired subscriptions. The audit log is kept
 * for ever, and an agent could let subscriptions expire as often as it likes.
 */
const SWEEP = `
WITH slice AS MATERIALIZED (
  SELECT webhook_id FROM event_subscriptions WHERE webhook_id > $2 ORDER BY webhook_id LIMIT $3
), gone AS (
  DELETE FROM event_subscriptions
  WHERE webhook_id IN (SELECT webhook_id FROM slice) AND webhook_id NOT IN (
    SELECT s.webhook_id ${LIVE} AND s.webhook_id IN (SELECT webhook_id FROM slice))
  RETURNING webhook_id, agent_id, id, name, expires_at
), noted AS (
  INSERT INTO audit_log (at, operator, action, agent_id, reason)
  SELECT $1::bigint, 'server', 'end event subscription', agent_id, id || ': ' || name || ' ended with the access by which it was made'
  FROM gone WHERE expires_at IS NULL OR expires_at > $1
)
SELECT (SELECT max(webhook_id) FROM slice) AS last, (SELECT count(*) FROM slice) AS read,
  (SELECT array_agg(webhook_id) FROM gone) AS gone`

/** The SQL of subscriptions. The table of webhooks stores their URLs and secrets. */
export class EventSubscriptionsRepo extends Context.Service<EventSubscriptionsRepo, {
  /** Returns the subscription with the id that its client knows, if it is in effect. */
  readonly find: (id: string, at: number) => Effect.Effect<StoredSubscription | undefined, Unavailable>
  readonly ofWebhook: (webhookId: string, at: number) => Effect.Effect<StoredSubscription | undefined, Unavailable>
  /** Returns how many subscriptions of an agent are in effect, without its wake webhook. */
  readonly count: (agentId: string, at: number) => Effect.Effect<number, Unavailable>
  /** Returns the hash of the agent's key in hexadecimal digits, or `null` if the agent has no key. */
  readonly keyOf: (agentId: string) => Effect.Effect<string | null, Unavailable>
  /** Returns when a URL last repeated a challenge for a subscription of the agent, or `null` if it never did. */
  readonly verifiedAt: (agentId: string, url: string, at: number) => Effect.Effect<number | null, Unavailable>
  /** Returns false if the account has been deleted. */
  readonly insert: (subscription: NewSubscription, at: number) => Effect.Effect<boolean, Unavailable>
  readonly refresh: (
    subscription: Pick<NewSubscription, "webhookId" | "expiresAt" | "verifiedAt" | "connectionId">,
    old: { readonly secret: string; readonly until: number } | undefined
  ) => Effect.Effect<void, Unavailable>
  readonly delivery: (webhookId: string) => Effect.Effect<Delivery, Unavailable>
  /** Returns the ids of the webhooks of the removed subscriptions. */
  readonly remove: (id: string, agentId: string) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /**
   * Checks up to `most` subscriptions with webhook ids above `after`, and removes those that have ended. `last` is the
   * last webhook id that was checked. `read` is the number of subscriptions that were checked. `gone` contains the
   * webhook ids of the removed subscriptions.
   */
  readonly sweep: (
    at: number,
    after: string,
    most: number
  ) => Effect.Effect<
    { readonly last: string | null; readonly read: number; readonly gone: ReadonlyArray<string> },
    Unavailable
  >
}>()("parley/mcp/EventSubscriptionsRepo") {
  static readonly layer = Layer.effect(
    EventSubscriptionsRepo,
    Effect.gen(function*() {
      const { prepared } = yield* Database
      const find = prepared<StoredSubscription>("find_event_subscription", FIND)
      const ofWebhook = prepared<StoredSubscription>("event_subscription_of_webhook", OF_WEBHOOK)
      const count = prepared<{ total: number }>("count_event_subscriptions", COUNT)
      const keyOf = prepared<{ key: string | null }>("key_of_event_subscriber", KEY)
      const verified = prepared<{ at: number | null }>("event_callback_verified", VERIFIED)
      const insert = prepared("insert_event_subscription", INSERT)
      const refresh = prepared("refresh_event_subscription", REFRESH)
      const delivery = prepared<Delivery>("delivery_of_event_subscription", DELIVERY)
      const remove = prepared<{ webhookId: string }>("remove_event_subscription", REMOVE)
      const sweep = prepared<{ last: string | null; read: number; gone: ReadonlyArray<string> | null }>(
        "sweep_event_subscriptions",
        SWEEP
      )
      return EventSubscriptionsRepo.of({
        find: (id, at) => Effect.map(find([at, id]), ([row]) => row),
        ofWebhook: (webhookId, at) => Effect.map(ofWebhook([at, webhookId]), ([row]) => row),
        count: (agentId, at) => Effect.map(count([at, agentId]), ([row]) => row?.total ?? 0),
        keyOf: (agentId) => Effect.map(keyOf([agentId]), ([row]) => row?.key ?? null),
        verifiedAt: (agentId, url, at) => Effect.map(verified([at, agentId, url]), ([row]) => row?.at ?? null),
        insert: ({ agentId, arguments: given, connectionId, expiresAt, id, name, verifiedAt, webhookId }, at) =>
          Effect.map(
            insert([webhookId, id, agentId, name, given, connectionId, verifiedAt, at, expiresAt]),
            (rows) => rows.length > 0
          ),
        refresh: ({ connectionId, expiresAt, verifiedAt, webhookId }, old) =>
          Effect.asVoid(
            refresh([webhookId, expiresAt, verifiedAt, connectionId, old?.secret ?? null, old?.until ?? null])
          ),
        delivery: (webhookId) => Effect.map(delivery([webhookId]), ([row]) => row!),
        remove: (id, agentId) => Effect.map(remove([id, agentId]), (rows) => rows.map(({ webhookId }) => webhookId)),
        sweep: (at, after, most) =>
          Effect.map(
            sweep([at, after, most]),
            ([row]) => ({ last: row?.last ?? null, read: row?.read ?? 0, gone: row?.gone ?? [] })
          )
      })
    })
  )
}
