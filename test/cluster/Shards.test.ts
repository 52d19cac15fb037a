import { migrate } from "#infrastructure/cluster/ClusterNode"
import { Shards } from "#infrastructure/cluster/Shards"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { readFile } from "node:fs/promises"
import { layerPostgresTest } from "../support/Databases.ts"

const started = (RUNNER_SHARDS: number | undefined) =>
  Effect.map(
    Effect.scoped(Layer.build(Layer.fresh(Shards.layerStored({ RUNNER_SHARDS })))),
    (context) => Context.get(context, Shards).length
  )

describe("the number of shards", () => {
  it.live("of a new cluster is 300, or what the first node asks for; nodes with another number do not start", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      assert.strictEqual(yield* started(undefined), 300)
      yield* sql`DELETE FROM cluster_settings`
      assert.strictEqual(yield* started(900), 900)
      assert.strictEqual(yield* started(undefined), 900)
      assert.strictEqual(yield* started(900), 900)
      assert.strictEqual(
        (yield* Effect.flip(started(300))).message,
        "RUNNER_SHARDS is 300 on this node, but the cluster of this database has 900 shards: set RUNNER_SHARDS to 900 or remove it"
      )
      // Nodes that start together agree.
      yield* sql`DELETE FROM cluster_settings`
      const starts = yield* Effect.forEach([600, 700, 600, 700], (count) => Effect.exit(started(count)), {
        concurrency: "unbounded"
      })
      assert.lengthOf(starts.filter(({ _tag }) => _tag === "Success"), 2)
    }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 4 }).pipe(Layer.orDie))))

  it.live("of a cluster of an earlier version is 300, whatever the first node of this version asks for", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const file = yield* Effect.promise(() =>
        readFile(new URL("../../schema/0038_create_cluster_settings.sql", import.meta.url), "utf8")
      )
      yield* migrate
      yield* sql`DROP TABLE cluster_settings`
      yield* sql.unsafe(file).raw
      assert.include((yield* Effect.flip(started(900))).message, "has 300 shards")
    }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 2 }).pipe(Layer.orDie))))
})
