import { assert, layer } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { AgentActors } from "../../src/agents/AgentActors.ts"
import { Conversations } from "../../src/conversations/Conversations.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, layerRooms, newAgent } from "../support/Rooms.ts"

const direct = (handle: string) => ({ _tag: "Direct", handle }) as const
const HOUR = 3_600_000

layer(layerRooms(layerPgliteTest, { LIMITS_SENDS_PER_SECOND: 1_000_000 }))((it) => {
  it.effect("100 unanswered conversations in a rolling day; a reply frees one at once, time the oldest", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const clock = yield* Clock.Clock
      const a = yield* newAgent("cold-a")
      const others = yield* Effect.forEach(Array.from({ length: 105 }), (_, i) => newAgent(`cold-b${i}`))
      const open = (i: number) => conversations.send(a, direct(others[i]!.handle), draft(`m${i}`))
      const refused = (i: number) =>
        Effect.flatMap(Effect.flip(open(i)), (failure) =>
          failure._tag === "ColdCapExceeded" && failure.details !== undefined
            ? Effect.succeed(failure.details)
            : assert.fail(failure._tag))
      const began = clock.currentTimeMillisUnsafe()
      // The first an hour before the rest.
      yield* open(0)
      yield* TestClock.adjust(HOUR)
      yield* Effect.forEach(Array.from({ length: 99 }), (_, i) => open(i + 1), { concurrency: "unbounded" })
      assert.deepStrictEqual(yield* refused(100), {
        limit: 100,
        used: 100,
        window_seconds: 86_400,
        resets_at: new Date(began + 24 * HOUR).toISOString()
      })
      // A second message of one that waits is not a new outreach.
      const awaiting = yield* Effect.flip(conversations.send(a, direct(others[5]!.handle), draft("again")))
      assert.strictEqual(awaiting._tag, "AwaitingReply")

      yield* conversations.send(others[50]!, direct(a.handle), draft("reply"))
      yield* open(100)
      yield* refused(101)

      yield* TestClock.adjust(22 * HOUR)
      assert.strictEqual((yield* refused(101)).retry_after_ms, HOUR, "about to leave: an hour, exactly")
      yield* TestClock.adjust(HOUR - 1)
      assert.strictEqual((yield* refused(101)).retry_after_ms, 1)
      yield* TestClock.adjust(1)
      yield* open(101)
      assert.strictEqual((yield* refused(102)).retry_after_ms, HOUR, "the next oldest is an hour younger")
      yield* TestClock.adjust(HOUR)
      yield* open(102)
    }), 60_000)

  it.effect("200 at once are never more than 100", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const sql = yield* SqlClient.SqlClient
      const a = yield* newAgent("crowd-a")
      const others = yield* Effect.forEach(Array.from({ length: 200 }), (_, i) => newAgent(`crowd-b${i}`))
      const tags = yield* Effect.forEach(
        others,
        (other, i) =>
          Effect.match(conversations.send(a, direct(other.handle), draft(`m${i}`)), {
            onFailure: ({ _tag }) => _tag as string,
            onSuccess: () => "sent"
          }),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(tags.filter((tag) => tag === "sent").length, 100)
      assert.strictEqual(tags.filter((tag) => tag === "ColdCapExceeded").length, 100)
      // A refusal leaves no conversation, message or slot behind.
      assert.deepStrictEqual(
        yield* sql`SELECT
          (SELECT count(*) FROM participants WHERE agent_id = ${a.id}) AS talks,
          (SELECT count(*) FROM message_keys WHERE sender_id = ${a.id}) AS keys,
          (SELECT count(*) FROM cold_slots WHERE agent_id = ${a.id}) AS slots`,
        [{ talks: 100, keys: 100, slots: 100 }]
      )
    }), 60_000)

  it.effect("a reservation that no message claims counts for a minute, and again takes no second slot", () =>
    Effect.gen(function*() {
      const actors = yield* AgentActors
      const clock = yield* Clock.Clock
      const reserve = (i: number) => actors.reserveOutreach("agt_alone", `conv_alone_${i}`, clock.currentTimeMillisUnsafe())
      for (let i = 0; i < 100; i++) yield* reserve(i)
      yield* reserve(7)
      assert.strictEqual((yield* Effect.flip(reserve(100)))._tag, "ColdCapExceeded")
      yield* TestClock.adjust(60_000)
      yield* reserve(100)
    }))

  it.effect("a guard that comes after the slot gives it back", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const sql = yield* SqlClient.SqlClient
      const a = yield* newAgent("back-a")
      const b = yield* newAgent("back-b")
      const failure = yield* Effect.flip(
        conversations.send(a, direct(b.handle), { ...draft("m1"), attachmentId: "att_none" })
      )
      assert.strictEqual(failure._tag, "AttachmentNotFound")
      assert.deepStrictEqual(yield* sql`SELECT FROM cold_slots WHERE agent_id = ${a.id}`, [])
    }))
})

layer(layerRooms(layerPgliteTest, { LIMITS_COLD_CONVERSATIONS: 1, LIMITS_COLD_WINDOW_SECONDS: 60 }))((it) => {
  it.effect("the window is a setting", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const [a, b, c] = [yield* newAgent("short-a"), yield* newAgent("short-b"), yield* newAgent("short-c")]
      yield* conversations.send(a, direct(b.handle), draft("m1"))
      yield* TestClock.adjust("59999 millis")
      const refused = yield* Effect.flip(conversations.send(a, direct(c.handle), draft("m2")))
      assert.deepInclude(refused._tag === "ColdCapExceeded" ? refused.details : {}, {
        limit: 1,
        window_seconds: 60,
        retry_after_ms: 1
      })
      yield* TestClock.adjust("1 milli")
      yield* conversations.send(a, direct(c.handle), draft("m2"))
    }))
})
