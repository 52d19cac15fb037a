import { claimAddress, migrate, storage } from "#infrastructure/cluster/ClusterNode"
import { nameOf } from "#infrastructure/cluster/NodeAddress"
import { NodeDrain } from "#infrastructure/cluster/NodeDuty"
import { lockKeyOf, type NodeInfo, NodeTable } from "#infrastructure/cluster/NodeTable"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Deferred, Effect, Fiber, Layer, Logger, Redacted } from "effect"
import { Runner, RunnerAddress, RunnerStorage, ShardId, ShardingConfig } from "effect/cluster"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { freshDatabase } from "../support/Databases.ts"

const SHARDS = Array.from({ length: 20 }, (_, i) => ShardId.make("default", i + 1))
const FACTS: NodeInfo = { wire: 1, schema: "", publicUrl: null, limits: {} }
const HERE = { host: "127.0.0.1", port: 14_431 }
const THERE = { host: "127.0.0.1", port: 14_432 }

/**
 * A node without its process: its list and its locks, and the lock of its address. Its rows are written by the test.
 */
const nodeOf = Effect.fnUntraced(function*(url: string, at: { readonly host: string; readonly port: number }) {
  const address = RunnerAddress.make(at.host, at.port)
  const self = nameOf(address)
  const database = Redacted.make(url)
  const services = yield* Layer.build(
    storage(database, self).pipe(
      Layer.provideMerge(NodeDrain.layer),
      // The sessions would live that long if no other node ended them.
      Layer.provide(ShardingConfig.layer({ shardsPerGroup: SHARDS.length, shardLockExpiration: "10 minutes" })),
      // The other node's services are not shared.
      Layer.fresh
    )
  )
  const pool = yield* Layer.build(layerPg({ url: database, poolSize: 2, mark: lockKeyOf(self) }))
  yield* Effect.provideContext(claimAddress({ RUNNER_HOST: at.host, RUNNER_PORT: at.port }), pool)
  const table = Context.get(services, NodeTable)
  const drain = Context.get(services, NodeDrain)
  return {
    self,
    address,
    locks: Context.get(services, RunnerStorage.RunnerStorage),
    table,
    drain,
    runner: Runner.make({ address, groups: ["default"], weight: 1 }),
    sql: Context.get(pool, SqlClient.SqlClient),
    say: (...reaches: ReadonlyArray<string>) =>
      Effect.suspend(() => table.report(self, new Set(reaches), FACTS, drain.joined && !drain.drained))
  }
})

/** Two nodes that are listed and reach each other. The second one holds all shards. */
const twoNodes = Effect.suspend(() => twoNodesAs())

/** Effects on a connection of their own. */
const using = <A, E>(url: string, effect: Effect.Effect<A, E, SqlClient.SqlClient>) =>
  Effect.scoped(
    Effect.flatMap(Layer.build(Layer.fresh(layerPg({ url: Redacted.make(url), poolSize: 1 }))), (context) =>
      Effect.provideContext(effect, context))
  )

/**
 * The database's clock stands still until the test moves it: the name is found in `public` first. It begins an hour
 * ahead.
 */
const holdClock = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE held_clock AS SELECT clock_timestamp() + interval '1 hour' AS at`
  yield* sql`CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT at FROM public.held_clock'`
  yield* sql`DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END$$`
})

