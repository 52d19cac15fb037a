import { intoOutboxOf, TASK_EVENT } from "#domain/messages/Outbox"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { type Change, isFinal, LOG, type Task, type TaskState } from "./Task.ts"

/**
 * The seq through which a conversation's messages have been taken into account, and the version that each write
 * increments.
 */
export interface Head {
  readonly through: number
  readonly version: number
}

/** Which open tasks of a conversation to read, because some messages may change them. */
export interface Wanted {
  /** Ids of tasks. */
  readonly ids: ReadonlyArray<string>
  /** For each of these called agents, the number of its oldest open tasks to read. */
  readonly oldest: ReadonlyArray<{ readonly recipientId: string; readonly limit: number }>
}

/** An open task whose state is still SUBMITTED. Its caller's newest message may have been delivered by now. */
export interface Undelivered {
  readonly id: string
  readonly seq: number
  /** The seq of the caller's newest message. */
  readonly newest: number
}

export interface TaskFilter {
  readonly conversationId: string
  readonly callerId: string
  readonly state: TaskState | null
  /** Matches tasks that were updated at this time or later, in milliseconds. */
  readonly since: number | null
}

interface TaskColumns {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly caller_id: string
  readonly recipient_id: string
  readonly state: TaskState
  readonly updated_at: number
  readonly changes: number
  readonly log: string
}

const HEAD = `
SELECT through_seq, version, (SELECT true FROM a2a_tasks WHERE conversation_id = $1 AND open LIMIT 1) IS TRUE AS open
FROM a2a_conversations WHERE conversation_id = $1`

/** Reads only the wanted tasks, through indexes. The cost does not grow with the number of open tasks. */
const OPEN = `
SELECT t.* FROM unnest($2::text[]) AS w(id)
JOIN LATERAL (SELECT * FROM a2a_tasks WHERE id = w.id AND conversation_id = $1 AND open OFFSET 0) t ON true
UNION
SELECT t.* FROM unnest($3::text[], $4::integer[]) AS w(recipient, most)
JOIN LATERAL (
  SELECT * FROM a2a_tasks WHERE conversation_id = $1 AND recipient_id = w.recipient AND open ORDER BY seq LIMIT w.most
) t ON true
ORDER BY seq`

/**
 * Finds the tasks by the index of the ids in the logs of all conversations. OFFSET 0 keeps the planner from reading all
 * open tasks of the conversation instead. A message is in the log of at most one task.
 */
const OPEN_WITH = `
SELECT t.*
FROM (
  SELECT * FROM a2a_tasks
  WHERE open AND jsonb_path_query_array(log::jsonb, '$[*].messageId') ?| $2::text[]
  OFFSET 0
) t
WHERE t.conversation_id = $1
ORDER BY t.seq`

const DELIVERED = `SELECT last_no - undelivered AS delivered FROM inboxes WHERE agent_id = $1`

const UNDELIVERED = `
SELECT id, seq, (log::json -> -1 ->> 'seq')::bigint AS newest FROM a2a_tasks
WHERE conversation_id = $1 AND recipient_id = $2 AND open AND seq > $3 AND state = 'SUBMITTED'
ORDER BY seq LIMIT $4`

const BEGIN = `
INSERT INTO a2a_conversations (conversation_id, through_seq, begun_at) VALUES ($1, $2, $3)
ON CONFLICT (conversation_id) DO UPDATE SET begun_at = excluded.begun_at`

/**
 * Reads a slice of all followed conversations, not only of the idle ones, so that the cost is bounded even if few are
 * idle.
 */
const FOLLOWED = `
SELECT c.conversation_id, c.through_seq, c.begun_at <= $2
  AND (SELECT true FROM a2a_tasks WHERE conversation_id = c.conversation_id LIMIT 1) IS NULL AS idle
FROM a2a_conversations c WHERE c.conversation_id > $1 ORDER BY c.conversation_id LIMIT $3`

