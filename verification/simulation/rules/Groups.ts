const DAY = 86_400_000

export interface Member {
  readonly agent: number
  role: "admin" | "member"
  readonly since: number
  /** The seq before its join. It may see later messages only. */
  readonly from: number
}

export interface Invite {
  readonly group: string
  readonly inviter: number
  readonly invitee: number
  readonly at: number
  readonly again: boolean
  id: string
}

export interface Group {
  readonly name: string
  readonly creator: number
  /** Whether the creator still has its rights. It loses them for good when it leaves. */
  owned: boolean
  id: string
  members: Array<Member>
  readonly ever: Set<number>
  deleted: { readonly by: number; readonly at: number } | undefined
  seq: number
}

/** A system message that a change of a group creates. */
export interface Notice {
  readonly group: Group
  readonly sender: number
  readonly event: string
  readonly recipients: ReadonlyArray<number>
}

export type Refused = { readonly refused: string; readonly retryAfter?: number }

/** The consequences of a change. */
export interface Change {
  readonly notices: ReadonlyArray<Notice>
  /** The agents whose undelivered envelopes of the group are closed first. */
  readonly flushed: ReadonlyArray<number>
  readonly cancelled: ReadonlyArray<Invite>
  readonly promoted: number | undefined
}

const refused = (tag: string, retryAfter?: number): Refused =>
  retryAfter === undefined ? { refused: tag } : { refused: tag, retryAfter }

/** Groups, their roles and invites (wire.md C.8, F, G.6, G.7). */
export class Groups {
  readonly all: Array<Group> = []
  invites: Array<Invite> = []
  private readonly limits: { readonly members: number; readonly invitesPerDay: number }
  private readonly isSuspended: (agent: number) => boolean
  /** Why an inviter may not invite an invitee, checked before the rules of the group. */
  private readonly obstacle: (inviter: number, invitee: number) => string | undefined
  private readonly refusals = new Map<string, number>()
  private readonly made: Array<{ readonly by: number; readonly at: number }> = []

  constructor(
    limits: { readonly members: number; readonly invitesPerDay: number },
    isSuspended: (agent: number) => boolean,
    obstacle: (inviter: number, invitee: number) => string | undefined
  ) {
    this.limits = limits
    this.isSuspended = isSuspended
    this.obstacle = obstacle
  }

  memberOf(group: Group, agent: number): Member | undefined {
    return group.members.find((member) => member.agent === agent)
  }

  outside(group: Group, agent: number): Refused {
    return refused(group.deleted !== undefined && group.ever.has(agent) ? "GroupDeleted" : "GroupNotFound")
  }

  private asAdmin(group: Group, agent: number): Refused | undefined {
    const member = this.memberOf(group, agent)
    if (member === undefined) return this.outside(group, agent)
    return member.role === "admin" ? undefined : refused("Forbidden")
  }

  /** Milliseconds until the inviter may make `n` more invites; 0 if it may now. */
  private wait(by: number, n: number, now: number): number {
    const counted = this.made.filter((one) => one.by === by && one.at > now - DAY).map(({ at }) => at)
    const excess = counted.length + n - this.limits.invitesPerDay
    return excess <= 0 ? 0 : counted.toSorted((a, b) => a - b)[excess - 1]! + DAY - now
  }

  private invite(group: Group, inviter: number, invitee: number, at: number): Invite {
    const made = { group: group.name, inviter, invitee, at, again: group.ever.has(invitee), id: "" }
    this.invites.push(made)
    this.made.push({ by: inviter, at })
    return made
  }

