import { migrate, storage } from "#infrastructure/cluster/ClusterNode"
import { ownersOf } from "#infrastructure/cluster/EffectOverrides"
import { type NodeInfo, NodeTable } from "#infrastructure/cluster/NodeTable"
import * as Migrations from "#infrastructure/database/Migrations"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Effect, Layer, Logger, Redacted } from "effect"
import { Runner, RunnerAddress, RunnerStorage, ShardId, ShardingConfig } from "effect/cluster"
import { cpuOfTree } from "../bench/CpuTime.ts"
import { type BenchDatabase, startDatabase } from "../bench/Database.ts"

const NODES = 100
const READS = 300
const FACTS: NodeInfo = { wire: 0, schema: "", publicUrl: null, limits: {} }
const addressOf = (i: number) => RunnerAddress.make(`10.0.${i >> 8}.${i & 255}`, 14_431)

/** Milliseconds of processor time of this process that a node uses to compute the owners of all shards. */
const owners = (shards: number): number => {
  const runners = Array.from(
    { length: NODES },
    (_, i) => [Runner.make({ address: addressOf(i), groups: ["default"], weight: 1 }), true] as const
  )
  ownersOf({ runners, at: 0 }, shards)
  const before = process.cpuUsage()
  for (let i = 0; i < 5; i++) ownersOf({ runners, at: 0 }, shards)
  const { system, user } = process.cpuUsage(before)
  return (user + system) / 1_000 / 5
}

/** What shards cost in a database with the reports of `NODES` nodes, of which one holds all locks. */
const costsOf = (database: BenchDatabase, shards: number) =>
  Effect.gen(function*() {
    const locks = yield* RunnerStorage.RunnerStorage
    const table = yield* NodeTable
    const all = Array.from({ length: NODES }, (_, i) => addressOf(i))
    const names = new Set(all.map(({ host, port }) => `${host}:${port}`))
    for (const name of names) yield* table.report(name, names, FACTS, true)
    yield* table.rows
    const micros = Effect.fnUntraced(function*(work: Effect.Effect<unknown, unknown>) {
      const before = cpuOfTree(database.pid ?? 0)
      for (let i = 0; i < READS; i++) yield* work
      return (cpuOfTree(database.pid ?? 0) - before) / READS
    })
    const wanted = Array.from({ length: shards }, (_, i) => ShardId.make("default", i + 1))
    const began = performance.now()
    const held = yield* locks.acquire(addressOf(0), wanted)
    const taken = performance.now() - began
    const read = yield* micros(table.rows)
    const renewed = yield* micros(locks.refresh(addressOf(0), wanted))
    yield* locks.releaseAll(addressOf(0))
    return `${shards} shards, ${NODES} nodes: one node took ${held.length} free locks in ${taken.toFixed(0)} ms; ` +
      `PostgreSQL used ${read.toFixed(0)} µs for a read of the reports and ${renewed.toFixed(0)} µs for renewing ` +
      `all locks; a node used ${owners(shards).toFixed(1)} ms to compute the owners`
  }).pipe(
    Effect.provide(
      Layer.fresh(storage(Redacted.make(database.url), "10.0.0.0:14431")).pipe(
        Layer.provide(ShardingConfig.layer({ shardsPerGroup: shards, shardLockExpiration: "10 minutes" }))
      )
    )
  )

/** Measures what a cluster pays for its shards, by their number. */
export const shardCosts = async (): Promise<ReadonlyArray<string>> => {
  const database = await startDatabase(undefined)
  const lines = Effect.gen(function*() {
    yield* migrate
    const found: Array<string> = []
    for (const shards of [300, 900, 1_600]) found.push(yield* costsOf(database, shards))
    return found
  }).pipe(
    Effect.provide(
      Migrations.layer.pipe(Layer.provideMerge(layerPg({ url: Redacted.make(database.url), poolSize: 2 })))
    ),
    Effect.provide(Logger.layer([])),
    Effect.scoped
  )
  return Effect.runPromise(lines).finally(() => database.stop())
}

if (import.meta.main) console.log((await shardCosts()).join("\n"))
