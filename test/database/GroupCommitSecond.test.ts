import { makeCommitQueue } from "#infrastructure/database/CommitQueue"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

/** A message to an inbox, in a conversation. */
interface Item {
  readonly id: string
  readonly conversation: string
  readonly inbox: string
}

const item = (id: string, conversation: string, inbox: string): Item => ({ id, conversation, inbox })

const fault = (code: string) => sqlError(new DatabaseFault({ code, message: "refused" }), "execute")

/** How long a commit of another node takes, in milliseconds. */
const COMMIT_MS = 400

/**
 * A group commit on a database in which another node writes to the inbox "hot" in one commit after the other. It lets
 * go of the row for whoever waits at that moment. `order` is what was committed, in order.
 */
const make = Effect.gen(function*() {
  const order: Array<string> = []
  const failed: Array<string> = []
  let passed = 0
  const othersCommit = () => passed % COMMIT_MS !== 0
  /** Lets the lanes run, and the time pass in small steps. */
  const pass = Effect.fnUntraced(function*(millis: number) {
    for (const end = passed + millis; passed < end;) {
      yield* Effect.promise(() => new Promise((resolve) => setImmediate(() => setImmediate(resolve))))
      passed += 10
      yield* TestClock.adjust(10)
    }
  })
  const group = yield* makeCommitQueue<Item, string>({
    name: "second",
    lanes: 1,
    laneOf: () => 0,
    rowsOf: () => 1,
    bytesOf: () => 1,
    maxRows: 100,
    maxBytes: 1e6,
    capacity: 100,
    batchPerTick: true,
    commit: (batch, lockMs) =>
      Effect.gen(function*() {
        if (batch.some(({ inbox }) => inbox === "hot")) {
          for (let waited = 0; othersCommit(); waited += 10) {
            if (waited >= lockMs) return yield* fault("55P03")
            yield* Effect.sleep(10)
          }
        }
        for (const { id } of batch) order.push(id)
        return batch.map(({ id }) => id)
      }),
    locks: {
      of: ({ conversation, inbox }) => [conversation, inbox],
      held: () => Effect.sync(() => new Map([["hot", `commit ${Math.floor(passed / COMMIT_MS)}`]]))
    }
  })
  const put = (...items: ReadonlyArray<Item>): void => {
    for (const one of items) group.submit(one, ({ _tag }) => void (_tag === "Failed" && failed.push(one.id)))
  }
  return { order, failed, put, pass, group }
})

describe("the second attempt for items that were set aside", () => {
  it.effect("waits long enough for the slow commits of another node on the same row", () =>
    Effect.gen(function*() {
      const { failed, order, pass, put } = yield* make
      yield* pass(10)
      put(item("x0", "X", "hot"))
      yield* pass(6_000)
      assert.deepStrictEqual(failed, [])
      assert.deepStrictEqual(order, ["x0"])
    }))

  it.effect("delays no other conversation, and keeps the order of its own", () =>
    Effect.gen(function*() {
      const { group, order, pass, put } = yield* make
      yield* pass(10)
      put(item("x0", "X", "hot"))
      yield* pass(500)
      for (let n = 1; n <= 5; n++) {
        put(item(`x${n}`, "X", "hot"), item(`o${n}`, "O", "cold"))
        yield* pass(30)
        assert.deepStrictEqual(order.filter((id) => id.startsWith("o")).length, n, order.join())
      }
      assert.notInclude(order, "x0")
      yield* pass(2_000)
      assert.deepStrictEqual(order.filter((id) => id.startsWith("x")), ["x0", "x1", "x2", "x3", "x4", "x5"])
      yield* group.idle
      assert.strictEqual(group.size(), 0)
    }))
})