  create(by: number, handles: ReadonlyArray<number>, at: number): Refused | {
    readonly group: Group
    readonly invites: ReadonlyArray<Invite>
    readonly skipped: ReadonlyArray<{ readonly agent: number; readonly why: string }>
  } {
    const wanted = [...new Set(handles)].filter((agent) => agent !== by)
    const invitees = wanted.filter((agent) => this.obstacle(by, agent) === undefined)
    const wait = this.wait(by, invitees.length, at)
    if (invitees.length > 0 && wait > 0) return refused("RateLimited", wait)
    const group: Group = {
      name: `g${this.all.length}`,
      creator: by,
      owned: true,
      id: "",
      members: [{ agent: by, role: "admin", since: at, from: -1 }],
      ever: new Set([by]),
      deleted: undefined,
      seq: 0
    }
    this.all.push(group)
    return {
      group,
      invites: invitees.map((agent) => this.invite(group, by, agent, at)),
      skipped: wanted.flatMap((agent) => {
        const why = this.obstacle(by, agent)
        return why === undefined ? [] : { agent, why }
      })
    }
  }

  add(
    group: Group,
    by: number,
    agent: number,
    at: number
  ): Refused | "member" | { readonly invite: Invite; readonly fresh: boolean } {
    const denied = this.asAdmin(group, by)
    if (denied !== undefined) return denied
    if (this.memberOf(group, agent) !== undefined) return "member"
    const obstacle = this.obstacle(by, agent)
    if (obstacle !== undefined) return refused(obstacle)
    if (group.members.length >= this.limits.members) return refused("GroupFull")
    const pending = this.invites.find((one) => one.group === group.name && one.invitee === agent)
    if (pending !== undefined) return { invite: pending, fresh: false }
    const rejected = this.refusals.get(`${group.name} ${agent}`)
    if (rejected !== undefined && rejected > at - DAY) return refused("RateLimited", rejected + DAY - at)
    const wait = this.wait(by, 1, at)
    if (wait > 0) return refused("RateLimited", wait)
    return { invite: this.invite(group, by, agent, at), fresh: true }
  }

  private close(invite: Invite): void {
    this.invites = this.invites.filter((one) => one !== invite)
  }

  private leads(member: Member): boolean {
    return member.role === "admin" && !this.isSuspended(member.agent)
  }

  /** If nobody leads the group, makes the member that joined first an admin, preferably one that is not suspended. */
  private promote(group: Group, except: number): number | undefined {
    const rest = group.members.filter((member) => member.agent !== except)
    if (rest.some((member) => this.leads(member))) return undefined
    const heir = rest.find((member) => !this.isSuspended(member.agent)) ??
      rest.find((member) => member.role !== "admin")
    if (heir === undefined || heir.role === "admin") return undefined
    heir.role = "admin"
    return heir.agent
  }

  private others(group: Group, ...but: ReadonlyArray<number>): ReadonlyArray<number> {
    return group.members.map(({ agent }) => agent).filter((agent) => !but.includes(agent))
  }

  accept(invite: Invite, at: number): Refused | Change {
    const group = this.all.find(({ name }) => name === invite.group)!
    if (group.members.length >= this.limits.members) return refused("GroupFull")
    this.close(invite)
    const led = group.members.some((member) => this.leads(member))
    const joiner = invite.invitee
    const told = this.others(group)
    group.members.push({ agent: joiner, role: led ? "member" : "admin", since: at, from: group.seq })
    group.ever.add(joiner)
    return {
      notices: [
        { group, sender: joiner, event: "member_joined", recipients: told },
        ...led ? [] : [{ group, sender: joiner, event: "admin_promoted", recipients: told }]
      ],
      flushed: [],
      cancelled: [],
      promoted: led ? undefined : joiner
    }
  }

  reject(invite: Invite, at: number): void {
    this.close(invite)
    this.refusals.set(`${invite.group} ${invite.invitee}`, at)
  }

  cancel(group: Group, by: number, invite: Invite | undefined): Refused | undefined {
    const denied = this.asAdmin(group, by)
    if (denied !== undefined) return denied
    if (invite === undefined || invite.group !== group.name) return refused("InviteNotFound")
    this.close(invite)
    return undefined
  }

