import type { TaskState } from "#interfaces/a2a/Task"
import * as fc from "fast-check"
import { inWordsBy } from "./Words.ts"

/**
 * The commands of a simulation of the messaging core. Every number except a time is a choice, modulo the number of
 * things that exist when the command runs. So a list stays meaningful when commands are removed from it.
 */
export type Command =
  | { readonly _tag: "Send"; readonly from: number; readonly to: number; readonly key: number }
  | {
    readonly _tag: "FailedSend"
    readonly from: number
    readonly to: number
    readonly key: number
    readonly stored: boolean
  }
  | {
    readonly _tag: "Burst"
    readonly sends: ReadonlyArray<{ readonly from: number; readonly to: number; readonly key: number }>
    /** The agent whose socket opens while the sends are under way. */
    readonly attach: number | null
    /** The agent whose wait begins together with the sends. */
    readonly waits?: number | null
  }
  /**
   * A wait for messages, which acknowledges those that its caller has received before. `takes`: whether the caller
   * receives its answer.
   */
  | { readonly _tag: "Wait"; readonly agent: number; readonly limit: number; readonly takes: boolean }
  | { readonly _tag: "HangUp"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "Reply"; readonly agent: number; readonly pick: number; readonly key: number }
  | { readonly _tag: "Sync"; readonly agent: number; readonly after: Cursor; readonly limit: number }
  | { readonly _tag: "AckThrough"; readonly agent: number; readonly cursor: Cursor }
  | { readonly _tag: "AckFrame"; readonly agent: number; readonly session: number; readonly pick: number }
  | { readonly _tag: "Read"; readonly agent: number; readonly pick: number; readonly twice: boolean }
  | { readonly _tag: "ReadThrough"; readonly agent: number; readonly pick: number; readonly through: number }
  | { readonly _tag: "HideMessage"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "HideConversation"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "List"; readonly agent: number; readonly limit: number }
  | {
    readonly _tag: "History"
    readonly agent: number
    readonly pick: number
    readonly by: "before" | "after" | "around" | "newest"
    readonly at: number
    readonly limit: number
  }
  | { readonly _tag: "Attach"; readonly agent: number; readonly acknowledges: boolean }
  | { readonly _tag: "Detach"; readonly agent: number; readonly session: number }
  | { readonly _tag: "LoseHint"; readonly agent: number; readonly session: number }
  | { readonly _tag: "DelayHint"; readonly agent: number; readonly session: number }
  | { readonly _tag: "Check"; readonly agent: number }
  | { readonly _tag: "Block"; readonly agent: number; readonly other: number }
  | { readonly _tag: "Jump"; readonly ms: number }
  /** A send over A2A, which begins a task. */
  | { readonly _tag: "Task"; readonly from: number; readonly to: number; readonly key: number; readonly fault: Broken }
  /** A message about a task: a further message of its caller, or an answer of the called agent. */
  | { readonly _tag: "About"; readonly pick: number; readonly says: Says; readonly fault: Broken }
  | { readonly _tag: "Cancel"; readonly pick: number; readonly node: number }
  /**
   * A read of a task at one of the nodes. With a fault, the derived state cannot be stored, or the answer to storing it
   * is lost.
   */
  | { readonly _tag: "LookAtTask"; readonly pick: number; readonly node: number; readonly fault: Broken }
  /** Messages about one task, cancellations and reads at once, over both nodes. */
  | {
    readonly _tag: "TaskBurst"
    readonly pick: number
    readonly says: ReadonlyArray<Says>
    readonly cancels: number
    readonly looks: number
  }

/** How a commit fails: it is refused, or it succeeds and its answer is lost; null if it does not fail. */
export type Broken = "refused" | "unanswered" | null

/** A message about a task: its sender, how it names the task, and the state that it gives. */
export interface Says {
  readonly byCaller: boolean
  readonly naming: "task" | "first" | "newest" | "nothing"
  readonly state: TaskState | null
}

/** A delivery id: one that the agent was shown, one of another agent, or an invalid one. */
export type Cursor =
  | { readonly _tag: "Own"; readonly pick: number }
  | { readonly _tag: "Foreign"; readonly pick: number }
  | { readonly _tag: "Garbage"; readonly text: string }

