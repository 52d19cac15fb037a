import { Effect, Schema } from "effect"
import { AgentNotFound } from "#domain/agents/Agent"
import { Attachments } from "#domain/attachments/Attachments"
import { CursorId, decodeCursor, encodeCursor } from "#ground/wire/Page"
import { ValidationFailed } from "#ground/wire/WireError"
import { type Call, makeLookUp } from "./Call.ts"
import { A2aFailure, type Failure, taskNotFound } from "./Failure.ts"
import { boolOf, field, historyOf, idOf, intOf, type Json, MAX_PAGE_SIZE, objectOf, parsed, textOf } from "./Fields.ts"
import { makePushConfigs } from "./PushConfigs.ts"
import { makeSend } from "./SendMessage.ts"
import { LOG, isFinal, isInterrupted, type Task, TASK_STATES, type TaskState } from "./Task.ts"
import { LargeAnswer, LargeReads } from "#ground/rates/LargeReads"
import { type Side, Tasks } from "./Tasks.ts"
import { everything, makeTaskView, type Shown } from "./TaskView.ts"
import { follow, TaskWatches } from "./TaskWatches.ts"

/** How long a send waits for a final or interrupted state (wire.md N, Waiting). */
const WAIT_MS = 30_000
const PAGE_SIZE = 50
/** A list shows up to this many messages of each task. GetTask shows the whole history. */
const LISTED_HISTORY = 10

/** A stream that begins with the task as it is. */
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
  if (state === undefined) throw ValidationFailed.field("status", `must be one of TASK_STATE_${TASK_STATES.join(", TASK_STATE_")}`)
  return state
}

const sinceOf = (params: Json): number | null => {
  const text = textOf(params, "statusTimestampAfter")
  if (text === undefined) return null
  const at = Date.parse(text)
  if (Number.isNaN(at)) throw ValidationFailed.field("statusTimestampAfter", "must be a time in ISO 8601")
  return at
}

/** The most messages that an answer with this many tasks can show. It decides the size of the answer's slot. */
const messagesOf = (tasks: number, ofEach: number): LargeAnswer => ({ usual: tasks * ofEach, max: tasks * ofEach, bytes: "message" })

const isSettled = ({ state }: Task): boolean => isFinal(state) || isInterrupted(state)

