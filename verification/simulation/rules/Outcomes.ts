import type { Letter } from "./Inboxes.ts"

export type OutcomeState = "working" | "done" | "refused"

export interface Reported {
  readonly letter: Letter
  readonly recipient: number
  readonly state: OutcomeState
  readonly reason: string | null
  readonly at: number
}

/** The outcomes that recipients report for messages (wire.md C.6). */
export class Outcomes {
  private readonly all = new Map<string, Reported>()

  private keyOf(letter: Letter, recipient: number): string {
    return `${letter.talk} ${letter.seq} ${recipient}`
  }

  of(letter: Letter, recipient: number): Reported | undefined {
    return this.all.get(this.keyOf(letter, recipient))
  }

  /** All outcomes of a message, oldest first. */
  list(letter: Letter): ReadonlyArray<Reported> {
    return [...this.all.values()].filter((one) => one.letter === letter).toSorted((a, b) => a.at - b.at)
  }

  every(): ReadonlyArray<Reported> {
    return [...this.all.values()]
  }

  /** Stores a report. Returns the state before if that changed anything, or the final state that refuses the report. */
  report(
    letter: Letter,
    recipient: number,
    state: OutcomeState,
    reason: string | null,
    at: number
  ): { readonly was: "none" | "working" } | "same" | { readonly final: OutcomeState } {
    const was = this.of(letter, recipient)?.state
    if (was === state) return "same"
    if (was === "done" || was === "refused") return { final: was }
    this.all.set(this.keyOf(letter, recipient), { letter, recipient, state, reason, at })
    return { was: was ?? "none" }
  }

  /** The outcome that a message shows: to a recipient its own, to the sender of a direct message the recipient's. */
  shownTo(viewer: number, letter: Letter, isGroup: boolean): Reported | undefined {
    if (letter.sender !== viewer) return this.of(letter, viewer)
    return isGroup ? undefined : this.of(letter, letter.recipients[0]!)
  }
}
