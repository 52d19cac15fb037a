import { Agents } from "#domain/agents/Agents"
import { Attachments } from "#domain/attachments/Attachments"
import { DirectFeed } from "#domain/direct/DirectFeed"
import { TASK_EVENT } from "#domain/messages/Outbox"
import { PostSources } from "#domain/webhooks/PostSources"
import { signedHeaders } from "#domain/webhooks/Signature"
import { decodeCredentials, headersOf } from "#domain/webhooks/TaskTarget"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { type Batch, job } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Limits } from "#infrastructure/rates/Limits"
import { type RateLimited, type Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Data, Effect, Layer } from "effect"
import { type PushConfig, TooManyPushConfigs, TooManyPushConfigsOfAgent } from "./PushConfig.ts"
import { PushConfigsRepo } from "./PushConfigsRepo.ts"
import { asOf, isFinal, type Task, waitsFor } from "./Task.ts"
import { type Side, Tasks } from "./Tasks.ts"
import { TasksRepo } from "./TasksRepo.ts"
import { makeTaskView } from "./TaskView.ts"

/** How often tasks with configurations are compared with their conversations. */
const REFRESH_EVERY = "1 second"
const BATCH_SIZE = 500
const RETIRED = 200
const MAX_TRIES = 20
const MAX_CACHED = 50_000
const MAX_CONCURRENT_READS = 4

/** Another writer has changed the conversation's version first. The caller must read and decide again. */
class Overtaken extends Data.TaggedError("Overtaken")<{}> {}

/** The subject of an outbox row for a change of a task (TasksRepo.ts). */
interface Subject {
  readonly task: string
  readonly change: number
}

/**
 * Stores push notification configurations of tasks, and posts the changes of these tasks (wire.md N, Push). Sending a
 * message does no work for configurations. A job compares the tasks that have configurations with their conversations,
 * many tasks in one query, and updates the tasks as a call of GetTask would. The statement that stores a task's change
 * also writes the change to the webhooks' outbox. From there it is posted like any other event.
 */
