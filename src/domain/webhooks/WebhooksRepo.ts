import { eventBit, INBOX_EVENT, TASK_EVENT, type WebhookEvent } from "#domain/messages/Outbox"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { PageRange, TimePosition } from "#infrastructure/wire/Page"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { StoredWebhook } from "./Webhook.ts"

export interface NewWebhook {
  readonly id: string
  readonly agentId: string
  readonly url: string
  readonly events: ReadonlyArray<WebhookEvent>
  readonly secret: string
  /**
   * The webhook's events as bits. They are added to `webhook_events` in the agent's row, the events that its webhooks
   * may want.
   */
  readonly bits: number
  readonly at: number
}

/** A delivery that waits in the outbox. */
export interface PendingDelivery {
  readonly deliveryNo: number
  readonly event: WebhookEvent | typeof TASK_EVENT | typeof INBOX_EVENT
  readonly subject: string
  readonly createdAt: number
  readonly attempts: number
  readonly dueAt: number
  /** The id and the trace of the request that caused the event (`splitOrigin`); null if no request did. */
  readonly requestId: string | null
}

/** An active webhook and the first of its waiting deliveries, in the order in which they are due. */
export interface Work {
  readonly agentId: string
  readonly url: string
  readonly secret: string
  readonly pausedUntil: number | null
  /** Whether the webhook follows the inbox of its agent. If it does, at most one of its deliveries waits. */
  readonly followsInbox: boolean
  /** Whether the inbox that the webhook follows may have a next event. */
  readonly hasNews: boolean
  readonly waiting: ReadonlyArray<PendingDelivery>
}

/** How far a webhook has followed its inbox, and the next event, if there is one. */
export interface InboxStep {
  readonly id: string
  /** The inbox number from which the step starts. The step does nothing if the row has another number by now. */
  readonly from: number
  readonly inboxNo: number
  readonly lookAt: number | null
  /** The subject of the next event; `null` if there is none. */
  readonly subject: string | null
  readonly at: number
}

/** The URL of a webhook, and the secret that signs its posts. */
export interface SignedTarget {
  readonly agentId: string
  readonly url: string
  readonly secret: string
}

/** A failed attempt. `dueAt` is when the delivery is retried, or null after the last attempt. */
export interface Failure {
  readonly webhookId: string
  readonly deliveryNo: number
  readonly at: number
  readonly reason: string
  readonly dueAt: number | null
  readonly pausedUntil: number | null
  /** Whether the webhook is suspended. The delivery then waits until the webhook is resumed. */
  readonly suspends: boolean
}

interface WebhookColumns {
  readonly id: string
  readonly agent_id: string
  readonly url: string
  readonly events: ReadonlyArray<WebhookEvent>
  readonly active: boolean
  readonly created_at: number
}

const stored = (row: WebhookColumns): StoredWebhook => ({
  id: row.id,
  agentId: row.agent_id,
  url: row.url,
  events: row.events,
  active: row.active,
  createdAt: row.created_at
})

/**
 * The update of the agent's row tests the latest version of the row, so an account that has just been deleted gets no
 * webhook. The statement returns no row in that case, if no slot is free, or if a concurrent creation took the same
 * slot. `IS TRUE` keeps the planner from reading the whole index of live accounts.
 */
const CREATE = `
WITH slot AS (
  SELECT min(s) AS s FROM generate_series(1, $7::integer) s
  WHERE NOT EXISTS (SELECT FROM webhooks WHERE agent_id = $2 AND slot = s)
), owner AS (
  UPDATE agents SET webhook_events = webhook_events | $8::integer
  FROM slot WHERE slot.s IS NOT NULL AND id = $2 AND (deleted_at IS NULL) IS TRUE
  RETURNING id, slot.s
)
INSERT INTO webhooks (id, agent_id, url, events, secret, created_at, slot)
SELECT $1, id, $3, $4::text[], $5, $6::bigint, s FROM owner
ON CONFLICT DO NOTHING
RETURNING *`

const OWNER = `SELECT FROM agents WHERE id = $1 AND (deleted_at IS NULL) IS TRUE`

const HOLD_OWNER = `${OWNER} FOR NO KEY UPDATE`

