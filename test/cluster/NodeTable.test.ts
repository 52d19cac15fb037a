import { migrate } from "#infrastructure/cluster/ClusterNode"
import { type NodeInfo, NodeTable } from "#infrastructure/cluster/NodeTable"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { Runner, RunnerAddress } from "effect/cluster"
import { SqlClient } from "effect/sql"
import { freshDatabase } from "../support/Databases.ts"
import { Link } from "../support/Link.ts"

const limits = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`LIMITS_${i}`, i]))
const factsOf = (address: string): NodeInfo => ({
  wire: 4,
  schema: "0037_a.sql",
  publicUrl: null,
  limits,
  url: `http://${address}`
})
const names = (count: number): ReadonlyArray<string> => Array.from({ length: count }, (_, i) => `10.0.0.${i + 1}:14431`)

/** The table in a database of its own, and how many bytes came from the database since this was asked last. */
const setUp = Effect.gen(function*() {
  const url = new URL(yield* Effect.promise(() => freshDatabase()))
  const link = yield* Effect.acquireRelease(
    Effect.promise(() => Link.open("127.0.0.1", { host: url.hostname, port: Number(url.port) })),
    (link) => Effect.sync(() => link.close())
  )
  let bytes = 0
  link.watcher = (stage, direction, chunk) => {
    if (stage === "passed" && direction === "back") bytes += chunk.length
  }
  url.host = `${link.address.host}:${link.address.port}`
  const database = yield* Layer.build(Layer.fresh(layerPg({ url: Redacted.make(url.href), poolSize: 1 })))
  yield* Effect.provideContext(migrate, database)
  const table = Context.get(
    yield* Layer.build(Layer.fresh(NodeTable.layer).pipe(Layer.provide(Layer.succeedContext(database)))),
    NodeTable
  )
  const report = (address: string, reaches: ReadonlyArray<string>, owns = true) =>
    table.report(address, new Set(reaches.filter((other) => other !== address)), factsOf(address), owns)
  return {
    table,
    report,
    sql: Context.get(database, SqlClient.SqlClient),
    all: (nodes: ReadonlyArray<string>) =>
      Effect.forEach(nodes, (address) => report(address, nodes), { discard: true }),
    bytes: () => [bytes, bytes = 0][0]!
  }
})

