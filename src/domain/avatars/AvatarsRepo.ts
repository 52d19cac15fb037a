import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A picture that is being removed cannot be stored again until its removal is done. */
const KEEP = `
INSERT INTO avatars (key, look_at) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET look_at = EXCLUDED.look_at WHERE NOT avatars.condemned
RETURNING key`

/**
 * These conditions are written so that the planner finds an agent by id, and uses neither the index of agents with a
 * picture nor that of live agents.
 */
const HAS_ONE = `coalesce(avatar_key, '') <> ''`
const LIVES = `coalesce(deleted_at, 0) = 0`

const SET = `UPDATE agents SET avatar_key = $2, updated_at = $3 WHERE id = $1 AND ${LIVES} RETURNING id`

const CLEAR = `UPDATE agents SET avatar_key = NULL, updated_at = $2 WHERE id = $1 AND ${HAS_ONE} RETURNING id`

const OVERDUE = `SELECT key FROM avatars WHERE look_at <= $1 ORDER BY look_at LIMIT $2`

/** Condemns a picture only if no agent and no group refers to it. */
const CONDEMN = `
UPDATE avatars SET condemned = true
WHERE key = $1 AND look_at <= $2 
  AND NOT EXISTS (SELECT FROM agents WHERE avatar_key = $1)
  AND NOT EXISTS (SELECT FROM groups WHERE avatar_key = $1)
RETURNING key`

const DEFER = `UPDATE avatars SET look_at = greatest(look_at, $2) WHERE key = $1 AND NOT condemned`

const LOOK_AGAIN = `UPDATE avatars SET look_at = $2 WHERE key = $1`

const REMOVE = `DELETE FROM avatars WHERE key = $1 AND condemned`

/** All statements on avatars. */
export class AvatarsRepo extends Context.Service<AvatarsRepo, {
  /**
   * Records a picture before its bytes are stored. The sweep does not check it before `lookAt`. Returns false if the
   * picture is being removed.
   */
  readonly keep: (key: string, lookAt: number) => Effect.Effect<boolean, Unavailable>
  /** Returns false for a deleted account. */
  readonly set: (agentId: string, key: string, at: number) => Effect.Effect<boolean, Unavailable>
  /** Returns false if the agent had no picture. */
  readonly clear: (agentId: string, at: number) => Effect.Effect<boolean, Unavailable>
  readonly overdue: (at: number, limit: number) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /**
   * Begins the removal of a picture. Returns false if an agent or group refers to the picture, or if its next check was
   * postponed.
   */
  readonly condemn: (key: string, at: number) => Effect.Effect<boolean, Unavailable>
  /**
   * Postpones the next check of a picture to which a group is about to refer. Does nothing if the picture is not
   * stored.
   */
  readonly defer: (key: string, lookAt: number) => Effect.Effect<void, Unavailable>
  readonly lookAgain: (key: string, at: number) => Effect.Effect<void, Unavailable>
  readonly remove: (key: string) => Effect.Effect<void, Unavailable>
}>()("parley/avatars/AvatarsRepo") {
  static readonly layer = Layer.effect(
    AvatarsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const keep = database.prepared("avatar_keep", KEEP)
      const set = database.prepared("avatar_set", SET)
      const clear = database.prepared("avatar_clear", CLEAR)
      const overdue = database.prepared<{ key: string }>("avatars_overdue", OVERDUE)
      const condemn = database.prepared("avatar_condemn", CONDEMN)
      const defer = database.prepared("avatar_defer", DEFER)
      const lookAgain = database.prepared("avatar_look_again", LOOK_AGAIN)
      const remove = database.prepared("avatar_remove", REMOVE)
      const found = Effect.map((rows: ReadonlyArray<object>) => rows.length > 0)

      return AvatarsRepo.of({
        keep: (key, lookAt) => found(keep([key, lookAt])),
        set: (agentId, key, at) => found(set([agentId, key, at])),
        clear: (agentId, at) => found(clear([agentId, at])),
        overdue: (at, limit) => Effect.map(overdue([at, limit]), (rows) => rows.map(({ key }) => key)),
        condemn: (key, at) => found(condemn([key, at])),
        defer: (key, lookAt) => Effect.asVoid(defer([key, lookAt])),
        lookAgain: (key, at) => Effect.asVoid(lookAgain([key, at])),
        remove: (key) => Effect.asVoid(remove([key]))
      })
    })
  )
}
