import { type Poll, SharedPoll } from "#infrastructure/database/SharedPoll"
import { Unavailable } from "#infrastructure/wire/WireError"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { layerPgliteTest } from "../support/Databases.ts"

interface Fruit {
  readonly name: string
  readonly grams: number
}

layer(Layer.provideMerge(SharedPoll.layer, layerPgliteTest))("one poll for all parts of a server", (it) => {
  it.effect("gives each part its own rows, and goes on when one of them fails", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE fruits (name TEXT, grams BIGINT)`
      yield* sql`INSERT INTO fruits VALUES ('apple', 9007199254740991), ('plum', 40)`
      const polls = yield* SharedPoll
      const seen: Array<readonly [string, ReadonlyArray<Fruit>]> = []
      let least = 0
      const poll = (name: string, select: string, params: () => ReadonlyArray<unknown>): Poll<Fruit> => ({
        name,
        select,
        params: Effect.sync(params),
        handle: (rows) => Effect.sync(() => void seen.push([name, rows]))
      })
      const heavy = "SELECT name, grams FROM fruits WHERE grams > $1 ORDER BY grams LIMIT $2"
      yield* polls.add(poll("heavy", heavy, () => [least, 1]))
      yield* polls.add({
        ...poll("failing", "SELECT 1 AS grams", () => []),
        handle: () => Effect.fail(new Unavailable())
      })
      yield* polls.add(poll("named", "SELECT name, grams FROM fruits WHERE name = $1", () => ["cherry"]))
      /** Waits until both parts that do not fail have seen the rows of a poll. */
      const polled = Effect.gen(function*() {
        const before = seen.length
        while (seen.length < before + 2) yield* TestClock.adjust("400 millis")
      })
      const last = (name: string) => seen.findLast(([of]) => of === name)?.[1]
      yield* polled
      assert.deepStrictEqual([last("heavy"), last("named")], [[{ name: "plum", grams: 40 }], []])
      least = 40
      // A poll that had begun may still have asked for the lesser weight.
      yield* Effect.andThen(polled, polled)
      assert.deepStrictEqual([last("heavy"), last("named")], [[{ name: "apple", grams: 9007199254740991 }], []])
    }))

  it.effect("reads each part alone while the statement of one of them fails", () =>
    Effect.gen(function*() {
      const polls = yield* SharedPoll
      const seen: Array<string> = []
      const part = (name: string, select: string, params: Poll<object>["params"] = Effect.succeed([])) =>
        polls.add({ name, select, params, handle: () => Effect.sync(() => void seen.push(name)) })
      const polled = Effect.gen(function*() {
        const before = seen.length
        while (seen.length < before + 6) yield* TestClock.adjust("400 millis")
      })
      yield* part("first", "SELECT 1 AS one")
      yield* part("last", "SELECT 2 AS two")
      for (
        const [select, params] of [
          ["SELECT 1 / (one - 1) AS none FROM (SELECT $1::int AS one) ones", Effect.succeed([1])],
          ["SELECT nothing FROM nowhere", Effect.succeed([])],
          ["SELECT 1 AS one", Effect.die(new Error("no parameters"))]
        ] as const
      ) yield* Effect.scoped(Effect.andThen(part("bad", select, params), polled))
      yield* polled
      assert.deepStrictEqual([...new Set(seen)].sort(), ["first", "last"])
    }))

  it.effect("reads nothing for a part that has gone", () =>
    Effect.gen(function*() {
      const polls = yield* SharedPoll
      const asked: Array<number> = []
      const params = Effect.sync(() => {
        asked.push(asked.length)
        return []
      })
      yield* Effect.scoped(Effect.gen(function*() {
        yield* polls.add({ name: "gone", select: "SELECT 1 AS one", params, handle: () => Effect.void })
        while (asked.length === 0) yield* TestClock.adjust("400 millis")
      }))
      const before = asked.length
      for (let i = 0; i < 10; i++) yield* TestClock.adjust("400 millis")
      assert.lengthOf(asked, before)
    }))
})
