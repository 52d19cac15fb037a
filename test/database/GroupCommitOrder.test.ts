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
  readonly lane: number
}

const item = (id: string, conversation: string, inbox: string, lane = 0): Item => ({ id, conversation, inbox, lane })

const fault = (code: string) => sqlError(new DatabaseFault({ code, message: "refused" }), "execute")

/** Lets the lanes run, and the time pass in small steps. */
const pass = Effect.fnUntraced(function*(millis: number) {
  for (let passed = 0; passed <= millis; passed += 10) {
    yield* Effect.callback<void>((resume) => {
      setImmediate(() => setImmediate(() => resume(Effect.void)))
    })
    yield* TestClock.adjust(passed === 0 ? 0 : 10)
  }
})

/**
 * A group commit on a database in which `locked` rows are held by somebody else; `order` is what was committed, in
 * order.
 */
const make = Effect.fnUntraced(function*(lanes: number, before: () => void = () => {}) {
  const locked = new Set<string>()
  const order: Array<string> = []
  const group = yield* makeCommitQueue<Item, string>({
    name: "order",
    lanes,
    laneOf: ({ lane }) => lane,
    rowsOf: () => 1,
    bytesOf: () => 1,
    maxRows: 100,
    maxBytes: 1e6,
    capacity: 100,
    batchPerTick: true,
    commit: (batch) =>
      Effect.gen(function*() {
        before()
        if (batch.some(({ id }) => id === "culprit")) return yield* fault("22021")
        for (
          let waited = 0;
          batch.some(({ conversation, inbox }) => locked.has(conversation) || locked.has(inbox));
          waited += 10
        ) {
          if (waited >= 300) return yield* fault("55P03")
          yield* Effect.sleep(10)
        }
        for (const { id } of batch) order.push(id)
        return batch.map(({ id }) => id)
      }),
    locks: {
      of: ({ conversation, inbox }) => [conversation, inbox],
      held: (items) =>
        Effect.sync(() =>
          new Map(
            items.flatMap(({ conversation, inbox }) => [conversation, inbox]).filter((name) => locked.has(name)).map((
              name
            ) => [name, "1"])
          )
        )
    }
  })
  const put = (...items: ReadonlyArray<Item>): void => {
    for (const one of items) group.submit(one, () => {})
  }
  return { locked, order, put }
})

describe("the order of a conversation whose rows are held", () => {
  it.effect("holds over two lanes that meet one lock one after the other", () =>
    Effect.gen(function*() {
      const { locked, order, put } = yield* make(2)
      locked.add("B")
      put(item("y0", "Y", "B", 1))
      yield* pass(150)
      put(item("x0", "X", "B"))
      yield* pass(220)
      put(item("x1", "X", "B"))
      yield* pass(250)
      locked.clear()
      yield* pass(2_000)
      assert.sameMembers(order, ["x0", "x1", "y0"])
      assert.isBelow(order.indexOf("x0"), order.indexOf("x1"))
    }))

  it.effect("holds when a second row is locked while the rest of a batch commits", () =>
    Effect.gen(function*() {
      const calls: Array<number> = []
      const { locked, order, put }: Effect.Success<ReturnType<typeof make>> = yield* make(1, () => {
        if (calls.push(calls.length) === 2) locked.add("C")
      })
      locked.add("A")
      put(item("y0", "Y", "A"), item("x0", "X", "C"))
      while (calls.length < 2) yield* pass(10)
      yield* pass(50)
      put(item("x1", "X", "A"), item("x2", "X", "C"))
      yield* pass(500)
      locked.clear()
      yield* pass(2_000)
      assert.sameMembers(order, ["y0", "x0", "x1", "x2"])
      assert.deepStrictEqual(order.filter((id) => id.startsWith("x")), ["x0", "x1", "x2"])
    }))

  it.effect("holds in a batch that is halved, when the first half is set aside", () =>
    Effect.gen(function*() {
      let calls = 0
      const { locked, order, put }: Effect.Success<ReturnType<typeof make>> = yield* make(1, () => {
        if (++calls === 2) locked.add("B")
      })
      put(item("x0", "X", "B"), item("q", "Q", "Z"), item("culprit", "P", "Z"), item("x1", "X", "B"))
      yield* pass(310)
      while (!order.includes("q")) yield* pass(0)
      locked.clear()
      yield* pass(2_000)
      assert.sameMembers(order, ["q", "x0", "x1"])
      assert.isBelow(order.indexOf("x0"), order.indexOf("x1"))
    }))
})