const FORGET = `
DELETE FROM a2a_conversations
WHERE conversation_id = ANY ($1::text[]) AND begun_at <= $2
  AND (SELECT true FROM a2a_tasks t WHERE t.conversation_id = a2a_conversations.conversation_id LIMIT 1) IS NULL`

/**
 * Writes nothing if the version has changed since it was read. So each change is written exactly once, to the task and
 * at the same time to the outbox of the task's push configurations.
 */
const ADVANCE = `
WITH moved AS (
  UPDATE a2a_conversations SET through_seq = $3, version = version + 1
  WHERE conversation_id = $1 AND version = $2
  RETURNING conversation_id
), given AS MATERIALIZED (
  SELECT x.*, m.conversation_id
  FROM moved m, json_to_recordset($4::json) AS x(
    id text, seq bigint, caller text, recipient text, state text, open boolean, updated bigint, changes integer, log text,
    before integer
  )
), put AS (
  INSERT INTO a2a_tasks (id, conversation_id, seq, caller_id, recipient_id, state, open, updated_at, changes, log)
  SELECT id, conversation_id, seq, caller, recipient, state, open, updated, changes, log FROM given
  ON CONFLICT (id) DO UPDATE SET
    state = excluded.state, open = excluded.open, updated_at = excluded.updated_at, changes = excluded.changes, log = excluded.log
), configs AS MATERIALIZED (
  SELECT p.webhook_id, g.id, g.open, g.updated, g.before, g.changes
  FROM given g
  JOIN LATERAL (SELECT webhook_id FROM a2a_push_configs WHERE task_id = g.id AND ended_at IS NULL OFFSET 0) p ON true
), posted AS (${
  intoOutboxOf(
    TASK_EVENT,
    `SELECT c.webhook_id, json_build_object('task', c.id, 'change', n.no)::text AS subject, c.updated AS at
    FROM configs c CROSS JOIN LATERAL generate_series(GREATEST(c.before + 1, c.changes - ${
      LOG - 1
    }), c.changes) AS n(no)
    ORDER BY c.id, n.no`
  )
}), ended AS (
  UPDATE a2a_push_configs p SET ended_at = c.updated
  FROM configs c WHERE p.webhook_id = c.webhook_id AND NOT c.open
)
SELECT ARRAY(SELECT DISTINCT webhook_id FROM posted) AS webhooks FROM moved`

/** Increments the version, so that a writer that has read the old version must decide again. */
const HOLD = `
UPDATE a2a_conversations SET version = version + 1 WHERE conversation_id = $1 AND version = $2 RETURNING version`

const FIND = `SELECT * FROM a2a_tasks WHERE id = $1 AND conversation_id = $2 AND caller_id = $3`

const FIND_ALL = `SELECT * FROM a2a_tasks WHERE id = ANY ($1::text[])`

const MATCHING = `
FROM a2a_tasks
WHERE conversation_id = $1 AND caller_id = $2 AND ($3::text IS NULL OR state = $3) AND ($4::bigint IS NULL OR updated_at >= $4)`

const LIST = `
SELECT * ${MATCHING} AND ($5::bigint IS NULL OR (updated_at, id) < ($5::bigint, $6::text))
ORDER BY updated_at DESC, id DESC LIMIT $7`

const COUNT = `SELECT count(*) AS total ${MATCHING}`

const HEADS =
  `SELECT conversation_id, version, through_seq FROM a2a_conversations WHERE conversation_id = ANY ($1::text[])`

const SLICE =
  `SELECT id, conversation_id, caller_id, recipient_id, seq FROM a2a_tasks WHERE id > $1 ORDER BY id LIMIT $2`

const REMOVE = `DELETE FROM a2a_tasks WHERE id = ANY ($1::text[])`

const toTask = (row: TaskColumns): Task => ({
  id: row.id,
  conversationId: row.conversation_id,
  seq: row.seq,
  callerId: row.caller_id,
  recipientId: row.recipient_id,
  state: row.state,
  updatedAt: row.updated_at,
  changes: row.changes,
  log: JSON.parse(row.log) as ReadonlyArray<Change>
})

/** A task that has changed, and how many changes it had before. */
export interface Changed {
  readonly task: Task
  readonly before: number
}

