import { AgentNotFound } from "#domain/agents/Agent"
import { Attachments } from "#domain/attachments/Attachments"
import { LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { CursorId, decodeCursor, encodeCursor } from "#infrastructure/wire/Page"
import { NO_INSTANT, parseInstant } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect, Schema } from "effect"
import { type Call, makeLookUp } from "./Call.ts"
import { A2aFailure, type Failure, taskNotFound } from "./Failure.ts"
import { boolOf, field, historyOf, idOf, intOf, type Json, MAX_PAGE_SIZE, objectOf, parsed, textOf } from "./Fields.ts"
import { makePushConfigs } from "./PushConfigs.ts"
import { makeSend } from "./SendMessage.ts"
import { isFinal, isInterrupted, LOG, type Task, TASK_STATES, type TaskState } from "./Task.ts"
import { type Side, Tasks } from "./Tasks.ts"
import { everything, makeTaskView, type Shown } from "./TaskView.ts"
import { follow, TaskWatches } from "./TaskWatches.ts"

/** How long a send waits for a final or interrupted state, in milliseconds (wire.md N, Waiting). */
const WAIT_MS = 30_000
const PAGE_SIZE = 50
/** How many messages of each task a list shows at most. GetTask shows the whole history. */
const LISTED_HISTORY = 10

/** A stream that begins with the current task. */
export interface Streamed {
  readonly side: Side
  readonly task: Task
  /** The task, rendered. */
  readonly first: object
}

const PageToken = Schema.Struct({ at: Schema.Int, id: CursorId })

const stateOf = (params: Json): TaskState | null => {
  const given = field(params, "status")
  if (given === undefined || given === "" || given === "TASK_STATE_UNSPECIFIED" || given === 0) return null
  const state = TASK_STATES.find((one) => given === `TASK_STATE_${one}`)
  if (state === undefined)
    throw ValidationFailed.field("status", `must be one of TASK_STATE_${TASK_STATES.join(", TASK_STATE_")}`)
  return state
}

const sinceOf = (params: Json): number | null => {
  const text = textOf(params, "statusTimestampAfter")
  if (text === undefined) return null
  const at = parseInstant(text)
  if (at === undefined) throw ValidationFailed.field("statusTimestampAfter", NO_INSTANT)
  return at
}

/**
 * The most messages that a response with this many tasks can contain. This number decides the size of the read's slot.
 */
const messagesOf = (tasks: number, ofEach: number): LargeAnswer => ({
  usual: tasks * ofEach,
  max: tasks * ofEach,
  bytes: "message"
})

const isSettled = ({ state }: Task): boolean => isFinal(state) || isInterrupted(state)

/**
 * The operations of A2A, which both bindings share (A2A's specification, 3.1). Their params come unchecked from the
 * client.
 */
