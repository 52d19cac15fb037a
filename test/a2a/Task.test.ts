import {
  decideCancel,
  decideDelivered,
  decideMessage,
  isFinal,
  LOG,
  markOf,
  type Posted,
  saidState,
  type Task,
  type TaskState,
  waitsFor,
  withTask
} from "#interfaces/a2a/Task"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

/** What happens in a conversation of a and b, in its order; numbers name earlier messages and tasks. */
type Event =
  | { readonly kind: "task"; readonly from: "a" | "b" }
  | {
    readonly kind: "message"
    readonly from: "a" | "b"
    readonly task?: number
    readonly replyTo?: number
    readonly state?: TaskState
  }
  | { readonly kind: "cancel"; readonly task: number }
  | { readonly kind: "deliver"; readonly task: number }

const side = fc.constantFrom("a" as const, "b" as const)
const index = fc.nat({ max: 30 })
const state = fc.constantFrom<TaskState>(
  "WORKING",
  "INPUT_REQUIRED",
  "AUTH_REQUIRED",
  "COMPLETED",
  "FAILED",
  "REJECTED",
  "CANCELED"
)
const event: fc.Arbitrary<Event> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("task" as const), from: side }) },
  {
    weight: 5,
    arbitrary: fc.record(
      { kind: fc.constant("message" as const), from: side, task: index, replyTo: index, state },
      { requiredKeys: ["kind", "from"] }
    )
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("cancel" as const), task: index }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("deliver" as const), task: index }) }
)
const world = fc.array(event, { maxLength: 40 })

/**
 * The contract, told once more and in another way: every task that ever was, with its state and the messages it has.
 */
interface Modelled {
  readonly id: string
  readonly caller: string
  state: TaskState
  readonly turns: Array<string>
}

const model = (events: ReadonlyArray<Event>): ReadonlyArray<Modelled> => {
  const tasks: Array<Modelled> = []
  const ids: Array<string> = []
  for (const [i, one] of events.entries()) {
    const id = `m${i}`
    if (one.kind === "cancel" || one.kind === "deliver") {
      const task = tasks.length === 0 ? undefined : tasks[one.task % tasks.length]
      if (task === undefined || isFinal(task.state)) continue
      if (one.kind === "cancel") task.state = "CANCELED"
      else if (task.state === "SUBMITTED") task.state = "WORKING"
      continue
    }
    ids.push(id)
    if (one.kind === "task") {
      tasks.push({ id, caller: one.from, state: "SUBMITTED", turns: [id] })
      continue
    }
    const byTask = one.task === undefined || tasks.length === 0 ? undefined : tasks[one.task % tasks.length]
    const replied = one.replyTo === undefined ? undefined : ids[one.replyTo % ids.length]
    if (byTask !== undefined && byTask.caller === one.from && !isFinal(byTask.state)) {
      byTask.state = "SUBMITTED"
      byTask.turns.push(id)
      continue
    }
    const mine = tasks.filter((task) => task.caller !== one.from && !isFinal(task.state))
    const names = byTask !== undefined || replied !== undefined
    const answered = !names
      ? mine[0]
      : mine.find((task) => task === byTask) ??
        mine.find((task) => replied !== undefined && task.turns.includes(replied))
    if (answered === undefined) continue
    answered.state = one.state ?? "COMPLETED"
    answered.turns.push(id)
  }
  return tasks
}

type Decide = typeof decideMessage

/** The same with the rules under test, in pieces: what was derived is stored and read again at each of these places. */
const derived = (
  events: ReadonlyArray<Event>,
  pauses: ReadonlySet<number>,
  decide: Decide = decideMessage,
  cancel: typeof decideCancel = decideCancel
): ReadonlyArray<Task> => {
  const all = new Map<string, Task>()
  let open: ReadonlyArray<Task> = []
  const ids: Array<string> = []
  const put = (task: Task | undefined): void => {
    if (task === undefined) return
    all.set(task.id, task)
    open = withTask(open, task)
  }
  for (const [i, one] of events.entries()) {
    if (pauses.has(i)) open = JSON.parse(JSON.stringify(open)) as ReadonlyArray<Task>
    const id = `m${i}`
    const known = [...all.values()]
    if (one.kind === "cancel" || one.kind === "deliver") {
      const task = known.length === 0 ? undefined : known[one.task % known.length]
      if (task !== undefined) put(one.kind === "cancel" ? cancel(task, i) : decideDelivered(task, i))
      continue
    }
    ids.push(id)
    const base = { id, seq: ids.length, senderId: one.from, recipientId: one.from === "a" ? "b" : "a", at: i }
    const posted: Posted = one.kind === "task" ? { ...base, mark: { taskId: id } } : {
      ...base,
      mark: {
        ...(one.task === undefined || known.length === 0 ? {} : { taskId: known[one.task % known.length]!.id }),
        ...(one.replyTo === undefined ? {} : { replyTo: ids[one.replyTo % ids.length]! }),
        ...(one.state === undefined ? {} : { state: one.state })
      }
    }
    put(decide("conv", open, posted))
  }
  return [...all.values()]
}

