import { Agents } from "#domain/agents/Agents"
import { ConversationNotFound } from "#domain/conversations/Conversation"
import { Conversations } from "#domain/conversations/Conversations"
import { isGroupId } from "#domain/memberships/GroupReads"
import { turn } from "#domain/messages/MessagePage"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { decodeCursor, encodeCursor } from "#infrastructure/wire/Page"
import { Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Schema } from "effect"
import { queryOf, type SearchScope } from "./Lexemes.ts"
import { type Highlight, highlightsOf, lookupsOf, type Term, termsOf } from "./SearchQuery.ts"
import { type Position, type Searched, SearchRepo } from "./SearchRepo.ts"
import { spanOf, split, type Window, windows } from "./Windows.ts"
import { isBehind, TURN_MS, WordIndex } from "./WordIndex.ts"

/** How many conversations of the caller one statement reads. */
const BATCH_SIZE = 500
/** How many candidates one statement finds at most. A window with more candidates is split. */
const MAX_CANDIDATES = 1_000
/**
 * How many candidates one statement finds on a day with more than `MAX_CANDIDATES` of them. It finds the newest ones.
 */
const MAX_NEWEST_CANDIDATES = 200
/**
 * How many tokens a look-up in one statement may contain, without the tokens of its last period. So every statement has
 * at least one period. The database needs very long to parse a query with tens of thousands of tokens.
 */
const TOKENS = 1_000
/** How many groups a look-up in one statement may contain. */
const MAX_GROUPS = 500
/** How many messages are compared with the history in one step. */
const MAX_COMPARED = 20
/** How long a search indexes messages before it looks them up, in milliseconds. */
const INDEXING_MS = 1_200
/** After which time a search stops and returns a cursor, in milliseconds. This is below the deadline of reads. */
const SEARCHING_MS = 2_500
const DAY_MS = 86_400_000

export interface SearchQuery {
  readonly q: string
  readonly conversationId: string | null
  /** The handle of the sender. */
  readonly from: string | null
  /** A time in milliseconds. Messages of exactly this time are excluded. */
  readonly after: number | null
  /** A time in milliseconds. Messages of exactly this time are excluded. */
  readonly before: number | null
  readonly limit: number
  readonly cursor: string | null
}

/** A message that matches, as JSON text, and the ranges of its text that contain the words. */
export interface Hit {
  readonly json: string
  readonly highlights: ReadonlyArray<Highlight>
}

export interface SearchResult {
  readonly hits: ReadonlyArray<Hit>
  readonly nextCursor: string | null
  /** Whether all messages that the caller may see are indexed. */
  readonly complete: boolean
}

/** The position after which the next page begins. */
const Cursor = Schema.Struct({
  at: Schema.Int,
  conversationId: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9_-]{0,70}$/)),
  seq: Schema.Int
})

/** The position that precedes all messages older than `at` in the order of the results. */
const before = (at: number): Position => ({ at, conversationId: "", seq: 0 })

/** Whether position `one` comes after position `other` in the results. */
const isBelow = (one: Position, other: Position): boolean =>
  one.at !== other.at
    ? one.at < other.at
    : one.conversationId !== other.conversationId
    ? one.conversationId < other.conversationId
    : one.seq < other.seq