const agent = fc.nat(3)
const pick = fc.nat(1_000)
const key = fc.nat(60)
/** A sender and another agent. In one of 31 cases the other agent is the sender itself. */
const pair = fc.tuple(agent, fc.nat(30)).map(([from, to]) => ({
  from,
  to: to === 30 ? from : (from + 1 + (to % 3)) % 4
}))
const one = fc.record({ pair, key }).map(({ key, pair }) => ({ ...pair, key }))

const cursor: fc.Arbitrary<Cursor> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ _tag: fc.constant("Own" as const), pick }) },
  { weight: 1, arbitrary: fc.record({ _tag: fc.constant("Foreign" as const), pick }) },
  {
    weight: 1,
    arbitrary: fc.record({
      _tag: fc.constant("Garbage" as const),
      text: fc.oneof(fc.constantFrom("", "del_", `del_${"0".repeat(32)}`, `del_${"z".repeat(32)}`), fc.string())
    })
  }
)

const tagged = <T extends Command["_tag"], R extends Record<string, fc.Arbitrary<unknown>>>(tag: T, fields: R) =>
  fc.record({ _tag: fc.constant(tag), ...fields })

const command = fc.oneof(
  { weight: 16, arbitrary: one.map((sent) => ({ _tag: "Send" as const, ...sent })) },
  {
    weight: 3,
    arbitrary: fc.tuple(one, fc.boolean()).map(([sent, stored]) => ({ _tag: "FailedSend" as const, ...sent, stored }))
  },
  {
    weight: 8,
    arbitrary: tagged("Burst", {
      sends: fc.array(one, { minLength: 2, maxLength: 5, size: "max" }),
      attach: fc.option(agent, { freq: 4 }),
      waits: fc.option(agent, { freq: 3 })
    })
  },
  { weight: 14, arbitrary: tagged("Reply", { agent, pick, key }) },
  {
    weight: 6,
    arbitrary: tagged("Sync", {
      agent,
      after: fc.oneof(cursor, fc.constant({ _tag: "Own", pick: 0 } as const)),
      limit: fc.integer({ min: 1, max: 8 })
    })
  },
  { weight: 5, arbitrary: tagged("AckThrough", { agent, cursor }) },
  { weight: 8, arbitrary: tagged("AckFrame", { agent, session: pick, pick }) },
  { weight: 5, arbitrary: tagged("Read", { agent, pick, twice: fc.boolean() }) },
  { weight: 5, arbitrary: tagged("ReadThrough", { agent, pick, through: fc.nat(12) }) },
  { weight: 3, arbitrary: tagged("HideMessage", { agent, pick }) },
  { weight: 2, arbitrary: tagged("HideConversation", { agent, pick }) },
  { weight: 4, arbitrary: tagged("List", { agent, limit: fc.integer({ min: 1, max: 4 }) }) },
  {
    weight: 5,
    arbitrary: tagged("History", {
      agent,
      pick,
      by: fc.constantFrom("before" as const, "after" as const, "around" as const, "newest" as const),
      at: fc.nat(12),
      limit: fc.integer({ min: 1, max: 8 })
    })
  },
  { weight: 7, arbitrary: tagged("Attach", { agent, acknowledges: fc.boolean() }) },
  { weight: 4, arbitrary: tagged("Detach", { agent, session: pick }) },
  { weight: 8, arbitrary: tagged("Wait", { agent, limit: fc.integer({ min: 1, max: 6 }), takes: fc.boolean() }) },
  { weight: 2, arbitrary: tagged("HangUp", { agent, pick }) },
  { weight: 3, arbitrary: tagged("LoseHint", { agent, session: pick }) },
  { weight: 2, arbitrary: tagged("DelayHint", { agent, session: pick }) },
  { weight: 3, arbitrary: tagged("Check", { agent }) },
  { weight: 1, arbitrary: tagged("Block", { agent, other: agent }) },
  {
    weight: 2,
    arbitrary: tagged("Jump", {
      ms: fc.oneof(
        { weight: 10, arbitrary: fc.constantFrom(1, 999, 1_001, 20_000) },
        { weight: 3, arbitrary: fc.constantFrom(60_000, 400_000) },
        { weight: 1, arbitrary: fc.constantFrom(82_800_000, 86_400_000) }
      )
    })
  }
) as fc.Arbitrary<Command>

