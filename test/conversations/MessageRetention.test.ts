import { Attachments } from "#domain/attachments/Attachments"
import { Conversations, type Sender } from "#domain/conversations/Conversations"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Outcomes } from "#domain/deliveries/Outcomes"
import { Groups } from "#domain/groups/Groups"
import { Replies } from "#domain/replies/Replies"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { whileTimePasses } from "../support/Eventually.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const DAY_MS = 86_400_000
type Party = Sender
const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>
const newest = { limit: 50, before: null, after: null, around: null }

const say = (from: Party, to: Party, key: string) =>
  Effect.flatMap(
    Conversations,
    (conversations) =>
      Effect.map(conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(key)), ({ body }) => parse(body))
  )

const sayTo = (from: Party, groupId: string, key: string) =>
  Effect.flatMap(
    Conversations,
    (conversations) => conversations.send(from, { _tag: "Conversation", id: groupId }, draft(key))
  )

/** Moves messages up to a seq so far into the past; the conversation began with the first of them. */
const age = Effect.fnUntraced(function*(conversationId: string, through: number, byMs: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE messages SET created_at = created_at - ${byMs} WHERE conversation_id = ${conversationId} AND seq <= ${through}`
  yield* sql`UPDATE conversations SET created_at = created_at - ${byMs} WHERE id = ${conversationId}`
})

/** Batch after batch, as the job does; how many messages went. */
const sweep = Effect.gen(function*() {
  const retention = yield* MessageRetention
  let rows = 0
  for (;;) {
    const batch = yield* retention.sweep
    rows += batch.rows
    if (!batch.more) return rows
  }
})

/** Nothing refers to a message that is gone, and every counter equals a recount. */
const assertSound = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql`
    SELECT
      (SELECT count(*) FROM envelopes e LEFT JOIN messages m USING (conversation_id, seq) WHERE m.id IS NULL) AS envelopes,
      (SELECT count(*) FROM hidden_messages h LEFT JOIN messages m USING (conversation_id, seq) WHERE m.id IS NULL) AS hides,
      (SELECT count(*) FROM reactions r LEFT JOIN messages m USING (conversation_id, seq) WHERE m.id IS NULL) AS reactions,
      (SELECT count(*) FROM outcomes o LEFT JOIN messages m USING (conversation_id, seq) WHERE m.id IS NULL) AS outcomes,
      (SELECT count(*) FROM reply_claims c LEFT JOIN messages m ON m.id = c.message_id WHERE m.id IS NULL) AS claims,
      (
        SELECT count(*) FROM inboxes n WHERE n.undelivered <>
          (SELECT count(*) FROM envelopes WHERE recipient_id = n.agent_id AND delivered_at IS NULL)
      ) AS counters`
  assert.deepStrictEqual(row, { envelopes: 0, hides: 0, reactions: 0, outcomes: 0, claims: 0, counters: 0 })
})

for (const [name, database] of [["PGlite", layerPgliteTest], ["PostgreSQL 18", layerPostgresTest(18)]] as const) {
  describe(name, () => {
    it.effect("an older message is removed with all rows about it, a younger one stays, and numbers continue", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const outcomes = yield* Outcomes
        const groups = yield* Groups
        const replies = yield* Replies
        const [a, b, c] = [yield* newAgent("ret-a"), yield* newAgent("ret-b"), yield* newAgent("ret-c")]
        const first = yield* say(a, b, "1")
        const id = String(first["conversation_id"])
        yield* say(b, a, "2")
        const third = yield* say(a, b, "3")
        for (const key of ["4", "5"]) yield* say(a, b, key)
        for (const { id: messageId } of [first, third]) yield* replies.claim(b.id, String(messageId), "daemon:1", false)
        yield* conversations.hideMessage(b.id, String(first["id"]))
        for (const message of [first, third])
          yield* deliveries.read(b.id, b.handle, String(message["id"]), { state: "working", reason: null })
        yield* age(id, 2, DAY_MS)
        yield* age(id, 3, DAY_MS - 1)

        const lone = String((yield* say(c, a, "lone"))["conversation_id"])
        yield* age(lone, 1, 5 * DAY_MS)

        const { add_results, group } = yield* groups.create(a, {
          profile: { name: "Band", description: null, avatarUrl: null },
          handles: [b.handle, c.handle]
        })
        for (const [i, member] of [b, c].entries()) yield* groups.accept(member, add_results[i]?.invite_id ?? "")
        // After those of joining, and before the one of leaving.
        for (let i = 0; i < 120; i++) yield* sayTo(a, group.id, `g${i}`)
        yield* groups.leave(c.id, group.id)
        yield* age(group.id, 120, 3 * DAY_MS)
        yield* assertSound

        assert.strictEqual(yield* sweep, 2 + 1 + 120)
        yield* assertSound
        assert.strictEqual(yield* sweep, 0)
        const seqs = Effect.map(conversations.history(a.id, id, newest), (rows) => rows.map((row) => parse(row)["seq"]))
        assert.deepStrictEqual(yield* seqs, [5, 4, 3])
        assert.strictEqual((yield* replies.claim(b.id, String(third["id"]), "session:1", false)).claimed, 0)
        assert.lengthOf(yield* outcomes.ofMessage(a.id, String(third["id"])), 1)
        assert.deepStrictEqual(
          (yield* conversations.history(b.id, id, { ...newest, after: 0 })).map((row) => parse(row)["seq"]),
          [3, 4, 5]
        )
        assert.strictEqual((yield* deliveries.sync(b.id, undefined, 500)).length, 2 + 3)
        const { items } = yield* conversations.list(b.id, {})
        const listed = items.find((item) => item.id === id)
        assert.deepStrictEqual([listed?.unread_count, listed?.last_message_preview], [2, "5"])

        // The first millisecond at which the next one is too old.
        yield* TestClock.adjust(1)
        assert.strictEqual(yield* sweep, 1)
        assert.deepStrictEqual(yield* seqs, [5, 4])
        yield* assertSound

        // Once known, now unknown: a repetition that comes so late is a new message.
        assert.strictEqual((yield* say(a, b, "1"))["seq"], 6)
        assert.strictEqual((yield* say(a, b, "5"))["seq"], 5)

        // All of it gone: still listed, still waiting for an answer, which has the next number.
        const empty = (yield* conversations.list(a.id, {})).items.find((item) => item.id === lone)
        assert.deepStrictEqual([empty?.unread_count, empty?.last_message_preview], [0, null])
        assert.deepStrictEqual(yield* conversations.history(a.id, lone, newest), [])
        assert.strictEqual((yield* Effect.flip(say(c, a, "again")))._tag, "AwaitingReply")
        assert.strictEqual((yield* say(a, c, "answer"))["seq"], 2)
        yield* assertSound
      }).pipe(Effect.provide(layerModules(database, { RETENTION_MESSAGES_DAYS: 1, LIMITS_SENDS_PER_SECOND: 10_000 }))))
  })
}

it.effect("two processes that remove at once, while others write and read, count nothing twice", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const deliveries = yield* Deliveries
    const hub = yield* newAgent("hub")
    const others = yield* Effect.forEach(Array.from({ length: 25 }), (_, i) => newAgent(`spoke-${i}`))
    const ids: Array<string> = []
    for (const [i, other] of others.entries()) {
      ids.push(String((yield* say(other, hub, `first ${i}`))["conversation_id"]))
      yield* say(hub, other, `answer ${i}`)
      for (let n = 0; n < 8; n++) yield* say(other, hub, `more ${i} ${n}`)
    }
    for (const id of ids) yield* age(id, 9, 2 * DAY_MS)
    const writing = Effect.forEach(others, (other, i) => say(other, hub, `now ${i}`), { discard: true })
    const reading = Effect.map(deliveries.sync(hub.id, undefined, 100), (rows) => rows.length)
    const [one, two] = yield* whileTimePasses(
      Effect.all([sweep, sweep, writing, reading], { concurrency: "unbounded" })
    )
    assert.strictEqual(one + two + (yield* sweep), 25 * 9)
    assert.deepStrictEqual(yield* sql`SELECT DISTINCT seq FROM messages ORDER BY seq`, [{ seq: 10 }, { seq: 11 }])
    yield* assertSound
  }).pipe(Effect.provide(layerModules(layerPostgresTest(18), {
    RETENTION_MESSAGES_DAYS: 1,
    LIMITS_SENDS_PER_SECOND: 10_000,
    LIMITS_COLD_CONVERSATIONS: 1_000
  }))))

it.effect("a file goes some days after the last message that it was in, and its bytes are given back", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const attachments = yield* Attachments
    const [a, b] = [yield* newAgent("file-a"), yield* newAgent("file-b")]
    const ages = { att_gone: 3 * DAY_MS, att_kept: 3 * DAY_MS - 1, att_again: 3 * DAY_MS }
    for (const [id, ago] of Object.entries(ages)) {
      yield* sql`
        INSERT INTO attachments
          (id, uploader_id, recipient_id, filename, content_type, size, sha256, created_at, stored_at, used_at)
        VALUES (${id}, ${a.id}, ${b.id}, 'f', 'text/plain', 5, '', 0, 0, ${-ago})`
    }
    yield* sql`INSERT INTO attachment_usage (agent_id, bytes) VALUES (${a.id}, 15)`
    yield* (yield* Conversations).send(a, { _tag: "Direct", handle: b.handle }, {
      ...draft("1"),
      attachmentId: "att_again"
    })
    assert.deepStrictEqual(yield* attachments.retire, { rows: 1, more: false })
    assert.deepStrictEqual(yield* attachments.retire, { rows: 0, more: false })
    assert.strictEqual((yield* Effect.flip(attachments.downloadUrl(b.id, "att_gone")))._tag, "NotFound")
    assert.deepStrictEqual(yield* attachments.sweep, { rows: 1, more: false })
    assert.deepStrictEqual(yield* sql`SELECT id FROM attachments ORDER BY id`, [{ id: "att_again" }, {
      id: "att_kept"
    }])
    assert.deepStrictEqual(yield* sql`SELECT bytes FROM attachment_usage`, [{ bytes: 10 }])
  }).pipe(
    Effect.provide(
      layerModules(layerPgliteTest, { RETENTION_MESSAGES_DAYS: 1, DATA_DIR: join(tmpdir(), "parley-retention") })
    )
  ))

it.effect("messages are kept for ever unless the setting is set", () =>
  Effect.gen(function*() {
    const [a, b] = [yield* newAgent("ever-a"), yield* newAgent("ever-b")]
    yield* age(String((yield* say(a, b, "1"))["conversation_id"]), 1, 10_000 * DAY_MS)
    assert.strictEqual(yield* sweep, 0)
  }).pipe(Effect.provide(layerModules(layerPgliteTest))))
