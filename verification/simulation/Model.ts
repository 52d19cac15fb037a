/**
 * A simple model of the messaging core: the rules for sends, and the states of each envelope. Its state is plain data,
 * so that it can be copied to try one order of concurrent sends after another.
 */

export interface Limits {
  readonly cold: number
  readonly soft: number
  readonly hard: number
}

/** A message as stored. */
export interface Letter {
  readonly talk: string
  readonly seq: number
  readonly sender: number
  readonly recipient: number
  readonly key: string
  readonly text: string
  readonly at: number
  /** The message's id; undefined while only a lost answer has contained it. */
  id: string | undefined
}

/** A message's place in its recipient's inbox; its number is its index there plus one. */
export interface Slip {
  readonly letter: Letter
  deliveredAt: number | null
  readAt: number | null
}

export interface Talk {
  readonly name: string
  readonly initiator: number
  readonly createdAt: number
  established: boolean
  readonly letters: Array<Letter>
  /** By agent. */
  readonly hiddenThrough: Record<number, number>
  readonly hidden: Record<number, Set<number>>
}

export interface Slot {
  readonly agent: number
  readonly reservedAt: number
  readonly claimedAt: number | null
}

export interface State {
  readonly limits: Limits
  readonly inboxes: ReadonlyArray<Array<Slip>>
  readonly contactsOnly: ReadonlyArray<boolean>
  readonly contacts: Set<string>
  readonly blocks: Set<string>
  readonly talks: Map<string, Talk>
  readonly keys: Map<string, Letter>
  readonly slots: Map<string, Slot>
}

export const DAY = 86_400_000
const RESERVATION = 60_000

export const empty = (contactsOnly: ReadonlyArray<boolean>, limits: Limits): State => ({
  limits,
  inboxes: contactsOnly.map(() => []),
  contactsOnly,
  contacts: new Set(),
  blocks: new Set(),
  talks: new Map(),
  keys: new Map(),
  slots: new Map()
})

export const nameOf = (one: number, other: number): string => one < other ? `${one}-${other}` : `${other}-${one}`

export const partners = (name: string): [number, number] => {
  const [one, other] = name.split("-").map(Number)
  return [one!, other!]
}

export const otherOf = (name: string, agent: number): number => {
  const [one, other] = partners(name)
  return one === agent ? other : one
}

export const talksOf = (state: State, agent: number): ReadonlyArray<Talk> =>
  [...state.talks.values()].filter((talk) => partners(talk.name).includes(agent))

export const undelivered = (state: State, agent: number): number =>
  state.inboxes[agent]!.filter((slip) => slip.deliveredAt === null).length

export const slipOf = (state: State, letter: Letter): { readonly inboxNo: number; readonly slip: Slip } => {
  const inbox = state.inboxes[letter.recipient]!
  const index = inbox.findIndex((slip) => slip.letter === letter)
  return { inboxNo: index + 1, slip: inbox[index]! }
}

export type Outcome =
  | {
    readonly _tag: "Created"
    readonly letter: Letter
    readonly backlog: number | null
    readonly change: "opened" | "established" | "continued"
  }
  | { readonly _tag: "Replayed"; readonly letter: Letter }
  | { readonly _tag: "Refused"; readonly failure: string; readonly figures: Readonly<Record<string, unknown>> }

const refused = (failure: string, figures: Readonly<Record<string, unknown>> = {}): Outcome => ({
  _tag: "Refused",
  failure,
  figures
})

const counted = (state: State, agent: number, except: string, now: number): ReadonlyArray<number> =>
  [...state.slots].flatMap(([name, slot]) =>
    slot.agent !== agent || name === except ?
      []
      : slot.claimedAt !== null ?
      (slot.claimedAt > now - DAY ? [slot.claimedAt] : [])
      : slot.reservedAt > now - RESERVATION
      ? [slot.reservedAt]
      : []
  )

