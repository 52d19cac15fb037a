/** A message as stored. */
export interface Letter {
  readonly talk: string
  readonly seq: number
  readonly sender: number
  /** Its client_msg_id; null for a system message. */
  readonly key: string | null
  /** Its text, or the event of a system message. */
  readonly text: string
  readonly at: number
  readonly recipients: ReadonlyArray<number>
  readonly metadata: Readonly<Record<string, unknown>>
  id: string | undefined
}

export type State = "stored" | "delivered" | "read"

/** An envelope: a message's place in one recipient's inbox. */
export interface Slip {
  readonly letter: Letter
  readonly recipient: number
  inboxNo: number
  deliveredAt: number | null
  readAt: number | null
}

export const stateOf = (one: { readonly deliveredAt: number | null; readonly readAt: number | null }): State =>
  one.readAt !== null ? "read" : one.deliveredAt !== null ? "delivered" : "stored"

/** The envelopes of all agents (wire.md F). Their states only move forward, and their times never change. */
export class Inboxes {
  readonly of: ReadonlyArray<Array<Slip>>

  constructor(agents: number) {
    this.of = Array.from({ length: agents }, () => [])
  }

  post(letter: Letter): ReadonlyArray<Slip> {
    return letter.recipients.map((recipient) => {
      const inbox = this.of[recipient]!
      const slip: Slip = { letter, recipient, inboxNo: inbox.length + 1, deliveredAt: null, readAt: null }
      inbox.push(slip)
      return slip
    })
  }

  slip(agent: number, letter: Letter): Slip | undefined {
    return this.of[agent]!.find((one) => one.letter === letter)
  }

  /** Delivers an envelope. Returns whether that changed anything. */
  deliver(slip: Slip, at: number): boolean {
    if (slip.deliveredAt !== null) return false
    slip.deliveredAt = at
    return true
  }

  deliverAll(agent: number, which: (slip: Slip) => boolean, at: number): number {
    return this.of[agent]!.filter((slip) => which(slip) && this.deliver(slip, at)).length
  }

  /** Marks an envelope as read. Returns its state before, or undefined if it was read already. */
  read(slip: Slip, at: number): "stored" | "delivered" | undefined {
    const was = stateOf(slip)
    if (was === "read") return undefined
    slip.deliveredAt ??= at
    slip.readAt = at
    return was
  }

  /**
   * The delivery times of a message, as its recipient or its sender sees them. A sender sees the least advanced of all
   * envelopes.
   */
  shownTo(viewer: number, letter: Letter): { readonly deliveredAt: number | null; readonly readAt: number | null } {
    const own = letter.sender === viewer ? undefined : this.slip(viewer, letter)
    if (own !== undefined) return own
    const slips = letter.recipients.map((recipient) => this.slip(recipient, letter)!)
    const last = (times: ReadonlyArray<number | null>): number | null =>
      times.length === 0 || times.includes(null) ? null : Math.max(...times.map((time) => time ?? 0))
    return { deliveredAt: last(slips.map((slip) => slip.deliveredAt)), readAt: last(slips.map((slip) => slip.readAt)) }
  }
}
