import { turn } from "#domain/messages/MessagePage"
import { MessageSearch } from "#domain/search/MessageSearch"
import { SearchRepo } from "#domain/search/SearchRepo"
import { WordIndex } from "#domain/search/WordIndex"
import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

const DAY_MS = 86_400_000
/**
 * More than a search indexes, and more hits than one statement finds: the newest 1,200 on one day, the others 20 a day.
 */
const MESSAGES = 2_400
const ON_ONE_DAY = 1_200

layer(layerModules(layerPgliteTest))((it) => {
  it.effect("a word with thousands of hits is found in pages without a gap; the rest of the messages is indexed by the job", () =>
    Effect.gen(function*() {
      const index = yield* WordIndex
      const messages = yield* MessageSearch
      const sql = yield* SqlClient.SqlClient
      const [one, other] = [yield* newAgent("many-one"), yield* newAgent("many-other")]
      const start = 20_000 * DAY_MS
      const age = (seq: number): number =>
        seq > MESSAGES - ON_ONE_DAY ? 0 : Math.ceil((MESSAGES - ON_ONE_DAY - seq + 1) / 20)
      const rows = Array.from({ length: MESSAGES }, (_, i) => ({
        seq: i + 1,
        sender: i % 3 === 0 ? other.id : one.id,
        at: start - age(i + 1) * DAY_MS + i,
        content: JSON.stringify({ text: `common ${i % 1_000 === 7 ? "rare" : "words"}` })
      }))
      yield* sql`INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
        SELECT 'conv_many', seq, 'msg_' || seq, sender, seq::text, 'text', content, '{}', at
        FROM json_to_recordset(${JSON.stringify(rows)}::json) AS x(seq bigint, sender text, at bigint, content text)`
      yield* sql`INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at)
        VALUES ('conv_many', 'direct', ${MESSAGES}, ${rows.at(-1)!.at}, ${rows[0]!.at})`
      yield* sql`INSERT INTO participants (agent_id, conversation_id, counterparty_id)
        VALUES (${one.id}, 'conv_many', ${other.id}), (${other.id}, 'conv_many', ${one.id})`

      const page = (q: string, cursor: string | null, limit = 50) =>
        messages.search(one.id, { q, conversationId: null, from: null, after: null, before: null, limit, cursor })
      const seqs = (result: { readonly hits: ReadonlyArray<{ readonly json: string }> }) =>
        result.hits.map(({ json }) => (JSON.parse(json) as { readonly seq: number }).seq)

      const first = yield* page("rare", null)
      assert.isFalse(first.complete)
      assert.deepStrictEqual(seqs(first), [2_008, 1_008])
      while ((yield* index.step).more);
      const second = yield* page("rare", null)
      assert.isTrue(second.complete)
      assert.deepStrictEqual(seqs(second), [2_008, 1_008, 8])

      const seen: Array<number> = []
      for (let cursor: string | null | undefined; cursor !== null;) {
        const result = yield* page("common", cursor ?? null)
        seen.push(...seqs(result))
        cursor = result.nextCursor
      }
      assert.deepStrictEqual(seen, rows.map(({ seq }) => seq).toReversed())
    }))

  it.effect("an agent of more groups than one statement looks up finds the messages of all of them, newest first", () =>
    Effect.gen(function*() {
      const messages = yield* MessageSearch
      const sql = yield* SqlClient.SqlClient
      const [one, other] = [yield* newAgent("groups-one"), yield* newAgent("groups-other")]
      const ids = Array.from({ length: 1_100 }, (_, i) => `grp_${String(i).padStart(16, "0")}`)
      // Nine days, each with messages of all parts of the groups.
      const rows = ids.map((id, i) => ({ id, at: 20_000 * DAY_MS - (i % 9) * DAY_MS - i }))
      yield* sql`WITH input AS (SELECT * FROM json_to_recordset(${
        JSON.stringify(rows)
      }::json) AS x(id text, at bigint)), said AS (
          INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
          SELECT id, 1, 'msg_' || id, ${other.id}, id, 'text', '{"text":"gathered"}', '{}', at FROM input
        ), members AS (
          INSERT INTO participants (agent_id, conversation_id) SELECT ${one.id}, id FROM input
        )
        INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at) SELECT id, 'group', 1, at, at FROM input`
      const seen: Array<string> = []
      for (let cursor: string | null | undefined; cursor !== null;) {
        const query = {
          q: "gathered",
          conversationId: null,
          from: null,
          after: null,
          before: null,
          limit: 50,
          cursor: cursor ?? null
        }
        const result = yield* messages.search(one.id, query)
        assert.isTrue(result.complete)
        seen.push(
          ...result.hits.map(({ json }) => (JSON.parse(json) as { readonly conversation_id: string }).conversation_id)
        )
        cursor = result.nextCursor
      }
      assert.deepStrictEqual(seen, rows.toSorted((one, other) => other.at - one.at).map(({ id }) => id))
    }))

  it.effect("a search whose indexing takes a long time ends its page in time, with a cursor that leads to the rest", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const repo = yield* SearchRepo
      const now = Clock.currentTimeMillis
      // Each statement that adds words takes 300 ms of the test's clock. A message with 1,000 words has a statement of
      // its own.
      const slow = SearchRepo.of({ ...repo, add: (rows) => Effect.andThen(leap("300 millis"), repo.add(rows)) })
      const messages = yield* Effect.provide(
        MessageSearch,
        Layer.fresh(MessageSearch.layer).pipe(
          Layer.provide(Layer.fresh(WordIndex.layer)),
          Layer.provide(Layer.succeed(SearchRepo, slow))
        )
      )
      const [one, other] = [yield* newAgent("slow-one"), yield* newAgent("slow-other")]
      const at = 20_000 * DAY_MS
      const count = 24
      const rows = Array.from({ length: count }, (_, i) => ({
        seq: i + 1,
        at: at + i,
        content: JSON.stringify({
          text: `${i === 2 || i === 21 ? "rare" : "other"} ${
            Array.from({ length: 998 }, (_, j) => `w${i}x${j}`).join(" ")
          }`
        })
      }))
      yield* sql`INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
        SELECT 'conv_slow', seq, 'msg_slow_' || seq, ${other.id}, seq::text, 'text', content, '{}', at
        FROM json_to_recordset(${JSON.stringify(rows)}::json) AS x(seq bigint, at bigint, content text)`
      yield* sql`INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at)
        VALUES ('conv_slow', 'direct', ${count}, ${at + count}, ${at})`
      yield* sql`INSERT INTO participants (agent_id, conversation_id, counterparty_id)
        VALUES (${one.id}, 'conv_slow', ${other.id}), (${other.id}, 'conv_slow', ${one.id})`

      const found: Array<number> = []
      const pages: Array<{ readonly hits: number; readonly complete: boolean; readonly ms: number }> = []
      for (let cursor: string | null | undefined; cursor !== null;) {
        const began = yield* now
        const page = yield* messages.search(one.id, {
          q: "rare",
          conversationId: null,
          from: null,
          after: null,
          before: null,
          limit: 20,
          cursor: cursor ?? null
        })
        pages.push({ hits: page.hits.length, complete: page.complete, ms: (yield* now) - began })
        if (!page.complete) assert.isNotNull(page.nextCursor)
        found.push(...page.hits.map(({ json }) => (JSON.parse(json) as { readonly seq: number }).seq))
        cursor = page.nextCursor
      }
      assert.deepStrictEqual(found, [22, 3])
      // At least one message is indexed by each search, and none takes longer than its 1.2 s and one statement.
      assert.isAtLeast(pages.length, 4)
      for (const { ms } of pages) assert.isAtMost(ms, 1_500, JSON.stringify(pages))
      assert.deepStrictEqual(pages.map(({ complete }) => complete), pages.map((_, i) => i === pages.length - 1))
      assert.isTrue(pages.some(({ hits }) => hits === 0))
    }))

  it.effect("a statement contains few tokens although a long query without spaces is repeated for each month", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const repo = yield* SearchRepo
      const tokens: Array<number> = []
      const counting = SearchRepo.of({
        ...repo,
        find: {
          ...repo.find,
          some: (text, ...rest) => {
            tokens.push(text.match(/'[^']+'/g)!.length)
            return repo.find.some(text, ...rest)
          }
        }
      })
      const messages = yield* Effect.provide(
        MessageSearch,
        Layer.fresh(MessageSearch.layer).pipe(
          Layer.provide(Layer.fresh(WordIndex.layer)),
          Layer.provide(Layer.succeed(SearchRepo, counting))
        )
      )
      const [one, other] = [yield* newAgent("tokens-one"), yield* newAgent("tokens-other")]
      const at = 20_000 * DAY_MS
      const createdAt = at - 690 * DAY_MS
      // 200 different characters have 199 pairs.
      const q = Array.from({ length: 200 }, (_, i) => String.fromCodePoint(0x4e00 + i)).join("")
      const content = JSON.stringify({ text: q })
      yield* sql`INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
        VALUES ('conv_tokens', 1, 'msg_tokens', ${other.id}, 'tokens', 'text', ${content}, '{}', ${createdAt})`
      yield* sql`INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at)
        VALUES ('conv_tokens', 'direct', 1, ${at}, ${createdAt})`
      yield* sql`INSERT INTO participants (agent_id, conversation_id, counterparty_id)
        VALUES (${one.id}, 'conv_tokens', ${other.id}), (${other.id}, 'conv_tokens', ${one.id})`
      const query = { q, conversationId: null, from: null, after: null, before: null, limit: 50, cursor: null }
      const { hits } = yield* messages.search(one.id, query)
      assert.strictEqual(hits.length, 1)
      // The limit is 1,000 tokens and the tokens of one month: two for the agent, and one for each pair.
      assert.isAtMost(Math.max(...tokens), 1_000 + 2 + 199, String(tokens))
    }))

  it.effect("other work gets a turn between two messages whose texts take a long time to compare", () =>
    Effect.gen(function*() {
      const messages = yield* MessageSearch
      const sql = yield* SqlClient.SqlClient
      const [one, other] = [yield* newAgent("long-one"), yield* newAgent("long-other")]
      const at = 20_000 * DAY_MS
      // Each character folds to 18. So a message as large as the server takes has many times its length to compare.
      const content = JSON.stringify({ text: "\ufdfa".repeat(10_900) })
      yield* sql`INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
        SELECT 'conv_long', seq, 'msg_long_' || seq, ${other.id}, seq::text, 'text', ${content}, '{}', ${at}
        FROM generate_series(1, 10) AS seq`
      yield* sql`INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at) VALUES ('conv_long', 'direct', 10, ${at}, ${at})`
      yield* sql`INSERT INTO participants (agent_id, conversation_id, counterparty_id)
        VALUES (${one.id}, 'conv_long', ${other.id}), (${other.id}, 'conv_long', ${one.id})`
      const query = {
        q: "\ufdfa",
        conversationId: "conv_long",
        from: null,
        after: null,
        before: null,
        limit: 50,
        cursor: null
      }
      // Indexes the messages, so that the second search only compares them.
      yield* messages.search(one.id, query)

      const turns: Array<number> = []
      let isOver = false
      const count = (): void => {
        turns.push(performance.now())
        if (!isOver) setImmediate(count)
      }
      setImmediate(count)
      const { hits } = yield* messages.search(one.id, query)
      isOver = true
      assert.strictEqual(hits.length, 10)
      // There is a turn after each 5 ms of comparison. How many messages are compared in 5 ms depends on the machine.
      assert.isAtLeast(turns.filter((now, i) => i > 0 && now - turns[i - 1]! >= 2).length, 3)
    }))
})

describe("turn", () => {
  it("is one turn of the event loop each time, also for a fiber that waits again at once", async () => {
    let rounds = 0
    let isOver = false
    const count = (): void => {
      rounds++
      if (!isOver) setImmediate(count)
    }
    setImmediate(count)
    await Effect.runPromise(Effect.forEach(Array.from({ length: 40 }), () => turn, { discard: true }))
    isOver = true
    assert.isAtLeast(rounds, 39)
  })
})
