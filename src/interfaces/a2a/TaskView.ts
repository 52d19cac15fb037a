import type { Attachments } from "#domain/attachments/Attachments"
import type { StoredMessage } from "#domain/messages/Message"
import { iso } from "#infrastructure/wire/Text"
import { Effect } from "effect"
import { contentOf, extrasOf, type FilePart, partsOf } from "./MessageParts.ts"
import { type Change, type Task, type TaskState } from "./Task.ts"
import type { Tasks } from "./Tasks.ts"

/** How much of a task is shown. */
export interface Shown {
  /** How many of the newest messages of the task's history are shown; undefined for all that are kept. */
  readonly historyLength: number | undefined
  readonly artifacts: boolean
}

export const everything: Shown = { historyLength: undefined, artifacts: true }

const named = (state: TaskState): string => `TASK_STATE_${state}`

/** The change that completed the task; undefined if it is not completed. */
const answerOf = (task: Task): Change | undefined => task.state === "COMPLETED" ? task.log.at(-1) : undefined

/**
 * The seq of the called agent's message that set a state. Null for the caller's messages, and for the answer, which is
 * shown as an artifact.
 */
const saidWith = (change: Change): number | null =>
  change.state === "SUBMITTED" || change.state === "COMPLETED" ? null : change.seq

/** Renders tasks for their caller in the form of A2A (wire.md N, Task). */
export const makeTaskView = (tasks: Tasks["Service"], attachments: Attachments["Service"]) => {
  const fileOf = (callerId: string, message: StoredMessage): Effect.Effect<FilePart | undefined> => {
    const id = contentOf(message).attachment_id
    if (id === undefined) return Effect.succeed(undefined)
    return Effect.gen(function*() {
      const { contentType, filename } = yield* attachments.open(callerId, id, -1)
      return { url: yield* attachments.downloadUrl(callerId, id), filename, mediaType: contentType }
    }).pipe(Effect.orElseSucceed(() => undefined))
  }

  const messageOf = (task: Task, message: StoredMessage, file: FilePart | undefined) => {
    const fromCaller = message.senderId === task.callerId
    return {
      ...extrasOf(message, fromCaller),
      contextId: task.conversationId,
      taskId: task.id,
      role: fromCaller ? "ROLE_USER" : "ROLE_AGENT",
      parts: partsOf(message, file)
    }
  }

  const artifactOf = (message: StoredMessage, file: FilePart | undefined) => ({
    artifactId: message.id,
    name: "reply",
    parts: partsOf(message, file)
  })

  const statusOf = (change: Change, message: object | undefined) => ({
    state: named(change.state),
    timestamp: iso(change.at),
    ...(message === undefined ? {} : { message })
  })

  /** The stored messages of one conversation with these seqs, and their files. */
  const load = Effect.fnUntraced(function*(conversationId: string, callerId: string, seqs: ReadonlyArray<number>) {
    const found = yield* tasks.messages(conversationId, [...new Set(seqs)])
    const files = new Map<number, FilePart | undefined>()
    for (const message of found.values()) files.set(message.seq, yield* fileOf(callerId, message))
    return {
      message: (task: Task, seq: number | null): object | undefined => {
        const message = seq === null ? undefined : found.get(seq)
        return message === undefined ? undefined : messageOf(task, message, files.get(message.seq))
      },
      artifact: (seq: number | null): object | undefined => {
        const message = seq === null ? undefined : found.get(seq)
        return message === undefined ? undefined : artifactOf(message, files.get(message.seq))
      }
    }
  })

  /** Renders tasks of one caller in one conversation. Reads the messages of all these tasks at once. */
  const many = Effect.fnUntraced(function*(list: ReadonlyArray<Task>, shown: Shown) {
    const [one] = list
    if (one === undefined) return []
    const plans = list.map((task) => {
      const answer = answerOf(task)
      const last = task.log.at(-1)!
      const turns = task.log.flatMap((change) => change === answer || change.seq === null ? [] : [change.seq])
      const history = shown.historyLength === undefined
        ? turns
        : shown.historyLength === 0
        ? []
        : turns.slice(-shown.historyLength)
      return { task, last, history, answered: shown.artifacts ? answer?.seq ?? null : null }
    })
    const wanted = plans.flatMap(({ answered, history, last }) =>
      [...history, saidWith(last), answered].filter((seq) => seq !== null)
    )
    const loaded = yield* load(one.conversationId, one.callerId, wanted)
    return plans.map(({ answered, history, last, task }) => {
      const artifact = loaded.artifact(answered)
      return {
        id: task.id,
        contextId: task.conversationId,
        status: statusOf(last, loaded.message(task, saidWith(last))),
        ...(shown.artifacts ? { artifacts: artifact === undefined ? [] : [artifact] } : {}),
        ...(shown.historyLength === 0 ? {} : { history: history.flatMap((seq) => loaded.message(task, seq) ?? []) })
      }
    })
  })

  const task = (one: Task, shown: Shown) => Effect.map(many([one], shown), ([rendered]) => rendered!)

  /** The events of a stream for the changes of a task after its first `after` changes. */
  const events = Effect.fnUntraced(function*(task: Task, after: number) {
    const changes = task.log.slice(-Math.min(task.changes - after, task.log.length))
    const loaded = yield* load(task.conversationId, task.callerId, changes.flatMap((change) => change.seq ?? []))
    const ids = { taskId: task.id, contextId: task.conversationId }
    return changes.flatMap((change): ReadonlyArray<object> => {
      const statusUpdate = { ...ids, status: statusOf(change, loaded.message(task, saidWith(change))) }
      const artifact = change.state === "COMPLETED" ? loaded.artifact(change.seq) : undefined
      return artifact === undefined
        ? [{ statusUpdate }]
        : [{ artifactUpdate: { ...ids, artifact, append: false, lastChunk: true } }, { statusUpdate }]
    })
  })

  return { task, many, events }
}

export type TaskView = ReturnType<typeof makeTaskView>
