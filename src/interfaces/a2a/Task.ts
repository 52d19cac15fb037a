/** The states of a task, under the names of A2A without their prefix (wire.md N). */
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

/** Whether a task in this state waits for its caller. */
export const isInterrupted = (state: TaskState): boolean => state === "INPUT_REQUIRED" || state === "AUTH_REQUIRED"

/** One change of a task. */
export interface Change {
  readonly state: TaskState
  /** When the task changed, in milliseconds. Never earlier than the previous change. */
  readonly at: number
  /**
   * The seq of the message that caused the change. `seq` and `messageId` are null if a delivery or a cancellation
   * caused the change.
   */
  readonly seq: number | null
  readonly messageId: string | null
}

/** A task, derived from the messages that have been taken into account so far. */
export interface Task {
  /** The id of its first message. */
  readonly id: string
  readonly conversationId: string
  /** The seq of its first message. */
  readonly seq: number
  readonly callerId: string
  readonly recipientId: string
  readonly state: TaskState
  readonly updatedAt: number
  /** How many changes there have been, including the creation. */
  readonly changes: number
  /** The first change, followed by up to LOG of the newest changes, oldest first. */
  readonly log: ReadonlyArray<Change>
}

/** The fields of a message's metadata that concern tasks. */
export interface Mark {
  readonly taskId?: string
  readonly state?: TaskState
  readonly replyTo?: string
}

/** The fields of a committed message from which tasks are derived. */
export interface Posted {
  readonly id: string
  readonly seq: number
  readonly senderId: string
  /** The other agent of the conversation. */
  readonly recipientId: string
  readonly at: number
  readonly mark: Mark
}

/**
 * The state that the called agent sets with a message; undefined if an agent may not set this state. Agents may write
 * the name with or without the prefix of A2A, in upper or lower case, and with `-` in place of `_`.
 */
export const saidState = (text: unknown): TaskState | undefined => {
  if (typeof text !== "string") return undefined
  const state = text.toUpperCase().replaceAll("-", "_").replace(/^TASK_STATE_/, "").replace(/^CANCELLED$/, "CANCELED")
  const known = TASK_STATES.find((one) => one === state)
  return known === "SUBMITTED" ? undefined : known
}

/** Reads the fields that concern tasks from a message's metadata, a JSON text. */
export const markOf = (metadata: string): Mark => {
  if (!metadata.includes('"a2a"') && !metadata.includes('"reply_to"')) return {}
  const { a2a, reply_to } = JSON.parse(metadata) as { readonly a2a?: unknown; readonly reply_to?: unknown }
  const given = typeof a2a === "object" && a2a !== null
    ? a2a as { readonly task_id?: unknown; readonly state?: unknown }
    : {}
  const state = saidState(given.state)
  return {
    ...(typeof given.task_id === "string" ? { taskId: given.task_id } : {}),
    ...(state === undefined ? {} : { state }),
    ...(typeof reply_to === "string" && reply_to !== "" ? { replyTo: reply_to } : {})
  }
}

/** How many changes the log of a task keeps besides the first. */
export const LOG = 200

const changed = (
  task: Task,
  state: TaskState,
  at: number,
  by: { readonly id: string; readonly seq: number } | null
): Task => {
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

/** The task as it was after this many changes. Returns the current task if the log no longer contains that change. */
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
 * Decides which task the next message of a conversation creates or changes; undefined if the message affects no task.
 * `open` contains the open tasks, oldest first. A message creates a task if its metadata names the message's own id as
 * the task. Only this server can write such metadata. A task that has ended never changes again.
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
      own.find(({ id, log }) =>
        id === replyTo || (replyTo !== undefined && log.some((change) => change.messageId === replyTo))
      )
  return answers === undefined ? undefined : changed(answers, state ?? "COMPLETED", message.at, message)
}

/**
 * The seq of the message whose delivery changes the task from SUBMITTED to WORKING: the caller's newest message.
 * Undefined if the task is not SUBMITTED.
 */
export const waitsFor = (task: Task): number | undefined =>
  task.state === "SUBMITTED" ? task.log.at(-1)?.seq ?? undefined : undefined

/** The task after the delivery of the caller's newest message; undefined if the delivery changes nothing. */
export const decideDelivered = (task: Task, at: number): Task | undefined =>
  task.state === "SUBMITTED" ? changed(task, "WORKING", at, null) : undefined

/** The task after its caller has cancelled it; undefined if it had ended before. */
export const decideCancel = (task: Task, at: number): Task | undefined =>
  isFinal(task.state) ? undefined : changed(task, "CANCELED", at, null)

/** The open tasks of a conversation, oldest first, after one of the tasks was created or changed. */
export const withTask = (open: ReadonlyArray<Task>, task: Task): ReadonlyArray<Task> => {
  const at = open.findIndex(({ id }) => id === task.id)
  if (at === -1) return isFinal(task.state) ? open : [...open, task]
  return isFinal(task.state) ? open.toSpliced(at, 1) : open.with(at, task)
}
