import { Agents } from "#domain/agents/Agents"
import { DirectFeed, type FollowingMessage } from "#domain/direct/DirectFeed"
import type { StoredMessage } from "#domain/messages/Message"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { Webhooks } from "#domain/webhooks/Webhooks"
import type { Batch } from "#infrastructure/cluster/Job"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { Database } from "#infrastructure/database/Sql"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { type RateLimited, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Data, Effect, Layer } from "effect"
import { PushConfigsRepo } from "./PushConfigsRepo.ts"
import {
  decideCancel,
  decideDelivered,
  decideMessage,
  markOf,
  type Posted,
  type Task,
  waitsFor,
  withTask
} from "./Task.ts"
import { type Changed, type Head, type TaskFilter, TasksRepo } from "./TasksRepo.ts"

/** The prefix of the client_msg_id of every message that was sent over A2A. */
export const KEY_PREFIX = "a2a:"

/** The caller of a task, the called agent, and their conversation. */
export interface Side {
  readonly callerId: string
  readonly recipientId: string
  readonly conversationId: string
}

/** How many messages are taken into account at once. */
const PAGE_SIZE = 200
/**
 * After how many messages without an effect on tasks the progress is stored, so that these messages are not read again.
 */
const WORTH_A_WRITE = 100
const MAX_TRIES = 20
const BATCH_SIZE = 200
/** An estimate of the memory for one task and the metadata of a page of messages. */
const ONE_TASK: LargeAnswer = { usual: 1, max: 1, bytes: 524_288 }
/** The memory for the tasks that a page of messages may change. A log of 201 changes takes up to 22 kB. */
const ALL_TASKS: LargeAnswer = { usual: PAGE_SIZE, max: PAGE_SIZE, bytes: 22_000 }
const MAX_CACHED = 50_000
/**
 * How long a node remembers that a conversation is followed, in milliseconds. The time is much shorter than IDLE_MS, so
 * that a remembered conversation is still followed.
 */
const FOLLOWED_MS = 600_000
/** How long a conversation without a task is followed, in milliseconds. */
const IDLE_MS = 86_400_000

/** Another writer has changed the conversation or its version first. The caller must read and decide again. */
class Overtaken extends Data.TaggedError("Overtaken")<{}> {}

/**
 * The tasks of A2A callers (wire.md N). A task is derived from the messages of its conversation, in their order.
 * Sending a message writes nothing about tasks. A read of a task takes the newer messages into account and stores the
 * result, which is a cache. If two reads store at once, the version check refuses the second, and the second read
 * starts again. A cancellation is not a message. It is decided while the conversation is locked, between its newest
 * message and the next one, so that every node sees the same outcome. The time at which the caller's newest message of
 * a task was delivered comes from the message's envelope.
 *
 * A read that has to take messages or deliveries into account runs in a slot of its caller (`LargeReads`), so do not
 * call it inside a slot. `renew` needs no slot.
 */