const summary = (tasks: ReadonlyArray<Task>) =>
  tasks.map((task) => [task.id, task.callerId, task.state, ...task.log.flatMap((change) => change.messageId ?? [])])

const agrees = (decide?: Decide, cancel?: typeof decideCancel) =>
  fc.property(world, fc.array(fc.nat({ max: 40 })), (events, pauses) => {
    const expected = model(events).map(({ caller, id, state, turns }) => [id, caller, state, ...turns])
    assert.deepStrictEqual(summary(derived(events, new Set(pauses), decide, cancel)), expected)
  })

describe("the rules of tasks", () => {
  it("agree with the model, however often what was derived is stored and read again", () => {
    fc.assert(agrees(), { numRuns: 2_000 })
  })

  it("keep every task's changes in order, and an ended one as it is", () => {
    fc.assert(
      fc.property(world, (events) => {
        for (const task of derived(events, new Set())) {
          assert.strictEqual(task.changes, task.log.length)
          assert.strictEqual(task.log.at(-1)?.state, task.state)
          assert.strictEqual(
            task.log.findIndex((change) => isFinal(change.state)),
            isFinal(task.state) ? task.log.length - 1 : -1
          )
          for (const [i, change] of task.log.entries()) assert.isAtLeast(change.at, task.log[i - 1]?.at ?? 0)
          assert.strictEqual(waitsFor(task), task.state === "SUBMITTED" ? task.log.at(-1)?.seq : undefined)
        }
      }),
      { numRuns: 500 }
    )
  })

  const without = (message: Posted, name: "taskId" | "replyTo" | "state"): Posted => {
    const { [name]: _, ...mark } = message.mark
    return { ...message, mark }
  }
  const mutants: Readonly<Record<string, Decide>> = {
    "the newest open task is completed, not the oldest": (id, open, message) =>
      decideMessage(id, open.toReversed(), message),
    "reply_to is ignored": (id, open, message) => decideMessage(id, open, without(message, "replyTo")),
    "the agent's task_id is ignored": (id, open, message) =>
      decideMessage(id, open, message.mark.taskId === message.id ? message : without(message, "taskId")),
    "states are ignored": (id, open, message) => decideMessage(id, open, without(message, "state")),
    "the caller's own reply completes its task": (id, open, message) =>
      decideMessage(id, open, message) ??
        decideMessage(
          id,
          open.map((task) => ({ ...task, recipientId: task.callerId, callerId: task.recipientId })),
          message
        ),
    "a message that names something else completes the oldest": (id, open, message) =>
      decideMessage(id, open, message) ?? decideMessage(id, open, without(without(message, "taskId"), "replyTo")),
    "a reply to a later message of the task is not for the task": (id, open, message) =>
      decideMessage(id, open.map((task) => ({ ...task, log: task.log.slice(0, 1) })), message)
  }
  for (const [name, mutant] of Object.entries(mutants)) {
    it(`a mutant is found: ${name}`, () => {
      assert.isTrue(fc.check(agrees(mutant), { numRuns: 5_000, seed: 1, endOnFailure: true }).failed)
    })
  }

  it("a mutant is found: what has ended can be cancelled", () => {
    const cancel: typeof decideCancel = (task, at) => decideCancel({ ...task, state: "WORKING" }, at)
    assert.isTrue(fc.check(agrees(undefined, cancel), { numRuns: 5_000, seed: 1, endOnFailure: true }).failed)
  })

  it("keep the first message of a task whatever comes after it, and the last ones", () => {
    let open: ReadonlyArray<Task> = []
    const post = (i: number, mark: Posted["mark"]): Posted => ({
      id: `m${i}`,
      seq: i,
      senderId: "a",
      recipientId: "b",
      at: i,
      mark
    })
    const first = decideMessage("conv", open, post(1, { taskId: "m1" }))
    open = withTask(open, first!)
    for (let i = 2; i <= LOG + 50; i++) open = withTask(open, decideMessage("conv", open, post(i, { taskId: "m1" }))!)
    const [task] = open
    assert.deepStrictEqual([task?.changes, task?.log.length], [LOG + 50, LOG + 1])
    assert.deepStrictEqual([task?.log[0]?.seq, task?.log.at(-1)?.seq], [1, LOG + 50])
  })

  it("read states as agents write them, and nothing else", () => {
    assert.deepStrictEqual(
      ["INPUT_REQUIRED", "input-required", "TASK_STATE_FAILED", "Cancelled", "SUBMITTED", "DONE", 3, null].map(
        saidState
      ),
      ["INPUT_REQUIRED", "INPUT_REQUIRED", "FAILED", "CANCELED", undefined, undefined, undefined, undefined]
    )
    assert.deepStrictEqual(markOf("{}"), {})
    assert.deepStrictEqual(markOf(`{"a2a":7,"reply_to":["x"]}`), {})
    assert.deepStrictEqual(markOf(`{"a2a":{"task_id":"msg_1","state":"failed"},"reply_to":"msg_2"}`), {
      taskId: "msg_1",
      state: "FAILED",
      replyTo: "msg_2"
    })
  })
})