describe("the reports of nodes", () => {
  it.effect("that a node knows already are read as keys, in bytes that grow in a line with the nodes", () =>
    Effect.gen(function*() {
      const { all, bytes, table } = yield* setUp
      const read: Array<number> = []
      for (const count of [30, 60, 120]) {
        yield* all(names(count))
        yield* table.rows
        bytes()
        assert.lengthOf(yield* table.rows, count)
        read.push(bytes() / count)
      }
      for (const each of read) assert.isBelow(each, 180, `${read}`)
      assert.isBelow(read[2]!, read[0]! * 1.1, `${read}`)
    }).pipe(Effect.scoped))

  it.effect("contain a change at the next read, and the set of nodes that several reach once", () =>
    Effect.gen(function*() {
      const { all, bytes, report, table } = yield* setUp
      const nodes = names(60)
      yield* all(nodes)
      const first = yield* table.rows
      assert.strictEqual(new Set(first.map(({ reaches }) => reaches)).size, 1)
      assert.deepStrictEqual([...first[0]!.reaches].sort(), [...nodes].sort())
      assert.deepStrictEqual(first.map(({ facts }) => facts), first.map(({ address }) => factsOf(address)))
      bytes()
      // One node is gone from the reports of all others.
      const left = nodes.slice(1)
      yield* all(left)
      bytes()
      const rows = yield* table.rows
      assert.isBelow(bytes(), 60 * 180 + 60 * 25)
      for (const { address, reaches } of rows) assert.strictEqual(reaches.has(nodes[0]!), address === nodes[0])
      const facts = rows.find(({ address }) => address === nodes[1])?.facts
      assert.deepStrictEqual(facts, factsOf(nodes[1]!))
      yield* report(nodes[1]!, [], false)
      const last = (yield* table.rows).find(({ address }) => address === nodes[1])
      assert.deepStrictEqual([...last!.reaches], [nodes[1]])
      assert.isFalse(last!.owns)
      assert.strictEqual(last!.facts, facts)
    }).pipe(Effect.scoped))

  it.effect("are right for readers that read at the same time", () =>
    Effect.gen(function*() {
      const { all, report, table } = yield* setUp
      const nodes = names(3)
      yield* all(nodes)
      const reads = yield* Effect.all([
        table.rows,
        report(nodes[0]!, []),
        table.rows,
        report(nodes[0]!, nodes),
        table.rows
      ], { concurrency: "unbounded" })
      for (const rows of [reads[0], reads[2], reads[4]])
        for (const { address, facts, reaches } of rows) {
          assert.deepStrictEqual(facts, factsOf(address))
          assert.isTrue(reaches.has(address))
        }
    }).pipe(Effect.scoped))

  it.effect("that did not change are renewed without writing their texts, and written again if the row is gone", () =>
    Effect.gen(function*() {
      const { report, sql, table } = yield* setUp
      const [self = ""] = names(1)
      const said = Effect.map(
        sql<
          { said: string; steady: string }
        >`SELECT said_at::text AS said, steady_since::text AS steady FROM cluster_nodes`,
        ([row]) => row
      )
      yield* report(self, names(3))
      const first = yield* said
      // As if it had been a moment ago, on any machine.
      yield* sql`UPDATE cluster_nodes SET said_at = clock_timestamp()`
      yield* report(self, names(3))
      const second = yield* said
      assert.notStrictEqual(second?.said, first?.said)
      assert.strictEqual(second?.steady, first?.steady)
      yield* sql`UPDATE cluster_nodes SET said_at = said_at - interval '3 seconds'`
      yield* report(self, names(3))
      assert.notStrictEqual((yield* said)?.steady, first?.steady, "a gap in the writes")
      yield* sql`DELETE FROM cluster_nodes`
      yield* report(self, names(3))
      assert.deepStrictEqual((yield* table.rows).map(({ address }) => address), [self])
    }).pipe(Effect.scoped))

  it.effect("come with the listed nodes as Effect's storage lists them, also one without a report; unlisted and expired ones have none", () =>
    Effect.gen(function*() {
      const { report, sql, table } = yield* setUp
      const [reporting = "", silent = "", expired = "", unlisted = ""] = names(4)
      const list = (address: string, seconds: number) => {
        const [host = "", port = ""] = address.split(":")
        const runner = Runner.make({ address: RunnerAddress.make(host, Number(port)), groups: ["default"], weight: 1 })
        return Effect.as(
          sql`INSERT INTO cluster_runners (address, runner, healthy, last_heartbeat)
            VALUES (${address}, ${Runner.Runner.encodeSync(runner)}, true, now() - ${`${seconds} seconds`}::interval)`,
          runner
        )
      }
      const runners = [yield* list(reporting, 0), yield* list(silent, 9), yield* list(expired, 11)]
      for (const address of [reporting, expired, unlisted]) yield* report(address, [reporting], false)
      const rows = new Map((yield* table.rows).map((row) => [row.address, row]))
      assert.deepStrictEqual([...rows.keys()].sort(), [reporting, silent, expired, unlisted])
      assert.deepStrictEqual(
        [reporting, silent, expired, unlisted].map((address) => rows.get(address)?.runner),
        [runners[0], runners[1], null, null]
      )
      assert.deepInclude(rows.get(silent), {
        reaches: new Set<string>(),
        facts: undefined,
        isLocked: false,
        isFresh: false,
        isSilent: false,
        owns: true,
        turnsInMs: 0
      })
      assert.isFalse(rows.get(reporting)?.owns)
      assert.isNull(rows.get(unlisted)?.listed)
      const again = (yield* table.rows).find(({ address }) => address === reporting)
      assert.strictEqual(again?.runner, rows.get(reporting)?.runner, "it is decoded once")
    }).pipe(Effect.scoped))

  it.effect("from before the database's clock was set back neither delay the members nor keep a silent node among them", () =>
    Effect.gen(function*() {
      const { report, sql, table } = yield* setUp
      const [alive = "", silent = ""] = names(2)
      for (const address of [alive, silent]) {
        yield* report(address, [])
        yield* table.takeShards(address, true)
      }
      // As if the clock had been set back by an hour a moment ago.
      yield* sql`UPDATE cluster_nodes SET said_at = said_at + interval '1 hour', steady_since = steady_since + interval '1 hour',
        turned_at = turned_at + interval '1 hour'`
      const before = yield* table.rows
      assert.deepStrictEqual(before.map(({ turnsInMs }) => turnsInMs), [0, 0])
      assert.deepStrictEqual(before.map(({ isFresh }) => isFresh), [false, false])
      assert.deepStrictEqual(before.map(({ isSilent }) => isSilent), [false, false], "no node has been heard for long")
      assert.deepStrictEqual(yield* table.urls, [], "rows from before show nothing")
      yield* report(alive, [])
      yield* sql`UPDATE cluster_nodes SET steady_since = steady_since - interval '4 seconds' WHERE address = ${alive}`
      const after = new Map((yield* table.rows).map((row) => [row.address, row]))
      assert.deepInclude(after.get(alive), { isFresh: true, isSilent: false, owns: true, turnsInMs: 0 })
      assert.deepInclude(after.get(silent), { isFresh: false, isSilent: true })
      assert.deepStrictEqual(yield* table.urls, [`http://${alive}`])
      const [row] = yield* sql<{ readonly isPast: boolean }>`
        SELECT steady_since <= clock_timestamp() AND turned_at < clock_timestamp() AS "isPast"
        FROM cluster_nodes WHERE address = ${alive}`
      assert.isTrue(row?.isPast, "the node's next report has other times")
    }).pipe(Effect.scoped))
})
