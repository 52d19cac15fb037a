import type { Letter } from "./Inboxes.ts"

/** The reactions that agents of a history give. */
export const EMOJI = ["+1", "done", "seen", "thanks", "🎉", "👍🏽", "❤️"] as const

/** How many reactions one agent may give to a message. */
const MAX_OF_AGENT = 5
/** How many different reactions a message may have. */
const MAX_DIFFERENT = 20

export interface Given {
  readonly letter: Letter
  readonly agent: number
  readonly emoji: string
  readonly at: number
}

/** A reaction as one agent sees it. */
export interface Seen {
  readonly emoji: string
  readonly count: number
  readonly mine: boolean
}

/** The reactions to messages (wire.md C.6). */
export class Reactions {
  all: Array<Given> = []

  of(letter: Letter): ReadonlyArray<Given> {
    return this.all.filter((one) => one.letter === letter)
  }

  has(letter: Letter, agent: number, emoji: string): boolean {
    return this.of(letter).some((one) => one.agent === agent && one.emoji === emoji)
  }

  /** Adds a reaction. Returns whether that changed anything, or that there is no room for it. */
  give(letter: Letter, agent: number, emoji: string, at: number): boolean | "full" {
    if (this.has(letter, agent, emoji)) return false
    const given = this.of(letter)
    if (given.filter((one) => one.agent === agent).length >= MAX_OF_AGENT) return "full"
    const different = new Set(given.map((one) => one.emoji))
    if (!different.has(emoji) && different.size >= MAX_DIFFERENT) return "full"
    this.all.push({ letter, agent, emoji, at })
    return true
  }

  /** Removes a reaction. Returns false if there is none. */
  takeBack(letter: Letter, agent: number, emoji: string): boolean {
    const known = this.has(letter, agent, emoji)
    this.all = this.all.filter((one) => one.letter !== letter || one.agent !== agent || one.emoji !== emoji)
    return known
  }

  /** What an agent is shown, in the order of the first of each emoji. Equally old ones are in the order of their texts. */
  shownTo(viewer: number, letter: Letter): ReadonlyArray<Seen> {
    const first = new Map<string, number>()
    for (const { at, emoji } of this.of(letter)) first.set(emoji, Math.min(at, first.get(emoji) ?? at))
    return [...first].toSorted(([one, a], [other, b]) => a - b || (one < other ? -1 : 1)).map(([emoji]) => {
      const given = this.of(letter).filter((one) => one.emoji === emoji)
      return { emoji, count: given.length, mine: given.some(({ agent }) => agent === viewer) }
    })
  }
}