/** The same, the first one with a role of its own if `role` is given. */
const twoNodesAs = Effect.fnUntraced(function*(role?: string) {
  const url = yield* Effect.promise(() => freshDatabase())
  yield* using(url, Effect.andThen(migrate, holdClock))
  const sql = Context.get(yield* Layer.build(layerPg({ url: Redacted.make(url), poolSize: 2 })), SqlClient.SqlClient)
  const ours = new URL(url)
  if (role !== undefined) {
    ours.username = role
    yield* sql`CREATE ROLE ${sql(role)} LOGIN`
    yield* sql`GRANT ALL ON ALL TABLES IN SCHEMA public TO ${sql(role)}`
    yield* sql`GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO ${sql(role)}`
  }
  const here = yield* nodeOf(ours.href, HERE)
  const there = yield* nodeOf(url, THERE)
  const reach = Effect.andThen(here.say(there.self), there.say(here.self))
  yield* reach
  yield* here.locks.register(here.runner, true)
  yield* there.locks.register(there.runner, true)
  const steady =
    sql`UPDATE cluster_nodes SET turned_at = turned_at - interval '1 minute', steady_since = steady_since - interval '1 minute'`
  yield* steady
  assert.lengthOf(yield* there.locks.acquire(there.address, SHARDS), SHARDS.length)
  const list = Effect.map(
    here.locks.getRunners,
    (runners) => new Map(runners.map(([{ address }, isHealthy]) => [nameOf(address), isHealthy]))
  )
  return {
    sql,
    here,
    there,
    reach,
    /** Moves the database's clock. */
    pass: (interval: string) => sql`UPDATE held_clock SET at = at + ${interval}::interval`,
    /** Sets the database's clock to the time of its machine, as if the nodes had turned long before. */
    now: Effect.andThen(
      sql`UPDATE held_clock SET at = pg_catalog.clock_timestamp()`,
      sql`UPDATE cluster_nodes SET turned_at = clock_timestamp() - interval '1 minute', steady_since = clock_timestamp() - interval '1 minute'`
    ),
    /** As if the nodes had written their rows for a minute. */
    steady,
    /** The nodes that own shards, as the first one computes it. */
    owners: Effect.map(
      list,
      (list) => [here, there].filter(({ self }) => list.get(self) === true).map(({ self }) => self)
    ),
    /** How many locks the second one holds. */
    held: there.locks.refresh(there.address, SHARDS).pipe(
      Effect.map(({ length }) => length),
      Effect.orElseSucceed(() => 0)
    ),
    /** As if a node had written nothing for some time. */
    age: (node: { readonly self: string }, interval: string) =>
      sql`UPDATE cluster_nodes SET said_at = said_at - ${interval}::interval WHERE address = ${node.self}`
  }
})

it.effect("the rows of the nodes are read once for all parts of a node that wait for them", () =>
  Effect.gen(function*() {
    const { here } = yield* twoNodes
    const waiting = yield* Effect.forEach(
      [1, 2],
      () => Effect.forkChild(here.table.nextRows, { startImmediately: true })
    )
    const rows = yield* here.table.rows
    assert.lengthOf(rows, 2)
    for (const fiber of waiting) assert.strictEqual(yield* Fiber.join(fiber), rows)
  }).pipe(Effect.scoped))

describe("a node whose row is old", () => {
  it.live("loses its sessions, and its locks with them, to a node that writes its own", () =>
    Effect.gen(function*() {
      const { age, here, held, now, owners, pass, steady, there } = yield* twoNodes
      assert.deepStrictEqual(yield* owners, [here.self, there.self])
      assert.strictEqual(yield* held, SHARDS.length)
      // Its sessions are older than its row.
      yield* pass("3100 milliseconds")
      yield* here.say(there.self)
      yield* steady
      assert.deepStrictEqual(yield* owners, [here.self])
      // Tries until the locks are free.
      assert.lengthOf(yield* here.locks.acquire(here.address, SHARDS), SHARDS.length)
      assert.strictEqual(yield* held, 0)
      // The sessions of the next process at that address have begun after the row was written.
      yield* now
      yield* here.say(there.self)
      yield* there.say(here.self)
      yield* steady
      yield* age(there, "5 minutes")
      yield* Effect.forEach(SHARDS, (shard) => here.locks.release(here.address, shard), { discard: true })
      assert.lengthOf(yield* there.locks.acquire(there.address, SHARDS), SHARDS.length)
      assert.deepStrictEqual(yield* owners, [here.self])
      assert.strictEqual(yield* held, SHARDS.length)
    }).pipe(Effect.scoped))

  it.live("keeps its locks if the role of the other node may not end its sessions, which is logged once", () =>
    Effect.gen(function*() {
      const { age, here, held, owners, reach, steady, there } = yield* twoNodesAs(`limited_${process.pid}`)
      const lines: Array<string> = []
      const logger = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
      yield* reach
      yield* steady
      yield* age(there, "5 seconds")
      for (let i = 0; i < 3; i++) assert.deepStrictEqual(yield* Effect.provide(owners, logger), [here.self])
      assert.lengthOf(lines, 1)
      assert.include(lines[0], "grant it pg_signal_backend")
      assert.strictEqual(yield* held, SHARDS.length)
    }).pipe(Effect.scoped))

  it.live("keeps its locks if no node has written for three seconds without a gap, as after a pause of the database", () =>
    Effect.gen(function*() {
      const { age, here, held, owners, sql, there } = yield* twoNodes
      yield* sql`UPDATE cluster_nodes SET said_at = said_at + interval '10 seconds'`
      yield* age(here, "20 seconds")
      yield* age(there, "20 seconds")
      assert.deepStrictEqual(yield* owners, [here.self, there.self])
      yield* here.say(there.self)
      assert.deepStrictEqual(yield* owners, [here.self, there.self])
      assert.strictEqual(yield* held, SHARDS.length)
    }).pipe(Effect.scoped))
})

