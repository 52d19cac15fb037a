import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { MuteKind } from "./MuteSet.ts"

const ACTIVE = `(m.muted_until IS NULL OR m.muted_until > $2::bigint)`

const ALL = `SELECT m.target_id, m.muted_until FROM mutes m WHERE m.muter_id = $1 AND ${ACTIVE}`

const ONE = `SELECT m.muted_until FROM mutes m WHERE m.muter_id = $1 AND ${ACTIVE} AND m.kind = $3 AND m.target_id = $4`

/**
 * Reads the mutes that are active at a given time, so that sockets do not show muted messages. The module `mutes`
 * writes the rows.
 */
export class ActiveMutes extends Context.Service<ActiveMutes, {
  /** The target of each mute and its end in milliseconds. The end is `null` for a mute without an end. */
  readonly all: (
    muterId: string,
    at: number
  ) => Effect.Effect<ReadonlyArray<{ readonly target_id: string; readonly muted_until: number | null }>, Unavailable>
  /** The end of one mute in milliseconds, or undefined if the target is not muted. */
  readonly one: (
    muterId: string,
    kind: MuteKind,
    targetId: string,
    at: number
  ) => Effect.Effect<{ readonly muted_until: number | null } | undefined, Unavailable>
}>()("parley/push/ActiveMutes") {
  static readonly layer = Layer.effect(
    ActiveMutes,
    Effect.gen(function*() {
      const database = yield* Database
      const all = database.prepared<{ target_id: string; muted_until: number | null }>("all_mutes", ALL)
      const one = database.prepared<{ muted_until: number | null }>("active_mute", ONE)
      return ActiveMutes.of({
        all: (muterId, at) => all([muterId, at]),
        one: (muterId, kind, targetId, at) => Effect.map(one([muterId, at, kind, targetId]), ([row]) => row)
      })
    })
  )
}