const LIVE = `FROM webhooks WHERE agent_id = $1 AND slot IS NOT NULL`

const COUNT = `SELECT count(*) AS total ${LIVE}`

const LIST = `
SELECT * ${LIVE} AND ($2::bigint IS NULL OR (created_at, id) > ($2::bigint, $3::text))
ORDER BY created_at, id OFFSET $4 LIMIT $5`

const FIND = `SELECT * ${LIVE} AND id = $2`

const GONE = `SET slot = NULL, active = false, deleted_at = $2, secret = '', paused_until = NULL`

const REMOVE = `UPDATE webhooks ${GONE} WHERE agent_id = $1 AND slot IS NOT NULL AND id = $3 RETURNING id`

const REMOVE_ALL = `UPDATE webhooks ${GONE} WHERE agent_id = $1 AND deleted_at IS NULL`

const CREATE_FOR_TASK = `
INSERT INTO webhooks (id, agent_id, url, events, secret, created_at)
SELECT $1, id, $3, ARRAY['${TASK_EVENT}'], $4, $5::bigint FROM agents WHERE id = $2 AND (deleted_at IS NULL) IS TRUE
RETURNING id`

const CREATE_FOR_INBOX = `
WITH owner AS (
  UPDATE agents SET webhook_events = webhook_events | ${
  eventBit("message.new")
} WHERE id = $2 AND (deleted_at IS NULL) IS TRUE
  RETURNING id
)
INSERT INTO webhooks (id, agent_id, url, events, secret, created_at, inbox_no)
SELECT $1, id, $3, ARRAY['${INBOX_EVENT}'], $4, $5::bigint, $6::bigint FROM owner
RETURNING id`

/** Reactivates a webhook with a new secret. On request, resets the attempts of the webhook's waiting delivery. */
const RESUME = `
WITH resumed AS (
  UPDATE webhooks SET secret = $2, active = true, dead_in_a_row = 0, paused_until = NULL
  WHERE id = $1 AND inbox_no IS NOT NULL AND deleted_at IS NULL
  RETURNING id
)
UPDATE webhook_deliveries SET attempts = 0, due_at = $3
WHERE webhook_id = (SELECT id FROM resumed) AND due_at IS NOT NULL AND $4::boolean`

/**
 * The statement compares the row's inbox number with the number from which the step starts. So if two nodes run a pass
 * at the same time, only one of them writes the event.
 */
const STEP = `
WITH moved AS (
  UPDATE webhooks SET inbox_no = $3, look_at = $4, told_at = CASE WHEN $5::text IS NULL THEN told_at ELSE $6::bigint END
  WHERE id = $1 AND inbox_no = $2 AND deleted_at IS NULL
    AND (SELECT true FROM webhook_deliveries d WHERE d.webhook_id = $1 AND d.due_at IS NOT NULL LIMIT 1) IS NULL
  RETURNING id
)
INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at)
SELECT id, '${INBOX_EVENT}', $5, $6, $6 FROM moved WHERE $5::text IS NOT NULL`

const POSTPONED = `UPDATE webhook_deliveries SET due_at = $3 WHERE no = $2 AND webhook_id = $1 AND due_at IS NOT NULL`

const FOR_TASKS =
  `SELECT id, url, secret FROM webhooks WHERE id = ANY ($1::text[]) AND slot IS NULL AND deleted_at IS NULL`

const WAITING_FOR_TASKS = `
SELECT id, (SELECT true FROM webhook_deliveries WHERE webhook_id = webhooks.id AND due_at IS NOT NULL LIMIT 1) IS TRUE AS waiting
FROM webhooks WHERE id = ANY ($1::text[]) AND slot IS NULL AND deleted_at IS NULL`

/** A webhook with a new URL starts active, without a pause and without counted failures. */
const CHANGE_FOR_TASK = `
UPDATE webhooks SET url = $2, secret = $3, active = true, dead_in_a_row = 0, paused_until = NULL
WHERE id = $1 AND slot IS NULL AND deleted_at IS NULL`

