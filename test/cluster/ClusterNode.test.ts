import { claimAddress, migrate, storage } from "#infrastructure/cluster/ClusterNode"
import * as NodePort from "#infrastructure/cluster/NodePort"
import { make as makeLines, PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Config } from "#infrastructure/platform/Config"
import { Environment } from "#infrastructure/platform/UnknownSettings"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Redacted, Scope } from "effect"
import { RunnerAddress, RunnerStorage, ShardId, ShardingConfig } from "effect/cluster"
import { SqlClient } from "effect/sql"
import { once } from "node:events"
import { connect } from "node:net"
import { freePort } from "../../runners/local/FreePort.ts"
import { freshDatabase, layerPostgresTest } from "../support/Databases.ts"
import { Link } from "../support/Link.ts"
import { Stopwatch } from "../support/Promptly.ts"

describe("a node's address", () => {
  it.live("belongs to one node at a time, and is free when that node has ended", () =>
    Effect.gen(function*() {
      const here = { RUNNER_HOST: "127.0.0.1", RUNNER_PORT: 14_431 }
      const first = yield* Scope.make()
      yield* Scope.provide(claimAddress(here, "1 minute"), first)
      const failure = yield* Effect.flip(Effect.scoped(claimAddress(here, "700 millis")))
      assert.include(failure.message, "127.0.0.1:14431")
      yield* Effect.scoped(claimAddress({ ...here, RUNNER_PORT: 14_432 }, "1 minute"))
      yield* Scope.close(first, Exit.void)
      yield* Effect.scoped(claimAddress(here, "1 minute"))
    }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 6, kind: "empty" }).pipe(Layer.orDie))))
})

describe("the tables in which nodes find each other", () => {
  it.live("are created once by nodes that start together", () =>
    Effect.gen(function*() {
      const url = Redacted.make(yield* Effect.promise(() => freshDatabase(18, "empty")))
      const node = Layer.effectDiscard(migrate).pipe(Layer.provide(Layer.fresh(layerPg({ url, poolSize: 1 }))))
      yield* Effect.all(Array.from({ length: 6 }, () => Layer.build(Layer.fresh(node))), { concurrency: "unbounded" })
      const sql = Context.get(yield* Layer.build(layerPg({ url, poolSize: 1 })), SqlClient.SqlClient)
      assert.deepStrictEqual(yield* sql`SELECT migration_id AS id FROM cluster_runner_migrations`, [{ id: 1 }])
    }).pipe(Effect.scoped))
})

describe("the locks of shards", () => {
  it.live("are released together, so that many of them take no longer than each may", () =>
    Effect.gen(function*() {
      const url = new URL(yield* Effect.promise(() => freshDatabase(18, "empty")))
      const link = yield* Effect.acquireRelease(
        Effect.promise(() => Link.open("127.0.0.1", { host: url.hostname, port: Number(url.port) })),
        (link) => Effect.sync(() => link.close())
      )
      url.port = String(link.address.port)
      const database = Redacted.make(url.href)
      const here = RunnerAddress.make("127.0.0.1", 14_431)
      const shards = Array.from({ length: 60 }, (_, i) => ShardId.make("default", i + 1))
      // A third of this is what each operation has.
      const config = ShardingConfig.layer({ shardsPerGroup: shards.length, shardLockExpiration: "10 minutes" })
      yield* Effect.gen(function*() {
        const locks = yield* RunnerStorage.RunnerStorage
        assert.lengthOf(yield* locks.acquire(here, shards), shards.length)
        link.delayMs = 50
        const watch = new Stopwatch()
        yield* Effect.forEach(shards.slice(1), (shard) => locks.release(here, shard), {
          concurrency: "unbounded",
          discard: true
        })
        // One after the other they would wait for 118 answers, 100 ms each.
        watch.endsWithin(6_000)
        assert.deepStrictEqual(yield* locks.refresh(here, shards), shards.slice(0, 1))
      }).pipe(Effect.provide(
        storage(database, "127.0.0.1:14431").pipe(
          Layer.provide(Layer.effectDiscard(migrate).pipe(Layer.provide(layerPg({ url: database, poolSize: 2 })))),
          Layer.provide(config)
        )
      ))
    }).pipe(Effect.scoped))
})

describe("the listener for other nodes", () => {
  it.live("ends although a connected peer sends nothing", () =>
    Effect.gen(function*() {
      const port = yield* Effect.promise(freePort)
      const config = yield* Config.load.pipe(Effect.provideService(Environment, {
        PARLEY_CONFIG: "/dev/null",
        RUNNER_PORT: String(port),
        RUNNER_SECRET: "known to the nodes of this test"
      }))
      const scope = yield* Scope.make()
      yield* Scope.provide(
        Layer.build(
          NodePort.layer(config).pipe(Layer.provide(Layer.effect(
            PeerConnections,
            makeLines("127.0.0.1:1", 1, () => Effect.fail("nobody is there"))
          )))
        ),
        scope
      )
      const silent = connect(port, "127.0.0.1")
      yield* Effect.promise(() => once(silent, "connect"))
      yield* Scope.close(scope, Exit.void)
      silent.destroy()
    }))
})
