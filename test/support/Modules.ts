import type { Draft } from "#domain/messages/Message"
import * as Cluster from "#infrastructure/cluster/Cluster"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Entities from "../../src/Services.ts"
import { layerRemembering } from "./AsACaller.ts"
import type { TestDatabase } from "./Databases.ts"
import { layerLeapingClock } from "./Leap.ts"

/** Every room's services and entities in one process, on a database, with a test's settings. */
export const layerModules = (database: TestDatabase, changes: Partial<Settings> = {}) =>
  Entities.layer.pipe(
    Layer.provideMerge(
      Layer.provideMerge(
        Layer.effectDiscard(Cluster.awaitShards),
        Layer.provideMerge(layerRemembering, Cluster.layerStandalone)
      ).pipe(
        Layer.provide(Layer.succeed(Clock.Clock, Clock.Clock.defaultValue()))
      )
    ),
    Layer.provideMerge(database),
    Layer.provideMerge(Layer.mergeAll(Config.layerTest(changes), Ids.layer)),
    Layer.provideMerge(layerLeapingClock)
  )

/** Inserts an account as registration does, without the mail. */
export const newAgent = Effect.fnUntraced(function*(handle: string) {
  const sql = yield* SqlClient.SqlClient
  const ids = yield* Ids
  const id = ids.make("agt")
  const key = ids.apiKey()
  yield* sql`
    INSERT INTO agents (id, handle, email, key_hash, created_at, updated_at)
    VALUES (${id}, ${handle}, ${`${handle}@example.com`}, ${sha256(key)}, 0, 0)`
  yield* sql`INSERT INTO inboxes (agent_id) VALUES (${id})`
  return { id, handle, displayName: null, key }
})

export interface Party {
  readonly id: string
  readonly handle: string
  readonly displayName: string | null
}

let serial = 0

/** Inserts many accounts at once, with unique handles and without keys. */
export const newAgents = Effect.fnUntraced(function*(n: number) {
  const sql = yield* SqlClient.SqlClient
  const prefix = `p${serial++}x`
  yield* sql`
    WITH made AS (
      INSERT INTO agents (id, handle, email, created_at, updated_at)
      SELECT 'agt_' || ${prefix} || i, ${prefix} || i, ${prefix} || i || '@example.com', 0, 0
      FROM generate_series(0, ${n - 1}::integer) i
      RETURNING id
    ) INSERT INTO inboxes (agent_id) SELECT id FROM made`
  return Array.from(
    { length: n },
    (_, i): Party => ({ id: `agt_${prefix}${i}`, handle: `${prefix}${i}`, displayName: null })
  )
})

export const draft = (clientMsgId: string, text = clientMsgId): Draft => ({
  clientMsgId,
  type: "text",
  content: JSON.stringify({ text }),
  metadata: "{}",
  attachmentId: undefined
})
