import { ANSWER_MS, makeAcknowledgements } from "#domain/deliveries/Acknowledgements"
import type { Ack } from "#domain/deliveries/DeliveriesRepo"
import { AnswerTimeout } from "#infrastructure/database/Sql"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

/** Acknowledgements into a database that is away for the first tries, and the batches that it was given. */
const acknowledgements = Effect.fnUntraced(function*(away: number, code = "08006") {
  const batches: Array<ReadonlyArray<Ack>> = []
  const patience: Array<number> = []
  const acks = yield* makeAcknowledgements(
    (batch) => {
      batches.push(batch)
      const outcome = batches.length > away
        ? Effect.void
        : Effect.fail(sqlError(new DatabaseFault({ code, message: "away" }), "execute"))
      return Effect.flatMap(AnswerTimeout, (millis) => {
        patience.push(millis)
        return outcome
      })
    },
    { of: ({ agentId }) => [agentId], held: () => Effect.succeed(new Map()) }
  )
  /** The next second, with all that is tried in it. */
  const second = Effect.andThen(TestClock.adjust("1 second"), acks.idle)
  return { acks, batches, patience, second }
})

describe("Acknowledgements", () => {
  it.effect("are stored a second later if the database could not take them", () =>
    Effect.gen(function*() {
      const { acks, batches, second } = yield* acknowledgements(1)
      acks.acknowledge("agt_1", 7)
      yield* acks.underWay("agt_1")
      assert.strictEqual(batches.length, 1)
      acks.acknowledge("agt_2", 9)
      yield* acks.underWay("agt_2")
      assert.strictEqual(batches.length, 2, "a later one is stored meanwhile")
      yield* TestClock.adjust("999 millis")
      assert.strictEqual(batches.length, 2)
      yield* second
      assert.deepStrictEqual(batches.map((batch) => batch.map(({ agentId, at, inboxNo }) => [agentId, inboxNo, at])), [
        [["agt_1", 7, 0]],
        [["agt_2", 9, 0]],
        [["agt_1", 7, 0]]
      ])
      for (let i = 0; i < 3; i++) yield* second
      assert.strictEqual(batches.length, 3, "once")
    }))

  it.effect("do not wait long for one answer, with all others behind it", () =>
    Effect.gen(function*() {
      const { acks, patience } = yield* acknowledgements(0)
      acks.acknowledge("agt_1", 7)
      yield* acks.underWay("agt_1")
      assert.deepStrictEqual(patience, [ANSWER_MS])
      assert.isBelow(ANSWER_MS, yield* AnswerTimeout)
    }))

  it.effect("are dropped after ten tries", () =>
    Effect.gen(function*() {
      const { acks, batches, second } = yield* acknowledgements(Number.POSITIVE_INFINITY)
      acks.acknowledge("agt_1", 7)
      yield* acks.underWay("agt_1")
      for (let i = 0; i < 15; i++) yield* second
      assert.strictEqual(batches.length, 10)
    }))

  it.effect("are retried at once when all must be settled", () =>
    Effect.gen(function*() {
      const { acks, batches } = yield* acknowledgements(1)
      acks.acknowledge("agt_1", 7)
      yield* acks.underWay("agt_1")
      yield* acks.idle
      assert.strictEqual(batches.length, 2)
    }))

  it.effect("are not retried after an invalid one", () =>
    Effect.gen(function*() {
      const { acks, batches, second } = yield* acknowledgements(Number.POSITIVE_INFINITY, "42P01")
      acks.acknowledge("agt_1", 7)
      yield* acks.underWay("agt_1")
      const tried = batches.length
      for (let i = 0; i < 3; i++) yield* second
      assert.strictEqual(batches.length, tried)
    }))
})