  private end(group: Group, by: number, at: number): ReadonlyArray<Invite> {
    group.deleted = { by, at }
    group.members = []
    const cancelled = this.invites.filter((one) => one.group === group.name)
    for (const invite of cancelled) this.close(invite)
    return cancelled
  }

  leave(group: Group, agent: number, at: number): Refused | Change {
    const member = this.memberOf(group, agent)
    if (member === undefined) return this.outside(group, agent)
    const told = this.others(group, agent)
    group.members = group.members.filter((one) => one !== member)
    if (agent === group.creator) group.owned = false
    const promoted = member.role === "admin" ? this.promote(group, agent) : undefined
    return {
      notices: [
        { group, sender: agent, event: "member_left", recipients: told },
        ...promoted === undefined ? [] : [{ group, sender: agent, event: "admin_promoted", recipients: told }]
      ],
      flushed: [agent],
      cancelled: group.members.length === 0 ? this.end(group, agent, at) : [],
      promoted
    }
  }

  remove(group: Group, by: number, agent: number): Refused | Change {
    const denied = this.asAdmin(group, by)
    if (denied !== undefined) return denied
    if (by === agent) return refused("ValidationFailed")
    const member = this.memberOf(group, agent)
    if (member === undefined) return refused("NotMember")
    if (agent === group.creator && group.owned) return refused("Forbidden")
    const told = [...this.others(group, by, agent), agent]
    group.members = group.members.filter((one) => one !== member)
    return {
      notices: [{ group, sender: by, event: "member_removed", recipients: told }],
      flushed: [agent],
      cancelled: [],
      promoted: undefined
    }
  }

  setRole(group: Group, by: number, agent: number, role: "admin" | "member"): Refused | Change {
    const denied = this.asAdmin(group, by)
    if (denied !== undefined) return denied
    const member = this.memberOf(group, agent)
    if (member === undefined) return refused("NotMember")
    const nothing = { notices: [], flushed: [], cancelled: [], promoted: undefined }
    if (role === "admin" && member.role === "admin") return nothing
    if (role === "member") {
      if (member.role !== "admin") return refused("NotAdmin")
      if (!group.members.some((one) => one !== member && this.leads(one))) return refused("LastAdmin")
      if (agent === group.creator && group.owned) return refused("Forbidden")
    }
    member.role = role
    const event = role === "admin" ? "admin_promoted" : "admin_demoted"
    return { ...nothing, notices: [{ group, sender: by, event, recipients: this.others(group, by) }] }
  }

  delete(group: Group, by: number, at: number): Refused | Change {
    const member = this.memberOf(group, by)
    if (member === undefined) return this.outside(group, by)
    const reserved = group.owned && !this.isSuspended(group.creator)
    if (reserved ? by !== group.creator : member.role !== "admin") return refused("Forbidden")
    const members = this.others(group)
    return {
      notices: [{ group, sender: by, event: "group_deleted", recipients: this.others(group, by) }],
      flushed: members,
      cancelled: this.end(group, by, at),
      promoted: undefined
    }
  }

  /** Replaces a suspended last admin as if it had left. It stays a member. */
  replace(group: Group, agent: number): Change | undefined {
    if (this.memberOf(group, agent)?.role !== "admin") return undefined
    const promoted = this.promote(group, agent)
    if (promoted === undefined) return undefined
    const notices = [{ group, sender: agent, event: "admin_promoted", recipients: this.others(group, agent) }]
    return { notices, flushed: [], cancelled: [], promoted }
  }

  /** Ends the pending invites to and from a deleted agent, and returns them. */
  withdraw(agent: number): ReadonlyArray<Invite> {
    const gone = this.invites.filter((one) => one.invitee === agent || one.inviter === agent)
    for (const invite of gone) this.close(invite)
    return gone
  }

  edges(): ReadonlyArray<number> {
    return [...this.refusals.values(), ...this.made.map(({ at }) => at)].map((at) => at + DAY)
  }
}