/** The protocol's operations, the same for both bindings (the specification, 3.1). Their params come from the client, unchecked. */
export const makeOperations = Effect.gen(function*() {
  const reads = yield* LargeReads
<<<<<<< HEAD
  const tasks = yield* Tasks
  const watches = yield* TaskWatches
  const view = makeTaskView(tasks, yield* Attachments)
  const lookUp = yield* makeLookUp
  const { sideOf, taskOf } = lookUp
  const configs = yield* makePushConfigs(lookUp)
  const send = yield* makeSend(lookUp, configs)
=======
  /** The most messages that an answer with this many tasks can show. It decides the size of the answer's slot. */
  const messagesOf = (tasks: number, ofEach: number): LargeAnswer => ({ usual: tasks * ofEach, max: tasks * ofEach, bytes: "message" })
  const decodeHandle = Schema.decodeUnknownEffect(HandleInput)

  /** The called agent and the conversation with it; undefined if there is no such agent. */
  const sideOf = Effect.fnUntraced(function*({ caller, handle }: Call) {
    const normal = yield* Effect.orElseSucceed(decodeHandle(handle), () => "")
    const recipient = yield* agents.byHandle(normal)
    if (recipient === undefined) return undefined
    const side: Side = {
      callerId: caller.id,
      recipientId: recipient.id,
      conversationId: feed.direct(caller.id, recipient.id)
    }
    return { side, recipient }
  })

  /** A task of the caller with this agent. Fails in the same way for a task of others and for a task that does not exist. */
  const taskOf = Effect.fnUntraced(function*(call: Call, id: string): Effect.fn.Return<{ side: Side; task: Task }, Failure> {
    const known = yield* sideOf(call)
    const task = known === undefined || !/^msg_[A-Za-z0-9_-]{1,64}$/.test(id) ? undefined : yield* tasks.find(known.side, id)
    return known === undefined || task === undefined ? yield* Effect.fail(taskNotFound()) : { side: known.side, task }
  })

  const upload = Effect.fnUntraced(function*({ api, caller }: Call, handle: string, { bytes, contentType, filename }: NonNullable<Incoming["file"]>) {
    const { body } = yield* api.call<{ readonly attachment_id: string }>("POST", "/v1/uploads", {
      to: handle,
      filename,
      content_type: contentType,
      size: bytes.length,
      sha256: hash("sha256", bytes, "hex")
    })
    yield* attachments.fill(caller.id, body.attachment_id, bytes)
    return body.attachment_id
  })

  /** The task that a stored message belongs to. */
  const taskOfMessage = Effect.fnUntraced(function*(side: Side, body: string): Effect.fn.Return<Task, Failure> {
    const { metadata } = JSON.parse(body) as { readonly metadata: Json }
    const id = Predicate.isObject(metadata["a2a"]) ? metadata["a2a"]["task_id"] : undefined
    const task = typeof id === "string" ? yield* tasks.find(side, id) : undefined
    return task ?? (yield* new ValidationFailed({ message: "message.messageId: you have sent a message with this id that belongs to no task" }))
  })

  /** Reads a configuration and checks that the server may post to its URL. */
  const pushOf = Effect.fnUntraced(function*(given: Json, taskId: string | undefined, fallback: string) {
    const config = yield* parsed(() => pushConfigOf(given, taskId, fallback))
    yield* webhooks.check(config.target.url)
    return config
  })

  const push = Effect.fnUntraced(function*(side: Side, taskId: string, config: PushConfig): Effect.fn.Return<Task, Failure> {
    return (yield* pushes.put(side, taskId, config)) ?? (yield* Effect.fail(taskNotFound()))
  })

  const sendOnly = Effect.fnUntraced(function*(call: Call, params: Json): Effect.fn.Return<{ side: Side; task: Task }, Failure> {
    if (!isStorableJson(params)) {
      return yield* new ValidationFailed({ message: "The request may be nested at most 64 levels deep, and may not contain NUL or a lone surrogate." })
    }
    const message = yield* parsed(() => {
      const given = objectOf(params, "message")
      if (given === undefined) throw ValidationFailed.field("message", "is required")
      return incoming(given, objectOf(params, "metadata"))
    })
    const known = yield* sideOf(call)
    if (known === undefined) return yield* new AgentNotFound()
    const { recipient, side } = known
    if (recipient.id === call.caller.id) {
      return yield* ValidationFailed.field("handle", "is yourself: write to another agent")
    }
    const key = keyOf(recipient.handle, message.messageId)
    if (message.contextId !== undefined && message.contextId !== side.conversationId) {
      return yield* ValidationFailed.field("message.contextId", "must be the id of your conversation with this agent, or absent")
    }
    if (message.taskId !== undefined) {
      const { task } = yield* taskOf(call, message.taskId)
      if (isFinal(task.state)) {
        const earlier = yield* conversations.original(call.caller.id, key)
        if (earlier !== undefined) return { side, task: yield* taskOfMessage(side, earlier.body) }
        return yield* Effect.fail(
          new A2aFailure("UNSUPPORTED_OPERATION", "The task has ended: send the message without taskId, as a new task.", {
            state: `TASK_STATE_${task.state}`
          })
        )
      }
    }
    let attachmentId: string | undefined
    if (message.file !== undefined) {
      const earlier = yield* conversations.original(call.caller.id, key)
      if (earlier !== undefined) return { side, task: yield* taskOfMessage(side, earlier.body) }
      attachmentId = yield* upload(call, recipient.handle, message.file)
    }
    const id = ids.make("msg")
    const draft = yield* draftOf({
      client_msg_id: key,
      type: attachmentId !== undefined ? "file" : message.text === undefined ? "structured" : "text",
      content: {
        ...(message.text === undefined ? {} : { text: message.text }),
        ...(message.data === undefined ? {} : { data: message.data }),
        ...(attachmentId === undefined ? {} : { attachment_id: attachmentId })
      },
      metadata: { a2a: { task_id: message.taskId ?? id, context_id: side.conversationId, ...message.a2a } }
    }, config.LIMITS_MESSAGE_BYTES)
    if (message.taskId === undefined) yield* tasks.begin(side.conversationId)
    const sent = yield* conversations.send(call.caller, { _tag: "Direct", handle: recipient.handle }, { ...draft, messageId: id })
    if (!sent.created || message.taskId !== undefined) return { side, task: yield* taskOfMessage(side, sent.body) }
    const { created_at, seq } = JSON.parse(sent.body) as { readonly created_at: string; readonly seq: number }
    const at = Date.parse(created_at)
    // This is the task as it was at the commit of its first message. Nothing has to be read.
    const task: Task = {
      id,
      conversationId: side.conversationId,
      seq,
      callerId: side.callerId,
      recipientId: side.recipientId,
      state: "SUBMITTED",
      updatedAt: at,
      changes: 1,
      log: [{ state: "SUBMITTED", at, seq, messageId: id }]
    }
    return { side, task }
  })

  /** Whether the caller has sent a message with this `messageId` to the called agent before. */
  const wasSent = Effect.fnUntraced(function*(call: Call, messageId: string) {
    const known = yield* sideOf(call)
    return known !== undefined && (yield* conversations.original(call.caller.id, keyOf(known.recipient.handle, messageId))) !== undefined
  })

  /** Sends a message. Stores the push configuration of the request before the answer, so that every change after the answer is posted. */
  const send = Effect.fnUntraced(function*(call: Call, params: Json): Effect.fn.Return<{ side: Side; task: Task }, Failure> {
    const asked = yield* parsed(() => {
      const given = objectOf(objectOf(params, "configuration") ?? {}, "taskPushNotificationConfig")
      const { messageId, taskId } = objectOf(params, "message") ?? {}
      // The name depends only on the request, so that a repeated request creates no second configuration.
      const name = `send-${hash("sha256", String(messageId), "hex").slice(0, 16)}`
      return given && { given, messageId: String(messageId), taskId: typeof taskId === "string" && taskId !== "" ? taskId : undefined, name }
    })
    const config = asked && (yield* pushOf(asked.given, asked.taskId, asked.name))
    if (asked !== undefined && config !== undefined) {
      const taskId = asked.taskId === undefined ? undefined : (yield* taskOf(call, asked.taskId)).task.id
      // A repeated send may have its configuration already. Then `push` decides whether the limit allows the configuration.
      yield* pushes.checkRoom(call.caller.id, taskId, config.name).pipe(
        Effect.catchTag("TooManyPushConfigsOfAgent", (full) =>
          Effect.flatMap(wasSent(call, asked.messageId), (sent) => sent ? Effect.void : Effect.fail(full)))
      )
    }
    const { side, task } = yield* sendOnly(call, params)
    return { side, task: config === undefined ? task : yield* push(side, task.id, config) }
  })

  /** Reads the task each time that it may have changed, until `each` returns true or the watch ends. Repeats a read that fails. */
  const follow = <E>(side: Side, watch: TaskWatch, each: (task: Task) => Effect.Effect<boolean, E>): Effect.Effect<void, E> =>
    Effect.gen(function*() {
      while (true) {
        yield* watch.wait
        if (watch.ended !== undefined) return
        const read = yield* Effect.result(tasks.find(side, watch.task.id))
        if (read._tag === "Failure") {
          watch.seen = ""
          continue
        }
        if (read.success === undefined) return
        watch.task = read.success
        if (yield* each(read.success)) return
      }
    })
>>>>>>> main

  /**
   * Waits up to WAIT_MS for a final or interrupted state and returns the task. Does not wait if the caller already has as many watches
   * on this node as it may have.
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
      : yield* Effect.mapError(decodeCursor(PageToken)(asked.token), () =>
        ValidationFailed.field("pageToken", "is not one that this server gave out"))
    const known = yield* sideOf(call)
    if (known === undefined) return yield* new AgentNotFound()
    const { side } = known
    const none = { tasks: [], nextPageToken: "", pageSize: asked.size, totalSize: 0 }
    if (asked.contextId !== undefined && asked.contextId !== side.conversationId) return none
    const { tasks: found, total } = yield* tasks.list(side, { state: asked.state, since: asked.since }, after, asked.size + 1)
    const page = found.slice(0, asked.size)
    const last = page.at(-1)
    return {
      tasks: yield* reads.ofAgent(call.caller.id, messagesOf(page.length, LISTED_HISTORY), view.many(page, asked.shown)),
      nextPageToken: found.length > asked.size && last !== undefined ? encodeCursor({ at: last.updatedAt, id: last.id }) : "",
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
    sendStreamingMessage: Effect.fn("A2a.sendStreamingMessage")(function*(call: Call, params: Json): Effect.fn.Return<Streamed, Failure> {
      const historyLength = yield* parsed(() => historyOf(objectOf(params, "configuration") ?? {}))
      const { side, task } = yield* send(call, params)
      const shown = view.task(task, { historyLength, artifacts: true })
      return { side, task, first: { task: yield* reads.during(call.caller.id, messagesOf(1, LOG), shown) } }
    }),
    getTask: Effect.fn("A2a.getTask")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
      const historyLength = yield* parsed(() => historyOf(params))
      const id = yield* parsed(() => idOf(params))
      // The task is read inside the slot for large reads, because a task that is not up to date is first derived from its messages.
      const read = Effect.flatMap(taskOf(call, id), ({ task }) => view.task(task, { historyLength, artifacts: true }))
      return yield* reads.ofAgent(call.caller.id, messagesOf(1, LOG), read)
    }),
    listTasks: (call: Call, params: Json): Effect.Effect<object, Failure> => listed(call, params),
    cancelTask: Effect.fn("A2a.cancelTask")(function*(call: Call, params: Json): Effect.fn.Return<object, Failure> {
      const id = yield* parsed(() => idOf(params))
      return yield* reads.ofAgent(call.caller.id, messagesOf(1, LOG), Effect.gen(function*() {
        const { side, task } = yield* taskOf(call, id)
        const outcome = yield* tasks.cancel(side, task.id)
        if (outcome === undefined) return yield* Effect.fail(taskNotFound())
        if (outcome._tag === "Ended" && outcome.task.state !== "CANCELED") {
          return yield* Effect.fail(
            new A2aFailure("TASK_NOT_CANCELABLE", "The task has ended already.", { state: `TASK_STATE_${outcome.task.state}` })
          )
        }
        return yield* view.task(outcome.task, everything)
      }))
    }),
    subscribeToTask: Effect.fn("A2a.subscribeToTask")(function*(call: Call, params: Json): Effect.fn.Return<Streamed, Failure> {
      const id = yield* parsed(() => idOf(params))
      return yield* reads.during(call.caller.id, messagesOf(1, LOG), Effect.gen(function*() {
        const { side, task } = yield* taskOf(call, id)
        if (isFinal(task.state)) {
          return yield* Effect.fail(
            new A2aFailure("UNSUPPORTED_OPERATION", "The task has ended: read it with GetTask.", { state: `TASK_STATE_${task.state}` })
          )
        }
        return { side, task, first: { task: yield* view.task(task, everything) } }
      }))
    }),
    createPushConfig: configs.create,
    getPushConfig: configs.get,
    listPushConfigs: configs.list,
    deletePushConfig: configs.remove
  }
})
