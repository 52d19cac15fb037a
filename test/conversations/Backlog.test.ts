import { Conversations, type Sender } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Groups } from "#domain/groups/Groups"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

type Party = Sender

const SOFT = 5_000
const HARD = 10_000

let serial = 0

const sendTo = (from: Party, to: Party, key = `b${serial++}`) =>
  Effect.flatMap(
    Conversations,
    (conversations) =>
      Effect.match(conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(key)), {
        onSuccess: ({ backlog, created }) => created ? backlog : "replayed" as const,
        onFailure: (failure) =>
          failure._tag === "RecipientBacklogged"
            ? { full: failure.details?.undelivered_count, of: failure.details?.recipient_handle }
            : failure._tag
      })
  )

/** What waits for an agent, which is what its inbox says. */
const waitingFor = Effect.fnUntraced(function*(agent: Party) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly said: number; readonly counted: number }>`
    SELECT undelivered AS said, (SELECT count(*) FROM envelopes WHERE recipient_id = agent_id AND delivered_at IS NULL) AS counted
    FROM inboxes WHERE agent_id = ${agent.id}`
  assert.strictEqual(row?.said, row?.counted)
  return row?.said ?? 0
})

/** Has so many wait for an agent, as if they had been sent. */
const fill = Effect.fnUntraced(function*(agent: Party, upTo: number) {
  const sql = yield* SqlClient.SqlClient
  const missing = upTo - (yield* waitingFor(agent))
  yield* sql`
    WITH raised AS (
      UPDATE inboxes SET last_no = last_no + ${missing}, undelivered = undelivered + ${missing}
      WHERE agent_id = ${agent.id} RETURNING last_no
    ) INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
    SELECT ${agent.id}, last_no - ${missing}::bigint + i, 'conv_of_' || ${agent.id}, last_no - ${missing}::bigint + i
    FROM raised, generate_series(1, ${missing}::integer) i`
})

/** Two agents that know each other. */
const pair = Effect.fnUntraced(function*(name: string) {
  const [a, b] = [yield* newAgent(`${name}-a`), yield* newAgent(`${name}-b`)]
  assert.deepStrictEqual([yield* sendTo(a, b), yield* sendTo(b, a)], [null, null])
  return [a, b] as const
})

layer(layerModules(layerPgliteTest, { LIMITS_SENDS_PER_SECOND: 1_000_000 }))((it) => {
  it.effect("5,000 after it warn the sender, 10,000 before it refuse; groups and the suspended take all", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const groups = yield* Groups
      const conversations = yield* Conversations
      const [a, b] = yield* pair("limits")
      const profile = { name: "Band", description: null, avatarUrl: null }
      const { add_results, group } = yield* groups.create(a, { profile, handles: [b.handle] })
      yield* groups.accept(b, add_results[0]?.invite_id ?? "")

      yield* fill(b, SOFT - 2)
      assert.strictEqual(yield* sendTo(a, b, "first"), null)
      assert.strictEqual(yield* sendTo(a, b), SOFT)
      assert.strictEqual(yield* sendTo(a, b, "first"), "replayed")
      yield* fill(b, HARD - 1)
      assert.strictEqual(yield* sendTo(a, b), HARD)
      for (let i = 0; i < 2; i++) assert.deepStrictEqual(yield* sendTo(a, b), { full: HARD, of: b.handle })
      assert.strictEqual(yield* sendTo(a, b, "first"), "replayed", "a replay is never refused")
      // Nor may a stranger begin: there is no first message without a place for it.
      const stranger = yield* newAgent("limits-c")
      assert.deepStrictEqual(yield* sendTo(stranger, b), { full: HARD, of: b.handle })
      assert.deepStrictEqual(yield* sql`SELECT FROM cold_slots WHERE agent_id = ${stranger.id}`, [])

      const inGroup = yield* conversations.send(a, { _tag: "Conversation", id: group.id }, draft("to the group"))
      assert.deepStrictEqual([inGroup.created, inGroup.backlog], [true, null])
      assert.deepStrictEqual(yield* sendTo(a, b), { full: HARD + 1, of: b.handle })
      yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${b.id}`
      assert.strictEqual(yield* sendTo(a, b), HARD + 2)
      assert.strictEqual(yield* sendTo(stranger, b), HARD + 3)
      assert.strictEqual(yield* waitingFor(b), HARD + 3)
      yield* sql`UPDATE agents SET status = 'active' WHERE id = ${b.id}`
      assert.deepStrictEqual(yield* sendTo(a, b), { full: HARD + 3, of: b.handle })
    }))

  it.effect("replays in a batch do not count, and every refusal shows the number of waiting messages", () =>
    Effect.gen(function*() {
      const deliveries = yield* Deliveries
      const [a, b] = yield* pair("batch")
      const old = ["old-0", "old-1", "old-2", "old-3"]
      for (const key of old) yield* sendTo(a, b, key)
      const together = (keys: ReadonlyArray<string>) =>
        Effect.forEach(keys, (key) => sendTo(a, b, key), { concurrency: "unbounded" })
      yield* fill(b, HARD - 2)
      assert.deepStrictEqual(
        yield* together([...old, "new-0", "new-1"]),
        ["replayed", "replayed", "replayed", "replayed", HARD - 1, HARD]
      )
      const rows = yield* deliveries.sync(b.id, undefined, 3)
      const last = (JSON.parse(rows.at(-1) ?? "") as { readonly delivery_id: string }).delivery_id
      assert.strictEqual(yield* deliveries.acknowledgeThrough(b.id, last), 3)
      const answers = yield* together([...old, "new-2", "new-3", "new-4", "new-5", "new-6", "new-7"])
      const accepted = answers.slice(4).filter((answer) => typeof answer === "number")
      assert.deepStrictEqual(accepted, [HARD - 2, HARD - 1, HARD])
      assert.deepStrictEqual(
        answers.filter((answer) => typeof answer === "object"),
        Array.from({ length: 3 }, () => ({ full: HARD, of: b.handle }))
      )
      assert.strictEqual(yield* waitingFor(b), HARD)
    }))
})
