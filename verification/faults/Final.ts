import { Bytes, Ints, type OutcomeState } from "./History.ts"

/** A system message in a group. The system messages show who was a member at each seq. */
export interface SystemMessage {
  readonly conversation: number
  readonly seq: number
  readonly event: string
  readonly sender: number
  /** The agent that it is about; -1 if it is about no single agent. */
  readonly agent: number
}

export interface Group {
  readonly creator: number
  /** The stored counter of members. */
  readonly memberCount: number
  readonly members: ReadonlyArray<number>
  readonly deleted: boolean
}

/** A whole history of a conversation as one agent reads it, oldest first. */
export interface Reading {
  readonly agent: number
  readonly conversation: number
  readonly seq: Ints
  /** Fingerprints of ids. */
  readonly message: Ints
}

/** All messages that sync offers an agent, oldest delivery first. */
export interface Offer {
  readonly agent: number
  readonly conversation: Ints
  readonly seq: Ints
}

/** A row of an agent's list of conversations. */
export interface Unread {
  readonly agent: number
  readonly conversation: number
  readonly count: number
  readonly oldest: number | null
  readonly newest: number | null
}

export const DELIVERED = 1
export const READ = 2

/** One text for an agent and a message, and for the emoji of a reaction. */
export const markOf = (agent: number, conversation: number, seq: number, emoji = ""): string =>
  `${agent} ${conversation} ${seq} ${emoji}`

/** One number for an agent's part in a conversation. */
export const partOf = (agent: number, conversation: number): number => agent * 0x1000000 + conversation

/** The final state once no operation is under way: the stored rows, and the answers of the service about them. */
export class Final {
  readonly messages = {
    conversation: new Ints(),
    seq: new Ints(),
    /** The number of the send in the history, or SYSTEM, or FOREIGN. */
    send: new Ints(),
    sender: new Ints(),
    /** Fingerprints of ids. */
    message: new Ints()
  }
  /** Also in `messages`. */
  readonly systems: Array<SystemMessage> = []
  readonly envelopes = {
    recipient: new Ints(),
    inboxNo: new Ints(),
    conversation: new Ints(),
    seq: new Ints(),
    /** DELIVERED, READ. */
    state: new Bytes()
  }
  /** Counters, by agent. */
  readonly inboxes = new Map<number, { readonly lastInboxNo: number; readonly undelivered: number }>()
  /** By conversation. */
  readonly lastSeq = new Map<number, number>()
  /** By conversation. */
  readonly groups = new Map<number, Group>()
  /**
   * By `partOf`, the seq up to which a participant sees nothing. Agents without an entry are not, or no longer,
   * participants.
   */
  readonly cutoffs = new Map<number, number>()
  /** By `partOf`, the seqs that the agent has hidden one by one. */
  readonly hidden = new Map<number, ReadonlySet<number>>()
  /** By `markOf` with its emoji. */
  readonly reactions = new Set<string>()
  /** By `markOf`, what each recipient last reported. */
  readonly outcomes = new Map<string, OutcomeState>()
  /** Inconsistencies between stored rows, one line each. */
  readonly unsound: Array<string> = []
  /** The histories that were read, of some agents and conversations. */
  readonly readings: Array<Reading> = []
  readonly offers: Array<Offer> = []
  readonly unread: Array<Unread> = []
}
