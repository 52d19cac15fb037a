import type { Letter } from "./Inboxes.ts"

const DAY = 86_400_000

export type Metadata = Readonly<Record<string, unknown>>

/** How many messages caused each other (wire.md G.19, Causes). */
export class Causes {
  private readonly limit: number
  /** Whether the agent has sent or received the message. */
  private readonly knows: (agent: number, letter: Letter) => boolean
  private readonly find: (id: string) => Letter | undefined

  constructor(
    limit: number,
    knows: (agent: number, letter: Letter) => boolean,
    find: (id: string) => Letter | undefined
  ) {
    this.limit = limit
    this.knows = knows
    this.find = find
  }

  hopsOf({ metadata }: Pick<Letter, "metadata">): number {
    return typeof metadata["caused_by"] === "string" && typeof metadata["hops"] === "number" ? metadata["hops"] : 0
  }

  /** The metadata that a send with these metadata stores, or the hops that are too many. */
  decide(from: number, metadata: Metadata, now: number):
    | { readonly metadata: Metadata; readonly cause: Letter | undefined }
    | { readonly hops: number; readonly limit: number }
  {
    const id = metadata["caused_by"]
    if (typeof id !== "string") return { metadata, cause: undefined }
    const { hops: _, ...own } = metadata
    const named = this.find(id)
    const cause = named !== undefined && named.at > now - DAY && this.knows(from, named) ? named : undefined
    if (cause === undefined) return { metadata: own, cause }
    const hops = this.hopsOf(cause) + 1
    return hops > this.limit ? { hops, limit: this.limit } : { metadata: { ...own, hops }, cause }
  }
}