export class Tasks extends Context.Service<Tasks, {
  /**
   * Follows a conversation: from now on, its messages are taken into account. Call it before each message that begins a
   * task.
   */
  readonly begin: (conversationId: string) => Effect.Effect<void, Unavailable>
  /** The current task; undefined if this caller has no such task with this agent. */
  readonly find: (side: Side, id: string) => Effect.Effect<Task | undefined, RateLimited | Unavailable>
  /** Brings a task up to date without a slot, for a job that limits how many tasks it reads at once. */
  readonly renew: (side: Side, id: string) => Effect.Effect<void, Unavailable>
  /**
   * Does what `find` does and also returns the conversation's version. While that version is current, the task has not
   * changed.
   */
  readonly standing: (
    side: Side,
    id: string
  ) => Effect.Effect<{ readonly task: Task; readonly version: number } | undefined, RateLimited | Unavailable>
  /** The current tasks of one caller with one agent, the last updated first, and how many tasks match in all. */
  readonly list: (
    side: Side,
    filter: Pick<TaskFilter, "state" | "since">,
    after: { readonly at: number; readonly id: string } | null,
    limit: number
  ) => Effect.Effect<{ readonly tasks: ReadonlyArray<Task>; readonly total: number }, RateLimited | Unavailable>
  /**
   * Cancels a task. The outcome is `Ended` if the task had ended before. Returns undefined if there is no such task.
   */
  readonly cancel: (
    side: Side,
    id: string
  ) => Effect.Effect<
    { readonly _tag: "Canceled" | "Ended"; readonly task: Task } | undefined,
    RateLimited | Unavailable
  >
  /** The messages of one conversation with these seqs. Leaves out messages that no longer exist. */
  readonly messages: (
    conversationId: string,
    seqs: ReadonlyArray<number>
  ) => Effect.Effect<ReadonlyMap<number, StoredMessage>, Unavailable>
  /** Goes through a slice of the tasks. Removes a task if its first message or one of its agents no longer exists. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
  /**
   * Goes through a slice of the followed conversations. Stops following conversations that have had no task for
   * IDLE_MS, for example because the first send was refused.
   */
  readonly forget: Effect.Effect<Batch, Unavailable>
}>()("parley/a2a/Tasks") {
  static readonly layer = Layer.effect(
    Tasks,
    Effect.gen(function*() {
      const agents = yield* Agents
      const clock = yield* Clock.Clock
      const feed = yield* DirectFeed
      const reads = yield* LargeReads
      const repo = yield* TasksRepo
      const actors = yield* WebhookActors
      const pushConfigs = yield* PushConfigsRepo
      const { transaction } = yield* Database
      const webhooks = yield* Webhooks
      const now = () => clock.currentTimeMillisUnsafe()
      const monotonic = monotonicMillis(clock)
      /** The monotonic time until which each conversation is certainly followed. Until then, `begin` need not write. */
      const begun = new Map<string, number>()
      /**
       * For a conversation and its called agent, how many messages had been delivered to the agent when all its tasks in
       * the conversation were last compared with their deliveries. No task needs a comparison before this number grows.
       */
      const compared = new Map<string, number>()

      /**
       * The messages that have not been taken into account yet. While no task is open, skips to the next message that
       * can begin a task.
       */
      const news = Effect.fnUntraced(
        function*(conversationId: string, { open, through }: Head & { readonly open: boolean }) {
          if (open) return { from: through, ...yield* feed.following(conversationId, through, PAGE_SIZE) }
          const next = yield* feed.nextWithKey(conversationId, through, KEY_PREFIX)
          if (next.seq === null) return { from: Math.max(through, next.lastSeq), messages: [], more: false }
          return { from: next.seq - 1, ...yield* feed.following(conversationId, next.seq - 1, PAGE_SIZE) }
        }
      )

      const posted = (message: FollowingMessage, sides: readonly [string, string]): Posted => ({
        id: message.id,
        seq: message.seq,
        senderId: message.senderId,
        recipientId: message.senderId === sides[0] ? sides[1] : sides[0],
        at: message.createdAt,
        mark: markOf(message.metadata)
      })

      /**
       * The open tasks that these messages may change, oldest first. A message may change the task that it names or
       * replies to. A message that names no task may change the oldest open task that its sender must answer. For the
       * sender of such a message, as many of its oldest open tasks are read as it has sent messages. No other open
       * tasks are read.
       */
      const openFor = Effect.fnUntraced(function*(conversationId: string, messages: ReadonlyArray<Posted>) {
        const marks = messages.map(({ mark }) => mark)
        const replied = [...new Set(marks.flatMap(({ replyTo }) => replyTo ?? []))]
        const ids = [...new Set([...marks.flatMap(({ taskId }) => taskId ?? []), ...replied])]
        const sayNothing = messages.filter(({ mark: { replyTo, taskId } }) =>
          replyTo === undefined && taskId === undefined
        )
        const oldest = [...new Set(sayNothing.map(({ senderId }) => senderId))].map((recipientId) => ({
          recipientId,
          limit: messages.filter(({ senderId }) => senderId === recipientId).length
        }))
        const open = yield* repo.open(conversationId, { ids, oldest })
        const unknown = replied.filter((id) => !open.some((task) => task.id === id))
        if (unknown.length === 0) return open
        const others = (yield* repo.openWith(conversationId, unknown)).filter(({ id }) =>
          !open.some((task) => task.id === id)
        )
        return [...open, ...others].toSorted((one, other) => one.seq - other.seq)
      })

      const store = Effect.fnUntraced(function*(
        conversationId: string,
        { version }: Head,
        through: number,
        changed: ReadonlyArray<Changed>
      ) {
        const hooks = yield* repo.advance(conversationId, version, through, changed)
        hooks?.forEach(actors.wake)
        return hooks === undefined ? undefined : { through, version: version + 1 }
      })

      /** Takes all committed messages into account. Returns undefined if the conversation is not followed. */
      const advance = Effect.fnUntraced(function*({ callerId, conversationId, recipientId }: Side) {
        for (let tries = 0; tries < MAX_TRIES;) {
          const head = yield* repo.head(conversationId)
          if (head === undefined) return undefined
          const { from, messages: rows, more } = yield* news(conversationId, head)
          const messages = rows.map((row) => posted(row, [callerId, recipientId]))
          let open = messages.length === 0 ? [] : yield* openFor(conversationId, messages)
          const before = new Map(open.map(({ changes, id }) => [id, changes]))
          const changed = new Map<string, Changed>()
          for (const message of messages) {
            const task = decideMessage(conversationId, open, message)
            if (task === undefined) continue
            open = withTask(open, task)
            changed.set(task.id, { task, before: before.get(task.id) ?? 0 })
          }
          const through = rows.at(-1)?.seq ?? from
          if (!more && changed.size === 0 && through - head.through < WORTH_A_WRITE) return { ...head, through }
          const stored = yield* store(conversationId, head, through, [...changed.values()])
          if (stored !== undefined && !more) return stored
          if (stored === undefined) tries++
        }
        return yield* new Unavailable()
      })

      /**
       * The stored task if it is up to date; undefined if a later message or delivery has to be taken into account
       * first.
       */
      const unchanged = Effect.fnUntraced(function*({ callerId, conversationId }: Side, id: string) {
        const head = yield* repo.head(conversationId)
        const task = head === undefined ? undefined : yield* repo.find(id, conversationId, callerId)
        if (head === undefined || task === undefined) return undefined
        const [place] = yield* feed.progress([{
          conversationId,
          recipientId: task.recipientId,
          seq: waitsFor(task) ?? null
        }])
        return place === undefined || place.lastSeq > head.through || place.deliveredAt !== null
          ? undefined
          : { head, task }
      })

      const derive = Effect.fnUntraced(function*(side: Side, id: string) {
        const { callerId, conversationId } = side
        for (let tries = 0; tries < MAX_TRIES; tries++) {
          const head = yield* advance(side)
          const task = head === undefined ? undefined : yield* repo.find(id, conversationId, callerId)
          if (head === undefined || task === undefined) return undefined
          const seq = waitsFor(task)
          if (seq === undefined) return { head, task }
          const [place] = yield* feed.progress([{ conversationId, recipientId: task.recipientId, seq }])
          const at = place?.deliveredAt ?? null
          const delivered = at === null ? undefined : decideDelivered(task, at)
          if (delivered === undefined) return { head, task }
          const stored = yield* store(conversationId, head, head.through, [{ task: delivered, before: task.changes }])
          if (stored !== undefined) return { head: stored, task: delivered }
        }
        return yield* new Unavailable()
      })

      const find = Effect.fnUntraced(function*(side: Side, id: string) {
        return (yield* unchanged(side, id)) ?? (yield* reads.during(side.callerId, ONE_TASK, derive(side, id)))
      })

      /** Brings all tasks of one caller with one agent up to date with their messages and deliveries. */
      const refresh = Effect.fnUntraced(function*(side: Side) {
        const { conversationId, recipientId } = side
        const key = `${conversationId} ${recipientId}`
        // Read this number first, so that the comparison includes all deliveries that it counts.
        const delivered = yield* repo.delivered(recipientId)
        let head = yield* advance(side)
        if (compared.get(key) === delivered) return
        let above = 0
        for (let tries = 0; tries < MAX_TRIES;) {
          if (head === undefined) return
          const slice = yield* repo.undelivered(conversationId, recipientId, above, PAGE_SIZE)
          const progress = yield* feed.progress(slice.map(({ newest: seq }) => ({ conversationId, recipientId, seq })))
          const deliveredAt = new Map(slice.flatMap(({ id }, i) => {
            const at = progress[i]?.deliveredAt ?? null
            return at === null ? [] : [[id, at] as const]
          }))
          const tasks = deliveredAt.size === 0 ? [] : yield* repo.findAll([...deliveredAt.keys()])
          const changed = tasks.flatMap((task): ReadonlyArray<Changed> => {
            const delivered = decideDelivered(task, deliveredAt.get(task.id) ?? 0)
            return delivered === undefined ? [] : [{ task: delivered, before: task.changes }]
          })
          if (changed.length > 0) {
            const stored: Head | undefined = yield* store(conversationId, head, head.through, changed)
            head = stored ?? (yield* advance(side))
            if (stored === undefined) {
              tries++
              continue
            }
          }
          if (slice.length < PAGE_SIZE) {
            if (compared.size >= MAX_CACHED) compared.clear()
            compared.set(key, delivered)
            return
          }
          above = slice.at(-1)!.seq
        }
        return yield* new Unavailable()
      })

      const list = Effect.fnUntraced(
        function*(side: Side, filter: TaskFilter, after: Parameters<typeof repo.list>[1], limit: number) {
          yield* refresh(side)
          const tasks = yield* repo.list(filter, after, limit)
          return { tasks, total: yield* repo.count(filter) }
        }
      )

      const cancelOnce = Effect.fnUntraced(function*(side: Side, id: string) {
        const found = yield* find(side, id)
        if (found === undefined) return undefined
        const { head: { through, version }, task } = found
        const canceled = decideCancel(task, now())
        if (canceled === undefined) return { _tag: "Ended" as const, task }
        const [first] = yield* feed.at(side.conversationId, [task.seq])
        if (first === undefined) return undefined
        const metadata = JSON.parse(first.metadata) as { readonly a2a?: object }
        const amended = JSON.stringify({ ...metadata, a2a: { ...metadata.a2a, state: "CANCELED" } })
        const both = Effect.gen(function*() {
          if (!(yield* feed.amend(side.conversationId, through, task.seq, amended))) return yield* new Overtaken()
          const hooks = yield* repo.advance(side.conversationId, version, through, [{
            task: canceled,
            before: task.changes
          }])
          return hooks ?? (yield* new Overtaken())
        })
        const hooks = yield* transaction(both)
        hooks.forEach(actors.wake)
        return { _tag: "Canceled" as const, task: canceled }
      })

      // The positions are kept in memory. If the job moves to another node, it starts over.
      let above = ""
      let aboveFollowed = ""

      return Tasks.of({
        begin: (conversationId) => {
          if ((begun.get(conversationId) ?? 0) > monotonic()) return Effect.void
          return Effect.gen(function*() {
            const [place] = yield* feed.progress([{ conversationId, recipientId: "", seq: null }])
            const at = now()
            yield* repo.begin(conversationId, place?.lastSeq ?? 0, at)
            if (begun.size >= MAX_CACHED) begun.clear()
            begun.set(conversationId, monotonic() + FOLLOWED_MS)
          })
        },
        find: Effect.fn("Tasks.find")((side, id) => Effect.map(find(side, id), (found) => found?.task)),
        standing: Effect.fn("Tasks.standing")((side, id) =>
          Effect.map(find(side, id), (found) => found && { task: found.task, version: found.head.version })
        ),
        renew: Effect.fn("Tasks.renew")((side, id) => Effect.asVoid(derive(side, id))),
        list: Effect.fn("Tasks.list")((side, { since, state }, after, limit) => {
          const { callerId, conversationId } = side
          const read = list(side, { conversationId, callerId, state, since }, after, limit)
          return reads.during(callerId, ALL_TASKS, read)
        }),
        cancel: Effect.fn("Tasks.cancel")((side, id) =>
          cancelOnce(side, id).pipe(
            Effect.retry({ times: MAX_TRIES, while: (error) => error instanceof Overtaken }),
            Effect.catchTag("Overtaken", () => Effect.fail(new Unavailable()))
          )
        ),
        messages: Effect.fn("Tasks.messages")(function*(conversationId, seqs) {
          const rows = seqs.length === 0 ? [] : yield* feed.at(conversationId, seqs)
          return new Map(rows.map((row) => [row.seq, row]))
        }),
        sweep: Effect.gen(function*() {
          const rows = yield* repo.slice(above, BATCH_SIZE)
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
              yield* webhooks.removeUnlisted(hooks)
              yield* pushConfigs.remove(hooks)
            }
            yield* repo.remove(gone)
          }
          above = rows.length < BATCH_SIZE ? "" : rows.at(-1)!.id
          return { rows: gone.length, more: above !== "" }
        }),
        forget: Effect.gen(function*() {
          const since = now() - IDLE_MS
          const rows = yield* repo.followed(aboveFollowed, since, BATCH_SIZE)
          const gone: Array<string> = []
          for (const { conversation_id, idle, through_seq } of rows) {
            // A task that has not been read yet has no row in `a2a_tasks`. Its first message shows that it exists.
            if (idle && (yield* feed.nextWithKey(conversation_id, through_seq, KEY_PREFIX)).seq === null)
              gone.push(conversation_id)
          }
          if (gone.length > 0) yield* repo.forget(gone, since)
          aboveFollowed = rows.length < BATCH_SIZE ? "" : rows.at(-1)!.conversation_id
          return { rows: gone.length, more: aboveFollowed !== "" }
        })
      })
    })
  )
}
