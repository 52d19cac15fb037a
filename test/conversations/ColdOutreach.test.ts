import { Accounts } from "#domain/agents/Accounts"
import { Contacts } from "#domain/contacts/Contacts"
import { Conversations, type Sender } from "#domain/conversations/Conversations"
import { LiveAgents } from "#domain/push/LiveAgents"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "../support/Databases.ts"
import { leap, setBack } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const direct = (handle: string) => ({ _tag: "Direct", handle }) as const
const HOUR = 3_600_000

layer(layerModules(layerPgliteTest, { LIMITS_SENDS_PER_SECOND: 1_000_000 }))((it) => {
  it.effect("100 unanswered conversations are allowed in a rolling day; a reply frees one at once, time the oldest", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const clock = yield* Clock.Clock
      const a = yield* newAgent("cold-a")
      const others = yield* Effect.forEach(Array.from({ length: 105 }), (_, i) => newAgent(`cold-b${i}`))
      const open = (i: number) => conversations.send(a, direct(others[i]!.handle), draft(`m${i}`))
      const refused = (i: number) =>
        Effect.flatMap(
          Effect.flip(open(i)),
          (failure) =>
            failure._tag === "ColdCapExceeded" && failure.details !== undefined
              ? Effect.succeed(failure.details)
              : assert.fail(failure._tag)
        )
      const began = clock.currentTimeMillisUnsafe()
      // The first an hour before the rest.
      yield* open(0)
      yield* leap(HOUR)
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

      yield* leap(22 * HOUR - 1)
      assert.isUndefined((yield* refused(101)).retry_after_ms, "not about to leave: an hour and a millisecond")
      yield* leap(1)
      assert.strictEqual((yield* refused(101)).retry_after_ms, HOUR, "about to leave: an hour, exactly")
      yield* leap(HOUR - 1)
      assert.deepInclude(yield* refused(101), {
        used: 100,
        resets_at: new Date(began + 24 * HOUR).toISOString(),
        retry_after_ms: 1
      })
      yield* leap(1)
      yield* open(101)
      assert.deepInclude(yield* refused(102), {
        used: 100,
        resets_at: new Date(began + 25 * HOUR).toISOString(),
        retry_after_ms: HOUR
      }, "the next oldest is an hour younger")
      yield* leap(HOUR)
      yield* open(102)
    }))

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
          (SELECT count(*) FROM messages WHERE sender_id = ${a.id}) AS messages,
          (SELECT count(*) FROM cold_slots WHERE agent_id = ${a.id}) AS slots`,
        [{ talks: 100, messages: 100, slots: 100 }]
      )
    }))

  it.effect("a reservation that no message claims counts for a minute, and again takes no second slot", () =>
    Effect.gen(function*() {
      const liveAgents = yield* LiveAgents
      const clock = yield* Clock.Clock
      const sql = yield* SqlClient.SqlClient
      const reserve = (i: number) =>
        liveAgents.reserveOutreach("agt_alone", `conv_alone_${i}`, clock.currentTimeMillisUnsafe())
      for (let i = 0; i < 100; i++) yield* reserve(i)
      yield* reserve(7)
      yield* leap(59_999)
      assert.strictEqual((yield* Effect.flip(reserve(100)))._tag, "ColdCapExceeded")
      yield* leap(1)
      yield* reserve(100)
      // Those that lapsed are gone: what still comes for one of them finds no slot, and so the cap holds.
      assert.deepStrictEqual(
        yield* sql`SELECT conversation_id FROM cold_slots WHERE agent_id = 'agt_alone'`,
        [{ conversation_id: "conv_alone_100" }]
      )
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

/** Claimed slots, reservations, and the conversations that wire.md G.1 counts. */
const slotsOf = (agentId: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ claimed: number; reserved: number; counted: number }>`
        SELECT count(*) FILTER (WHERE claimed_at IS NOT NULL) AS claimed, count(*) FILTER (WHERE claimed_at IS NULL) AS reserved,
          (SELECT count(*) FROM conversations WHERE initiator_id = ${agentId} AND established_at IS NULL) AS counted
        FROM cold_slots WHERE agent_id = ${agentId}`,
      ([row]) => row
    ))

layer(
  layerModules(layerPgliteTest, {
    LIMITS_COLD_CONVERSATIONS: 2,
    LIMITS_COLD_WINDOW_SECONDS: 600,
    LIMITS_COLD_RETRY_SECONDS: 60
  })
)((it) => {
  const send = (from: Sender, to: { readonly handle: string }, key: string) =>
    Effect.flatMap(
      Conversations,
      (conversations) =>
        Effect.match(conversations.send(from, direct(to.handle), draft(key)), {
          onSuccess: () => "sent",
          onFailure: ({ _tag }) => _tag as string
        })
    )

  it.effect("the window is a setting", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const [a, b, c, d] = [
        yield* newAgent("short-a"),
        yield* newAgent("short-b"),
        yield* newAgent("short-c"),
        yield* newAgent("short-d")
      ]
      yield* conversations.send(a, direct(b.handle), draft("m1"))
      yield* leap(1)
      yield* conversations.send(a, direct(c.handle), draft("m2"))
      yield* leap(599_998 - 60_000)
      const early = yield* Effect.flip(conversations.send(a, direct(d.handle), draft("m3")))
      assert.isTrue(
        early._tag === "ColdCapExceeded" && early.details?.retry_after_ms === undefined,
        "a minute and a millisecond"
      )
      yield* leap(60_000)
      const refused = yield* Effect.flip(conversations.send(a, direct(d.handle), draft("m3")))
      assert.deepInclude(refused._tag === "ColdCapExceeded" ? refused.details : {}, {
        limit: 2,
        used: 2,
        window_seconds: 600,
        retry_after_ms: 1
      })
      yield* leap(1)
      yield* conversations.send(a, direct(d.handle), draft("m3"))
    }))

  it.effect("a conversation goes on counting whatever its other side or its view comes to", () =>
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const contacts = yield* Contacts
      const conversations = yield* Conversations
      const sql = yield* SqlClient.SqlClient
      const [a, b, c, d] = [
        yield* newAgent("still-a"),
        yield* newAgent("still-b"),
        yield* newAgent("still-c"),
        yield* newAgent("still-d")
      ]
      assert.deepStrictEqual([yield* send(a, b, "m1"), yield* send(a, c, "m2")], ["sent", "sent"])
      const [{ id } = { id: "" }] = yield* sql<{ id: string }>`
        SELECT conversation_id AS id FROM participants WHERE agent_id = ${a.id} AND counterparty_id = ${b.id}`
      yield* conversations.hide(a.id, id)
      yield* contacts.block(b.id, a.handle)
      yield* accounts.remove(c.id)
      assert.strictEqual(yield* send(a, d, "m3"), "ColdCapExceeded")
      assert.deepStrictEqual(yield* slotsOf(a.id), { claimed: 2, reserved: 0, counted: 2 })
      // Nor does an unblocking, or being contacts, make another one of it.
      yield* contacts.unblock(b.id, a.handle)
      yield* contacts.add(a.id, b.handle, null)
      assert.strictEqual(yield* send(a, b, "m4"), "AwaitingReply")
      assert.strictEqual(yield* send(a, d, "m5"), "ColdCapExceeded")
      assert.strictEqual(yield* send(b, a, "m6"), "sent")
      assert.strictEqual(yield* send(a, d, "m7"), "sent")
      assert.deepStrictEqual(yield* slotsOf(a.id), { claimed: 2, reserved: 0, counted: 2 })
    }))

  it.effect("a commit that fails after the reservation leaves nothing but that, and it comes free after a minute", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql.unsafe(`
        CREATE FUNCTION doom() RETURNS trigger LANGUAGE plpgsql AS $$
          BEGIN IF NEW.client_msg_id LIKE 'doomed%' THEN RAISE EXCEPTION 'doomed'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER doom BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION doom()`)
      const [a, b, c, d] = [
        yield* newAgent("fail-a"),
        yield* newAgent("fail-b"),
        yield* newAgent("fail-c"),
        yield* newAgent("fail-d")
      ]
      assert.deepStrictEqual([yield* send(a, b, "m1"), yield* send(a, c, "doomed")], ["sent", "Unavailable"])
      assert.deepStrictEqual(yield* slotsOf(a.id), { claimed: 1, reserved: 1, counted: 1 })
      assert.strictEqual(yield* send(a, d, "m2"), "ColdCapExceeded")
      assert.strictEqual(yield* send(a, c, "doomed"), "Unavailable", "trying again takes no second slot")
      yield* leap(60_000)
      assert.strictEqual(yield* send(a, d, "m2"), "sent")
      assert.deepStrictEqual(yield* slotsOf(a.id), { claimed: 2, reserved: 0, counted: 2 })
      assert.strictEqual(yield* send(a, c, "m3"), "ColdCapExceeded")
    }))

  it.effect("after the clock is set back by an hour, a conversation counts for no longer than the window", () =>
    Effect.gen(function*() {
      const conversations = yield* Conversations
      const a = yield* newAgent("cold-set-back")
      const others = yield* Effect.forEach(Array.from({ length: 4 }), (_, i) => newAgent(`cold-back${i}`))
      const open = (i: number) => conversations.send(a, direct(others[i]!.handle), draft(`m${i}`))
      yield* leap("2 hours")
      yield* open(0)
      yield* open(1)
      assert.strictEqual((yield* Effect.flip(open(2)))._tag, "ColdCapExceeded")
      yield* setBack("1 hour")
      yield* leap("10 minutes")
      yield* open(2)
      yield* open(3)
    }))
})
