import { isGroupId } from "#domain/memberships/GroupReads"
import { turn } from "#domain/messages/MessagePage"
import type { Batch } from "#infrastructure/cluster/Job"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { lexemesOf, vectorOf } from "./Lexemes.ts"
import {
  type Move,
  type Piece,
  type Range,
  type Searched,
  SearchRepo,
  type Unindexed,
  type WordsRow
} from "./SearchRepo.ts"
import { wordsIn } from "./Words.ts"

/** A search indexes up to this many messages. The job indexes the rest. */
export const MOST_FIRST = 2_000
/** Messages that are read at once. */
const BATCH_SIZE = 50
/** One statement adds about this many lexemes, because a statement blocks the event loop on PGlite. */
const MAX_LEXEMES = 400
/** How long words of messages are computed, or compared, before other work gets a turn. */
export const TURN_MS = 5
/** The job reads this many conversations at once, `BATCH_SIZE` messages together. */
const MAX_CONVERSATIONS = 5
/** The number of conversations that one statement adds to those of the job. */
const LEFT = 200
const SWEPT = { conversations: 50, messages: 20 }

/** A piece to index, the range of its conversation now, and the range when the piece is indexed. */
interface Work {
  readonly piece: Piece
  readonly was: Range | null
  readonly range: Range
  /**
   * Whether the messages come after those that are indexed. Then the oldest of them is indexed first, and otherwise the
   * newest.
   */
  readonly isNewer: boolean
}

/** Whether history may show the agent messages whose words are not in the index. */
export const isBehind = ({ hiddenThrough, lastSeq, range }: Searched): boolean =>
  lastSeq > hiddenThrough && (range === null || range.through < lastSeq || range.from > Math.max(hiddenThrough, 0))

/**
 * The next messages of a conversation to index, up to `most`, and what the range will be. Newer messages come first.
 */
export const nextWork = (
  conversationId: string,
  lastSeq: number,
  range: Range | null,
  most: number,
  budget: number
): Work => {
  // If too many messages have come, the range begins again with the newest. Messages that are indexed already cost
  // little the second time.
  const known = range !== null && lastSeq - range.through <= budget ? range : null
  if (known !== null && known.through < lastSeq) {
    const through = Math.min(lastSeq, known.through + most)
    return {
      piece: { conversationId, after: known.through, through },
      was: range,
      range: { from: known.from, through },
      isNewer: true
    }
  }
  const { from, through } = known ?? { from: lastSeq, through: lastSeq }
  const after = Math.max(0, from - most)
  return {
    piece: { conversationId, after, through: from },
    was: range,
    range: { from: after, through },
    isNewer: false
  }
}

const textOf = (content: string): string | undefined => (JSON.parse(content) as { readonly text?: string }).text

/**
 * The words of messages in `message_words`, a cache that searches fill. A send does not write to it. Of each
 * conversation, one range of messages is indexed. The end of the range follows the newest message, and its beginning
 * moves towards the first message. Several processes may index the same messages: words are added once, and a range
 * moves only if it has not changed since it was read.
 */
export class WordIndex extends Context.Service<WordIndex, {
  /**
   * Indexes the newest messages of these conversations, up to `MOST_FIRST`, until `ms` are over, but one message at
   * least. Returns the conversations with their new ranges.
   */
  readonly follow: (
    conversations: ReadonlyArray<Searched>,
    ms: number
  ) => Effect.Effect<ReadonlyArray<Searched>, Unavailable>
  /** Indexes some messages of conversations in which somebody has searched. */
  readonly step: Effect.Effect<Batch, Unavailable>
  /** Goes through a slice of the conversations and removes the words of messages that no longer exist. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/search/WordIndex") {
  static readonly layer = Layer.effect(
    WordIndex,
    Effect.gen(function*() {
      const repo = yield* SearchRepo
      const monotonic = monotonicMillis(yield* Clock.Clock)

      /**
       * Indexes pieces of conversations, in this order, and moves the ranges. Words are added in statements of a
       * bounded size, with a turn for other work after each of them. Stops after the first message that ends at or
       * after `until`. A range then moves as far as its messages are indexed, so that each call makes progress. Returns
       * the new ranges by conversation.
       */
      const index = Effect.fnUntraced(function*(work: ReadonlyArray<Work>, until = Number.POSITIVE_INFINITY) {
        const ordered = work.toSorted((one, other) => one.piece.conversationId < other.piece.conversationId ? -1 : 1)
        const read = yield* repo.read(
          ordered.map(({ piece }) => ({ ...piece, direct: !isGroupId(piece.conversationId) }))
        )
        const messages = new Map<string, Array<Unindexed>>()
        for (const message of read) {
          const known = messages.get(message.conversationId)
          if (known === undefined) messages.set(message.conversationId, [message])
          else known.push(message)
        }
        const ranges = new Map<string, Range>()
        let rows: Array<WordsRow> = []
        let size = 0
        let began = performance.now()
        let isLate = false
        for (const { isNewer, piece, range } of work) {
          if (isLate) break
          const { conversationId } = piece
          const own = (messages.get(conversationId) ?? []).toSorted((one, other) =>
            isNewer ? one.seq - other.seq : other.seq - one.seq
          )
          for (const [i, message] of own.entries()) {
            const text = textOf(message.content)
            const words = text === undefined ? undefined : wordsIn(text)
            if (words !== undefined && words.size > 0) {
              const lexemes = lexemesOf({ ...message, words })
              if (size > 0 && size + lexemes.length > MAX_LEXEMES) {
                yield* repo.add(rows)
                yield* turn
                rows = []
                size = 0
                began = performance.now()
              }
              rows.push({ ...message, words: vectorOf(lexemes) })
              size += lexemes.length
            }
            if (performance.now() - began >= TURN_MS) {
              yield* turn
              began = performance.now()
            }
            isLate = monotonic() >= until
            if (!isLate || i === own.length - 1) continue
            ranges.set(
              conversationId,
              isNewer ? { ...range, through: message.seq } : { ...range, from: message.seq - 1 }
            )
            break
          }
          // Messages are removed only at the beginning of a conversation, so a gap means that the rest is gone.
          const isFirst = piece.after === range.from && own.length < piece.through - piece.after
          if (!ranges.has(conversationId)) ranges.set(conversationId, isFirst ? { ...range, from: 0 } : range)
        }
        if (rows.length > 0) yield* repo.add(rows)
        yield* repo.move(ordered.flatMap(({ piece: { conversationId }, was }): ReadonlyArray<Move> => {
          const range = ranges.get(conversationId)
          return range === undefined ? [] : [{ conversationId, was, range }]
        }))
        yield* turn
        return ranges
      })

