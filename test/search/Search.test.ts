import { Accounts } from "#domain/agents/Accounts"
import { Deletions } from "#domain/agents/Deletions"
import { Conversations } from "#domain/conversations/Conversations"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { Groups } from "#domain/groups/Groups"
import { MessageSearch, type SearchQuery } from "#domain/search/MessageSearch"
import { WordIndex } from "#domain/search/WordIndex"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as fc from "fast-check"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent, type Party } from "../support/Modules.ts"

const RUNS = Number(process.env["SEARCH_RUNS"] ?? 2)
const SEED = Number(process.env["SEARCH_SEED"] ?? Date.now() % 1_000_000_000)
const AGENTS = 4
const WORDS = ["alpha", "Alpine", "beta", "BÉTA", "gamma", "東京都", "京都"]

const KINDS = [
  "direct",
  "direct",
  "direct",
  "group",
  "group",
  "group",
  "join",
  "join",
  "leave",
  "hide message",
  "hide conversation",
  "days",
  "search",
  "job",
  "retention",
  "delete account",
  "forget index"
] as const
type Kind = typeof KINDS[number]

interface Step {
  readonly kind: Kind
  readonly agent: number
  readonly other: number
  readonly words: ReadonlyArray<string>
}

const step = fc.record<Step>({
  kind: fc.constantFrom(...KINDS),
  agent: fc.nat(AGENTS - 1),
  other: fc.nat(AGENTS - 2),
  words: fc.array(fc.constantFrom(...WORDS), { minLength: 1, maxLength: 4 })
})
const histories = fc.array(step, { minLength: 60, maxLength: 80, size: "max" })

/** A query, and whether a text of `WORDS` has its words. */
const QUERIES: ReadonlyArray<readonly [q: string, matches: (words: ReadonlyArray<string>) => boolean]> = [
  ["ALPHA", (words) => words.includes("alpha")],
  ["alp*", (words) => words.includes("alpha") || words.includes("Alpine")],
  ["beta gamma", (words) => words.includes("gamma") && (words.includes("beta") || words.includes("BÉTA"))],
  ["京都", (words) => words.includes("東京都") || words.includes("京都")],
  ["delta", () => false]
]

interface Row {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly sender: string
  readonly created_at: string
  readonly content: { readonly text?: string }
}

const all: SearchQuery = { q: "", conversationId: null, from: null, after: null, before: null, limit: 3, cursor: null }
let serial = 0

