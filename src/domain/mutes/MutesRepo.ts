import type { MuteKind } from "#domain/push/MuteSet"
import { Database } from "#infrastructure/database/Sql"
import type { PageRange } from "#infrastructure/wire/Page"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { StoredMute } from "./Mute.ts"

/** The position at which a page of the list ended. */
export interface MutePosition {
  readonly createdAt: number
  readonly kind: MuteKind
  readonly targetId: string
}

interface MuteRow {
  readonly muter_id: string
  readonly kind: MuteKind
  readonly target_id: string
  readonly handle: string | null
  readonly muted_until: number | null
  readonly created_at: number
}

const storedMute = (row: MuteRow): StoredMute => ({
  muterId: row.muter_id,
  kind: row.kind,
  targetId: row.target_id,
  targetHandle: row.handle,
  mutedUntil: row.muted_until,
  createdAt: row.created_at
})

/** If the target's mute has ended, the new mute replaces it in the same row, with a new `created_at`. */
const PUT = `
WITH made AS (
  INSERT INTO mutes (muter_id, kind, target_id, muted_until, created_at)
  SELECT $1::text, $2::text, $3::text, $4::bigint, $5::bigint
  FROM (
    SELECT count(*) AS total, count(*) FILTER (WHERE kind = $2 AND target_id = $3) AS same
    FROM mutes WHERE muter_id = $1 AND (muted_until IS NULL OR muted_until > $5::bigint)
  ) active
  WHERE same > 0 OR total < $6::bigint
  ON CONFLICT (muter_id, kind, target_id) DO UPDATE SET
    muted_until = EXCLUDED.muted_until,
    created_at = CASE
      WHEN mutes.muted_until <= EXCLUDED.created_at THEN EXCLUDED.created_at ELSE mutes.created_at
    END
  RETURNING *
)
SELECT m.*, a.handle FROM made m LEFT JOIN agents a ON m.kind = 'agent' AND a.id = m.target_id`

const ACTIVE = `(m.muted_until IS NULL OR m.muted_until > $2::bigint)`

const ONE = `
SELECT m.*, a.handle FROM mutes m LEFT JOIN agents a ON m.kind = 'agent' AND a.id = m.target_id
WHERE m.muter_id = $1 AND ${ACTIVE} AND m.kind = $3 AND m.target_id = $4`

const LIST = `
SELECT m.*, a.handle FROM mutes m LEFT JOIN agents a ON m.kind = 'agent' AND a.id = m.target_id
WHERE m.muter_id = $1 AND ${ACTIVE} AND ($3::text IS NULL OR m.kind = $3::text)
  AND ($4::bigint IS NULL OR (m.created_at, m.kind, m.target_id) < ($4::bigint, $5::text, $6::text))
ORDER BY m.created_at DESC, m.kind DESC, m.target_id DESC
OFFSET $7 LIMIT $8`

const COUNT = `
SELECT count(*) AS total FROM mutes m WHERE m.muter_id = $1 AND ${ACTIVE} AND ($3::text IS NULL OR m.kind = $3::text)`

const REMOVE = `
DELETE FROM mutes m WHERE m.muter_id = $1 AND ${ACTIVE} AND m.kind = $3 AND m.target_id = $4 RETURNING m.target_id`

const removeSome = (which: string): string => `
DELETE FROM mutes WHERE (muter_id, kind, target_id) IN (
  SELECT muter_id, kind, target_id FROM mutes WHERE ${which} LIMIT $2
)
RETURNING muter_id`

/** All SQL on mutes. The methods with a parameter `at` ignore mutes that have ended by that time. */
export class MutesRepo extends Context.Service<MutesRepo, {
  /** Creates a mute or updates its expiry. Returns undefined if the muter already has `most` active mutes. */
  readonly put: (
    mute: {
      readonly muterId: string
      readonly kind: MuteKind
      readonly targetId: string
      readonly until: number | null
    },
    at: number,
    most: number
  ) => Effect.Effect<StoredMute | undefined, Unavailable>
  readonly one: (
    muterId: string,
    kind: MuteKind,
    targetId: string,
    at: number
  ) => Effect.Effect<StoredMute | undefined, Unavailable>
  /** The muter's mutes, newest first. */
  readonly list: (
    muterId: string,
    kind: MuteKind | null,
    range: PageRange<MutePosition>,
    at: number
  ) => Effect.Effect<ReadonlyArray<StoredMute>, Unavailable>
  readonly count: (muterId: string, kind: MuteKind | null, at: number) => Effect.Effect<number, Unavailable>
  /** Returns false if there was no active mute. */
  readonly remove: (
    muterId: string,
    kind: MuteKind,
    targetId: string,
    at: number
  ) => Effect.Effect<boolean, Unavailable>
  /**
   * Removes up to `most` mutes that an agent has set and up to `most` mutes of which it is the target. Returns the
   * number of removed mutes.
   */
  readonly removeAgent: (agentId: string, most: number) => Effect.Effect<number, Unavailable>
}>()("parley/mutes/MutesRepo") {
  static readonly layer = Layer.effect(
    MutesRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const put = database.prepared<MuteRow>("put_mute", PUT)
      const one = database.prepared<MuteRow>("one_mute", ONE)
      const list = database.prepared<MuteRow>("list_mutes", LIST)
      const count = database.prepared<{ total: number }>("count_mutes", COUNT)
      const remove = database.prepared("remove_mute", REMOVE)
      const removeOwn = database.prepared("remove_own_mutes", removeSome("muter_id = $1"))
      const removeOn = database.prepared("remove_mutes_on", removeSome("target_id = $1 AND kind = 'agent'"))
      return MutesRepo.of({
        put: ({ kind, muterId, targetId, until }, at, most) =>
          Effect.map(
            put([muterId, kind, targetId, until, at, most]),
            ([row]) => row === undefined ? undefined : storedMute(row)
          ),
        one: (muterId, kind, targetId, at) =>
          Effect.map(one([muterId, at, kind, targetId]), ([row]) => row === undefined ? undefined : storedMute(row)),
        list: (muterId, kind, { after, limit, offset }, at) =>
          Effect.map(
            list([
              muterId,
              at,
              kind,
              after?.createdAt ?? null,
              after?.kind ?? null,
              after?.targetId ?? null,
              offset,
              limit
            ]),
            (rows) => rows.map(storedMute)
          ),
        count: (muterId, kind, at) => Effect.map(count([muterId, at, kind]), (rows) => rows[0]?.total ?? 0),
        remove: (muterId, kind, targetId, at) =>
          Effect.map(remove([muterId, at, kind, targetId]), (rows) => rows.length > 0),
        removeAgent: Effect.fnUntraced(function*(agentId, most) {
          const own = yield* removeOwn([agentId, most])
          const on = yield* removeOn([agentId, most])
          return own.length + on.length
        })
      })
    })
  )
}