/** Searches the messages that an agent may see (wire.md S). */
export class MessageSearch extends Context.Service<MessageSearch, {
  readonly search: (
    agentId: string,
    query: SearchQuery
  ) => Effect.Effect<SearchResult, ConversationNotFound | ValidationFailed | Unavailable>
}>()("parley/search/MessageSearch") {
  static readonly layer = Layer.effect(
    MessageSearch,
    Effect.gen(function*() {
      const agents = yield* Agents
      const conversations = yield* Conversations
      const index = yield* WordIndex
      const repo = yield* SearchRepo
      const monotonic = monotonicMillis(yield* Clock.Clock)

      /** Returns the conversations that are searched, and the part of each that the agent may see. */
      const searchedBy = Effect.fnUntraced(function*(agentId: string, conversationId: string | null) {
        if (conversationId !== null) {
          const one = yield* repo.searchedOne(agentId, conversationId)
          return one === undefined ? yield* new ConversationNotFound() : [one]
        }
        const all: Array<Searched> = []
        for (let above = "";;) {
          const slice = yield* repo.searched(agentId, above, BATCH_SIZE)
          all.push(...slice)
          if (slice.length < BATCH_SIZE) return all
          above = slice.at(-1)!.conversationId
          yield* turn
        }
      })

      /**
       * Returns the messages at these positions that the caller may see and that contain all terms, in the order of the
       * positions. Also returns the last position that was compared. The comparison stops early when the time is over,
       * because the texts of other agents determine how long it takes.
       */
      const compare = Effect.fnUntraced(function*(
        agentId: string,
        terms: ReadonlyArray<Term>,
        positions: ReadonlyArray<Position>,
        until: number
      ) {
        const rows = yield* conversations.visible(agentId, positions)
        const visible = new Map(rows.map((row) => [`${row.message.conversationId} ${row.message.seq}`, row]))
        const found: Array<{ readonly hit: Hit; readonly position: Position }> = []
        let began = performance.now()
        for (const position of positions) {
          const row = visible.get(`${position.conversationId} ${position.seq}`)
          const { text } = row === undefined ? {} : JSON.parse(row.message.content) as { readonly text?: string }
          const highlights = text === undefined ? undefined : highlightsOf(terms, text)
          if (row !== undefined && highlights !== undefined)
            found.push({ hit: { json: row.json, highlights }, position })
          if (performance.now() - began < TURN_MS) continue
          yield* turn
          if (monotonic() > until) return { found, last: position }
          began = performance.now()
        }
        return { found, last: positions.at(-1)! }
      })

      const search = Effect.fn("MessageSearch.search")(function*(agentId: string, query: SearchQuery) {
        const until = monotonic() + SEARCHING_MS
        const terms = termsOf(query.q)
        if ("wrong" in terms) return yield* ValidationFailed.field("q", terms.wrong)
        const start = query.cursor === null ? null : yield* decodeCursor(Cursor)(query.cursor)
        const sender = query.from === null ? null : yield* agents.byHandle(query.from)
        const known = (yield* searchedBy(agentId, query.conversationId)).filter(({ hiddenThrough, lastSeq }) =>
          lastSeq > hiddenThrough
        )
        if (sender === undefined || known.length === 0) return { hits: [], nextCursor: null, complete: true }
        const searched = yield* index.follow(known, INDEXING_MS)
        const complete = !searched.some(isBehind)

        const groupIds = searched.flatMap(({ conversationId }) => isGroupId(conversationId) ? [conversationId] : [])
        const direct = groupIds.length < searched.length
        const scopes = Array.from(
          { length: Math.max(1, Math.ceil(groupIds.length / MAX_GROUPS)) },
          (_, i): SearchScope => ({
            callerId: agentId,
            counterpartyId: query.conversationId === null ? null : searched[0]!.counterpartyId,
            direct: direct && i === 0,
            groupIds: groupIds.slice(i * MAX_GROUPS, (i + 1) * MAX_GROUPS),
            from: sender?.id ?? null
          })
        )
        const hiddenThrough = new Map(searched.map((one) => [one.conversationId, one.hiddenThrough]))
        const isHidden = ({ conversationId, seq }: Position) =>
          seq <= (hiddenThrough.get(conversationId) ?? Number.MAX_SAFE_INTEGER)

        // If the clock was set back, the time of a message can be outside the times of its conversation.
        const span = spanOf(searched)
        const oldest = span.oldest - DAY_MS
        const newest = span.newest + DAY_MS
        const since = Math.max(oldest, query.after === null ? oldest : query.after + 1, 0)
        let below = before(Math.min(newest, query.before ?? newest))
        if (start !== null && isBelow(start, below)) below = start
        const top = below
        const found: Array<{ readonly hit: Hit; readonly position: Position }> = []

        /** Returns up to `most` candidates of all scopes, newest first. */
        const candidates = Effect.fnUntraced(function*(
          how: "some" | "newest",
          texts: ReadonlyArray<string>,
          from: number,
          to: Position,
          most: number
        ): Effect.fn.Return<ReadonlyArray<Position>, Unavailable> {
          const rows: Array<Position> = []
          for (const text of texts) {
            rows.push(...yield* repo.find[how](text, from, to, most))
            yield* turn
            if (how === "some" && rows.length >= most) break
          }
          return rows.toSorted((one, other) => isBelow(one, other) ? 1 : -1).slice(0, most)
        })

        /** Searches a window. Returns true if the search must stop, because the page is full or the time is over. */
        const through = Effect.fnUntraced(function*(window: Window): Effect.fn.Return<boolean, Unavailable> {
          const texts = scopes.flatMap((scope) => queryOf(scope, terms, window.periods) ?? [])
          const from = Math.max(since, window.from)
          if (texts.length === 0) return false
          for (let how: "some" | "newest" = "some";;) {
            if (monotonic() > until) return true
            const most = how === "some" ? MAX_CANDIDATES : MAX_NEWEST_CANDIDATES
            const rows = yield* candidates(
              how,
              texts,
              from,
              isBelow(below, before(window.to)) ? below : before(window.to),
              most
            )
            if (how === "some" && rows.length === most) {
              const parts = split(window)
              if (parts === undefined) {
                how = "newest"
                continue
              }
              for (const part of parts) if (yield* through(part)) return true
              return false
            }
            const seen = rows.filter((row) => !isHidden(row))
            for (let at = 0; at < seen.length; at += MAX_COMPARED) {
              const compared = yield* compare(agentId, terms, seen.slice(at, at + MAX_COMPARED), until)
              found.push(...compared.found)
              below = compared.last
              if (found.length > query.limit || monotonic() > until) return true
            }
            const last = rows.at(-1)
            if (rows.length < most || last === undefined) break
            below = last
          }
          if (isBelow(before(from), below)) below = before(from)
          return false
        })

        // The look-ups of the words are repeated for each month, because a lexeme begins with its month.
        const perPeriod = 2 + Math.min(groupIds.length, MAX_GROUPS) + terms.flatMap(lookupsOf).length
        let isOver = true
        for (const window of below.at < since ? [] : windows(since, below.at, Math.ceil(TOKENS / perPeriod))) {
          if (!(yield* through(window))) continue
          isOver = false
          break
        }
        const page = found.slice(0, query.limit)
        // As long as some messages are not indexed, the next page begins after the last hit, because more messages
        // after this hit may be found by then.
        const next = found.length > query.limit || !complete ? page.at(-1)?.position ?? top : below
        return {
          hits: page.map(({ hit }) => hit),
          nextCursor: isOver && complete ? null : encodeCursor(next),
          complete
        }
      })

      return MessageSearch.of({ search })
    })
  )
}