for (const [name, database] of [["PGlite", layerPgliteTest], ["PostgreSQL 18", layerPostgresTest(18)]] as const) {
  layer(
    layerModules(database, { LIMITS_SENDS_PER_SECOND: 1_000_000, RETENTION_MESSAGES_DAYS: 120 })
  )((it) => {
    it.effect(`${RUNS} histories on ${name}: a search finds exactly what the history shows`, () =>
      Effect.gen(function*() {
        const accounts = yield* Accounts
        const conversations = yield* Conversations
        const deletions = yield* Deletions
        const groups = yield* Groups
        const index = yield* WordIndex
        const messages = yield* MessageSearch
        const retention = yield* MessageRetention
        const sql = yield* SqlClient.SqlClient
        const newParty = Effect.suspend(() => newAgent(`search-${serial++}`))
        let found = 0

        /** All pages of a search. */
        const search = Effect.fnUntraced(function*(agent: Party, query: Partial<SearchQuery>) {
          const rows: Array<Row> = []
          let isComplete = true
          for (let cursor: string | null | undefined; cursor !== null;) {
            const page = yield* messages.search(agent.id, { ...all, ...query, cursor: cursor ?? null })
            rows.push(...page.hits.map(({ json }) => JSON.parse(json) as Row))
            isComplete &&= page.complete
            cursor = page.nextCursor
          }
          return { rows, isComplete }
        })

        /** All that the history shows an agent, in the order of results. */
        const shown = Effect.fnUntraced(function*(agent: Party) {
          const { items } = yield* conversations.list(agent.id, { limit: 200 })
          const rows = yield* Effect.forEach(
            items,
            ({ id }) => conversations.history(agent.id, id, { limit: 200, before: null, after: null, around: null })
          )
          return rows.flat().map((json) => JSON.parse(json) as Row).toSorted((one, other) =>
            one.created_at !== other.created_at
              ? one.created_at < other.created_at ? 1 : -1
              : one.conversation_id !== other.conversation_id
              ? one.conversation_id < other.conversation_id ? 1 : -1
              : other.seq - one.seq
          )
        })

        const check = Effect.fnUntraced(function*(agent: Party, others: ReadonlyArray<Party>, context: string) {
          const rows = yield* shown(agent)
          for (const [q, matches] of QUERIES) {
            const wanted = rows.filter(({ content: { text } }) => matches((text ?? "").split(" ")))
            const got = yield* search(agent, { q })
            assert.isTrue(got.isComplete, context)
            assert.deepStrictEqual(got.rows, wanted, `${context}: ${q}`)
            found += wanted.length
          }
          const wanted = rows.filter(({ content: { text } }) => text?.includes("gamma"))
          const middle = wanted[Math.floor(wanted.length / 2)]
          if (middle === undefined) return
          const at = Date.parse(middle.created_at)
          const narrow = (query: Partial<SearchQuery>, matches: (row: Row) => boolean) =>
            Effect.map(
              search(agent, { q: "gamma", ...query }),
              (got) => assert.deepStrictEqual(got.rows, wanted.filter(matches), `${context}: ${JSON.stringify(query)}`)
            )
          yield* narrow(
            { conversationId: middle.conversation_id },
            (row) => row.conversation_id === middle.conversation_id
          )
          yield* narrow({ before: at }, (row) => Date.parse(row.created_at) < at)
          yield* narrow({ after: at }, (row) => Date.parse(row.created_at) > at)
          for (const { handle } of [agent, ...others]) {
            yield* narrow({ from: handle }, ({ sender }) => sender === handle)
            yield* narrow(
              { from: handle, conversationId: middle.conversation_id },
              (row) => row.sender === handle && row.conversation_id === middle.conversation_id
            )
          }
        })

        const run = Effect.fnUntraced(function*(history: ReadonlyArray<Step>, context: string) {
          const agents = yield* Effect.forEach(Array.from({ length: AGENTS }), () => newParty)
          const profile = { name: "Band", description: null, avatarUrl: null }
          const { group: { id: groupId } } = yield* groups.create(agents[0]!, { profile, handles: [] })
          // Every pair may write to each other.
          for (const [i, one] of agents.entries()) {
            for (const other of agents.slice(i + 1)) {
              yield* conversations.send(one, { _tag: "Direct", handle: other.handle }, draft(`s${serial++}`, "alpha"))
              yield* conversations.send(other, { _tag: "Direct", handle: one.handle }, draft(`s${serial++}`, "beta"))
            }
          }
          const perform = Effect.fnUntraced(function*({ agent, kind, other, words }: Step) {
            const self = agents[agent]!
            const peer = agents[(agent + 1 + other) % AGENTS]!
            const message = () => draft(`s${serial++}`, words.join(" "))
            switch (kind) {
              case "direct":
                return yield* conversations.send(self, { _tag: "Direct", handle: peer.handle }, message())
              case "group":
                return yield* conversations.send(self, { _tag: "Conversation", id: groupId }, message())
              case "join": {
                const { invite_id } = yield* groups.add(agents[0]!, groupId, self.handle)
                return yield* groups.accept(self, invite_id ?? "")
              }
              case "leave":
                return agent === 0 ? undefined : yield* groups.leave(self.id, groupId)
              case "hide message": {
                const rows = yield* shown(self)
                const row = rows[other % Math.max(1, rows.length)]
                return row && (yield* conversations.hideMessage(self.id, row.id))
              }
              case "hide conversation": {
                const { items } = yield* conversations.list(self.id, {})
                const item = items[other % Math.max(1, items.length)]
                return item && (yield* conversations.hide(self.id, item.id))
              }
              case "days":
                return yield* leap(`${1 + other * 20} days`)
              case "search":
                return yield* search(self, { q: "alpha" })
              case "job":
                return yield* index.step
              case "retention":
                while ((yield* retention.sweep).more);
                return yield* index.sweep
              case "forget index":
                // Part of the words are indexed a second time.
                return yield* sql`UPDATE message_word_ranges SET from_seq = through_seq - ${other} WHERE through_seq > ${other}`
              case "delete account": {
                // The admin stays, and an account is deleted in one of four cases.
                if (agent === 0 || other > 0) return
                yield* accounts.remove(self.id)
                yield* deletions.sweep
                agents[agent] = yield* newParty
              }
            }
          })
          for (const one of history) yield* Effect.catch(perform(one), () => Effect.void)
          // A history may have hidden or aged everything. The last message is certain to be found.
          yield* conversations.send(
            agents[0]!,
            { _tag: "Conversation", id: groupId },
            draft(`s${serial++}`, "alpha gamma")
          )
          for (const agent of agents) yield* check(agent, agents.filter((other) => other !== agent), context)
        })

        for (const [i, history] of fc.sample(histories, { seed: SEED, numRuns: RUNS }).entries()) {
          yield* run(history, `SEARCH_SEED=${SEED}, history ${i}`)
        }
        assert.isAtLeast(found, RUNS)
        while ((yield* retention.sweep).more);
        // The first pass may begin in the middle.
        for (let pass = 0; pass < 2; pass++) while ((yield* index.sweep).more);
        const [orphans] = yield* sql`
          SELECT count(*) AS n FROM message_words w LEFT JOIN messages m USING (conversation_id, seq) WHERE m.id IS NULL`
        assert.deepStrictEqual(orphans, { n: 0 })
      }))
  })
}
