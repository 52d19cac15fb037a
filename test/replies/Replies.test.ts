import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { Replies } from "#domain/replies/Replies"
import { RepliesRepo } from "#domain/replies/RepliesRepo"
import { repliesTables } from "#domain/replies/RepliesTables"
import { CLAIM_MS, leaseMs, secondsTo } from "#domain/replies/Reply"
import { Config } from "#infrastructure/platform/Config"
import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { eachDatabase, layerPostgresTest } from "../support/Databases.ts"
import { sweepExpired } from "../support/Expiry.ts"
import { type Call, EMPTY, hasOrder, type Made, type State, step } from "./ReplyModel.ts"

const MESSAGES = ["msg_a", "msg_b", "msg_c", "msg_d"]
const INBOX = new Set(MESSAGES)
/** One that others have received, and one that nobody has. */
const OTHERS = ["msg_others", "msg_none"]

/** Messages, each with an envelope of this agent. */
const receive = Effect.fnUntraced(function*(agentId: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
    SELECT 'conv', place, id, 'agt_sender', id, 'text', '{}', '{}', 0
    FROM unnest(${[...MESSAGES, OTHERS[0]!]}::text[]) WITH ORDINALITY AS m (id, place) ON CONFLICT DO NOTHING`
  yield* sql`
    INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
    SELECT CASE WHEN id = 'msg_others' THEN 'agt_other_' ELSE '' END || ${agentId}, seq, 'conv', seq FROM messages`
})

let serial = 0
const newAgentId = Effect.suspend(() => {
  const id = `agt_${serial++}`
  return Effect.as(receive(id), id)
})

const sweep = Effect.provide(sweepExpired(repliesTables, "replies"), Config.layerTest({}))
const modules = Layer.fresh(Replies.layer.pipe(Layer.provide(Layer.mergeAll(RepliesRepo.layer, WebhookSignals.layer))))

const make = (replies: Replies["Service"], agentId: string, call: Call): Effect.Effect<unknown> => {
  switch (call.kind) {
    case "begin":
      return Effect.orDie(Effect.as(replies.begin(agentId, call.session, call.ms), "begun"))
    case "end":
      return Effect.orDie(replies.end(agentId, call.session))
    case "leases":
      return Effect.orDie(Effect.map(replies.leases(agentId), ({ expiresIn, sessions }) => ({ sessions, expiresIn })))
    case "claim":
      return replies.claim(agentId, call.id, call.holder, call.defers).pipe(
        Effect.map(({ claimed, deferred, expiresIn }) => ({ claimed, deferred, expiresIn })),
        Effect.catchTag("MessageNotFound", () => Effect.succeed("MessageNotFound")),
        Effect.orDie
      )
    case "claimAll":
      return Effect.orDie(Effect.map(
        replies.claimAll(agentId, call.ids, call.holder, call.defers),
        ({ claimed, deferred, expiresIn }) => ({ claimed, deferred, expiresIn })
      ))
  }
}

const session = fc.constantFrom(null, "one", "two")
const holder = fc.constantFrom("daemon:1", "session:one", "session:two")
const id = fc.constantFrom(...MESSAGES, ...MESSAGES, ...OTHERS)
const defers = fc.boolean()
const call: fc.Arbitrary<Call> = fc.oneof(
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("begin" as const), session, ms: fc.constantFrom(1_000, 90_000, 600_000) })
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("end" as const), session }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("leases" as const) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("claim" as const), id, holder, defers }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("claimAll" as const),
      ids: fc.oneof(fc.subarray(MESSAGES, { minLength: 1 }), fc.array(id, { minLength: 1, maxLength: 6 })),
      holder,
      defers
    })
  }
)

/** Milliseconds that pass: nothing, little, or to the edge of what ends. */
const pause = fc.constantFrom(0, 0, 0, 1, 999, 1_000, 1_001, CLAIM_MS - 1, CLAIM_MS, 90_000)

describe("a lease", () => {
  it("lasts as long as it was asked for, within bounds", () => {
    assert.deepStrictEqual(
      [undefined, null, 0, -5, 1, 90, 3_600, 3_601, Number.MAX_SAFE_INTEGER].map(leaseMs),
      [90, 90, 1, 1, 1, 90, 3_600, 3_600, 3_600].map((seconds) => seconds * 1_000)
    )
  })

  it("ends in whole seconds, rounded up", () => {
    assert.deepStrictEqual([null, 5_000, 5_001, 5_999, 6_001, 4_000].map((at) => secondsTo(at, 5_000)), [
      0,
      0,
      1,
      1,
      2,
      0
    ])
  })
})

eachDatabase((database) => {
  layer(modules.pipe(Layer.provideMerge(database)))((it) => {
    it.effect("leases and claims answer as the rules say, whatever comes after what and however much later", () =>
      Effect.gen(function*() {
        const replies = yield* Replies
        const context = yield* Effect.context<SqlClient.SqlClient>()
        const run = (steps: ReadonlyArray<readonly [number, Call]>) =>
          Effect.gen(function*() {
            const agentId = yield* newAgentId
            let state = EMPTY
            for (const [ms, one] of steps) {
              yield* TestClock.adjust(ms)
              const [next, answer] = step(state, one, yield* Clock.currentTimeMillis, INBOX)
              assert.deepStrictEqual(yield* make(replies, agentId, one), answer)
              state = next
            }
          })
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(fc.array(fc.tuple(pause, call), { minLength: 1, maxLength: 30 }), (steps) =>
              Effect.runPromiseWith(context)(run(steps))),
            { numRuns: 40 }
          )
        )
      }))

    it.effect("ended leases and claims are swept, and nothing else; a deleted agent's all go", () =>
      Effect.gen(function*() {
        const replies = yield* Replies
        const sql = yield* SqlClient.SqlClient
        const [one, other] = [yield* newAgentId, yield* newAgentId]
        const rows = sql`SELECT
          (SELECT count(*)::integer FROM reply_leases WHERE agent_id IN (${one}, ${other})) AS leases,
          (SELECT count(*)::integer FROM reply_claims WHERE agent_id IN (${one}, ${other})) AS claims`
        for (const agentId of [one, other]) {
          yield* replies.begin(agentId, null, 1_000)
          yield* replies.begin(agentId, "longer", CLAIM_MS + 2_000)
          yield* replies.claimAll(agentId, MESSAGES.slice(0, 3), "daemon:1", false)
        }
        yield* TestClock.adjust(1_000)
        yield* replies.claim(one, MESSAGES[2]!, "daemon:1", false)
        yield* TestClock.adjust(CLAIM_MS - 1_001)
        yield* sweep
        assert.deepStrictEqual(yield* rows, [{ leases: 2, claims: 6 }])
        yield* TestClock.adjust(1)
        yield* sweep
        assert.deepStrictEqual(yield* rows, [{ leases: 2, claims: 1 }])
        yield* replies.removeAgent(one)
        assert.deepStrictEqual(yield* rows, [{ leases: 1, claims: 0 }])
        yield* replies.removeAgent(other)
        yield* replies.removeAgent(other)
        assert.deepStrictEqual(yield* rows, [{ leases: 0, claims: 0 }])
      }))

    it.effect("a message is in the inbox while there is an envelope of it, delivered, read or hidden", () =>
      Effect.gen(function*() {
        const replies = yield* Replies
        const sql = yield* SqlClient.SqlClient
        const agentId = yield* newAgentId
        yield* sql`UPDATE envelopes SET delivered_at = 1, read_at = 1 WHERE recipient_id = ${agentId}`
        yield* sql`INSERT INTO hidden_messages (agent_id, conversation_id, seq) SELECT ${agentId}, 'conv', seq FROM messages`
        assert.strictEqual((yield* replies.claimAll(agentId, MESSAGES, "daemon:1", false)).claimed, 4)
        yield* sql`DELETE FROM envelopes WHERE recipient_id = ${agentId} AND seq = 3`
        assert.strictEqual((yield* replies.claimAll(agentId, MESSAGES, "daemon:1", false)).claimed, 2)
        assert.strictEqual(
          (yield* Effect.flip(replies.claim(agentId, MESSAGES[2]!, "daemon:1", false)))._tag,
          "MessageNotFound"
        )
      }))
  })
})

/** Calls that get in each other's way: of few messages, mostly claims. */
const busy: fc.Arbitrary<Call> = fc.oneof(
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("begin" as const), session, ms: fc.constant(90_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("end" as const), session }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("claimAll" as const),
      ids: fc.constantFrom(
        ...[["a"], ["b"], ["a", "b"], ["b", "a"], ["a", "b", "c"], ["c", "b", "a"]].map((names) =>
          names.map((name) => `msg_${name}`)
        )
      ),
      holder,
      defers
    })
  }
)

describe("several nodes on one PostgreSQL", () => {
  layer(layerPostgresTest(18))((it) => {
    it.effect("calls at the same instant have an order: a lease that begins before a claim defers it, one after takes nothing", () =>
      Effect.gen(function*() {
        const nodes = yield* Effect.forEach([1, 2, 3], () => Effect.map(Layer.build(modules), Context.get(Replies)))
        const context = yield* Effect.context<SqlClient.SqlClient>()
        const run = (start: ReadonlyArray<readonly [number, Call]>, processes: ReadonlyArray<ReadonlyArray<Call>>) =>
          Effect.gen(function*() {
            const agentId = yield* newAgentId
            let state: State = EMPTY
            for (const [ms, one] of start) {
              yield* make(nodes[0]!, agentId, one)
              state = step(state, one, yield* Clock.currentTimeMillis, INBOX)[0]
              yield* TestClock.adjust(ms)
            }
            let moment = 0
            const made: Array<Made> = []
            yield* Effect.forEach(processes, (calls, i) =>
              Effect.forEach(calls, (one) =>
                Effect.gen(function*() {
                  const from = moment++
                  const answer = yield* make(nodes[i % nodes.length]!, agentId, one)
                  made.push({ call: one, answer, from, to: moment++ })
                }), { discard: true }), { concurrency: "unbounded", discard: true })
            assert.isTrue(hasOrder(made, state, yield* Clock.currentTimeMillis, INBOX), JSON.stringify(made))
          })
        const processes = fc.array(fc.array(busy, { minLength: 1, maxLength: 2 }), { minLength: 3, maxLength: 6 })
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(fc.array(fc.tuple(pause, busy), { maxLength: 2 }), processes, (start, side) =>
              Effect.runPromiseWith(context)(run(start, side))),
            { numRuns: 100 }
          )
        )
      }).pipe(Effect.scoped))

    it.effect("the second of two sessions that end at the same instant learns that no other is left", () =>
      Effect.gen(function*() {
        const [one, two] = yield* Effect.forEach([1, 2], () => Effect.map(Layer.build(modules), Context.get(Replies)))
        for (let round = 0; round < 100; round++) {
          const agentId = `agt_ends_${round}`
          yield* one!.begin(agentId, null, 90_000)
          yield* one!.begin(agentId, "one", 90_000)
          const stands = yield* Effect.all([one!.end(agentId, null), two!.end(agentId, "one")], {
            concurrency: "unbounded"
          })
          assert.sameMembers(stands, [true, false], `round ${round}`)
        }
      }).pipe(Effect.scoped))

    it.effect("after the clock is set back by an hour, a claim and a lease still stand, for their longest lifetime and not for an hour more", () =>
      Effect.gen(function*() {
        const replies = Context.get(yield* Layer.build(modules), Replies)
        const agentId = yield* newAgentId
        yield* TestClock.setTime(1_700_000_000_000)
        assert.strictEqual((yield* replies.claim(agentId, "msg_a", "session:one", false)).claimed, 1)
        yield* replies.begin(agentId, "one", 90_000)
        const after = 1_700_000_000_000 - 3_600_000
        yield* TestClock.setTime(after)
        yield* sweep
        const refused = { claimed: 0, deferred: false, missing: false, expiresIn: 600 }
        assert.deepStrictEqual(yield* replies.claim(agentId, "msg_a", "daemon:1", false), refused)
        assert.deepStrictEqual(yield* replies.leases(agentId), { sessions: 1, expiresIn: 3_600 })
        yield* TestClock.setTime(after + 599_999)
        yield* sweep
        assert.deepStrictEqual(yield* replies.claim(agentId, "msg_a", "daemon:1", false), { ...refused, expiresIn: 1 })
        yield* TestClock.setTime(after + 600_000)
        assert.strictEqual((yield* replies.claim(agentId, "msg_a", "daemon:1", false)).claimed, 1)
        yield* TestClock.setTime(after + 3_600_000)
        assert.deepStrictEqual(yield* replies.leases(agentId), { sessions: 0, expiresIn: 0 })
      }).pipe(Effect.scoped))

    it.effect("a claim that waits for its turn sees what was claimed and which sessions began meanwhile", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const context = yield* Effect.context<never>()
        const [one, two] = yield* Effect.forEach([1, 2], () => Effect.map(Layer.build(modules), Context.get(Replies)))
        const agentId = yield* newAgentId
        const waiting = Effect.repeat(
          sql<{ n: number }>`SELECT count(*)::integer AS n FROM pg_locks
            WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
          { until: ([row]) => row?.n === 2 }
        )
        const [both, deferred] = yield* sql.withTransaction(Effect.gen(function*() {
          assert.strictEqual((yield* one!.claim(agentId, "msg_b", "session:one", false)).claimed, 1)
          // Not in this transaction.
          const claims = [false, true].map((yields) =>
            Effect.runPromiseWith(context)(two!.claimAll(agentId, ["msg_a", "msg_b", "msg_c"], "daemon:1", yields))
          )
          yield* waiting
          yield* Effect.promise(() => Effect.runPromiseWith(context)(two!.begin(agentId, "one", 90_000)))
          return claims
        }))
        assert.deepInclude(yield* Effect.promise(() => both!), { claimed: 1, deferred: false })
        assert.deepInclude(yield* Effect.promise(() => deferred!), { claimed: 0, deferred: true, expiresIn: 90 })
      }).pipe(Effect.scoped))
  })
})