const REMOVE_UNLISTED = `
UPDATE webhooks SET active = false, deleted_at = $2, secret = '', paused_until = NULL
FROM unnest($1::text[]) AS gone (id)
WHERE webhooks.id = gone.id AND slot IS NULL AND deleted_at IS NULL
  AND (NOT $3::boolean OR (SELECT true FROM webhook_deliveries WHERE webhook_id = webhooks.id LIMIT 1) IS NULL)`

const ACTIVE_OF = `
SELECT id FROM webhooks WHERE agent_id = ANY ($1::text[]) AND (slot IS NOT NULL OR inbox_no IS NOT NULL) AND active`

const TARGETS = `
SELECT agent_id, url, secret FROM webhooks
WHERE agent_id = ANY ($1::text[]) AND slot IS NOT NULL AND active AND $2::text = ANY (events)
  AND (paused_until IS NULL OR paused_until <= $3 OR paused_until > $4)`

/** Whether the first or the last of a webhook's waiting deliveries is to be posted. */
const dueAtEnd = (order: "ASC" | "DESC"): string => `
  (SELECT d.due_at <= $2 OR d.due_at > $2 + COALESCE(($5::bigint[])[d.attempts], 0) + ${SET_BACK_MS} FROM webhook_deliveries d
    WHERE d.webhook_id = w.id AND d.due_at IS NOT NULL ORDER BY d.due_at ${order} LIMIT 1)`

/** How long a webhook that follows an inbox can hold back an event at most, in milliseconds. */
const LONGEST_HOLD_MS = 3_600_000

/** Whether there may be a next event in the inbox that a webhook follows; null if the webhook follows none. */
const BEHIND = `CASE WHEN w.inbox_no IS NOT NULL THEN COALESCE(
    w.look_at <= $2 OR w.look_at > $2 + ${LONGEST_HOLD_MS + SET_BACK_MS},
    (SELECT n.last_no > w.inbox_no FROM inboxes n WHERE n.agent_id = w.agent_id)
  ) END`

/**
 * Reads one slice of the webhooks, so that the cost is bounded for any number of waiting deliveries. A pause that ends
 * after $4, or a delivery that would wait longer than its retry delay ($5), was written before the clock was set back
 * and is over. Deliveries written before and after that moment can be in either order, so the statement tests both the
 * first and the last one.
 */
const DUE = `
SELECT w.id, w.active AND w.deleted_at IS NULL AND (w.paused_until IS NULL OR w.paused_until <= $2 OR w.paused_until > $4) AND COALESCE(${
  dueAtEnd("ASC")
} OR${dueAtEnd("DESC")},
  ${BEHIND},
  false
) AS due
FROM webhooks w WHERE w.id > $1 ORDER BY w.id LIMIT $3`

/** `has_news` does not compare `look_at` with the time, because the reason to hold an event back can end earlier. */
const WORK = `
SELECT w.agent_id, w.url, w.secret, w.paused_until, w.inbox_no IS NOT NULL AS follows_inbox,
  (w.look_at IS NOT NULL OR (SELECT n.last_no > w.inbox_no FROM inboxes n WHERE n.agent_id = w.agent_id)) IS TRUE AS has_news, d.*
FROM webhooks w
LEFT JOIN LATERAL (
  SELECT no, event, subject, created_at, attempts, due_at, request_id FROM webhook_deliveries
  WHERE webhook_id = w.id AND due_at IS NOT NULL
  ORDER BY due_at, no LIMIT $2
) d ON true
WHERE w.id = $1 AND w.active AND w.deleted_at IS NULL
ORDER BY d.due_at, d.no`

/** Every attempt changes `due_at`. So if `due_at` is unchanged, no attempt was made since the delivery was read. */
const STILL_DUE = `
SELECT FROM webhooks w JOIN webhook_deliveries d ON d.webhook_id = w.id
WHERE w.id = $1 AND w.active AND w.deleted_at IS NULL AND w.url = $2 AND w.secret = $3 AND d.no = $4 AND d.due_at = $5`