describe("a node that writes its row and reaches no other", () => {
  it.effect("loses the session with its locks if it has not released them after three seconds", () =>
    Effect.gen(function*() {
      const { here, held, owners, pass, sql, there } = yield* twoNodes
      const cut = Effect.gen(function*() {
        yield* here.say()
        yield* there.say()
        yield* pass("10 milliseconds")
        return yield* owners
      })
      assert.deepStrictEqual(yield* cut, [here.self])
      yield* TestClock.adjust("2900 millis")
      assert.deepStrictEqual(yield* cut, [here.self])
      assert.strictEqual(yield* held, SHARDS.length)
      // The excluded node computes the same, and ends nothing.
      yield* there.locks.getRunners
      yield* TestClock.adjust("200 millis")
      yield* there.locks.getRunners
      // Of its sessions, the one with the lock of its address: a pool closes its idle ones after a while.
      const pids = sql<{ readonly pid: number }>`
        SELECT DISTINCT pid FROM pg_stat_activity JOIN pg_locks USING (pid)
        WHERE locktype = 'advisory' AND application_name LIKE ${`%@${lockKeyOf(here.self)}`} ORDER BY pid`
      const before = yield* pids
      assert.isNotEmpty(before)
      assert.deepStrictEqual(yield* cut, [here.self])
      assert.strictEqual(yield* Effect.repeat(held, { until: (left) => left === 0, times: 1_000 }), 0)
      assert.deepStrictEqual(yield* pids, before)
    }).pipe(Effect.scoped))
})

describe("a change that a node announces", () => {
  it.effect("is acted on by all nodes at one moment, and the locks are tried until they are released", () =>
    Effect.gen(function*() {
      const { here, owners, pass, reach, there } = yield* twoNodes
      there.drain.drained = true
      yield* reach
      /** Begins an effect, and comes back when it waits for the clock. */
      const untilItWaits = Effect.fnUntraced(function*<A, E>(effect: Effect.Effect<A, E>) {
        const clock = yield* Clock.Clock
        const waits = yield* Deferred.make<void>()
        const sleep: Clock.Clock["sleep"] = (duration) =>
          Effect.andThen(Deferred.succeed(waits, undefined), clock.sleep(duration))
        const fiber = yield* Effect.forkChild(Effect.provideService(effect, Clock.Clock, { ...clock, sleep }))
        yield* Deferred.await(waits)
        return fiber
      })
      const early = yield* untilItWaits(here.locks.getRunners)
      yield* pass("700 milliseconds")
      yield* TestClock.adjust("700 millis")
      const late = yield* untilItWaits(there.locks.getRunners)
      yield* pass("49 milliseconds")
      yield* TestClock.adjust("49 millis")
      assert.deepStrictEqual([early.pollUnsafe(), late.pollUnsafe()], [undefined, undefined])
      yield* pass("2 milliseconds")
      yield* TestClock.adjust("2 millis")
      yield* Fiber.join(early)
      yield* Fiber.join(late)
      // The other node has tried once before the locks are released.
      const trying = yield* untilItWaits(here.locks.acquire(here.address, SHARDS))
      yield* Effect.forEach(SHARDS, (shard) => there.locks.release(there.address, shard), {
        concurrency: "unbounded",
        discard: true
      })
      const passing = yield* Effect.forkChild(
        Effect.forever(Effect.andThen(TestClock.adjust("10 millis"), here.locks.refresh(here.address, [])))
      )
      assert.lengthOf(yield* Fiber.join(trying), SHARDS.length)
      assert.deepStrictEqual(yield* owners, [here.self])
      assert.deepStrictEqual([...here.drain.nodes], [there.self])
      // If no node takes shards, all do.
      here.drain.drained = true
      yield* reach
      yield* here.locks.getRunners
      assert.deepStrictEqual(yield* owners, [here.self, there.self])
      yield* Fiber.interrupt(passing)
    }).pipe(Effect.scoped))
})
