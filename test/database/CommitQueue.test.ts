import { type CommitQueue, makeCommitQueue, type Settled } from "#infrastructure/database/CommitQueue"
import type { Locks } from "#infrastructure/database/LockWaiters"
import { AnswerTimeout } from "#infrastructure/database/Sql"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { FullDisk, FullDisks } from "#infrastructure/platform/disk/DiskSpace"
import { commitMeters } from "#infrastructure/platform/Metrics"
import { Readiness } from "#infrastructure/platform/Readiness"
import { Unavailable } from "#infrastructure/wire/WireError"
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Logger } from "effect"
import type { SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { breath } from "../support/Eventually.ts"

const fault = (code?: string) =>
  sqlError(new DatabaseFault({ ...(code === undefined ? {} : { code }), message: "refused" }), "execute")

/** A group commit over numbers, and every batch that it tried. */
const make = Effect.fnUntraced(function*(
  commit: (batch: ReadonlyArray<number>, attempt: number) => Effect.Effect<void, SqlError.SqlError> = () => Effect.void,
  options: {
    readonly lanes?: number
    readonly batchPerTick?: boolean
    readonly lingerMs?: number
    readonly maxRows?: number
    readonly maxBytes?: number
    readonly capacity?: number
    readonly name?: string
    readonly locks?: Locks<number>
  } = {}
) {
  const batches: Array<ReadonlyArray<number>> = []
  const group = yield* makeCommitQueue<number, string>({
    name: options.name ?? "test",
    lanes: options.lanes ?? 1,
    laneOf: (n) => n,
    rowsOf: () => 1,
    bytesOf: (n) => n,
    maxRows: options.maxRows ?? 100,
    maxBytes: options.maxBytes ?? 1_000_000,
    capacity: options.capacity ?? 1_000,
    batchPerTick: options.batchPerTick ?? true,
    ...(options.lingerMs === undefined ? {} : { lingerMs: options.lingerMs }),
    ...(options.locks === undefined ? {} : { locks: options.locks }),
    commit: (batch) =>
      Effect.suspend(() => {
        batches.push(batch)
        return Effect.as(commit(batch, batches.length), batch.map((n) => `stored ${n}`))
      })
  })
  return { group, batches }
})

/** Submits at once; how each was settled, in the order of settling. */
const submitAll = (group: CommitQueue<number, string>, items: ReadonlyArray<number>) =>
  Effect.callback<ReadonlyArray<readonly [number, Settled<string>]>>((resume) => {
    const settled: Array<readonly [number, Settled<string>]> = []
    for (const item of items) {
      group.submit(item, (outcome) => {
        settled.push([item, outcome])
        if (settled.length === items.length) resume(Effect.succeed(settled))
      })
    }
  })

const upTo = (n: number) => Array.from({ length: n }, (_, i) => i)
const done = (settled: ReadonlyArray<readonly [number, Settled<string>]>) =>
  settled.map(([item, outcome]) => outcome._tag === "Done" ? outcome.value : `failed ${item}`)

describe("CommitQueue", () => {
  it.effect("makes the node unready while the database has no room for what it commits, but not for what is refused", () =>
    Effect.gen(function*() {
      const readiness = Context.get(yield* Layer.build(Readiness.layer), Readiness)
      let code: string | undefined = "22021"
      const { group } = yield* make(() => code === undefined ? Effect.void : Effect.fail(fault(code))).pipe(
        Effect.provideService(Readiness, readiness)
      )
      yield* submitAll(group, [1])
      assert.deepStrictEqual(readiness.reasons(), [])
      code = "53200"
      yield* submitAll(group, [1])
      assert.match(readiness.reasons().join(), /^Commits of test fail: the database has no room .*53200/)
      code = undefined
      yield* submitAll(group, [1])
      assert.deepStrictEqual(readiness.reasons(), [])
      code = "25006"
      yield* submitAll(group, [1])
      assert.strictEqual(readiness.reasons().length, 1)
      // Nobody sends any more to a node that is not ready.
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(readiness.reasons(), [])
    }))

  it.effect("makes the node unready when its oldest item has waited for ten seconds, as long as it does", () =>
    Effect.gen(function*() {
      const readiness = Context.get(yield* Layer.build(Readiness.layer), Readiness)
      const gate = yield* Deferred.make<void>()
      const { group } = yield* make(() => Deferred.await(gate), { lanes: 2 }).pipe(
        Effect.provideService(Readiness, readiness)
      )
      const first = yield* Effect.forkChild(submitAll(group, [2]), { startImmediately: true })
      yield* TestClock.adjust("6 seconds")
      const second = yield* Effect.forkChild(submitAll(group, [4, 1]), { startImmediately: true })
      yield* TestClock.adjust("3 seconds")
      assert.deepStrictEqual(readiness.reasons(), [])
      yield* TestClock.adjust("2 seconds")
      assert.match(
        readiness.reasons().join(),
        /^Commits of test do not complete: the oldest item has waited for 11 s\./
      )
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.andThen(Fiber.join(first), Fiber.join(second))
      yield* group.idle
      yield* TestClock.adjust("1 minutes")
      assert.deepStrictEqual(readiness.reasons(), [])
    }))

  it.effect("an item whose callback throws gets its defect, and delays no other", () =>
    Effect.gen(function*() {
      const { batches, group } = yield* make()
      const told: Array<string> = []
      for (const item of upTo(4)) {
        group.submit(item, (settled) => {
          told.push(settled._tag)
          if (item === 1) throw new Error("what nobody thought of")
        })
      }
      assert.deepStrictEqual(done(yield* submitAll(group, [4])), ["stored 4"])
      assert.deepStrictEqual(told, ["Done", "Done", "Failed", "Done", "Done"])
      assert.strictEqual(batches.length, 1)
      assert.deepStrictEqual(done(yield* submitAll(group, [5])), ["stored 5"])
    }))

  it.effect("commits items that arrive together in one batch, and settles in the order of submission", () =>
    Effect.gen(function*() {
      const { batches, group } = yield* make()
      const settled = yield* submitAll(group, upTo(20))
      assert.deepStrictEqual(done(settled), upTo(20).map((n) => `stored ${n}`))
      assert.deepStrictEqual(batches, [upTo(20)])
    }))

  it.effect("items that may linger are committed with later ones, or at once if a caller waits until the queue is idle or hurries it", () =>
    Effect.gen(function*() {
      const moment = Effect.promise(breath)
      const { batches, group } = yield* make(undefined, { lingerMs: 3_600_000 })
      const submit = (item: number) => group.submit(item, () => undefined)
      submit(1)
      yield* moment
      submit(2)
      yield* moment
      assert.deepStrictEqual(batches, [])
      yield* group.idle
      assert.deepStrictEqual(batches, [[1, 2]])
      const hurried = yield* Effect.forkChild(submitAll(group, [3]), { startImmediately: true })
      yield* moment
      group.flush()
      yield* Fiber.join(hurried)
      assert.deepStrictEqual(batches, [[1, 2], [3]])
      const soon = yield* make(undefined, { lingerMs: 1 })
      assert.deepStrictEqual(done(yield* submitAll(soon.group, [4])), ["stored 4"])
    }))

  it.effect("has one batch of a lane in flight, and gathers the next meanwhile", () =>
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      let flying = 0
      const { batches, group } = yield* make(() =>
        Effect.gen(function*() {
          assert.strictEqual(++flying, 1)
          yield* Deferred.await(gate)
          flying--
        }), { batchPerTick: false })
      const first = yield* Effect.forkChild(submitAll(group, [0]), { startImmediately: true })
      const rest = yield* Effect.forkChild(submitAll(group, [1, 2, 3]), { startImmediately: true })
      assert.deepStrictEqual(batches, [[0]])
      assert.strictEqual(group.size(), 4)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(first)
      yield* Fiber.join(rest)
      assert.deepStrictEqual(batches, [[0], [1, 2, 3]])
    }))

  it.effect("lanes do not wait for each other", () =>
    Effect.gen(function*() {
      const gate = yield* Deferred.make<void>()
      const { group } = yield* make(([n]) => n! % 2 === 0 ? Deferred.await(gate) : Effect.void, { lanes: 2 })
      const even = yield* Effect.forkChild(submitAll(group, [0, 2]), { startImmediately: true })
      assert.deepStrictEqual(done(yield* submitAll(group, [1, 3])), ["stored 1", "stored 3"])
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(done(yield* Fiber.join(even)), ["stored 0", "stored 2"])
    }))

  it.effect("respects the rows and bytes of a batch, and lets a single large item through", () =>
    Effect.gen(function*() {
      const rows = yield* make(undefined, { maxRows: 4 })
      yield* submitAll(rows.group, upTo(10))
      assert.deepStrictEqual(rows.batches.map((batch) => batch.length), [4, 4, 2])
      const bytes = yield* make(undefined, { maxBytes: 10 })
      yield* submitAll(bytes.group, [6, 4, 1, 99, 2])
      assert.deepStrictEqual(bytes.batches, [[6, 4], [1], [99], [2]])
    }))

  for (const code of ["40P01", "40001", "23505"]) {
    it.effect(`tries a batch that failed with ${code} again, whole`, () =>
      Effect.gen(function*() {
        const { batches, group } = yield* make((_, attempt) => attempt <= 2 ? Effect.fail(fault(code)) : Effect.void)
        assert.deepStrictEqual(done(yield* submitAll(group, [1, 2, 3])), ["stored 1", "stored 2", "stored 3"])
        assert.deepStrictEqual(batches, [[1, 2, 3], [1, 2, 3], [1, 2, 3]])
      }))
  }

  it.effect("a failure that never passes ends for each item alone", () =>
    Effect.gen(function*() {
      const { batches, group } = yield* make(() => Effect.fail(fault("40P01")))
      assert.deepStrictEqual(done(yield* submitAll(group, [1, 2])), ["failed 1", "failed 2"])
      assert.deepStrictEqual(batches.map((batch) => batch.length), [2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1])
    }))

  it.effect("halves a refused batch until the culprits stand alone; no neighbour fails, and the order stays", () =>
    Effect.gen(function*() {
      for (const poison of [[0], [6], [15], [3, 4], [0, 7, 8, 15], upTo(16)]) {
        const stored: Array<number> = []
        const { group } = yield* make((batch) =>
          batch.some((n) => poison.includes(n))
            ? Effect.fail(fault("22P05"))
            : Effect.sync(() => stored.push(...batch))
        )
        const settled = yield* submitAll(group, upTo(16))
        assert.deepStrictEqual(done(settled), upTo(16).map((n) => poison.includes(n) ? `failed ${n}` : `stored ${n}`))
        assert.deepStrictEqual(stored, upTo(16).filter((n) => !poison.includes(n)))
      }
    }))

  it.effect("ends an item in a defect if the database does not understand its statement", () =>
    Effect.gen(function*() {
      const error = fault("42P01")
      const { group } = yield* make((batch) => batch.includes(1) ? Effect.fail(error) : Effect.void)
      const settled = new Map(yield* submitAll(group, upTo(4)))
      assert.deepStrictEqual(settled.get(1), { _tag: "Failed", exit: Exit.die(error) })
      assert.deepStrictEqual(done([...settled]).filter((one) => one.startsWith("stored")), [
        "stored 0",
        "stored 2",
        "stored 3"
      ])
    }))

  /**
   * Numbers of the same row are equal modulo 10, and the rows in `held` are locked by others: a batch with one of them
   * fails.
   */
  const locked = Effect.fnUntraced(function*(held: Map<string, string>) {
    const rowOf = (n: number) => String(n % 10)
    const looks: Array<ReadonlyArray<number>> = []
    const patience: Array<number> = []
    const made = yield* make(
      (batch) => batch.some((n) => held.has(rowOf(n))) ? Effect.fail(fault("55P03")) : Effect.void,
      {
        locks: {
          of: (n) => [rowOf(n)],
          held: (items) =>
            Effect.map(AnswerTimeout, (millis) => {
              looks.push(items)
              patience.push(millis)
              return new Map(items.flatMap((n) => held.has(rowOf(n)) ? [[rowOf(n), held.get(rowOf(n)) ?? ""]] : []))
            })
        }
      }
    )
    const settled: Array<readonly [number, string]> = []
    const submit = (...items: ReadonlyArray<number>) => {
      for (const item of items) made.group.submit(item, ({ _tag }) => void settled.push([item, _tag]))
    }
    return { ...made, looks, patience, settled, submit }
  })
  /** Lets everything happen that waits for no clock. */
  const turns = Effect.promise(async () => {
    for (let i = 0; i < 50; i++) await new Promise((resolve) => setImmediate(resolve))
  })

  it.effect("an item whose row another session has locked waits by itself, in its order; the rest is committed at once", () =>
    Effect.gen(function*() {
      const held = new Map([["3", "tx 1"]])
      const { batches, group, settled, submit } = yield* locked(held)
      submit(...upTo(20))
      yield* turns
      assert.deepStrictEqual(settled.map(([n]) => n), upTo(20).filter((n) => n % 10 !== 3))
      assert.deepStrictEqual(batches.length, 2)
      // What comes later for the row costs nobody anything.
      submit(23, 24, 33)
      yield* turns
      assert.deepStrictEqual(batches.slice(2), [[24]])
      yield* TestClock.adjust("1 seconds")
      yield* turns
      assert.deepStrictEqual(batches.length, 3)
      assert.strictEqual(group.size(), 4)
      held.clear()
      yield* TestClock.adjust("100 millis")
      yield* turns
      assert.deepStrictEqual(batches.slice(3), [[3, 13, 23, 33]])
      assert.deepStrictEqual(settled.slice(-4), [[3, "Done"], [13, "Done"], [23, "Done"], [33, "Done"]])
      yield* group.idle
      assert.strictEqual(group.size(), 0)
    }))

  it.effect("an item that has waited 5 s for a lock fails, each after its own 5 s, and is never committed after it", () =>
    Effect.gen(function*() {
      const held = new Map([["3", "tx 1"]])
      const { batches, group, patience, settled, submit } = yield* locked(held)
      submit(3)
      yield* turns
      yield* TestClock.adjust("3 seconds")
      assert.deepStrictEqual(
        [...new Set(patience)],
        [5_000],
        "a look at the locks that hangs holds nobody up for longer"
      )
      submit(13)
      group.submit(23, ({ _tag }) => void settled.push([23, _tag]), 1_000)
      yield* TestClock.adjust("1900 millis")
      assert.deepStrictEqual(settled, [])
      yield* TestClock.adjust("200 millis")
      assert.deepStrictEqual(settled, [[3, "Failed"]])
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(settled, [[3, "Failed"], [23, "Failed"]])
      held.clear()
      yield* TestClock.adjust("100 millis")
      yield* turns
      yield* group.idle
      assert.deepStrictEqual(settled, [[3, "Failed"], [23, "Failed"], [13, "Done"]])
      assert.deepStrictEqual(batches.slice(1), [[13]])
    }))

  it.effect("a row that changes hands is waited for in the batch, in its turn", () =>
    Effect.gen(function*() {
      const held = new Map([["3", "tx 1"]])
      const { batches, group, submit } = yield* locked(held)
      submit(3)
      yield* turns
      assert.strictEqual(batches.length, 1)
      held.set("3", "tx 2")
      yield* TestClock.adjust("100 millis")
      yield* turns
      assert.strictEqual(batches.length, 2)
      held.clear()
      yield* TestClock.adjust("100 millis")
      yield* turns
      yield* group.idle
      assert.deepStrictEqual(batches, [[3], [3], [3]])
    }))

  it.effect("a lost connection fails the batch at once: what became of it is not known", () =>
    Effect.gen(function*() {
      const { batches, group } = yield* make((_, attempt) => attempt === 1 ? Effect.fail(fault()) : Effect.void)
      assert.deepStrictEqual(done(yield* submitAll(group, [1, 2, 3])), ["failed 1", "failed 2", "failed 3"])
      assert.deepStrictEqual(done(yield* submitAll(group, [4])), ["stored 4"])
      assert.deepStrictEqual(batches, [[1, 2, 3], [4]])
    }))

  it.effect("a defect is the answer to the item that caused it; its neighbours are stored, and the lane goes on", () =>
    Effect.gen(function*() {
      const defect = new TypeError("what nobody thought of")
      const { group } = yield* make((batch) => {
        if (batch.includes(5)) throw defect
        return Effect.void
      })
      const settled = yield* submitAll(group, upTo(16))
      assert.deepStrictEqual(done(settled), upTo(16).map((n) => n === 5 ? "failed 5" : `stored ${n}`))
      assert.deepStrictEqual(settled[5]?.[1], { _tag: "Failed", exit: Exit.die(defect) })
      assert.deepStrictEqual(done(yield* submitAll(group, [20])), ["stored 20"])
    }))

  for (const code of ["53100", "53200", "58030", "25006", "57014"]) {
    it.effect(`does not halve a batch that failed with ${code}, which is the database's own trouble; it is counted and logged once`, () => {
      const lines: Array<string> = []
      const name = `test_${code}`
      return Effect.gen(function*() {
        const { batches, group } = yield* make(() => Effect.fail(fault(code)), { name })
        yield* submitAll(group, upTo(64))
        const settled = yield* submitAll(group, upTo(64))
        assert.deepStrictEqual(done(settled), upTo(64).map((n) => `failed ${n}`))
        const [, first] = settled[0] ?? assert.fail("nothing was settled")
        assert.deepStrictEqual(first._tag === "Failed" && first.exit, Exit.fail(new Unavailable()))
        assert.deepStrictEqual(batches.map((batch) => batch.length), [64, 64])
        yield* group.idle
        const counted = commitMeters(name).failed.all().map(([labels, { value }]) => [...labels, value])
        assert.deepStrictEqual(counted.filter(([, value]) => value !== 0), [["system", 2]])
        // `FullDisks` has one line a minute for all statements.
        if (code === "53100")
          assert.match(
            lines.join(),
            /^The database cannot write, .*: no space left on the database's disk \(refused\)$/
          )
        else assert.deepStrictEqual(lines, [`A commit of ${name} failed`])
      }).pipe(
        // A worker shares the default with other files, which may have written the line of this minute.
        Effect.provideService(FullDisk, new FullDisks()),
        Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
      )
    })
  }

  it.effect("a full lane refuses at once, never inside the call, and the rest is stored", () =>
    Effect.gen(function*() {
      const { batches, group } = yield* make(undefined, { capacity: 3 })
      let inside = true
      const refused = new Promise<Settled<string>>((resolve) => {
        for (const n of [1, 2, 3]) group.submit(n, () => assert.isFalse(inside))
        group.submit(4, (outcome) => {
          assert.isFalse(inside)
          resolve(outcome)
        })
        inside = false
      })
      assert.strictEqual((yield* Effect.promise(() => refused))._tag, "Failed")
      yield* group.idle
      assert.deepStrictEqual(batches, [[1, 2, 3]])
    }))

  it.effect("is idle when nothing waits; an item submitted on that notice is waited for too", () =>
    Effect.gen(function*() {
      const { batches, group } = yield* make()
      yield* group.idle
      for (let i = 0; i < 5; i++) {
        const submitted = submitAll(group, [i])
        const fiber = yield* Effect.forkChild(submitted, { startImmediately: true })
        yield* group.idle
        assert.strictEqual(batches.length, i + 1)
        assert.strictEqual(group.size(), 0)
        yield* Fiber.join(fiber)
      }
    }))
})
