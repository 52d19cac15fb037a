import type { SendAnswer } from "#domain/conversations/Conversations"
import type { Effect, Exit } from "effect"
import type { Rule } from "../Violation.ts"
import type { Metadata } from "./Causes.ts"
import type { Letter } from "./Inboxes.ts"
import type { Machine, MACHINES } from "./Ledger.ts"
import type { Sent, Society } from "./Society.ts"

/** What the steps of one history work with: the model, the agents, and requests whose answers are compared with the model. */
export interface Stage {
  readonly society: Society
  readonly the: (agent: number) => { readonly id: string; readonly handle: string }
  /** Whether an agent is neither suspended nor deleted. */
  readonly able: (agent: number) => boolean
  readonly alive: (agent: number) => boolean
  /** This agent, or the next one that is suitable. */
  readonly someone: (agent: number, suits: (agent: number) => boolean) => number
  readonly now: () => number
  readonly iso: (at: number | null) => string | null
  readonly add: <M extends Machine>(machine: M, transition: typeof MACHINES[M][number], n?: number) => void
  /** Checks that the answer is this refusal, or a success if `refused` is undefined. */
  readonly expect: (
    rule: Rule,
    exit: Exit.Exit<unknown, unknown>,
    refused: string | undefined,
    what: string
  ) => boolean
  /** Compares the answer to a send with what the model says. */
  readonly said: (exit: Exit.Exit<SendAnswer, unknown>, outcome: Sent, what: string) => Letter | undefined
  /** Sends without comparing the answer with the model. */
  readonly attempt: (
    from: number,
    to: number | string,
    key: string,
    metadata?: Metadata
  ) => Effect.Effect<Exit.Exit<SendAnswer, unknown>>
  /** Sends, and compares with the model. Returns the message if it is stored. */
  readonly send: (
    from: number,
    to: number | string,
    key: string,
    metadata?: Metadata
  ) => Effect.Effect<Letter | undefined>
  /** Notes that each open socket of an agent must show an event. */
  readonly tell: (agent: number, event: string) => void
  /** Compares the history that an agent is shown with the model. */
  readonly lookAt: (agent: number, talk: string) => Effect.Effect<void, unknown>
  /** Ends the current moment, and goes on at a later one. */
  readonly later: (ms: number) => Effect.Effect<void, unknown>
  /** A new client_msg_id. */
  readonly key: () => string
}

export const choose = <A>(among: ReadonlyArray<A>, pick: number): A | undefined =>
  among[pick % Math.max(1, among.length)]
