import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import type { TaskState } from "#interfaces/a2a/Task"
import { Tasks } from "#interfaces/a2a/Tasks"
import { Context, Effect, Layer } from "effect"
import type { Letter, State, Talk } from "./Model.ts"
import { otherOf, slipOf } from "./Model.ts"

/** What a message says about tasks. Messages are named by their sender and key, since their ids are known late. */
export interface Mark {
  /** Whether the message is the first of a task. */
  readonly isTask?: boolean
  readonly task?: string
  readonly replyTo?: string
  readonly state?: TaskState
}

/** A cancellation, and the number of messages that its conversation had then. */
export interface Cancellation {
  readonly task: string
  readonly after: number
}

/** A task according to the contract (wire.md N), derived from all messages of its conversation. */
export interface ModelTask {
  readonly name: string
  readonly caller: number
  readonly letter: Letter
  state: TaskState
  readonly letters: Array<Letter>
}

const FINAL: ReadonlyArray<TaskState> = ["COMPLETED", "FAILED", "REJECTED", "CANCELED"]
export const hasEnded = ({ state }: { readonly state: TaskState }): boolean => FINAL.includes(state)

export const nameOfLetter = ({ key, sender }: Letter): string => `${sender} ${key}`

export const tasksOf = (
  talk: Talk | undefined,
  marks: ReadonlyMap<string, Mark>,
  cancellations: ReadonlyArray<Cancellation>
): ReadonlyArray<ModelTask> => {
  const tasks: Array<ModelTask> = []
  const open = () => tasks.filter((task) => !hasEnded(task))
  const letters = talk?.letters ?? []
  for (let seq = 0; seq <= letters.length; seq++) {
    const letter = letters[seq - 1]
    if (letter !== undefined) {
      const name = nameOfLetter(letter)
      const { isTask = false, replyTo, state, task } = marks.get(name) ?? {}
      const own = open().find((one) => one.name === task && one.caller === letter.sender)
      const theirs = open().filter(({ caller }) => caller !== letter.sender)
      const answered = task === undefined && replyTo === undefined
        ? theirs[0]
        : theirs.find((one) => one.name === task) ??
          theirs.find((one) => one.letters.some((each) => nameOfLetter(each) === replyTo))
      if (isTask) tasks.push({ name, caller: letter.sender, letter, state: "SUBMITTED", letters: [letter] })
      else if (own !== undefined) {
        own.state = "SUBMITTED"
        own.letters.push(letter)
      } else if (answered !== undefined) {
        answered.state = state ?? "COMPLETED"
        answered.letters.push(letter)
      }
    }
    for (const { after, task } of cancellations) {
      const canceled = after === seq ? open().find(({ name }) => name === task) : undefined
      if (canceled !== undefined) canceled.state = "CANCELED"
    }
  }
  return tasks
}

/**
 * The state that the caller sees: WORKING once the caller's newest message was delivered, if the task is still
 * SUBMITTED.
 */
export const shownState = (state: State, task: ModelTask): TaskState => {
  const newest = task.letters.findLast(({ sender }) => sender === task.caller)
  return task.state === "SUBMITTED" && newest !== undefined && slipOf(state, newest).slip.deliveredAt !== null
    ? "WORKING"
    : task.state
}

/** The called agent. */
export const calledBy = ({ caller, letter }: ModelTask): number => otherOf(letter.talk, caller)

/** The services of two nodes for tasks, which share only the database. */
export const makeNodes = Effect.gen(function*() {
  // The pauses between large reads are not simulated, because a stall of this process would make an agent wait for the
  // test clock, which stands still.
  const reads = LargeReads.of({ ...yield* LargeReads, during: (_agent, _size, effect) => effect })
  const layer = Layer.fresh(Tasks.layer.pipe(Layer.provide(Layer.succeed(LargeReads, reads))))
  const node = Effect.map(Layer.build(layer), (context) => Context.get(context, Tasks))
  return [yield* node, yield* node] as const
})
