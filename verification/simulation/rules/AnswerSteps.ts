import * as fc from "fast-check"
import type { Budget } from "./Budgets.ts"
import type { OutcomeState } from "./Outcomes.ts"
import { EMOJI } from "./Reactions.ts"

/** The steps about reactions, outcomes, causes and budgets. */
export type AnswerStep =
  /** An agent gives several different reactions to a message, one after the other or at once, or takes them back. */
  | {
    readonly _tag: "React"
    readonly agent: number
    readonly pick: number
    readonly emoji: number
    readonly times: number
    readonly how: "give" | "take back" | "give and take back" | "give at once"
  }
  /** A recipient reports several outcomes of a message, one after the other or at once. */
  | {
    readonly _tag: "Outcome"
    readonly agent: number
    readonly pick: number
    readonly states: ReadonlyArray<OutcomeState>
    readonly reason: string | null
    readonly atOnce: boolean
  }
  /** Agents answer each other, each because of the message before. */
  | {
    readonly _tag: "Circle"
    readonly pick: number
    readonly times: number
    /** If set, the last message is sent a day after its cause, or that many milliseconds beside it. */
    readonly late: -1 | 0 | 1 | null
  }
  | { readonly _tag: "Cause"; readonly agent: number; readonly pick: number }
  /** An agent sets a budget, sends until it is spent, and sends again beside the time at which the next send is allowed. */
  | {
    readonly _tag: "Spend"
    readonly agent: number
    readonly pick: number
    readonly budget: Budget
    readonly early: boolean
    readonly offset: -1 | 0 | 1
  }
  /** An agent sets a budget and sends several messages to one conversation at once. */
  | {
    readonly _tag: "Rush"
    readonly agent: number
    readonly pick: number
    readonly times: number
    readonly budget: Budget
  }

const pick = fc.nat(10_000)
const step = <T extends AnswerStep["_tag"], R>(tag: T, fields: fc.Arbitrary<R>) =>
  fields.map((rest) => ({ _tag: tag, ...rest }))

const budget = fc.constantFrom<Budget>(
  { perConversation: 2, inAll: null },
  { perConversation: 3, inAll: 5 },
  { perConversation: null, inAll: 3 },
  { perConversation: 6, inAll: 6 },
  { perConversation: 2, inAll: 3 }
)
const state = fc.constantFrom<OutcomeState>("working", "done", "refused")

/** The steps with their weights, about the messages of these agents. */
export const answersOf = (agent: fc.Arbitrary<number>) => [
  {
    weight: 5,
    arbitrary: step(
      "React",
      fc.record({
        agent,
        pick,
        emoji: fc.nat(EMOJI.length - 1),
        times: fc.constantFrom(1, 1, 2, 6),
        how: fc.constantFrom(
          "give" as const,
          "give" as const,
          "take back" as const,
          "give and take back" as const,
          "give at once" as const
        )
      })
    )
  },
  {
    weight: 5,
    arbitrary: step(
      "Outcome",
      fc.record({
        agent,
        pick,
        states: fc.array(state, { minLength: 1, maxLength: 3, size: "max" }),
        reason: fc.constantFrom(null, "because"),
        atOnce: fc.boolean()
      })
    )
  },
  {
    weight: 2,
    arbitrary: step(
      "Circle",
      fc.record({
        pick,
        times: fc.integer({ min: 2, max: 6 }),
        late: fc.constantFrom(null, null, -1 as const, 0 as const, 1 as const)
      })
    )
  },
  { weight: 3, arbitrary: step("Cause", fc.record({ agent, pick })) },
  {
    weight: 2,
    arbitrary: step(
      "Spend",
      fc.record({
        agent,
        pick,
        budget,
        early: fc.nat(3).map((n) => n === 0),
        offset: fc.constantFrom(-1 as const, 0 as const, 0 as const, 1 as const)
      })
    )
  },
  { weight: 1, arbitrary: step("Rush", fc.record({ agent, pick, times: fc.integer({ min: 3, max: 6 }), budget })) }
]

export const ANSWERS_IN_WORDS: Readonly<Record<AnswerStep["_tag"], string>> = {
  React: "agent {agent}, or the next agent with a conversation: {how} {times} reactions",
  Outcome: "agent {agent}, or the next agent with a message, reports {states} (at once: {atOnce})",
  Circle: "agents answer each other {times} times, each because of the message before",
  Cause: "agent {agent}, or the next agent with a conversation, names a cause of a message",
  Spend: "agent {agent}, or the next agent with a conversation, spends a budget of {budget}",
  Rush: "agent {agent}, or the next agent with a conversation, sends {times} messages at once with a budget of {budget}"
}
