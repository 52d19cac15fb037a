import { type Final, markOf } from "./Final.ts"
import { type History, NEVER, type Operation, Outcome, type OutcomeState, type Tick } from "./History.ts"
import type { Rule } from "./Rule.ts"
import { certainly, possibly, type Switches } from "./Switches.ts"

interface About {
  /** The blocks between two agents, in both directions. */
  readonly blocksOf: (one: number, other: number) => ReadonlyArray<Switches>
  /** An operation in words. */
  readonly told: (operation: Operation) => string
  readonly wrong: (rule: Rule, at: Tick, line: string) => void
}

const isFinal = (state: OutcomeState | undefined): boolean => state === "done" || state === "refused"

/** Compares what agents put beside messages, reactions and outcomes, with what is stored. */
export const checkMarks = (history: History, final: Final, about: About): void => {
  const reactions = new Map<string, Switches>()
  const reports = new Map<string, Array<Operation>>()
  /** A deletion takes these with it, whether or not it was answered. */
  const gone = new Set<number>()
  for (const operation of history.operations) {
    const { agent, conversation, emoji, kind, outcome, seq, state } = operation
    if (kind === "delete" && outcome !== Outcome.Refused) gone.add(agent)
    else if (kind === "react" || kind === "unreact") {
      const key = markOf(agent, conversation!, seq!, emoji)
      const known = reactions.get(key) ?? { on: [], off: [] }
      reactions.set(key, known)
      known[kind === "react" ? "on" : "off"].push(operation)
      if (kind === "react") checkBlocks(history, operation, about)
    } else if (kind === "read" && state !== undefined) {
      const key = markOf(agent, conversation!, seq!)
      reports.set(key, [...reports.get(key) ?? [], operation])
    }
  }
  const isGone = (key: string) => gone.has(Number(key.split(" ")[0]))

  for (const key of new Set([...reactions.keys(), ...final.reactions])) {
    if (isGone(key)) continue
    const asked = reactions.get(key) ?? { on: [], off: [] }
    const stored = final.reactions.has(key)
    const surely = certainly(asked, NEVER - 1, NEVER)
    if (!stored && surely !== undefined) {
      about.wrong("lost", surely.invoked, `the reaction of ${about.told(surely)} is not stored`)
    } else if (stored && !possibly(asked, NEVER - 1, NEVER - 1)) {
      about.wrong("half", asked.off[0]?.invoked ?? 0, `the reaction ${key} is stored, although it was taken back`)
    }
  }
  for (const key of new Set([...reports.keys(), ...final.outcomes.keys()])) {
    if (!isGone(key)) checkReports(key, reports.get(key) ?? [], final.outcomes.get(key), about)
  }
}

const checkBlocks = (history: History, operation: Operation, { blocksOf, told, wrong }: About): void => {
  const pair = history.conversations[operation.conversation!]?.pair
  if (pair === undefined || operation.outcome !== Outcome.Ok) return
  for (const block of blocksOf(...pair)) {
    const why = certainly(block, operation.invoked, operation.ended)
    if (why !== undefined) wrong("blocked", operation.invoked, `${told(operation)} was accepted after the ${told(why)}`)
  }
}

const checkReports = (
  key: string,
  reports: ReadonlyArray<Operation>,
  stored: OutcomeState | undefined,
  { told, wrong }: About
): void => {
  const accepted = reports.filter(({ outcome }) => outcome === Outcome.Ok)
  const ends = accepted.filter(({ state }) => isFinal(state))
  const second = ends.find(({ state }) => state !== ends[0]!.state)
  if (second !== undefined) {
    return wrong("duplicated", second.invoked, `${told(second)} was accepted after the other final state`)
  }
  const lost = ends.find(({ state }) => state !== stored) ?? (stored === undefined ? accepted[0] : undefined)
  if (lost !== undefined) {
    return wrong("lost", lost.invoked, `${lost.state} of ${told(lost)} is not stored, but ${stored ?? "nothing"}`)
  }
  const asked = reports.some(({ outcome, state }) => state === stored && outcome !== Outcome.Refused)
  if (stored !== undefined && !asked)
    wrong("half", 0, `the outcome ${stored} of ${key} is stored, and nobody reported it`)
}
