import { Conversations, type Sender, type SendTarget } from "#domain/conversations/Conversations"
import { Limits } from "#infrastructure/rates/Limits"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent, newAgents } from "../support/Modules.ts"

let serial = 0

const to = ({ handle }: { readonly handle: string }): SendTarget => ({ _tag: "Direct", handle })

/** The stored message: its id, and the metadata as the recipient sees them. */
const send = Effect.fnUntraced(function*(from: Sender, target: SendTarget, metadata: object = {}) {
  const conversations = yield* Conversations
  const made = { ...draft(`cause-${serial++}`), metadata: JSON.stringify(metadata) }
  const { body } = yield* conversations.send(from, target, made)
  return JSON.parse(body) as { readonly id: string; readonly metadata: Readonly<Record<string, unknown>> }
})

/** Two agents that know each other. */
const pair = Effect.gen(function*() {
  const [a, b] = [yield* newAgent(`cause-a${serial}`), yield* newAgent(`cause-b${serial++}`)]
  yield* send(a, to(b))
  yield* send(b, to(a))
  return [a, b] as const
})

layer(layerModules(layerPgliteTest, { LIMITS_SENDS_PER_SECOND: 1_000_000, LIMITS_HOPS: 3 }))((it) => {
  it.effect("a message of the last 24 hours can be a cause, an older one counts as none", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair
      const first = yield* send(a, to(b))
      yield* leap("1439 minutes")
      const second = yield* send(b, to(a), { caused_by: first.id })
      assert.deepStrictEqual(second.metadata, { caused_by: first.id, hops: 1 })
      yield* leap("2 minutes")
      assert.deepStrictEqual((yield* send(b, to(a), { caused_by: first.id })).metadata, { caused_by: first.id })
      const third = yield* send(a, to(b), { caused_by: second.id })
      assert.deepStrictEqual(third.metadata, { caused_by: second.id, hops: 2 }, "the count outlives its beginning")
    }))

  it.effect("operators change how many hops are allowed while the server runs, also for one agent", () =>
    Effect.gen(function*() {
      const limits = yield* Limits
      const [a, b] = yield* pair
      const beyond = (from: Sender, target: SendTarget, caused_by: string) =>
        Effect.flip(send(from, target, { caused_by }))
      const change = (value: number, agentId: string | null) =>
        Effect.sync(() => limits.set([{ name: "LIMITS_HOPS", agentId, value, until: null }]))
      let last = (yield* send(a, to(b))).id
      for (let i = 1; i <= 3; i++)
        last = (yield* send(i % 2 === 0 ? a : b, to(i % 2 === 0 ? b : a), { caused_by: last })).id
      assert.deepInclude(yield* beyond(a, to(b), last), { _tag: "TooManyHops", details: { hops: 4, limit: 3 } })
      yield* change(4, a.id)
      last = (yield* send(a, to(b), { caused_by: last })).id
      assert.strictEqual((yield* beyond(b, to(a), last))._tag, "TooManyHops", "the change is for the other agent")
      yield* change(0, null)
      for (let i = 0; i < 30; i++)
        last = (yield* send(i % 2 === 0 ? b : a, to(i % 2 === 0 ? a : b), { caused_by: last })).id
      assert.strictEqual((yield* send(b, to(a), { caused_by: last })).metadata["hops"], 35)
      yield* Effect.sync(() => limits.set([]))
    }))

  it.effect("a refused send stores nothing, and uses up no cold conversation", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const [a, b] = yield* pair
      const [stranger] = yield* newAgents(1)
      let last = (yield* send(a, to(b))).id
      for (let i = 1; i <= 3; i++)
        last = (yield* send(i % 2 === 0 ? a : b, to(i % 2 === 0 ? b : a), { caused_by: last })).id
      assert.strictEqual((yield* Effect.flip(send(a, to(stranger!), { caused_by: last })))._tag, "TooManyHops")
      const rows = yield* sql`SELECT FROM participants WHERE agent_id = ${stranger!.id}`
      assert.lengthOf(rows, 0)
    }))
})
