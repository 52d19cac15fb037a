import { MessageSearch, type SearchQuery } from "#domain/search/MessageSearch"
import { WordIndex } from "#domain/search/WordIndex"
import * as Cluster from "#infrastructure/cluster/Cluster"
import * as Migrations from "#infrastructure/database/Migrations"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { services } from "../../src/Services.ts"
import { layerRemembering } from "../../test/support/AsACaller.ts"
import { randomOf } from "../../test/support/Random.ts"
import { startDatabase } from "./Database.ts"

/**
 * Measures searches among stored messages: `node verification/bench/SearchCost.ts pglite|postgres [messages]`. Prints
 * how fast messages are indexed, the bytes of the index for a message, and for each kind of query the milliseconds of a
 * search (median and 95th percentile) and the longest stop of the event loop. The figures in docs/operations.md come
 * from it.
 */

const [driver = "pglite", given] = process.argv.slice(2)
const MESSAGES = Number(given ?? (driver === "pglite" ? 100_000 : 1_000_000))
const AGENTS = 200
/** The busy agent has the first conversations, with a fifth of all messages. */
const CONVERSATIONS = 500
const BUSY = 100
const DAYS = 180
const WORDS = 20_000
const SEARCHES = 60
const DAY_MS = 86_400_000

const random = randomOf(1)
/** A word by its rank. Common words are short, and the frequency of a word falls with its rank. */
const word = (rank: number): string => `w${rank.toString(36)}`
const text = (n: number): string =>
  `u${n.toString(36)} ` +
  Array.from({ length: 8 + Math.floor(random() * 24) }, () => word(Math.floor(WORDS ** random()))).join(" ")

const agentId = (i: number): string => `agt_${String(i).padStart(16, "0")}`
const conversationId = (i: number): string => `conv_${String(i).padStart(16, "0")}`
const sides = (i: number): readonly [string, string] =>
  i < BUSY ? [agentId(0), agentId(1 + i)] : [agentId(1 + i % (AGENTS - 1)), agentId(1 + (i * 7 + 1) % (AGENTS - 1))]

const store = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const start = Date.now() - DAYS * DAY_MS
  yield* sql`INSERT INTO agents (id, handle, email, created_at, updated_at)
    SELECT 'agt_' || lpad(i::text, 16, '0'), 'agent-' || i, i || '@example.com', 0, 0 FROM generate_series(0, ${
    AGENTS - 1
  }::integer) i`
  yield* sql`INSERT INTO inboxes (agent_id) SELECT id FROM agents`
  const seqs = Array.from({ length: CONVERSATIONS }, () => 0)
  for (let first = 0; first < MESSAGES; first += 1_000) {
    const rows = Array.from({ length: Math.min(1_000, MESSAGES - first) }, (_, k) => {
      const n = first + k
      const i = random() < 0.2 ? Math.floor(random() * BUSY) : BUSY + Math.floor(random() * (CONVERSATIONS - BUSY))
      const seq = ++seqs[i]!
      const at = start + Math.floor(n / MESSAGES * DAYS * DAY_MS)
      return {
        conv: conversationId(i),
        seq,
        id: `msg_${n}`,
        sender: sides(i)[seq % 2],
        content: JSON.stringify({ text: text(n) }),
        at
      }
    })
    yield* sql`INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
      SELECT conv, seq, id, sender, id, 'text', content, '{}', at
      FROM json_to_recordset(${
      JSON.stringify(rows)
    }::json) AS x(conv text, seq bigint, id text, sender text, content text, at bigint)`
  }
  for (const [i, last] of seqs.entries()) {
    const [one, other] = sides(i)
    yield* sql`INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at)
      VALUES (${conversationId(i)}, 'direct', ${last}, ${Date.now()}, ${start})`
    yield* sql`INSERT INTO participants (agent_id, conversation_id, counterparty_id)
      VALUES (${one}, ${conversationId(i)}, ${other}), (${other}, ${conversationId(i)}, ${one}) ON CONFLICT DO NOTHING`
  }
  yield* sql`ANALYZE`
})

const delays = monitorEventLoopDelay({ resolution: 1 })
delays.enable()
/** The longest stop of the event loop since the last call, in milliseconds. */
const longestStop = (): number => {
  const longest = delays.max / 1e6
  delays.reset()
  return longest
}

