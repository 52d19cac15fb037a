import { Attachments, type File } from "./Attachments.ts"
import { Budgets, type Left } from "./Budgets.ts"
import { Causes, type Metadata } from "./Causes.ts"
import { ColdCap } from "./ColdCap.ts"
import { type Change, Groups, type Refused } from "./Groups.ts"
import { Inboxes, type Letter, type Slip } from "./Inboxes.ts"
import { Mutes } from "./Mutes.ts"
import { Outcomes } from "./Outcomes.ts"
import { Reactions } from "./Reactions.ts"
import { Standing, type Status } from "./Standing.ts"

/** Limits that are so low that some forty steps reach them. */
export const LIMITS = {
  cold: 3,
  restrictBlocks: 2,
  suspendBlocks: 3,
  suspendReports: 2,
  members: 4,
  invitesPerDay: 6,
  hops: 3
}

export const AGENTS = 7
/** The agent that accepts messages and invites only from its contacts. */
export const RESERVED = AGENTS - 1

export interface Talk {
  readonly name: string
  readonly initiator: number
  readonly began: number
  established: boolean
}

export type Sent =
  | {
    readonly _tag: "Created"
    readonly letter: Letter
    readonly slips: ReadonlyArray<Slip>
    readonly change: "opened" | "established" | "continued"
    readonly cause: Letter | undefined
    /** What is left of the sender's budgets, if that is little. */
    readonly left: Left | undefined
  }
  | { readonly _tag: "Replayed"; readonly letter: Letter }
  | { readonly _tag: "Refused"; readonly failure: string; readonly figures: Readonly<Record<string, unknown>> }

type Refusal = Extract<Sent, { readonly _tag: "Refused" }>

/** A send that no rule refuses. */
interface Accepted {
  readonly change: Extract<Sent, { readonly _tag: "Created" }>["change"]
  readonly recipients: ReadonlyArray<number>
}

const refusal = (failure: string, figures: Readonly<Record<string, unknown>> = {}): Refusal => ({
  _tag: "Refused",
  failure,
  figures
})

export const nameOf = (one: number, other: number): string => one < other ? `${one}-${other}` : `${other}-${one}`

export const pairOf = (name: string): readonly [number, number] => {
  const [one, other] = name.split("-").map(Number)
  return [one ?? 0, other ?? 0]
}

export const isGroup = (talk: string): boolean => talk.startsWith("g")

/** Combines all rules: who may send what to whom (wire.md C.6), and the consequences of a change. */
export class Society {
  readonly cold = new ColdCap(LIMITS.cold)
  readonly mutes = new Mutes()
  readonly files = new Attachments()
  readonly inboxes = new Inboxes(AGENTS)
  readonly budgets = new Budgets()
  readonly reactions = new Reactions()
  readonly outcomes = new Outcomes()
  readonly contacts = new Set<string>()
  readonly deleted = new Map<number, number>()
  readonly talks = new Map<string, Talk>()
  readonly letters = new Map<string, Array<Letter>>()
  readonly keys = new Map<string, Letter>()
  /** By agent and conversation, the seq up to which nothing is shown. */
  readonly hiddenThrough = new Map<string, number>()
  readonly hidden = new Set<string>()
  readonly causes = new Causes(
    LIMITS.hops,
    (agent, letter) => letter.sender === agent || letter.recipients.includes(agent),
    (id) => [...this.letters.values()].flat().find((letter) => letter.id === id)
  )
  readonly standing: Standing
  readonly groups: Groups
  now = 0

  constructor() {
    this.standing = new Standing(LIMITS, (one, other) => this.talks.get(nameOf(one, other))?.initiator === one)
    this.groups = new Groups(
      LIMITS,
      (agent) => this.statusOf(agent) === "suspended",
      (inviter, invitee) =>
        this.deleted.has(invitee)
          ? "AgentNotFound"
          : this.standing.apart(inviter, invitee)
          ? "Blocked"
          : this.statusOf(inviter) === "restricted" && !this.contacts.has(`${inviter} ${invitee}`)
          ? "AgentRestricted"
          : invitee === RESERVED && !this.contacts.has(`${invitee} ${inviter}`)
          ? "InboxRestricted"
          : undefined
    )
  }

  statusOf(agent: number): Status {
    return this.standing.statusOf(agent, this.now)
  }

  lettersOf(talk: string): Array<Letter> {
    const known = this.letters.get(talk)
    if (known !== undefined) return known
    const fresh: Array<Letter> = []
    this.letters.set(talk, fresh)
    return fresh
  }

  private post(
    talk: string,
    sender: number,
    key: string | null,
    text: string,
    recipients: ReadonlyArray<number>,
    metadata: Metadata = {}
  ) {
    const letters = this.lettersOf(talk)
    const seq = letters.length + 1
    const letter: Letter = { talk, seq, sender, key, text, at: this.now, recipients, metadata, id: undefined }
    letters.push(letter)
    if (key !== null) this.keys.set(`${sender} ${key}`, letter)
    return { letter, slips: this.inboxes.post(letter) }
  }