/** Writes the webhook's row only if it has counted failures, or a pause that the probe ends, to reset. */
const DELIVERED = `
WITH forgiven AS (
  UPDATE webhooks SET dead_in_a_row = 0, paused_until = CASE WHEN $4::boolean THEN NULL ELSE paused_until END
  WHERE id = $1 AND (dead_in_a_row > 0 OR $4::boolean)
)
UPDATE webhook_deliveries
SET attempts = attempts + 1, due_at = NULL, finished_at = $3, delivered = true, failure = NULL
WHERE no = $2 AND webhook_id = $1 AND due_at IS NOT NULL`

/**
 * Concurrent attempts are written in any order. With `GREATEST`, none of them shortens a pause that another began. A
 * pause that ends after $8 was written before the clock was set back. A webhook that follows an inbox is suspended only
 * by a failed attempt of a delivery that still waits.
 */
const FAILED = `
WITH failed AS (
  UPDATE webhook_deliveries SET
    attempts = attempts + 1, due_at = $5, failure = $4,
    finished_at = CASE WHEN $5::bigint IS NULL THEN $3::bigint END,
    delivered = CASE WHEN $5::bigint IS NULL THEN false END
  WHERE no = $2 AND webhook_id = $1 AND due_at IS NOT NULL
  RETURNING due_at
), dead AS (
  SELECT count(*)::integer AS n FROM failed WHERE due_at IS NULL AND (SELECT inbox_no FROM webhooks WHERE id = $1) IS NULL
)
UPDATE webhooks w SET
  dead_in_a_row = w.dead_in_a_row + (SELECT n FROM dead),
  active = w.active AND NOT ($9::boolean AND EXISTS (SELECT FROM failed)) AND w.dead_in_a_row + (SELECT n FROM dead) < $7,
  paused_until = GREATEST(CASE WHEN w.paused_until <= $8 THEN w.paused_until END, $6)
WHERE w.id = $1 AND w.deleted_at IS NULL AND ($6::bigint IS NOT NULL OR $5::bigint IS NULL OR $9::boolean)
RETURNING w.active`

/**
 * Marks the waiting deliveries of deactivated webhooks as dead. A webhook that follows an inbox is only suspended, so
 * its delivery is kept.
 */
const ABANDON = `
WITH waiting AS MATERIALIZED (
  SELECT d.no FROM webhooks w
  JOIN LATERAL (
    SELECT no FROM webhook_deliveries WHERE webhook_id = w.id AND due_at IS NOT NULL LIMIT $2
  ) d ON true
  WHERE NOT w.active AND w.deleted_at IS NULL AND w.inbox_no IS NULL
  LIMIT $2
)
UPDATE webhook_deliveries
SET due_at = NULL, finished_at = $1, delivered = false, failure = COALESCE(failure, 'the webhook was given up')
WHERE no = ANY (ARRAY(SELECT no FROM waiting)) AND due_at IS NOT NULL
RETURNING no`

/**
 * Takes webhooks that were deleted before `$1`. This is some time ago, because a statement that began before the
 * deletion may write deliveries after it.
 */
const SWEEP_DELETED = `
WITH gone AS MATERIALIZED (
  SELECT id FROM webhooks WHERE deleted_at <= $1 ORDER BY deleted_at LIMIT 100
), rows AS MATERIALIZED (
  SELECT d.no FROM gone g
  JOIN LATERAL (SELECT no FROM webhook_deliveries WHERE webhook_id = g.id LIMIT $2) d ON true
  LIMIT $2
), emptied AS (
  DELETE FROM webhooks WHERE id = ANY (ARRAY(SELECT id FROM gone))
    AND (SELECT true FROM webhook_deliveries WHERE webhook_id = webhooks.id LIMIT 1) IS NULL
  RETURNING id
), removed AS (
  DELETE FROM webhook_deliveries WHERE no = ANY (ARRAY(SELECT no FROM rows)) RETURNING no
)
SELECT (SELECT count(*) FROM removed) + (SELECT count(*) FROM emptied) AS n`

/**
 * All SQL on webhooks and the outbox, except inserts into the outbox, which are part of the events' statements
 * (Outbox.ts).
 */
