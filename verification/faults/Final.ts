import { Bytes, Ints } from "./History.ts"

/** A message of the platform in a group, by which its members are known at each seq. */
export interface SystemMessage {
  readonly conversation: number
  readonly seq: number
  readonly event: string
  readonly sender: number
  /** Whom it is about; -1: nobody in particular. */
  readonly agent: number
}

export interface Group {
  readonly creator: number
  /** The counter. */
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

/** All that sync offers an agent, oldest delivery first. */
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

/** One number for an agent's part in a conversation. */
export const partOf = (agent: number, conversation: number): number => agent * 0x1000000 + conversation

/** What there is once everything is at rest: what is stored, and what is shown of it to those who ask. */
export class Final {
  readonly messages = {
    conversation: new Ints(),
    seq: new Ints(),
    /** Of the history, or SYSTEM, or FOREIGN. */
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
  /** By `partOf`: the seqs up to which a participant sees nothing. Others are no participants (any more). */
  readonly cutoffs = new Map<number, number>()
  /** By `partOf`: hidden one by one. */
  readonly hidden = new Map<number, ReadonlySet<number>>()
  /** What storage finds wrong with itself, one line each. */
  readonly unsound: Array<string> = []
  /** Of the agents and conversations that were asked for. */
  readonly readings: Array<Reading> = []
  readonly offers: Array<Offer> = []
  readonly unread: Array<Unread> = []
}
