/** The states of a task, as the protocol names them without their prefix (wire.md N). */
export const TASK_STATES = [
  "SUBMITTED",
  "WORKING",
  "INPUT_REQUIRED",
  "AUTH_REQUIRED",
  "COMPLETED",
  "FAILED",
  "REJECTED",
  "CANCELED"
] as const

export type TaskState = typeof TASK_STATES[number]

const FINAL: ReadonlySet<TaskState> = new Set(["COMPLETED", "FAILED", "REJECTED", "CANCELED"])

export const isFinal = (state: TaskState): boolean => FINAL.has(state)

/** Waits for its caller. */
export const isInterrupted = (state: TaskState): boolean => state === "INPUT_REQUIRED" || state === "AUTH_REQUIRED"

/** One change of a task. */
export interface Change {
  readonly state: TaskState
  /** Milliseconds; never before the change before it. */
  readonly at: number
  /** The message that made it; both null: a delivery or a cancellation did. */
  readonly seq: number | null
  readonly messageId: string | null
}

/** A task as derived so far. */
export interface Task {
  /** The id of its first message. */
  readonly id: string
  readonly conversationId: string
  /** Of its first message. */
  readonly seq: number
  readonly callerId: string
  readonly recipientId: string
  readonly state: TaskState
  readonly updatedAt: number
  /** How many changes there have been, its creation included. */
  readonly changes: number
  /** The last of them, oldest first, with the first one always before them. */
  readonly log: ReadonlyArray<Change>
}

/** What a message says about tasks, in its metadata. */
export interface Mark {
  readonly taskId?: string
  readonly state?: TaskState
  readonly replyTo?: string
}

/** A committed message, as far as tasks are about it. */
export interface Posted {
  readonly id: string
  readonly seq: number
  readonly senderId: string
  /** The other side. */
  readonly recipientId: string
  readonly at: number
  readonly mark: Mark
}

/** A state that the called agent gives with a message, as agents write it: with the protocol's prefix or without, in any case, with `-` for `_`. */
export const saidState = (text: unknown): TaskState | undefined => {
  if (typeof text !== "string") return undefined
  const state = text.toUpperCase().replaceAll("-", "_").replace(/^TASK_STATE_/, "").replace(/^CANCELLED$/, "CANCELED")
  const known = TASK_STATES.find((one) => one === state)
  return known === "SUBMITTED" ? undefined : known
}

/** What a message's metadata, a JSON text, says about tasks. */
export const markOf = (metadata: string): Mark => {
  if (!metadata.includes("\"a2a\"") && !metadata.includes("\"reply_to\"")) return {}
  const { a2a, reply_to } = JSON.parse(metadata) as { readonly a2a?: unknown; readonly reply_to?: unknown }
  const given = typeof a2a === "object" && a2a !== null ? a2a as { readonly task_id?: unknown; readonly state?: unknown } : {}
  const state = saidState(given.state)
  return {
    ...(typeof given.task_id === "string" ? { taskId: given.task_id } : {}),
    ...(state === undefined ? {} : { state }),
    ...(typeof reply_to === "string" && reply_to !== "" ? { replyTo: reply_to } : {})
  }
}

/** How many changes the log keeps besides the first. */
export const LOG = 200

const changed = (task: Task, state: TaskState, at: number, by: { readonly id: string; readonly seq: number } | null): Task => {
  const change: Change = { state, at: Math.max(at, task.updatedAt), seq: by?.seq ?? null, messageId: by?.id ?? null }
  const [first, ...others] = [...task.log, change]
  return {
    ...task,
    state,
    updatedAt: change.at,
    changes: task.changes + 1,
    log: first === undefined ? [] : [first, ...others.slice(-LOG)]
  }
}

/** The task as it was after its nth change; one that the log has no more is shown as it is. */
export const asOf = (task: Task, changes: number): Task => {
  const behind = task.changes - changes
  const log = task.log.slice(0, Math.max(task.log.length - behind, 0))
  const last = log.at(-1)
  const isKept = behind >= 0 && last !== undefined && (changes === 1 || log.length > 1)
  return isKept ? { ...task, state: last.state, updatedAt: last.at, changes, log } : task
}

const opened = (conversationId: string, message: Posted): Task => ({
  id: message.id,
  conversationId,
  seq: message.seq,
  callerId: message.senderId,
  recipientId: message.recipientId,
  state: "SUBMITTED",
  updatedAt: message.at,
  changes: 1,
  log: [{ state: "SUBMITTED", at: message.at, seq: message.seq, messageId: message.id }]
})

/**
 * What the next message of a conversation does to its tasks, given those that are open, oldest first: the task that it
 * makes or changes, or undefined. A message makes a task if it names itself, which only this server can have written; a
 * task that has ended never changes again.
 */
export const decideMessage = (conversationId: string, open: ReadonlyArray<Task>, message: Posted): Task | undefined => {
  const { replyTo, state, taskId } = message.mark
  if (taskId === message.id) return opened(conversationId, message)
  const named = taskId === undefined ? undefined : open.find(({ id }) => id === taskId)
  if (named?.callerId === message.senderId) return changed(named, "SUBMITTED", message.at, message)
  const own = open.filter(({ recipientId }) => recipientId === message.senderId)
  const answers = taskId === undefined && replyTo === undefined
    ? own[0]
    : own.find(({ id }) => id === taskId) ??
      own.find(({ id, log }) => id === replyTo || (replyTo !== undefined && log.some((change) => change.messageId === replyTo)))
  return answers === undefined ? undefined : changed(answers, state ?? "COMPLETED", message.at, message)
}

/** The seq of the caller's newest message of a task that is only submitted yet: once it is delivered, the agent works. */
export const waitsFor = (task: Task): number | undefined =>
  task.state === "SUBMITTED" ? task.log.at(-1)?.seq ?? undefined : undefined

/** The caller's newest message was delivered; undefined: that changes nothing. */
export const decideDelivered = (task: Task, at: number): Task | undefined =>
  task.state === "SUBMITTED" ? changed(task, "WORKING", at, null) : undefined

/** The caller cancels; undefined: it has ended already. */
export const decideCancel = (task: Task, at: number): Task | undefined =>
  isFinal(task.state) ? undefined : changed(task, "CANCELED", at, null)

/** The open tasks of a conversation, oldest first, after one of them was made or changed. */
export const withTask = (open: ReadonlyArray<Task>, task: Task): ReadonlyArray<Task> => {
  const at = open.findIndex(({ id }) => id === task.id)
  if (at === -1) return isFinal(task.state) ? open : [...open, task]
  return isFinal(task.state) ? open.toSpliced(at, 1) : open.with(at, task)
}