export class TaskPushes extends Context.Service<TaskPushes, {
  /**
   * Creates a configuration, or changes the configuration of this name. Returns the task as it was at that moment;
   * undefined if there is no such task. Stores nothing if the task has ended.
   */
  readonly put: (
    side: Side,
    taskId: string,
    config: PushConfig
  ) => Effect.Effect<
    Task | undefined,
    TooManyPushConfigs | TooManyPushConfigsOfAgent | RateLimited | Unauthorized | Unavailable
  >
  /** Refuses a configuration beyond the limit of the caller or of this task. `taskId` is undefined for a new task. */
  readonly checkRoom: (
    callerId: string,
    taskId: string | undefined,
    name: string
  ) => Effect.Effect<void, TooManyPushConfigs | TooManyPushConfigsOfAgent | Unavailable>
  /** The configurations of a task, oldest first. Before this call, check that the task belongs to the caller. */
  readonly list: (taskId: string) => Effect.Effect<ReadonlyArray<PushConfig>, Unavailable>
  readonly remove: (taskId: string, name: string) => Effect.Effect<void, Unavailable>
  /** Updates a slice of the tasks that have configurations, from their conversations and deliveries. */
  readonly refresh: Effect.Effect<Batch, Unavailable>
  /**
   * Goes through a slice of all configurations and removes two kinds. The first are configurations of ended tasks whose
   * webhook has no delivery rows left, neither waiting nor posted nor dead. The second are configurations whose webhook
   * no longer exists, for example because its agent was deleted.
   */
  readonly retire: Effect.Effect<Batch, Unavailable>
}>()("parley/a2a/TaskPushes") {
  static readonly layer = Layer.effect(
    TaskPushes,
    Effect.gen(function*() {
      const agents = yield* Agents
      const feed = yield* DirectFeed
      const config = yield* Config
      const limits = yield* Limits
      const repo = yield* PushConfigsRepo
      const { transaction } = yield* Database
      const tasks = yield* Tasks
      const tasksRepo = yield* TasksRepo
      const webhooks = yield* Webhooks
      const view = makeTaskView(tasks, yield* Attachments)

      /** The configurations of a task with their webhooks. Leaves out configurations whose webhook no longer exists. */
      const configsOf = Effect.fnUntraced(function*(taskId: string) {
        const stored = yield* repo.of([taskId])
        const hooks = stored.length === 0 ? [] : yield* webhooks.forTasks(stored.map(({ webhookId }) => webhookId))
        const targets = new Map(hooks.map(({ id, target }) => [id, target]))
        return stored.flatMap(({ name, webhookId }) => {
          const target = targets.get(webhookId)
          return target === undefined ? [] : [{ name, webhookId, target }]
        })
      })

      /**
       * The configuration of this name; undefined if there is none. Fails if there is none and the task has reached its
       * limit.
       */
      const roomFor = Effect.fnUntraced(function*(taskId: string, name: string) {
        const configs = yield* configsOf(taskId)
        const same = configs.find((one) => one.name === name)
        return same === undefined && configs.length >= config.LIMITS_PUSH_CONFIGS_PER_TASK
          ? yield* new TooManyPushConfigs()
          : same
      })

      /**
       * Refuses a configuration beyond the agent's limit. If the agent is at its limit, searches for configurations
       * that still count towards the limit but can post nothing any more, and returns their webhooks' ids.
       */
      const roomOfAgent = Effect.fnUntraced(function*(agentId: string) {
        const most = limits.of("LIMITS_PUSH_CONFIGS_PER_AGENT", config.LIMITS_PUSH_CONFIGS_PER_AGENT, agentId)
        const counted = yield* repo.counted(agentId)
        if (counted.length < most) return []
        const hooks = yield* webhooks.waitingForTasks(counted.map(({ webhookId }) => webhookId))
        const waiting = new Map(hooks.map((hook) => [hook.id, hook.waiting]))
        const done = counted.filter(({ ended, webhookId }) =>
          waiting.get(webhookId) !== true && (ended || !waiting.has(webhookId))
        )
        if (counted.length - done.length >= most) return yield* new TooManyPushConfigsOfAgent()
        return done.map(({ webhookId }) => webhookId)
      })

      /**
       * Increments the conversation's version, so that every writer that has read the old version must decide again.
       * This makes the task's limit exact. Every change after the returned task is posted, because the statement that
       * stores the change sees the configuration. The caller's limit is exact too: the configurations that count are
       * read by a separate statement, after the caller's row is locked.
       */
      const putOnce = Effect.fnUntraced(function*(side: Side, taskId: string, { name, target }: PushConfig) {
        const found = yield* tasks.standing(side, taskId)
        if (found === undefined) return undefined
        const { task, version } = found
        if (isFinal(task.state)) return task
        const same = yield* roomFor(taskId, name)
        const store = Effect.gen(function*() {
          if (!(yield* tasksRepo.hold(side.conversationId, version))) return yield* new Overtaken()
          if (same !== undefined) return yield* webhooks.changeForTask(same.webhookId, target)
          // Lock the caller's row before any row of the caller's configurations. Every creation locks in this order.
          yield* webhooks.holdOwner(side.callerId)
          const left = (yield* repo.of([taskId])).filter((one) => one.name === name)
          yield* repo.remove(left.map(({ webhookId }) => webhookId))
          yield* repo.uncount(yield* roomOfAgent(side.callerId))
          const id = yield* webhooks.createForTask(side.callerId, target)
          yield* repo.add(id, taskId, name, yield* Clock.currentTimeMillis, side.callerId)
        })
        yield* transaction(store)
        return task
      })

      const render = Effect.fnUntraced(function*(subject: string) {
        const { change, task: id } = JSON.parse(subject) as Subject
        const [task] = yield* tasksRepo.findAll([id])
        if (task === undefined) return undefined
        const known = yield* agents.byIds([task.callerId, task.recipientId])
        const isThere = (agentId: string) => (known.get(agentId)?.deletedAt ?? null) === null
        // After one of its agents was deleted, a task no longer exists for its caller.
        if (!isThere(task.callerId) || !isThere(task.recipientId)) return undefined
        return JSON.stringify({ task: yield* view.task(asOf(task, change), { historyLength: 0, artifacts: true }) })
      })
      ;(yield* PostSources).register(TASK_EVENT, {
        render: Effect.fnUntraced(function*({ secret, subject }) {
          const body = yield* render(subject)
          if (body === undefined) return undefined
          const credentials = decodeCredentials(secret)
          return {
            body,
            headers: (attempt) => ({
              ...signedHeaders({ ...attempt, secret: credentials.token, body, event: TASK_EVENT }),
              ...headersOf(credentials)
            })
          }
        }),
        fill: () => Effect.succeed(false)
      })

      // The positions are kept in memory. If the job moves to another node, it starts over.
      let above = ""
      let aboveRetired = ""
      /** The seq up to which each conversation was compared. */
      const seen = new Map<string, number>()

      return TaskPushes.of({
        put: Effect.fn("TaskPushes.put")((side, taskId, config) =>
          putOnce(side, taskId, config).pipe(
            Effect.retry({ times: MAX_TRIES, while: (error) => error instanceof Overtaken }),
            Effect.catchTag("Overtaken", () => Effect.fail(new Unavailable()))
          )
        ),
        checkRoom: Effect.fn("TaskPushes.checkRoom")(function*(callerId, taskId, name) {
          const same = taskId === undefined ? undefined : yield* roomFor(taskId, name)
          if (same === undefined) yield* roomOfAgent(callerId)
        }),
        list: configsOf,
        remove: Effect.fn("TaskPushes.remove")(function*(taskId, name) {
          const ids = (yield* repo.of([taskId])).flatMap((one) => one.name === name ? [one.webhookId] : [])
          if (ids.length === 0) return
          yield* webhooks.removeUnlisted(ids)
          yield* repo.remove(ids)
        }),
        refresh: Effect.gen(function*() {
          const ids = yield* repo.watched(above, BATCH_SIZE)
          if (ids.length === 0) {
            above = ""
            return { rows: 0, more: false }
          }
          const watched = yield* tasksRepo.findAll(ids)
          const heads = yield* tasksRepo.heads([...new Set(watched.map(({ conversationId }) => conversationId))])
          const progress = yield* feed.progress(watched.map((task) => ({
            conversationId: task.conversationId,
            recipientId: task.recipientId,
            seq: waitsFor(task) ?? null
          })))
          // Contains one task for each conversation with new messages, and every task whose newest message was
          // delivered.
          const moved = new Map<string, { readonly task: Task; readonly lastSeq: number }>()
          for (const [i, task] of watched.entries()) {
            const { deliveredAt, lastSeq } = progress[i]!
            const { conversationId, id } = task
            const known = Math.max(heads.get(conversationId)?.through ?? 0, seen.get(conversationId) ?? 0)
            if (deliveredAt !== null) moved.set(id, { task, lastSeq })
            else if (lastSeq > known) moved.set(conversationId, { task, lastSeq })
          }
          yield* Effect.forEach(moved.values(), ({ lastSeq, task }) =>
            Effect.andThen(
              tasks.renew(task, task.id),
              Effect.sync(() => {
                if (seen.size >= MAX_CACHED) seen.clear()
                seen.set(task.conversationId, lastSeq)
              })
            ), { concurrency: MAX_CONCURRENT_READS, discard: true })
          above = ids.length < BATCH_SIZE ? "" : ids.at(-1)!
          return { rows: moved.size, more: above !== "" }
        }),
        retire: Effect.gen(function*() {
          const configs = yield* repo.slice(aboveRetired, RETIRED)
          const ids = configs.map(({ webhookId }) => webhookId)
          aboveRetired = ids.length < RETIRED ? "" : ids.at(-1)!
          if (ids.length === 0) return { rows: 0, more: false }
          const ended = configs.flatMap((config) => config.ended ? [config.webhookId] : [])
          if (ended.length > 0) yield* webhooks.removeIdle(ended)
          const kept = new Set((yield* webhooks.forTasks(ids)).map(({ id }) => id))
          const gone = ids.filter((id) => !kept.has(id))
          if (gone.length > 0) yield* repo.remove(gone)
          return { rows: gone.length, more: aboveRetired !== "" }
        })
      })
    })
  )

  /**
   * Runs `refresh` on one node while the server runs. Jobs.ts leaves it out: tests that move their clock far would run
   * it too often.
   */
  static readonly layerRunning = job({
    name: "a2a_pushes",
    every: REFRESH_EVERY,
    batch: Effect.flatMap(TaskPushes, ({ refresh }) => refresh)
  })
}