export const makeOperations = Effect.gen(function*() {
  const reads = yield* LargeReads
  const tasks = yield* Tasks
  const watches = yield* TaskWatches
  const view = makeTaskView(tasks, yield* Attachments)
  const lookUp = yield* makeLookUp
  const { sideOf, taskOf } = lookUp
  const configs = yield* makePushConfigs(lookUp)
  const send = yield* makeSend(lookUp, configs)

  /**
   * Waits up to WAIT_MS for a final or interrupted state and returns the task. Does not wait if the caller has reached
   * its limit of watches on this node.
   */
  const settled = Effect.fnUntraced(function*({ caller, key }: Call, side: Side, task: Task) {
    if (isSettled(task)) return task
    const watch = yield* Effect.orElseSucceed(watches.open(caller.id, key, task), () => undefined)
    if (watch === undefined) return task
    yield* Effect.timeoutOption(follow(tasks, side, watch, (now) => Effect.succeed(isSettled(now))), WAIT_MS)
    return watch.task
  }, Effect.scoped)

  const listed = Effect.fnUntraced(function*(call: Call, params: Json) {
    const asked = yield* parsed(() => ({
      contextId: textOf(params, "contextId"),
      state: stateOf(params),
      since: sinceOf(params),
      size: intOf(params, "pageSize", 1, MAX_PAGE_SIZE) ?? PAGE_SIZE,
      token: textOf(params, "pageToken"),
      shown: {
        historyLength: Math.min(historyOf(params) ?? LISTED_HISTORY, LISTED_HISTORY),
        artifacts: boolOf(params, "includeArtifacts")
      } satisfies Shown
    }))
    const after = asked.token === undefined
      ? null
      : yield* Effect.mapError(
        decodeCursor(PageToken)(asked.token),
        () => ValidationFailed.field("pageToken", "is not one that this server gave out")
      )
    const known = yield* sideOf(call)
    if (known === undefined) return yield* new AgentNotFound()
    const { side } = known
    const none = { tasks: [], nextPageToken: "", pageSize: asked.size, totalSize: 0 }
    if (asked.contextId !== undefined && asked.contextId !== side.conversationId) return none
    const { tasks: found, total } = yield* tasks.list(
      side,
      { state: asked.state, since: asked.since },
      after,
      asked.size + 1
    )
    const page = found.slice(0, asked.size)
    const last = page.at(-1)
    return {
      tasks: yield* reads.ofAgent(
        call.caller.id,
        messagesOf(page.length, LISTED_HISTORY),
        view.many(page, asked.shown)
      ),
      nextPageToken: found.length > asked.size && last !== undefined
        ? encodeCursor({ at: last.updatedAt, id: last.id })
        : "",
      pageSize: asked.size,
      totalSize: total
    }
  })

  return {
    sendMessage: Effect.fn("A2a.sendMessage")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
      const { shown, wait } = yield* parsed(() => {
        const configuration = objectOf(params, "configuration") ?? {}
        return {
          shown: { historyLength: historyOf(configuration), artifacts: true } satisfies Shown,
          wait: !boolOf(configuration, "returnImmediately")
        }
      })
      const { side, task } = yield* send(call, params)
      const now = wait ? yield* settled(call, side, task) : task
      return { task: yield* reads.ofAgent(call.caller.id, messagesOf(1, LOG), view.task(now, shown)) }
    }),
    sendStreamingMessage: Effect.fn("A2a.sendStreamingMessage")(
      function*(call: Call, params: Json): Effect.fn.Return<Streamed, Failure> {
        const historyLength = yield* parsed(() => historyOf(objectOf(params, "configuration") ?? {}))
        const { side, task } = yield* send(call, params)
        const shown = view.task(task, { historyLength, artifacts: true })
        return { side, task, first: { task: yield* reads.during(call.caller.id, messagesOf(1, LOG), shown) } }
      }
    ),
    getTask: Effect.fn("A2a.getTask")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
      const historyLength = yield* parsed(() => historyOf(params))
      const id = yield* parsed(() => idOf(params))
      const { task } = yield* taskOf(call, id)
      const shown = view.task(task, { historyLength, artifacts: true })
      return yield* reads.ofAgent(call.caller.id, messagesOf(1, LOG), shown)
    }),
    listTasks: (call: Call, params: Json): Effect.Effect<object, Failure> => listed(call, params),
    cancelTask: Effect.fn("A2a.cancelTask")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
      const id = yield* parsed(() => idOf(params))
      const { side, task } = yield* taskOf(call, id)
      const outcome = yield* tasks.cancel(side, task.id)
      if (outcome === undefined) return yield* Effect.fail(taskNotFound())
      if (outcome._tag === "Ended" && outcome.task.state !== "CANCELED") {
        return yield* Effect.fail(
          new A2aFailure("TASK_NOT_CANCELABLE", "The task has ended already.", {
            state: `TASK_STATE_${outcome.task.state}`
          })
        )
      }
      return yield* reads.ofAgent(call.caller.id, messagesOf(1, LOG), view.task(outcome.task, everything))
    }),
    subscribeToTask: Effect.fn("A2a.subscribeToTask")(
      function*(call: Call, params: Json): Effect.fn.Return<Streamed, Failure> {
        const id = yield* parsed(() => idOf(params))
        const { side, task } = yield* taskOf(call, id)
        if (isFinal(task.state)) {
          return yield* Effect.fail(
            new A2aFailure("UNSUPPORTED_OPERATION", "The task has ended: read it with GetTask.", {
              state: `TASK_STATE_${task.state}`
            })
          )
        }
        const shown = view.task(task, everything)
        return { side, task, first: { task: yield* reads.during(call.caller.id, messagesOf(1, LOG), shown) } }
      }
    ),
    createPushConfig: configs.create,
    getPushConfig: configs.get,
    listPushConfigs: configs.list,
    deletePushConfig: configs.remove
  }
})