export class WebhooksRepo extends Context.Service<WebhooksRepo, {
  /**
   * Returns undefined if the agent has `most` webhooks, a concurrent creation took the slot, or the account has been
   * deleted.
   */
  readonly create: (webhook: NewWebhook, most: number) => Effect.Effect<StoredWebhook | undefined, Unavailable>
  /** Whether the account exists and has not been deleted. */
  readonly hasOwner: (agentId: string) => Effect.Effect<boolean, Unavailable>
  /** Like `hasOwner`, and locks the account's row until the transaction ends. */
  readonly holdOwner: (agentId: string) => Effect.Effect<boolean, Unavailable>
  readonly count: (agentId: string) => Effect.Effect<number, Unavailable>
  /** The agent's webhooks, oldest first. */
  readonly list: (
    agentId: string,
    range: PageRange<TimePosition>
  ) => Effect.Effect<ReadonlyArray<StoredWebhook>, Unavailable>
  readonly find: (agentId: string, id: string) => Effect.Effect<StoredWebhook | undefined, Unavailable>
  /** Like `find`, but also returns the secret. */
  readonly made: (
    agentId: string,
    id: string
  ) => Effect.Effect<{ readonly webhook: StoredWebhook; readonly secret: string } | undefined, Unavailable>
  /** Returns false if there was no such webhook. */
  readonly remove: (agentId: string, id: string, at: number) => Effect.Effect<boolean, Unavailable>
  readonly removeAll: (agentId: string, at: number) => Effect.Effect<void, Unavailable>
  /** Creates a webhook without a slot. Returns false if the account has been deleted. */
  readonly createForTask: (
    id: string,
    agentId: string,
    url: string,
    secret: string,
    at: number
  ) => Effect.Effect<boolean, Unavailable>
  /** The webhooks with these ids that have no slot and are not deleted. */
  readonly forTasks: (
    ids: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<{ readonly id: string; readonly url: string; readonly secret: string }>, Unavailable>
  /** The webhooks with these ids that have no slot and are not deleted, and whether a delivery of each waits. */
  readonly waitingForTasks: (
    ids: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<{ readonly id: string; readonly waiting: boolean }>, Unavailable>
  readonly changeForTask: (id: string, url: string, secret: string) => Effect.Effect<void, Unavailable>
  /**
   * Creates a webhook without a slot that follows the inbox of its agent. Returns false if the account has been
   * deleted.
   */
  readonly createForInbox: (
    webhook: {
      readonly id: string
      readonly agentId: string
      readonly url: string
      readonly secret: string
      readonly inboxNo: number
    },
    at: number
  ) => Effect.Effect<boolean, Unavailable>
  /**
   * Ends the suspension of a webhook that follows an inbox, and changes its secret. With `afresh`, the attempts of its
   * waiting delivery are counted from zero again.
   */
  readonly resume: (id: string, secret: string, at: number, afresh: boolean) => Effect.Effect<void, Unavailable>
  readonly step: (step: InboxStep) => Effect.Effect<void, Unavailable>
  /** Sets the time at which a delivery is due. */
  readonly postponed: (webhookId: string, deliveryNo: number, dueAt: number) => Effect.Effect<void, Unavailable>
  /** Removes webhooks without a slot. With `idle`, removes only those that have no deliveries. */
  readonly removeUnlisted: (ids: ReadonlyArray<string>, at: number, idle: boolean) => Effect.Effect<void, Unavailable>
  /** Ids of the active webhooks of these agents. */
  readonly activeOf: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /** The active webhooks of these agents that subscribe to an event, without those whose circuit is open. */
  readonly targets: (
    agentIds: ReadonlyArray<string>,
    event: WebhookEvent,
    now: number
  ) => Effect.Effect<ReadonlyArray<SignedTarget>, Unavailable>
  /** The next slice of the webhooks in the order of their ids, and whether a delivery of each can be posted now. */
  readonly due: (
    above: string,
    now: number,
    limit: number
  ) => Effect.Effect<ReadonlyArray<{ readonly id: string; readonly due: boolean }>, Unavailable>
  /** Returns undefined if the webhook is deleted or deactivated. */
  readonly work: (id: string, limit: number) => Effect.Effect<Work | undefined, Unavailable>
  /**
   * Whether the delivery still waits as it did when it was read, and its webhook is active with the same URL and
   * secret.
   */
  readonly isStillDue: (id: string, work: Work, delivery: PendingDelivery) => Effect.Effect<boolean, Unavailable>
  readonly delivered: (
    webhookId: string,
    deliveryNo: number,
    at: number,
    probe: boolean
  ) => Effect.Effect<void, Unavailable>
  readonly failed: (failure: Failure, deadInARow: number) => Effect.Effect<void, Unavailable>
  /** Marks up to `most` deliveries that wait for deactivated webhooks as dead, and returns their number. */
  readonly abandon: (at: number, most: number) => Effect.Effect<number, Unavailable>
  /**
   * Removes up to `most` deliveries of webhooks that were deleted by the time `by`, and those of these webhooks that
   * have no deliveries. Returns the number of removed rows.
   */
  readonly sweepDeleted: (by: number, most: number) => Effect.Effect<number, Unavailable>
}>()("parley/webhooks/WebhooksRepo") {
  static readonly layer = Layer.effect(
    WebhooksRepo,
    Effect.gen(function*() {
      const config = yield* Config
      const database = yield* Database
      const latestPause = (now: number) => now + config.WEBHOOK_CIRCUIT_PAUSE_SECONDS * 1_000 + SET_BACK_MS
      const retryMs = config.WEBHOOK_RETRY_SECONDS.map((seconds) => seconds * 1_000)
      const create = database.prepared<WebhookColumns>("create_webhook", CREATE)
      const owner = database.prepared("webhook_owner", OWNER)
      const holdOwner = database.prepared("hold_webhook_owner", HOLD_OWNER)
      const count = database.prepared<{ total: number }>("count_webhooks", COUNT)
      const list = database.prepared<WebhookColumns>("list_webhooks", LIST)
      const find = database.prepared<WebhookColumns & { secret: string }>("find_webhook", FIND)
      const remove = database.prepared("remove_webhook", REMOVE)
      const removeAll = database.prepared("remove_webhooks_of_agent", REMOVE_ALL)
      const createForTask = database.prepared("create_webhook_for_task", CREATE_FOR_TASK)
      const forTasks = database.prepared<{ id: string; url: string; secret: string }>("webhooks_for_tasks", FOR_TASKS)
      const waitingForTasks = database.prepared<{ id: string; waiting: boolean }>(
        "waiting_webhooks_for_tasks",
        WAITING_FOR_TASKS
      )
      const changeForTask = database.prepared("change_webhook_for_task", CHANGE_FOR_TASK)
      const createForInbox = database.prepared("create_webhook_for_inbox", CREATE_FOR_INBOX)
      const resume = database.prepared("resume_webhook", RESUME)
      const step = database.prepared("step_of_webhook", STEP)
      const postponed = database.prepared("webhook_postponed", POSTPONED)
      const removeUnlisted = database.prepared("remove_unlisted_webhooks", REMOVE_UNLISTED)
      const activeOf = database.prepared<{ id: string }>("active_webhooks", ACTIVE_OF)
      const targets = database.prepared<{ agent_id: string; url: string; secret: string }>("webhook_targets", TARGETS)
      const due = database.prepared<{ id: string; due: boolean }>("due_webhooks", DUE)
      const work = database.prepared<{
        agent_id: string
        url: string
        secret: string
        paused_until: number | null
        follows_inbox: boolean
        has_news: boolean
        no: number | null
        event: PendingDelivery["event"]
        subject: string
        created_at: number
        attempts: number
        due_at: number
        request_id: string | null
      }>("webhook_work", WORK)
      const stillDue = database.prepared("webhook_still_due", STILL_DUE)
      const delivered = database.prepared("webhook_delivered", DELIVERED)
      const failed = database.prepared("webhook_failed", FAILED)
      const abandon = database.prepared("abandon_webhook_deliveries", ABANDON)
      const sweepDeleted = database.prepared<{ n: number }>("sweep_deleted_webhooks", SWEEP_DELETED)
      return WebhooksRepo.of({
        create: ({ agentId, at, bits, events, id, secret, url }, most) =>
          Effect.map(
            create([id, agentId, url, events, secret, at, most, bits]),
            ([row]) => row === undefined ? undefined : stored(row)
          ),
        hasOwner: (agentId) => Effect.map(owner([agentId]), (rows) => rows.length > 0),
        holdOwner: (agentId) => Effect.map(holdOwner([agentId]), (rows) => rows.length > 0),
        count: (agentId) => Effect.map(count([agentId]), ([row]) => row?.total ?? 0),
        list: (agentId, { after, limit, offset }) =>
          Effect.map(
            list([agentId, after?.createdAt ?? null, after?.id ?? null, offset, limit]),
            (rows) => rows.map(stored)
          ),
        find: (agentId, id) => Effect.map(find([agentId, id]), ([row]) => row === undefined ? undefined : stored(row)),
        made: (agentId, id) =>
          Effect.map(
            find([agentId, id]),
            ([row]) => row === undefined ? undefined : { webhook: stored(row), secret: row.secret }
          ),
        remove: (agentId, id, at) => Effect.map(remove([agentId, at, id]), (rows) => rows.length > 0),
        removeAll: (agentId, at) => Effect.asVoid(removeAll([agentId, at])),
        createForTask: (id, agentId, url, secret, at) =>
          Effect.map(createForTask([id, agentId, url, secret, at]), (rows) => rows.length > 0),
        forTasks: (ids) => forTasks([ids]),
        waitingForTasks: (ids) => waitingForTasks([ids]),
        changeForTask: (id, url, secret) => Effect.asVoid(changeForTask([id, url, secret])),
        createForInbox: ({ agentId, id, inboxNo, secret, url }, at) =>
          Effect.map(createForInbox([id, agentId, url, secret, at, inboxNo]), (rows) => rows.length > 0),
        resume: (id, secret, at, afresh) => Effect.asVoid(resume([id, secret, at, afresh])),
        step: ({ at, from, id, inboxNo, lookAt, subject }) =>
          Effect.asVoid(step([id, from, inboxNo, lookAt, subject, at])),
        postponed: (webhookId, deliveryNo, dueAt) => Effect.asVoid(postponed([webhookId, deliveryNo, dueAt])),
        removeUnlisted: (ids, at, idle) => Effect.asVoid(removeUnlisted([ids, at, idle])),
        activeOf: (agentIds) => Effect.map(activeOf([agentIds]), (rows) => rows.map(({ id }) => id)),
        targets: (agentIds, event, now) =>
          Effect.map(
            targets([agentIds, event, now, latestPause(now)]),
            (rows) => rows.map(({ agent_id, secret, url }) => ({ agentId: agent_id, url, secret }))
          ),
        due: (above, now, limit) => due([above, now, limit, latestPause(now), retryMs]),
        work: (id, limit) =>
          Effect.map(work([id, limit]), (rows) => {
            const [first] = rows
            if (first === undefined) return undefined
            return {
              agentId: first.agent_id,
              url: first.url,
              secret: first.secret,
              pausedUntil: first.paused_until,
              followsInbox: first.follows_inbox,
              hasNews: first.has_news,
              waiting: rows.flatMap((row) =>
                row.no === null ? [] : [{
                  deliveryNo: row.no,
                  event: row.event,
                  subject: row.subject,
                  createdAt: row.created_at,
                  attempts: row.attempts,
                  dueAt: row.due_at,
                  requestId: row.request_id
                }]
              )
            }
          }),
        isStillDue: (id, { secret, url }, { deliveryNo, dueAt }) =>
          Effect.map(stillDue([id, url, secret, deliveryNo, dueAt]), (rows) => rows.length > 0),
        delivered: (webhookId, deliveryNo, at, probe) => Effect.asVoid(delivered([webhookId, deliveryNo, at, probe])),
        failed: ({ at, deliveryNo, dueAt, pausedUntil, reason, suspends, webhookId }, deadInARow) =>
          Effect.asVoid(
            failed([webhookId, deliveryNo, at, reason, dueAt, pausedUntil, deadInARow, latestPause(at), suspends])
          ),
        abandon: (at, most) => Effect.map(abandon([at, most]), (rows) => rows.length),
        sweepDeleted: (by, most) => Effect.map(sweepDeleted([by, most]), ([row]) => row?.n ?? 0)
      })
    })
  )
}
