/** @import { Message } from "./Wire.ts" */

const ended = new Set(["COMPLETED", "FAILED", "REJECTED", "CANCELED"])
const said = new Set(["WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", ...ended])

/** @param {unknown} text */
const stateOf = (text) => {
  const state = typeof text === "string"
    ? text.toUpperCase().replaceAll("-", "_").replace(/^TASK_STATE_/, "").replace(/^CANCELLED$/, "CANCELED")
    : ""
  return said.has(state) ? state : undefined
}

/** @param {unknown} value */
const textOf = (value) => typeof value === "string" && value !== "" ? value : undefined

/**
 * The states of the A2A tasks that these messages of a direct conversation began, by message id. The rules are the same
 * as on the server (wire.md N, Task). A state can be wrong if a message that changed the task is not loaded.
 * @param {ReadonlyArray<Message>} messages the loaded messages, oldest first
 * @returns {ReadonlyMap<string, string>}
 */
export const taskStates = (messages) => {
  /** @type {Array<{ id: string, caller: string, state: string, newest: Message, ids: Array<string> }>} */
  const tasks = []
  for (const message of messages) {
    const { id, metadata, sender } = message
    const a2a = typeof metadata["a2a"] === "object" && metadata["a2a"] !== null
      ? /** @type {Record<string, unknown>} */ (metadata["a2a"])
      : {}
    const taskId = textOf(a2a["task_id"])
    const replyTo = textOf(metadata["reply_to"])
    const state = stateOf(a2a["state"])
    if (taskId === id) {
      // The server marks the first message of a cancelled task.
      tasks.push({ id, caller: sender, state: state === "CANCELED" ? state : "SUBMITTED", newest: message, ids: [id] })
      continue
    }
    const open = tasks.filter((task) => !ended.has(task.state))
    const own = open.find((task) => task.id === taskId && task.caller === sender)
    if (own !== undefined) {
      own.state = "SUBMITTED"
      own.newest = message
      own.ids.push(id)
      continue
    }
    const theirs = open.filter((task) => task.caller !== sender)
    const answered = taskId === undefined && replyTo === undefined
      ? theirs[0]
      : theirs.find((task) => task.id === taskId) ??
        theirs.find((task) => replyTo !== undefined && task.ids.includes(replyTo))
    if (answered === undefined) continue
    answered.state = state ?? "COMPLETED"
    answered.ids.push(id)
  }
  return new Map(
    tasks.map(({ id, newest, state }) => [id, state === "SUBMITTED" && newest.status !== "stored" ? "WORKING" : state])
  )
}