const all: SearchQuery = { q: "", conversationId: null, from: null, after: null, before: null, limit: 20, cursor: null }
const rank = (from: number, to: number): string => word(from + Math.floor(random() * (to - from)))
const QUERIES: Readonly<Record<string, (busy: boolean) => Partial<SearchQuery>>> = {
  "rare word": () => ({ q: rank(15_000, 20_000) }),
  "common word": () => ({ q: rank(1, 4) }),
  "two middle words": () => ({ q: `${rank(20, 200)} ${rank(20, 200)}` }),
  prefix: () => ({ q: `${rank(50, 60)}0*`.replace(/^(..).*0/, "$10") }),
  "word that nobody wrote": () => ({ q: "nothing" }),
  "in one conversation": (busy) => ({ q: rank(1, 200), conversationId: conversationId(busy ? 3 : BUSY) })
}

const column = (text: string | number): string => String(text).padStart(12)
const rounded = (ms: number): number => Math.round(ms * 10) / 10

const measure = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const index = yield* WordIndex
  const messages = yield* MessageSearch
  yield* store
  console.log(`${MESSAGES} messages are stored on ${driver}`)

  // The first search of the busy agent, with nothing indexed.
  longestStop()
  let began = performance.now()
  const first = yield* messages.search(agentId(0), { ...all, q: word(1) })
  console.log(
    JSON.stringify({
      first: rounded(performance.now() - began),
      complete: first.complete,
      stop: rounded(longestStop())
    })
  )

  yield* sql`INSERT INTO message_word_ranges (conversation_id, from_seq, through_seq)
    SELECT id, last_seq, last_seq FROM conversations WHERE last_seq > 0 ON CONFLICT DO NOTHING`
  began = performance.now()
  while ((yield* index.step).more);
  const seconds = (performance.now() - began) / 1_000
  const [size] = yield* sql<{ heap: number; words: number; total: number; rows: number }>`
    SELECT pg_relation_size('message_words') AS heap, pg_relation_size('message_words_by_word') AS words,
      pg_total_relation_size('message_words') AS total, (SELECT count(*) FROM message_words) AS rows`
  const per = (bytes: number) => Math.round(bytes / size!.rows)
  console.log(JSON.stringify({
    indexed: size!.rows,
    perSecond: Math.round(size!.rows / seconds),
    stop: rounded(longestStop()),
    bytesPerMessage: { rows: per(size!.heap), words: per(size!.words), all: per(size!.total) }
  }))
  yield* sql`VACUUM ANALYZE message_words`

  console.log([column("median"), column("p95"), column("stop"), column("hits")].join("") + "  query")
  for (const [name, query] of Object.entries(QUERIES)) {
    for (const busy of [true, false]) {
      longestStop()
      let hits = 0
      const times: Array<number> = []
      for (let i = 0; i < SEARCHES; i++) {
        const agent = busy
          ? agentId(0)
          : name === "in one conversation"
          ? sides(BUSY)[0]
          : agentId(1 + Math.floor(random() * (AGENTS - 1)))
        const began = performance.now()
        const result = yield* messages.search(agent, { ...all, ...query(busy) })
        times.push(performance.now() - began)
        hits += result.hits.length
      }
      times.sort((one, other) => one - other)
      const p95 = times[Math.floor(times.length * 0.95)]!
      console.log(
        [times[times.length >> 1]!, p95, longestStop(), hits / SEARCHES].map((figure) => column(rounded(figure))).join(
          ""
        ) +
          `  ${name}, ${busy ? "a busy agent" : "others"}`
      )
    }
  }
})

const folder = mkdtempSync(join(tmpdir(), "parley-search-"))
const server = driver === "postgres" ? await startDatabase(undefined) : undefined
try {
  const database = server === undefined
    ? layerPglite({ dataDir: folder })
    : layerPg({ url: Redacted.make(server.url), poolSize: 10 })
  // The services without the jobs, which stop the event loop at times of their own.
  const modules = services.pipe(
    Layer.provideMerge(Layer.provideMerge(layerRemembering, Cluster.layerStandalone)),
    Layer.provideMerge(Layer.provideMerge(Migrations.layer, database)),
    Layer.provideMerge(Layer.mergeAll(Config.layerTest(), Ids.layer))
  )
  await Effect.runPromise(Effect.scoped(Effect.provide(measure, modules)))
} finally {
  await server?.stop()
  rmSync(folder, { recursive: true, force: true })
}
