import { Clock, Context, Data, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { Agents } from "../agents/Agents.ts"
import type { Batch } from "../cluster/Job.ts"
import { ConversationFeed } from "../conversations/ConversationFeed.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import type { StoredMessage } from "../messages/Message.ts"
import { WebhookActors } from "../webhooks/WebhookActors.ts"
import { Webhooks } from "../webhooks/Webhooks.ts"
import { Unavailable } from "../wire/WireError.ts"
import { PushConfigsRepo } from "./PushConfigsRepo.ts"
import { decideCancel, decideDelivered, decideMessage, markOf, type Posted, type Task, waitsFor, withTask } from "./Task.ts"
import { type Changed, type Progress, type TaskFilter, TasksRepo } from "./TasksRepo.ts"

/** What the client_msg_id of every message begins with that came in by A2A. */
export const KEY_PREFIX = "a2a:"

/** Whose task it is: the caller, the called agent, and their conversation. */
export interface Side {
  readonly callerId: string
  readonly recipientId: string
  readonly conversationId: string
}

/** Messages that are taken into account at once. */
const PAGE = 500
/** So many messages without any effect on tasks are not read twice. */
const WORTH_A_WRITE = 100
const TRIES = 20
const SLICE = 200
const REMEMBERED = 50_000

/** Somebody else has written first: read and decide again. */
class Overtaken extends Data.TaggedError("Overtaken")<{}> {}

/**
 * The tasks of A2A callers (wire.md N). A task is what its conversation's messages say, in their order: nothing is written
 * when a message is sent. Whoever asks takes the messages into account that came since, and stores the result, which is a
 * cache of them; of two who do so at once one is refused by the version, and reads again. A cancellation is no message: it
 * is decided on the locked conversation, after its newest message and before the next one, so that every node sees the same
 * outcome. When the caller's newest message of a task was delivered is taken from its envelope.
 */
export class Tasks extends Context.Service<Tasks, {
  /** To be called before the first task of a conversation is sent: messages from now on are taken into account. */
  readonly begin: (conversationId: string) => Effect.Effect<void, Unavailable>
  /** Undefined: there is no such task of this caller with this agent. */
  readonly find: (side: Side, id: string) => Effect.Effect<Task | undefined, Unavailable>
  /** The same, and the version that must be held for nothing to have changed since. */
  readonly standing: (
    side: Side,
    id: string
  ) => Effect.Effect<{ readonly task: Task; readonly version: number } | undefined, Unavailable>
  /** The tasks of one caller with one agent, the one updated last first, and how many match in all. */
  readonly list: (
    filter: TaskFilter,
    after: { readonly at: number; readonly id: string } | null,
    limit: number
  ) => Effect.Effect<{ readonly tasks: ReadonlyArray<Task>; readonly total: number }, Unavailable>
  /** `Ended`: it had ended before, and stays as it is. */
  readonly cancel: (
    side: Side,
    id: string
  ) => Effect.Effect<{ readonly _tag: "Canceled" | "Ended"; readonly task: Task } | undefined, Unavailable>
  /** The messages of tasks of one conversation that still exist, by seq. */
  readonly messages: (
    conversationId: string,
    seqs: ReadonlyArray<number>
  ) => Effect.Effect<ReadonlyMap<number, StoredMessage>, Unavailable>
  /** Removes some of the tasks whose first message or one of whose agents is gone. */
  readonly sweep: Effect.Effect<Batch, SqlError.SqlError | Unavailable>
}>()("parley/a2a/Tasks") {
  static readonly layer = Layer.effect(
    Tasks,
    Effect.gen(function*() {
      const agents = yield* Agents
      const clock = yield* Clock.Clock
      const feed = yield* ConversationFeed
      const repo = yield* TasksRepo
      const actors = yield* WebhookActors
      const pushConfigs = yield* PushConfigsRepo
      const sql = yield* SqlClient.SqlClient
      const webhooks = yield* Webhooks
      const now = () => clock.currentTimeMillisUnsafe()
      /** Conversations that are followed already. */
      const begun = new Set<string>()

      /** The messages after those taken into account; those that cannot have an effect are passed over. */
      const news = Effect.fnUntraced(function*(conversationId: string, { open, through }: Progress) {
        if (open.length > 0) return { from: through, rows: yield* feed.following(conversationId, through, PAGE) }
        const next = yield* feed.nextWithKey(conversationId, through, KEY_PREFIX)
        if (next.seq === null) return { from: Math.max(through, next.lastSeq), rows: [] }
        return { from: next.seq - 1, rows: yield* feed.following(conversationId, next.seq - 1, PAGE) }
      })

      const posted = (message: StoredMessage, sides: readonly [string, string]): Posted => ({
        id: message.id,
        seq: message.seq,
        senderId: message.senderId,
        recipientId: message.senderId === sides[0] ? sides[1] : sides[0],
        at: message.createdAt,
        mark: markOf(message.metadata)
      })

      /** Takes all committed messages and deliveries into account. Undefined: no task was ever made in the conversation. */
      const advance = Effect.fnUntraced(function*(side: Side) {
        const { conversationId } = side
        const sides = [side.callerId, side.recipientId] as const
        let read: Progress | undefined
        for (let tries = 0; tries < TRIES;) {
          const known: Progress | undefined = read ?? (yield* repo.load(conversationId))
          if (known === undefined) return undefined
          let { open } = known
          const changed = new Map<string, Changed>()
          const apply = (task: Task | undefined): void => {
            if (task === undefined) return
            const before = changed.get(task.id)?.before ?? known.open.find(({ id }) => id === task.id)?.changes ?? 0
            open = withTask(open, task)
            changed.set(task.id, { task, before })
          }
          const { from, rows } = yield* news(conversationId, known)
          for (const row of rows) apply(decideMessage(conversationId, open, posted(row, sides)))
          const through = rows.at(-1)?.seq ?? from
          const more = rows.length === PAGE
          const waiting = more ? [] : open.filter((task) => waitsFor(task) !== undefined)
          const places = waiting.map((task) => ({ conversationId, recipientId: task.recipientId, seq: waitsFor(task) ?? null }))
          const progress = yield* feed.progress(places)
          for (const [i, task] of waiting.entries()) {
            const at = progress[i]?.deliveredAt ?? null
            if (at !== null) apply(decideDelivered(task, at))
          }
          const worth = open.length > WORTH_A_WRITE ? 1 : WORTH_A_WRITE
          if (!more && changed.size === 0 && through - known.through < worth) return { ...known, through }
          const hooks = yield* repo.advance(conversationId, known.version, through, [...changed.values()])
          if (hooks !== undefined) {
            hooks.forEach(actors.wake)
            read = { through, version: known.version + 1, open }
            if (!more) return read
          } else {
            read = undefined
            tries++
          }
        }
        return yield* new Unavailable()
      })

      /** A task that nothing has happened to since it was stored, without a look at the other open ones. */
      const unchanged = Effect.fnUntraced(function*(side: Side, id: string) {
        const { callerId, conversationId } = side
        const head = yield* repo.head(conversationId)
        const task = head === undefined ? undefined : yield* repo.find(id, conversationId, callerId)
        if (head === undefined || task === undefined) return undefined
        const [place] = yield* feed.progress([{ conversationId, recipientId: task.recipientId, seq: waitsFor(task) ?? null }])
        return place === undefined || place.lastSeq > head.through || place.deliveredAt !== null ? undefined : { progress: head, task }
      })

      const find = Effect.fnUntraced(function*(side: Side, id: string) {
        const same = yield* unchanged(side, id)
        if (same !== undefined) return same
        const progress = yield* advance(side)
        if (progress === undefined) return undefined
        const open = progress.open.find((task) => task.id === id)
        const task = open ?? (yield* repo.find(id, side.conversationId, side.callerId))
        return task?.callerId === side.callerId ? { progress, task } : undefined
      })

      const cancelOnce = Effect.fnUntraced(function*(side: Side, id: string) {
        const found = yield* find(side, id)
        if (found === undefined) return undefined
        const { progress: { through, version }, task } = found
        const canceled = decideCancel(task, now())
        if (canceled === undefined) return { _tag: "Ended" as const, task }
        const [first] = yield* feed.at(side.conversationId, [task.seq])
        if (first === undefined) return undefined
        const metadata = JSON.parse(first.metadata) as { readonly a2a?: object }
        const amended = JSON.stringify({ ...metadata, a2a: { ...metadata.a2a, state: "CANCELED" } })
        const both = Effect.gen(function*() {
          if (!(yield* feed.amend(side.conversationId, through, task.seq, amended))) return yield* new Overtaken()
          const hooks = yield* repo.advance(side.conversationId, version, through, [{ task: canceled, before: task.changes }])
          return hooks ?? (yield* new Overtaken())
        })
        const hooks = yield* sql.withTransaction(both)
        hooks.forEach(actors.wake)
        return { _tag: "Canceled" as const, task: canceled }
      })

      // In memory: a job that moves to another process starts over.
      let above = ""

      return Tasks.of({
        begin: (conversationId) => {
          if (begun.has(conversationId)) return Effect.void
          return unavailableOnSqlError(Effect.gen(function*() {
            const [place] = yield* feed.progress([{ conversationId, recipientId: "", seq: null }])
            yield* repo.begin(conversationId, place?.lastSeq ?? 0)
            if (begun.size >= REMEMBERED) begun.clear()
            begun.add(conversationId)
          }))
        },
        find: Effect.fn("Tasks.find")((side, id) => Effect.map(unavailableOnSqlError(find(side, id)), (found) => found?.task)),
        standing: Effect.fn("Tasks.standing")((side, id) =>
          Effect.map(unavailableOnSqlError(find(side, id)), (found) =>
            found && { task: found.task, version: found.progress.version })),
        list: Effect.fn("Tasks.list")(function*(filter, after, limit) {
          const tasks = yield* unavailableOnSqlError(repo.list(filter, after, limit))
          return { tasks, total: yield* unavailableOnSqlError(repo.count(filter)) }
        }),
        cancel: Effect.fn("Tasks.cancel")((side, id) =>
          cancelOnce(side, id).pipe(
            Effect.retry({ times: TRIES, while: (error) => error instanceof Overtaken }),
            Effect.catchTag("Overtaken", () => Effect.fail(new Unavailable())),
            unavailableOnSqlError
          )
        ),
        messages: Effect.fn("Tasks.messages")(function*(conversationId, seqs) {
          const rows = seqs.length === 0 ? [] : yield* unavailableOnSqlError(feed.at(conversationId, seqs))
          return new Map(rows.map((row) => [row.seq, row]))
        }),
        sweep: Effect.gen(function*() {
          const rows = yield* repo.slice(above, SLICE)
          const known = yield* agents.byIds([...new Set(rows.flatMap((row) => [row.caller_id, row.recipient_id]))])
          const isGone = (id: string) => (known.get(id)?.deletedAt ?? null) !== null
          const gone: Array<string> = []
          for (const row of rows) {
            if (isGone(row.caller_id) || isGone(row.recipient_id)) gone.push(row.id)
            else if ((yield* feed.at(row.conversation_id, [row.seq])).length === 0) gone.push(row.id)
          }
          if (gone.length > 0) {
            const hooks = (yield* pushConfigs.of(gone)).map(({ webhookId }) => webhookId)
            if (hooks.length > 0) {
              yield* webhooks.removeForTasks(hooks)
              yield* pushConfigs.remove(hooks)
            }
            yield* repo.remove(gone)
          }
          above = rows.length < SLICE ? "" : rows.at(-1)!.id
          return { rows: gone.length, more: above !== "" }
        })
      })
    })
  )
}
