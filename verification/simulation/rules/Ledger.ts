/**
 * Every transition of the contract's state machines (wire.md F), separately for each cause, and what happens to
 * reactions, outcomes (C.6), causes and budgets (G.19).
 */
export const MACHINES = {
  Envelope: [
    "stored → delivered: ack frame",
    "stored → delivered: legacy socket",
    "stored → delivered: sync/ack",
    "stored → delivered: webhook 2xx",
    "stored → delivered: hide message",
    "stored → delivered: hide conversation",
    "stored → delivered: leaving the group",
    "stored → delivered: removal from the group",
    "stored → delivered: deletion of the group",
    "stored → delivered: deletion of the recipient",
    "stored → read: read",
    "stored → read: read_ack",
    "delivered → read: read",
    "delivered → read: read_ack"
  ],
  "Message as shown": [
    "to its recipient: stored → delivered",
    "to its recipient: stored → read",
    "to its recipient: delivered → read",
    "to a direct sender: stored → delivered",
    "to a direct sender: stored → read",
    "to a direct sender: delivered → read",
    "to a group sender: stored → delivered",
    "to a group sender: stored → read",
    "to a group sender: delivered → read"
  ],
  "Direct conversation": ["none → cold", "cold → established"],
  Agent: [
    "active → restricted: blocks",
    "restricted → active: clock",
    "restricted → active: unblock",
    "restricted → active: operator",
    "active → suspended: blocks",
    "active → suspended: reports",
    "active → suspended: operator",
    "restricted → suspended: blocks",
    "restricted → suspended: reports",
    "restricted → suspended: operator",
    "suspended → active: operator",
    "active → deleted",
    "restricted → deleted",
    "suspended → deleted"
  ],
  "Group invite": [
    "none → pending",
    "none → pending: once a member",
    "pending → accepted",
    "pending → accepted: once a member",
    "pending → rejected",
    "pending → cancelled: by an admin",
    "pending → cancelled: group deleted",
    "pending → cancelled: invitee deleted",
    "pending → cancelled: inviter deleted"
  ],
  "Pending code": [
    "none → open",
    "none → open: decoy",
    "none → open: bound to the code already mailed",
    "open → used",
    "open → exhausted: its own tries",
    "open → exhausted: all tries of its code",
    "open → expired",
    "used → EXPIRED",
    "exhausted → EXPIRED",
    "expired → EXPIRED"
  ],
  Attachment: ["none → reserved", "reserved → stored", "stored → referenced", "referenced → referenced"],
  Reaction: ["none → given", "none → given: one of several at once", "given → none"],
  Outcome: [
    "none → working",
    "none → done",
    "none → refused",
    "working → done",
    "working → refused",
    "none → final: of several at once"
  ],
  Hops: [
    "none → 1",
    "n → n + 1",
    "beyond the limit",
    "none: the cause is too old",
    "none: the sender does not know the cause"
  ],
  Budget: ["open → spent: conversation", "open → spent: agent", "spent → open: clock", "spent: of several at once"]
} as const

export type Machine = keyof typeof MACHINES

/** Counts the transitions and answers of histories. */
export class Ledger {
  /** Transitions, by machine. */
  readonly transitions = new Map<string, number>()
  /** Answers, mainly refusals. */
  readonly answers = new Map<string, number>()

  add<M extends Machine>(machine: M, transition: typeof MACHINES[M][number], n = 1): void {
    const key = `${machine} | ${transition}`
    this.transitions.set(key, (this.transitions.get(key) ?? 0) + n)
  }

  answered(what: string): void {
    this.answers.set(what, (this.answers.get(what) ?? 0) + 1)
  }

  rows(
    machines: ReadonlyArray<Machine>
  ): ReadonlyArray<{ readonly machine: Machine; readonly transition: string; readonly times: number }> {
    return machines.flatMap((machine) =>
      MACHINES[machine].map((transition) => ({
        machine,
        transition,
        times: this.transitions.get(`${machine} | ${transition}`) ?? 0
      }))
    )
  }

  table(machines: ReadonlyArray<Machine>): string {
    const answers = [...this.answers].sort(([, a], [, b]) => b - a)
    const rows = this.rows(machines).map(({ machine, times, transition }) =>
      `${machine.padEnd(20)} | ${transition.padEnd(50)} | ${String(times).padStart(7)}`
    )
    return [
      ...rows.length === 0
        ? []
        : ["machine              | transition                                         |   times", ...rows],
      ...answers.length === 0 ? [] : ["", "answers", ...answers.map(([name, n]) => `${String(n).padStart(8)}  ${name}`)]
    ].join("\n")
  }

  /** The transitions that were reached less than `least` times. */
  rarer(machines: ReadonlyArray<Machine>, least: number): ReadonlyArray<string> {
    return this.rows(machines).filter(({ times }) => times < least)
      .map(({ machine, times, transition }) => `${machine} | ${transition}: ${times}`)
  }
}