const fault = fc.constantFrom<Broken>(null, null, null, null, "refused", "unanswered")
const says: fc.Arbitrary<Says> = fc.record({
  byCaller: fc.constantFrom(false, false, false, true),
  naming: fc.constantFrom("task" as const, "task" as const, "first" as const, "newest" as const, "nothing" as const),
  state: fc.constantFrom<TaskState | null>(
    null,
    null,
    "WORKING",
    "INPUT_REQUIRED",
    "INPUT_REQUIRED",
    "AUTH_REQUIRED",
    "AUTH_REQUIRED",
    "COMPLETED",
    "FAILED",
    "REJECTED"
  )
})

const aboutTasks = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.tuple(one, fault).map(([sent, broken]) => ({ _tag: "Task" as const, ...sent, fault: broken }))
  },
  { weight: 5, arbitrary: tagged("About", { pick, says, fault }) },
  { weight: 1, arbitrary: tagged("Cancel", { pick, node: fc.nat(1) }) },
  // Without this weight, inboxes are soon full.
  {
    weight: 3,
    arbitrary: tagged("AckThrough", { agent, cursor: fc.record({ _tag: fc.constant("Own" as const), pick }) })
  },
  { weight: 4, arbitrary: tagged("LookAtTask", { pick, node: fc.nat(1), fault }) },
  {
    weight: 4,
    arbitrary: tagged("TaskBurst", {
      pick,
      says: fc.array(says, { minLength: 1, maxLength: 3 }),
      cancels: fc.constantFrom(0, 0, 0, 1, 2),
      looks: fc.nat(3)
    })
  }
)

const listOf = (commands: fc.Arbitrary<Command>, seed: number, length: number): ReadonlyArray<Command> =>
  fc.sample(fc.array(commands, { minLength: length, maxLength: length + 10, size: "max" }), { seed, numRuns: 1 })[0]!

/** The commands of one run, which depend only on the seed and the length. */
export const commandsOf = (seed: number, length: number): ReadonlyArray<Command> => listOf(command, seed, length)

const withTasks = fc.oneof({ weight: 3, arbitrary: aboutTasks }, { weight: 2, arbitrary: command }) as fc.Arbitrary<
  Command
>

/** The commands of one run with A2A tasks. */
export const commandsWithTasks = (seed: number, length: number): ReadonlyArray<Command> =>
  listOf(withTasks, seed, length)

/**
 * Describes a command. Choices such as `pick` are left out, because they have no meaning without the state at that
 * time.
 */
export const inWords = inWordsBy<Command>({
  Send: "agent {from} sends a message with key {key} to agent {to}",
  FailedSend:
    "agent {from} sends a message with key {key} to agent {to}, and its commit fails (stored all the same: {stored})",
  Burst:
    "messages are sent at the same time: {sends}; meanwhile a socket of agent {attach} opens and a wait of agent {waits} begins",
  Wait: "agent {agent} waits for at most {limit} messages (its caller gets the answer: {takes})",
  HangUp: "agent {agent} hangs up one of its waits",
  Reply: "agent {agent} answers in one of its conversations with key {key}",
  Sync: "agent {agent} syncs at most {limit} messages",
  AckThrough: "agent {agent} acknowledges by sync/ack up to a cursor",
  AckFrame: "agent {agent} acknowledges a message by a frame on one of its sockets",
  Read: "agent {agent} reads a message (twice at the same time: {twice})",
  ReadThrough: "agent {agent} reads one of its conversations up to seq {through}",
  HideMessage: "agent {agent} hides a message",
  HideConversation: "agent {agent} hides a conversation",
  List: "agent {agent} lists its conversations, {limit} to a page",
  History: "agent {agent} asks for {limit} messages of a conversation, {by} {at}",
  Attach: "agent {agent} opens a socket (with ack: {acknowledges})",
  Detach: "agent {agent} closes one of its sockets",
  LoseHint: "the next hint to a socket of agent {agent} is lost",
  DelayHint: "the next hint to a socket of agent {agent} is delayed",
  Check: "the sockets of agent {agent} are compared with its inbox",
  Block: "agent {agent} blocks agent {other}",
  Jump: "the clock advances by {ms} ms",
  Task: "agent {from} calls agent {to} by A2A with key {key} (fault of the commit: {fault})",
  About: "in a message about a task {says} (fault of the commit: {fault})",
  Cancel: "the caller of a task cancels it at node {node}",
  LookAtTask: "node {node} is asked for a task (fault of the commit: {fault})",
  TaskBurst:
    "at the same time, in messages about a task {says}, and it is cancelled {cancels} times and looked at {looks} times"
})
