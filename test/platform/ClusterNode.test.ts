import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Redacted, Scope } from "effect"
import { RunnerAddress, RunnerStorage, ShardId, ShardingConfig } from "effect/cluster"
import { claimAddress, migrate, storage } from "../../src/platform/ClusterNode.ts"
import { layerPg } from "../../src/platform/Sql.ts"
import { Link } from "../faults/Link.ts"
import { freshDatabase, layerPostgresTest } from "../support/Databases.ts"

describe("a node's address", () => {
  it.live("is one node's at a time, and free when that one has ended", () =>
    Effect.gen(function*() {
      const here = { RUNNER_HOST: "127.0.0.1", RUNNER_PORT: 34_431 }
      const first = yield* Scope.make()
      const claim = claimAddress(here, "700 millis")
      yield* Scope.provide(claim, first)
      const failure = yield* Effect.flip(Effect.scoped(claim))
      assert.include(failure.message, "127.0.0.1:34431")
      yield* Effect.scoped(claimAddress({ ...here, RUNNER_PORT: 34_432 }, "700 millis"))
      yield* Scope.close(first, Exit.void)
      yield* Effect.scoped(claimAddress(here, "2 seconds"))
    }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 6, kind: "empty" }).pipe(Layer.orDie))))
})

describe("the locks of shards", () => {
  it.live("are let go of a few at a time, so that many of them take no longer than each may", () =>
    Effect.gen(function*() {
      const url = new URL(yield* Effect.promise(() => freshDatabase(18, "empty")))
      const link = yield* Effect.acquireRelease(
        Effect.promise(() => Link.open("127.0.0.1", { host: url.hostname, port: Number(url.port) })),
        (link) => Effect.sync(() => link.close())
      )
      url.port = String(link.address.port)
      const database = layerPg({ url: Redacted.make(url.href), poolSize: 4 })
      const here = RunnerAddress.make("127.0.0.1", 34_431)
      const shards = Array.from({ length: 60 }, (_, i) => ShardId.make("default", i + 1))
      // A third of this is what each operation has.
      const config = ShardingConfig.layer({ shardsPerGroup: shards.length, shardLockExpiration: "1500 millis" })
      yield* Effect.gen(function*() {
        const locks = yield* RunnerStorage.RunnerStorage
        assert.lengthOf(yield* locks.acquire(here, shards), shards.length)
        link.delayMs = 5
        yield* Effect.forEach(shards.slice(1), (shard) => locks.release(here, shard), { concurrency: "unbounded", discard: true })
        assert.deepStrictEqual(yield* locks.refresh(here, shards), shards.slice(0, 1))
      }).pipe(Effect.provide(storage.pipe(
        Layer.provide(Layer.effectDiscard(migrate)),
        Layer.provide([database, config])
      )))
    }).pipe(Effect.scoped))
})