  /** Decides a send of an agent that is not deleted. */
  send(from: number, to: number | string, key: string, given: Metadata = {}, file?: File): Sent {
    if (this.statusOf(from) === "suspended") return refusal("AgentSuspended")
    const known = this.keys.get(`${from} ${key}`)
    if (known !== undefined) return { _tag: "Replayed", letter: known }
    const caused = this.causes.decide(from, given, this.now)
    if ("hops" in caused) return refusal("TooManyHops", caused)
    const { cause, metadata } = caused
    if (typeof to === "number" && this.deleted.has(to)) return refusal("AgentNotFound")
    if (from === to) return refusal("ValidationFailed")
    const talk = typeof to === "number" ? nameOf(from, to) : to
    const spent = this.budgets.refusal(from, talk, this.now)
    if (spent !== undefined) return refusal("BudgetExceeded", spent)
    const stored = typeof to === "number" ? this.direct(from, to, file) : this.toGroup(from, to, file)
    if ("_tag" in stored) return stored
    if (file !== undefined) file.references++
    return {
      _tag: "Created",
      change: stored.change,
      cause,
      left: this.budgets.count(from, talk, this.now),
      ...this.post(talk, from, key, key, stored.recipients, metadata)
    }
  }

  private direct(from: number, to: number, file: File | undefined): Refusal | Accepted {
    const name = nameOf(from, to)
    const talk = this.talks.get(name)
    const waits = talk !== undefined && !talk.established && talk.initiator === from
    if (this.standing.apart(from, to)) return refusal("Blocked")
    if (talk === undefined && this.statusOf(from) === "restricted") return refusal("AgentRestricted")
    if (to === RESERVED && !this.contacts.has(`${to} ${from}`) && (talk === undefined || waits))
      return refusal("InboxRestricted")
    if (waits) return refusal("AwaitingReply", { waiting_since: new Date(talk.began).toISOString() })
    const full = talk === undefined ? this.cold.refusal(from, this.now) : undefined
    if (full !== undefined) return refusal("ColdCapExceeded", full)
    const unfit = file === undefined ? undefined : this.files.obstacle(file, from, to)
    if (unfit !== undefined) return refusal(unfit)
    if (talk === undefined) {
      this.talks.set(name, { name, initiator: from, began: this.now, established: false })
      this.cold.begin(from, name, this.now)
      return { change: "opened", recipients: [to] }
    }
    if (talk.established) return { change: "continued", recipients: [to] }
    talk.established = true
    this.cold.reply(name)
    this.contacts.add(`${from} ${to}`).add(`${to} ${from}`)
    return { change: "established", recipients: [to] }
  }

  private toGroup(from: number, name: string, file: File | undefined): Refusal | Accepted {
    const group = this.groups.all.find((one) => one.name === name)!
    if (this.groups.memberOf(group, from) === undefined) return refusal(this.groups.outside(group, from).refused)
    const unfit = file === undefined ? undefined : this.files.obstacle(file, from, name)
    if (unfit !== undefined) return refusal(unfit)
    group.seq++
    return {
      change: "continued",
      recipients: group.members.map(({ agent }) => agent).filter((agent) => agent !== from)
    }
  }

  /** Applies a change of a group to the inboxes. Returns the number of closed envelopes and the new envelopes. */
  carryOut(change: Change, group: string): { readonly flushed: number; readonly slips: ReadonlyArray<Slip> } {
    let flushed = 0
    for (const agent of change.flushed) {
      flushed += this.inboxes.deliverAll(agent, (slip) => slip.letter.talk === group, this.now)
    }
    const slips = change.notices.flatMap((notice) => {
      notice.group.seq++
      return this.post(group, notice.sender, null, notice.event, notice.recipients).slips
    })
    return { flushed, slips }
  }

  /** Deletes an account, with everything that ends with it (wire.md G.12). */
  remove(agent: number): void {
    this.deleted.set(agent, this.now)
    this.mutes.remove(agent)
    for (const pair of this.contacts) if (pair.split(" ").includes(String(agent))) this.contacts.delete(pair)
  }

  isParticipant(agent: number, talk: string): boolean {
    if (!isGroup(talk)) return this.talks.has(talk) && pairOf(talk).includes(agent)
    const group = this.groups.all.find(({ name }) => name === talk)
    return group !== undefined && this.groups.memberOf(group, agent) !== undefined
  }

  talksOf(agent: number): ReadonlyArray<string> {
    return [...this.talks.keys(), ...this.groups.all.map(({ name }) => name)].filter((talk) =>
      this.isParticipant(agent, talk)
    )
  }

  /** The messages that a participant's history shows. */
  visible(agent: number, talk: string): ReadonlyArray<Letter> {
    const group = this.groups.all.find(({ name }) => name === talk)
    const from = Math.max(
      group === undefined ? 0 : this.groups.memberOf(group, agent)?.from ?? 0,
      this.hiddenThrough.get(`${agent} ${talk}`) ?? 0
    )
    return this.lettersOf(talk).filter((letter) =>
      letter.seq > from && !this.hidden.has(`${agent} ${talk} ${letter.seq}`)
    )
  }

  /** Whether the agent's history shows this message. */
  sees(agent: number, letter: Letter): boolean {
    return this.isParticipant(agent, letter.talk) && this.visible(agent, letter.talk).includes(letter)
  }

  /** The times at which something changes without a request. */
  edges(): ReadonlyArray<number> {
    return [this.cold, this.budgets, this.standing, this.mutes, this.groups, this.files].flatMap((rule) => rule.edges())
  }
}

export const isRefused = (outcome: object): outcome is Refused => "refused" in outcome
