import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A configuration without its URL and credentials, which are stored with its webhook. */
export interface StoredPushConfig {
  readonly webhookId: string
  readonly name: string
}

const OF =
  `SELECT webhook_id, name FROM a2a_push_configs WHERE task_id = ANY ($1::text[]) ORDER BY created_at, webhook_id`

const ADD =
  `INSERT INTO a2a_push_configs (webhook_id, task_id, name, created_at, counts_for) VALUES ($1, $2, $3, $4, $5)`

const COUNTED = `SELECT webhook_id, ended_at IS NOT NULL AS ended FROM a2a_push_configs WHERE counts_for = $1`

/** Locks the rows in the order of their ids, so that two statements that share rows cannot deadlock. */
const LOCKED =
  `ARRAY(SELECT webhook_id FROM a2a_push_configs WHERE webhook_id = ANY ($1::text[]) ORDER BY webhook_id FOR UPDATE)`

const UNCOUNT = `UPDATE a2a_push_configs SET counts_for = NULL WHERE webhook_id = ANY (${LOCKED})`

const REMOVE = `DELETE FROM a2a_push_configs WHERE webhook_id = ANY (${LOCKED})`

/** The tasks that have configurations and have not ended, in the order of their ids. */
const WATCHED = `
SELECT DISTINCT task_id FROM a2a_push_configs WHERE ended_at IS NULL AND task_id > $1 ORDER BY task_id LIMIT $2`

const SLICE = `
SELECT webhook_id, ended_at IS NOT NULL AS ended FROM a2a_push_configs WHERE webhook_id > $1 ORDER BY webhook_id LIMIT $2`

/**
 * All SQL on push notification configurations, except for one statement in TasksRepo.ts. That statement stores the
 * change that ends a task and marks the task's configurations as ended.
 */
export class PushConfigsRepo extends Context.Service<PushConfigsRepo, {
  /** The configurations of these tasks, oldest first. */
  readonly of: (taskIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<StoredPushConfig>, Unavailable>
  /** Adds a configuration, which counts towards the agent's limit. */
  readonly add: (
    webhookId: string,
    taskId: string,
    name: string,
    at: number,
    agentId: string
  ) => Effect.Effect<void, Unavailable>
  /** The configurations that count towards an agent's limit, and whether the task of each configuration has ended. */
  readonly counted: (
    agentId: string
  ) => Effect.Effect<ReadonlyArray<{ readonly webhookId: string; readonly ended: boolean }>, Unavailable>
  /** Makes these configurations no longer count towards the agent's limit. */
  readonly uncount: (webhookIds: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>
  readonly remove: (webhookIds: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>
  /** A slice of the ids of the tasks that have configurations and have not ended. */
  readonly watched: (above: string, limit: number) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /** A slice of all configurations, ordered by webhook id, and whether the task of each configuration has ended. */
  readonly slice: (
    above: string,
    limit: number
  ) => Effect.Effect<ReadonlyArray<{ readonly webhookId: string; readonly ended: boolean }>, Unavailable>
}>()("parley/a2a/PushConfigsRepo") {
  static readonly layer = Layer.effect(
    PushConfigsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const of = database.prepared<{ webhook_id: string; name: string }>("a2a_push_configs_of", OF)
      const add = database.prepared("add_a2a_push_config", ADD)
      const counted = database.prepared<{ webhook_id: string; ended: boolean }>("counted_a2a_push_configs", COUNTED)
      const uncount = database.prepared("uncount_a2a_push_configs", UNCOUNT)
      const remove = database.prepared("remove_a2a_push_configs", REMOVE)
      const watched = database.prepared<{ task_id: string }>("watched_a2a_tasks", WATCHED)
      const slice = database.prepared<{ webhook_id: string; ended: boolean }>("slice_of_a2a_push_configs", SLICE)
      return PushConfigsRepo.of({
        of: (taskIds) =>
          Effect.map(of([taskIds]), (rows) => rows.map(({ name, webhook_id }) => ({ webhookId: webhook_id, name }))),
        add: (webhookId, taskId, name, at, agentId) => Effect.asVoid(add([webhookId, taskId, name, at, agentId])),
        counted: (agentId) =>
          Effect.map(
            counted([agentId]),
            (rows) => rows.map(({ ended, webhook_id }) => ({ webhookId: webhook_id, ended }))
          ),
        uncount: (webhookIds) => Effect.asVoid(uncount([webhookIds])),
        remove: (webhookIds) => Effect.asVoid(remove([webhookIds])),
        watched: (above, limit) => Effect.map(watched([above, limit]), (rows) => rows.map(({ task_id }) => task_id)),
        slice: (above, limit) =>
          Effect.map(
            slice([above, limit]),
            (rows) => rows.map(({ ended, webhook_id }) => ({ webhookId: webhook_id, ended }))
          )
      })
    })
  )
}