/** Decides a send (wire.md C.6, guard order; G.1, G.2, G.4, G.13). */
export const send = (
  state: State,
  now: number,
  sender: number,
  recipient: number,
  key: string,
  text: string,
  options: {
    /** Whether the commit fails. It then leaves at most a reservation. */
    readonly fails?: boolean
    /**
     * What is known about the recipient's backlog: the exact count, that it was at its limit (`full`), or that it was
     * not (`module`).
     */
    readonly backlog?: "exact" | "full" | "module"
    /** Cold slots that are held by concurrent sends which will not begin a conversation. */
    readonly held?: number
  } = {}
): Outcome => {
  const known = state.keys.get(`${sender} ${key}`)
  if (known !== undefined) return { _tag: "Replayed", letter: known }
  if (sender === recipient) return refused("ValidationFailed")
  const name = nameOf(sender, recipient)
  const talk = state.talks.get(name)
  if (state.blocks.has(name)) return refused("Blocked")
  const awaiting = talk !== undefined && !talk.established && talk.initiator === sender
  if (
    state.contactsOnly[recipient] === true && !state.contacts.has(`${recipient} ${sender}`) &&
    (talk === undefined || awaiting)
  ) return refused("InboxRestricted")
  if (awaiting) return refused("AwaitingReply", { waiting_since: new Date(talk.createdAt).toISOString() })
  if (talk === undefined) {
    const taken = counted(state, sender, name, now)
    if (taken.length + (options.held ?? 0) >= state.limits.cold) {
      // Held slots begin now.
      const resets = Math.min(now, ...counted(state, sender, "", now)) + DAY
      return refused("ColdCapExceeded", {
        limit: state.limits.cold,
        resets_at: new Date(resets).toISOString(),
        retry_after_ms: resets - now <= 3_600_000 ? resets - now : undefined
      })
    }
    state.slots.set(name, { agent: sender, reservedAt: now, claimedAt: null })
  }
  const waiting = undelivered(state, recipient)
  const { backlog = "exact", fails = false } = options
  if (backlog === "exact" ? waiting >= state.limits.hard : backlog === "full") {
    if (talk === undefined) state.slots.delete(name)
    return refused("RecipientBacklogged", { undelivered_count: waiting })
  }
  if (fails) return refused("Unavailable")
  return store(state, now, sender, recipient, key, text, waiting)
}

const store = (
  state: State,
  now: number,
  sender: number,
  recipient: number,
  key: string,
  text: string,
  waiting: number
): Outcome => {
  const name = nameOf(sender, recipient)
  let talk = state.talks.get(name)
  let change: "opened" | "established" | "continued" = "continued"
  if (talk === undefined) {
    change = "opened"
    talk = {
      name,
      initiator: sender,
      createdAt: now,
      established: false,
      letters: [],
      hiddenThrough: { [sender]: 0, [recipient]: 0 },
      hidden: { [sender]: new Set(), [recipient]: new Set() }
    }
    state.talks.set(name, talk)
    state.slots.set(name, { agent: sender, reservedAt: now, claimedAt: now })
  } else if (!talk.established) {
    change = "established"
    talk.established = true
    state.slots.delete(name)
    state.contacts.add(`${sender} ${recipient}`).add(`${recipient} ${sender}`)
  }
  const letter: Letter = {
    talk: name,
    seq: talk.letters.length + 1,
    sender,
    recipient,
    key,
    text,
    at: now,
    id: undefined
  }
  talk.letters.push(letter)
  state.keys.set(`${sender} ${key}`, letter)
  state.inboxes[recipient]!.push({ letter, deliveredAt: null, readAt: null })
  return { _tag: "Created", letter, change, backlog: waiting + 1 >= state.limits.soft ? waiting + 1 : null }
}

export const deliver = (slip: Slip, now: number): boolean => {
  if (slip.deliveredAt !== null) return false
  slip.deliveredAt = now
  return true
}

/** Acknowledges up to an inbox number. Returns how many envelopes this delivers. */
export const acknowledgeThrough = (state: State, agent: number, inboxNo: number, now: number): number =>
  state.inboxes[agent]!.slice(0, inboxNo).filter((slip) => deliver(slip, now)).length

export interface Receipt {
  readonly to: number
  readonly letter: Letter
  readonly throughSeq: number
}

/**
 * Marks the messages that an agent received in a conversation between two seqs as read. Returns the receipts for the
 * senders.
 */
export const read = (
  state: State,
  agent: number,
  talk: Talk,
  from: number,
  through: number,
  now: number
): { readonly changed: ReadonlyArray<"stored" | "delivered">; readonly receipt: Receipt | undefined } => {
  const own = state.inboxes[agent]!.filter((slip) => slip.letter.talk === talk.name)
  const fresh = own.filter(({ letter, readAt }) => readAt === null && letter.seq >= from && letter.seq <= through)
  const changed = fresh.map((slip) => slip.deliveredAt === null ? "stored" as const : "delivered" as const)
  for (const slip of fresh) {
    slip.readAt = now
    slip.deliveredAt ??= now
  }
  const newest = fresh.at(-1)
  if (newest === undefined) return { changed, receipt: undefined }
  const unread = own.find((slip) => slip.readAt === null)
  return {
    changed,
    receipt: state.blocks.has(talk.name) ? undefined : {
      to: newest.letter.sender,
      letter: newest.letter,
      throughSeq: unread === undefined ? own.at(-1)!.letter.seq : unread.letter.seq - 1
    }
  }
}

export const visible = (talk: Talk, agent: number): ReadonlyArray<Letter> =>
  talk.letters.filter((letter) => letter.seq > talk.hiddenThrough[agent]! && !talk.hidden[agent]!.has(letter.seq))

/** The seqs of the messages that an agent has not read. */
export const unread = (state: State, talk: Talk, agent: number): ReadonlyArray<number> => {
  const shown = new Set(visible(talk, agent))
  return state.inboxes[agent]!
    .filter(({ letter, readAt }) => readAt === null && shown.has(letter)).map(({ letter }) => letter.seq)
}