const encode = ({ before, task: { callerId, changes, id, log, recipientId, seq, state, updatedAt } }: Changed) => ({
  id,
  seq,
  caller: callerId,
  recipient: recipientId,
  state,
  open: !isFinal(state),
  updated: updatedAt,
  changes,
  log: JSON.stringify(log),
  before
})

/** All SQL on tasks. */
export class TasksRepo extends Context.Service<TasksRepo, {
  /** Returns undefined if the conversation is not followed. `open` is true if the conversation has an open task. */
  readonly head: (conversationId: string) => Effect.Effect<Head & { readonly open: boolean } | undefined, Unavailable>
  /** The wanted open tasks of a conversation, oldest first. */
  readonly open: (conversationId: string, wanted: Wanted) => Effect.Effect<ReadonlyArray<Task>, Unavailable>
  /** The open tasks of the conversation whose log contains one of these messages. */
  readonly openWith: (
    conversationId: string,
    messageIds: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<Task>, Unavailable>
  /** How many messages have been delivered to an agent, in all its conversations. The number never decreases. */
  readonly delivered: (agentId: string) => Effect.Effect<number, Unavailable>
  /** A slice of the SUBMITTED tasks of a called agent in a conversation, ordered by seq. */
  readonly undelivered: (
    conversationId: string,
    recipientId: string,
    above: number,
    limit: number
  ) => Effect.Effect<ReadonlyArray<Undelivered>, Unavailable>
  /**
   * Follows a conversation after this seq, unless it is followed already. Resets the time after which the conversation
   * can be forgotten if it is idle.
   */
  readonly begin: (conversationId: string, after: number, at: number) => Effect.Effect<void, Unavailable>
  /**
   * A slice of the followed conversations. `idle` is true if the conversation has no task and `begin` was not called
   * after `since`.
   */
  readonly followed: (
    above: string,
    since: number,
    limit: number
  ) => Effect.Effect<
    ReadonlyArray<{ readonly conversation_id: string; readonly through_seq: number; readonly idle: boolean }>,
    Unavailable
  >
  /** Stops following these conversations, except those that are no longer idle. */
  readonly forget: (conversationIds: ReadonlyArray<string>, since: number) => Effect.Effect<void, Unavailable>
  /**
   * Stores the seq through which messages have been taken into account, the tasks that changed, and the outbox rows for
   * their push configurations. Returns the webhooks that have something to post. Stores nothing and returns undefined
   * if the version has changed.
   */
  readonly advance: (
    conversationId: string,
    version: number,
    through: number,
    changed: ReadonlyArray<Changed>
  ) => Effect.Effect<ReadonlyArray<string> | undefined, Unavailable>
  /**
   * Increments the version, so that no earlier decision can be stored. Returns false if the version has changed
   * already.
   */
  readonly hold: (conversationId: string, version: number) => Effect.Effect<boolean, Unavailable>
  readonly find: (id: string, conversationId: string, callerId: string) => Effect.Effect<Task | undefined, Unavailable>
  readonly findAll: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Task>, Unavailable>
  /** A page of the matching tasks, the last updated first. */
  readonly list: (
    filter: TaskFilter,
    after: { readonly at: number; readonly id: string } | null,
    limit: number
  ) => Effect.Effect<ReadonlyArray<Task>, Unavailable>
  readonly count: (filter: TaskFilter) => Effect.Effect<number, Unavailable>
  /** The heads of those of these conversations that are followed. */
  readonly heads: (conversationIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, Head>, Unavailable>
  /** A slice of all tasks, ordered by id. */
  readonly slice: (
    above: string,
    limit: number
  ) => Effect.Effect<
    ReadonlyArray<{ id: string; conversation_id: string; caller_id: string; recipient_id: string; seq: number }>,
    Unavailable
  >
  readonly remove: (ids: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>
}>()("parley/a2a/TasksRepo") {
  static readonly layer = Layer.effect(
    TasksRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const head = database.prepared<{ through_seq: number; version: number; open: boolean }>("a2a_head", HEAD)
      const open = database.prepared<TaskColumns>("open_a2a_tasks", OPEN)
      const openWith = database.prepared<TaskColumns>("open_a2a_tasks_with", OPEN_WITH)
      const delivered = database.prepared<{ delivered: number }>("delivered_to_a2a", DELIVERED)
      const undelivered = database.prepared<Undelivered>("undelivered_a2a_tasks", UNDELIVERED)
      const begin = database.prepared("begin_a2a_tasks", BEGIN)
      const advance = database.prepared<{ webhooks: ReadonlyArray<string> }>("advance_a2a_tasks", ADVANCE)
      const find = database.prepared<TaskColumns>("find_a2a_task", FIND)
      const list = database.prepared<TaskColumns>("list_a2a_tasks", LIST)
      const count = database.prepared<{ total: number }>("count_a2a_tasks", COUNT)
      const hold = database.prepared("hold_a2a_tasks", HOLD)
      const findAll = database.prepared<TaskColumns>("find_a2a_tasks", FIND_ALL)
      const heads = database.prepared<{ conversation_id: string; version: number; through_seq: number }>(
        "a2a_heads",
        HEADS
      )
      const followed = database.prepared<{ conversation_id: string; through_seq: number; idle: boolean }>(
        "followed_a2a",
        FOLLOWED
      )
      const forget = database.prepared("forget_a2a", FORGET)
      const slice = database.prepared<
        { id: string; conversation_id: string; caller_id: string; recipient_id: string; seq: number }
      >("slice_a2a_tasks", SLICE)
      const remove = database.prepared("remove_a2a_tasks", REMOVE)
      const matching = (
        { callerId, conversationId, since, state }: TaskFilter
      ) => [conversationId, callerId, state, since]
      return TasksRepo.of({
        head: (conversationId) =>
          Effect.map(
            head([conversationId]),
            ([row]) =>
              row === undefined ? undefined : { through: row.through_seq, version: row.version, open: row.open }
          ),
        open: (conversationId, { ids, oldest }) =>
          Effect.map(
            open([conversationId, ids, oldest.map(({ recipientId }) => recipientId), oldest.map(({ limit }) => limit)]),
            (rows) => rows.map(toTask)
          ),
        openWith: (conversationId, messageIds) =>
          Effect.map(openWith([conversationId, messageIds]), (rows) => rows.map(toTask)),
        delivered: (agentId) => Effect.map(delivered([agentId]), ([row]) => row?.delivered ?? 0),
        undelivered: (conversationId, recipientId, above, limit) =>
          undelivered([conversationId, recipientId, above, limit]),
        begin: (conversationId, after, at) => Effect.asVoid(begin([conversationId, after, at])),
        followed: (above, since, limit) => followed([above, since, limit]),
        forget: (conversationIds, since) => Effect.asVoid(forget([conversationIds, since])),
        advance: (conversationId, version, through, changed) =>
          Effect.map(
            advance([conversationId, version, through, JSON.stringify(changed.map(encode))]),
            ([row]) => row?.webhooks
          ),
        hold: (conversationId, version) => Effect.map(hold([conversationId, version]), (rows) => rows.length > 0),
        find: (id, conversationId, callerId) =>
          Effect.map(find([id, conversationId, callerId]), ([row]) => row === undefined ? undefined : toTask(row)),
        findAll: (ids) => Effect.map(findAll([ids]), (rows) => rows.map(toTask)),
        list: (filter, after, limit) =>
          Effect.map(
            list([...matching(filter), after?.at ?? null, after?.id ?? null, limit]),
            (rows) => rows.map(toTask)
          ),
        count: (filter) => Effect.map(count(matching(filter)), ([row]) => row?.total ?? 0),
        heads: (conversationIds) =>
          Effect.map(
            heads([conversationIds]),
            (rows) =>
              new Map(rows.map((row) => [row.conversation_id, { version: row.version, through: row.through_seq }]))
          ),
        slice: (above, limit) => slice([above, limit]),
        remove: (ids) => Effect.asVoid(remove([ids]))
      })
    })
  )
}
