import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Outcomes } from "#domain/deliveries/Outcomes"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Removals } from "#interfaces/operator/Removals"
import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { eachDatabase } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

type Json = Record<string, unknown>
const parse = (text: string): Json => JSON.parse(text) as Json

/** The outcomes that an agent's sockets are told. */
const listen = Effect.fnUntraced(function*(agentId: string) {
  const told: Array<Json> = []
  const session: LiveSession = {
    hint: () => undefined,
    echo: () => undefined,
    event: (frame) => {
      const { payload, type } = parse(frame)
      if (type === "message.outcome") told.push(payload as Json)
    },
    close: () => undefined
  }
  ;(yield* LiveAgents).attach(agentId, session)
  return told
})

/** Two agents, and n messages from the first to the second, which has replied. */
const pair = Effect.fnUntraced(function*(name: string, n: number) {
  const conversations = yield* Conversations
  const [writer, reader] = [yield* newAgent(`${name}-writer`), yield* newAgent(`${name}-reader`)]
  const say = (from: typeof writer, to: typeof writer, key: string) =>
    Effect.map(conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(key)), ({ body }) => parse(body))
  yield* say(writer, reader, "first")
  yield* say(reader, writer, "reply")
  const sent = yield* Effect.forEach(
    Array.from({ length: n }, (_, i) => `m${i}`),
    (key) => Effect.map(say(writer, reader, key), ({ id }) => String(id))
  )
  return { writer, reader, sent }
})

eachDatabase((database) => {
  layer(
    Removals.layer.pipe(Layer.provideMerge(layerModules(database, { LIMITS_SENDS_PER_SECOND: 1_000_000 })))
  )((it) => {
    it.effect("of many final reports at once one is stored, and the sender is notified once", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const outcomes = yield* Outcomes
        for (const [name, first] of [["none", undefined], ["working", "working"]] as const) {
          const { reader, sent: [id = ""], writer } = yield* pair(`final-${name}`, 1)
          const told = yield* listen(writer.id)
          const report = (state: "working" | "done" | "refused", reason: string | null) =>
            deliveries.read(reader.id, reader.handle, id, { state, reason })
          if (first !== undefined) yield* report(first, null)
          const exits = yield* Effect.forEach(
            Array.from({ length: 100 }, (_, i) => i),
            (i) => Effect.exit(report(i % 2 === 0 ? "done" : "refused", `report ${i}`)),
            { concurrency: "unbounded" }
          )
          const [stored] = yield* outcomes.ofMessage(writer.id, id)
          const granted = exits.filter(Exit.isSuccess)
          assert.lengthOf(granted, 50)
          for (const { value } of granted)
            assert.deepInclude(parse(value)["outcome"], { state: stored?.state, reason: stored?.reason })
          assert.deepStrictEqual(told.slice(first === undefined ? 0 : 1).map(({ reason, state }) => [state, reason]), [
            [stored?.state, stored?.reason]
          ])
        }
      }))

    it.effect("no reason is left of reports that are made while an operator removes the message", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const deliveries = yield* Deliveries
        const removals = yield* Removals
        const { reader, sent } = yield* pair("removed", 20)
        yield* Effect.forEach(sent, (id) =>
          Effect.all([
            deliveries.read(reader.id, reader.handle, id, { state: "working", reason: "words" }),
            removals.message(id, { operator: "ops", reason: null }),
            deliveries.read(reader.id, reader.handle, id, { state: "done", reason: "more words" })
          ], { concurrency: "unbounded" }).pipe(Effect.catchTag("OutcomeFinal", () => Effect.void)), { concurrency: 4 })
        const rows = yield* sql<{ readonly reason: string | null; readonly state: string }>`
          SELECT state, reason FROM outcomes WHERE recipient_id = ${reader.id}`
        assert.lengthOf(rows, sent.length)
        assert.deepStrictEqual(rows.filter(({ reason }) => reason !== null), [])
      }))

    it.effect("the time of an outcome never goes back, although the clock does", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const outcomes = yield* Outcomes
        const { reader, sent: [id = ""], writer } = yield* pair("clock", 1)
        yield* TestClock.adjust("1 hour")
        const report = (state: "working" | "done") =>
          deliveries.read(reader.id, reader.handle, id, { state, reason: null })
        yield* report("working")
        const [before] = yield* outcomes.ofMessage(writer.id, id)
        yield* TestClock.setTime(0)
        yield* report("done")
        assert.deepStrictEqual(yield* outcomes.ofMessage(writer.id, id), [
          { handle: reader.handle, state: "done", reason: null, at: before?.at ?? "" }
        ])
      }))
  })
})