      /**
       * Adds empty ranges for conversations of which nothing is indexed yet, so that the job indexes them: some at
       * least, and others until `until`.
       */
      const leave = Effect.fnUntraced(function*(conversations: ReadonlyArray<Searched>, until: number) {
        for (let at = 0; at < conversations.length; at += LEFT) {
          yield* repo.move(
            conversations.slice(at, at + LEFT).map(({ conversationId, lastSeq }) => ({
              conversationId,
              was: null,
              range: { from: lastSeq, through: lastSeq }
            }))
          )
          yield* turn
          if (monotonic() >= until) return
        }
      })

      /** Kept in memory. A job that moves to another node starts over. */
      let aboveStep = ""
      let aboveSweep = ""

      return WordIndex.of({
        follow: Effect.fn("WordIndex.follow")(function*(conversations, ms) {
          const until = monotonic() + ms
          const current = new Map(conversations.map((one) => [one.conversationId, one]))
          let waiting = conversations.filter(isBehind).toSorted((one, other) => other.lastMessageAt - one.lastMessageAt)
          let budget = MOST_FIRST
          while (waiting.length > 0 && budget > 0 && monotonic() < until) {
            const work: Array<Work> = []
            let room = Math.min(BATCH_SIZE, budget)
            for (const { conversationId, lastSeq } of waiting) {
              if (room === 0) break
              const { range } = current.get(conversationId)!
              const next = nextWork(conversationId, lastSeq, range, room, budget)
              work.push(next)
              room -= next.piece.through - next.piece.after
            }
            budget -= Math.min(BATCH_SIZE, budget) - room
            const ranges = yield* index(work, until)
            for (const [conversationId, range] of ranges)
              current.set(conversationId, { ...current.get(conversationId)!, range })
            waiting = waiting.filter(({ conversationId }) => isBehind(current.get(conversationId)!))
          }
          yield* leave(waiting.filter(({ conversationId }) => current.get(conversationId)!.range === null), until)
          return [...current.values()]
        }),
        step: Effect.gen(function*() {
          const rows = yield* repo.pending(aboveStep, MAX_CONVERSATIONS)
          const isFirst = aboveStep === ""
          aboveStep = rows.length < MAX_CONVERSATIONS ? "" : rows.at(-1)!.conversationId
          if (rows.length === 0) return { rows: 0, more: !isFirst }
          const work = rows.map(({ conversationId, range }) =>
            nextWork(conversationId, range.through, range, Math.floor(BATCH_SIZE / rows.length), MOST_FIRST)
          )
          yield* index(work)
          return { rows: work.reduce((sum, { piece }) => sum + piece.through - piece.after, 0), more: true }
        }),
        sweep: Effect.gen(function*() {
          const { last, removed, slice } = yield* repo.sweep(aboveSweep, SWEPT.conversations, SWEPT.messages)
          // A slice with something to remove is read again, because one statement removes only a part of it.
          if (removed === 0) aboveSweep = slice < SWEPT.conversations || last === null ? "" : last
          return { rows: removed, more: removed > 0 || aboveSweep !== "" }
        })
      })
    })
  )
}
