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

/** How many messages one search indexes at most. The job indexes the rest. */
export const MAX_FIRST_BATCH = 2_000
/** How many messages are read together. */
const BATCH_SIZE = 50
/** About how many lexemes one statement adds. They are limited because a statement on PGlite blocks the event loop. */
const MAX_LEXEMES = 400
/** How long words of messages are computed or compared before the event loop runs other work, in milliseconds. */
export const TURN_MS = 5
/** How many conversations one step of the job reads, with `BATCH_SIZE` messages in total. */
const MAX_CONVERSATIONS = 5
/** How many conversations one statement adds to the work of the job. */
const CONVERSATIONS_PER_STATEMENT = 200
const SWEPT = { conversations: 50, messages: 20 }

/** A piece to index, the current range of its conversation, and the range after the piece is indexed. */
interface Work {
  readonly piece: Piece
  readonly was: Range | null
  readonly range: Range
  /**
   * Whether the messages are newer than the indexed ones. Newer messages are indexed from the oldest to the newest, and
   * older messages from the newest to the oldest.
   */
  readonly isNewer: boolean
}

/** Whether the agent may see messages of the conversation that are not indexed. */
export const isBehind = ({ hiddenThrough, lastSeq, range }: Searched): boolean =>
  lastSeq > hiddenThrough && (range === null || range.through < lastSeq || range.from > Math.max(hiddenThrough, 0))

/**
 * Returns the next messages of a conversation to index, up to `most`, and the range after that. Messages newer than the
 * range come first.
 */
export const nextWork = (
  conversationId: string,
  lastSeq: number,
  range: Range | null,
  most: number,
  budget: number
): Work => {
  // If there are too many new messages, the range starts again at the newest message. Indexing a message a second time
  // costs little.
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
 * The words of messages in `message_words`, a cache that searches fill. A send does not write to it. In each
 * conversation, one range of messages is indexed. The end of the range follows the newest message, and its beginning
 * moves towards the first message. Several processes may index the same messages: words are added only once, and a
 * range changes only if it is still the one that was read.
 */
export class WordIndex extends Context.Service<WordIndex, {
  /**
   * Indexes the newest messages of these conversations, up to `MAX_FIRST_BATCH`, for at most `ms` milliseconds, but at
   * least one message. Returns the conversations with their new ranges.
   */
  readonly follow: (
    conversations: ReadonlyArray<Searched>,
    ms: number
  ) => Effect.Effect<ReadonlyArray<Searched>, Unavailable>
  /** Indexes a batch of messages of conversations in which somebody has searched. */
  readonly step: Effect.Effect<Batch, Unavailable>
  /** Removes the words of messages that no longer exist, in a slice of the conversations. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/search/WordIndex") {
  static readonly layer = Layer.effect(
    WordIndex,
    Effect.gen(function*() {
      const repo = yield* SearchRepo
      const monotonic = monotonicMillis(yield* Clock.Clock)

      /**
       * Indexes pieces of conversations, in this order, and moves the ranges. Words are added in statements of a
       * bounded size. After each statement, the event loop can run other work. Stops after the first message that is
       * finished at or after `until`. A range then grows by the messages that are indexed, so each call makes progress.
       * Returns the new ranges by conversation.
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
          // Messages are removed only at the beginning of a conversation. So if messages of the piece are missing, all
          // earlier messages are gone.
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
       * Adds empty ranges for conversations without indexed messages, so that the job indexes them. Adds ranges for one
       * batch at least, and for further batches until `until`.
       */
      const leave = Effect.fnUntraced(function*(conversations: ReadonlyArray<Searched>, until: number) {
        for (let at = 0; at < conversations.length; at += CONVERSATIONS_PER_STATEMENT) {
          yield* repo.move(
            conversations.slice(at, at + CONVERSATIONS_PER_STATEMENT).map(({ conversationId, lastSeq }) => ({
              conversationId,
              was: null,
              range: { from: lastSeq, through: lastSeq }
            }))
          )
          yield* turn
          if (monotonic() >= until) return
        }
      })

      /**
       * The conversation ids after which the next slices begin. They are only in memory, so a job that moves to another
       * node starts over.
       */
      let aboveStep = ""
      let aboveSweep = ""

      return WordIndex.of({
        follow: Effect.fn("WordIndex.follow")(function*(conversations, ms) {
          const until = monotonic() + ms
          const current = new Map(conversations.map((one) => [one.conversationId, one]))
          let waiting = conversations.filter(isBehind).toSorted((one, other) => other.lastMessageAt - one.lastMessageAt)
          let budget = MAX_FIRST_BATCH
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
            nextWork(conversationId, range.through, range, Math.floor(BATCH_SIZE / rows.length), MAX_FIRST_BATCH)
          )
          yield* index(work)
          return { rows: work.reduce((sum, { piece }) => sum + piece.through - piece.after, 0), more: true }
        }),
        sweep: Effect.gen(function*() {
          const { last, removed, slice } = yield* repo.sweep(aboveSweep, SWEPT.conversations, SWEPT.messages)
          // A slice from which rows were removed is read again, because one statement removes only a part of them.
          if (removed === 0) aboveSweep = slice < SWEPT.conversations || last === null ? "" : last
          return { rows: removed, more: removed > 0 || aboveSweep !== "" }
        })
      })
    })
  )
}
