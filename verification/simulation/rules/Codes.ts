import type { Purpose as AnyPurpose } from "#domain/registration/Code"

/** The purposes that the model knows. A code to sign in follows the rules of a recovery, and changes nothing. */
export type Purpose = Exclude<AnyPurpose, "sign_in">

/**
 * Limits of one-time codes. The mails per hour and the attempts per code are so few that a history reaches the limits.
 */
export const CODES = { ttl: 600_000, attempts: 5, perCode: 6, cooldown: 60_000, perHour: 4, lifetime: 3 }

const HOUR = 3_600_000

export interface Code {
  readonly purpose: Purpose
  readonly email: number
  /** The index of the account that the code is for. */
  readonly account: number | undefined
  readonly handle: number | undefined
  readonly decoy: boolean
  readonly expires: number
  /** Wrong attempts with all its pending ids. */
  attempts: number
  state: "open" | "used" | "exhausted"
  /** The six digits, once the mail was read. */
  digits: string
}

/** A pending id that the server returned, and the code that it stands for. */
export interface Pending {
  readonly code: number
  /** Wrong attempts with this pending id. */
  attempts: number
  exhausted: boolean
}

export interface Account {
  readonly email: number
  readonly handle: number
  alive: boolean
  id: string
}

interface Address {
  last: number
  cleared: boolean
  readonly sent: Array<number>
  code: number
}

interface TooSoon {
  readonly refused: "OtpCooldown" | "OtpHourlyCap"
  readonly wait: number
}

export type Issued =
  | TooSoon
  | { readonly refused: "HandleTaken"; readonly wait: number }
  | { readonly pending: number; readonly bound: boolean }

/** The outcome of an attempt with a code. */
export type Tried =
  | "CodeExpired"
  | "Forbidden"
  | "OtpAttemptsExhausted"
  | "EmailTaken"
  | "EmailExhausted"
  | "HandleTaken"
  | { readonly remaining: number }
  | { readonly account: number }

/**
 * Codes by e-mail and the accounts that they create (wire.md C.2, D, F). Plain data, which is copied to try one order
 * after another.
 */
export class Codes {
  readonly codes: Array<Code> = []
  readonly pendings: Array<Pending> = []
  readonly accounts: Array<Account> = []
  private readonly addresses = new Map<string, Address>()

  live(email: number): number | undefined {
    const found = this.accounts.findIndex((account) => account.email === email && account.alive)
    return found < 0 ? undefined : found
  }

  /** A copy that shares nothing. */
  clone(): Codes {
    return Object.assign(new Codes(), structuredClone({ ...this }))
  }

  private module(email: number, purpose: Purpose, now: number): TooSoon | undefined {
    const address = this.addresses.get(`${email} ${purpose}`)
    if (address === undefined) return undefined
    const cooling = address.cleared ? 0 : address.last + CODES.cooldown - now
    const recent = address.sent.filter((at) => at > now - HOUR)
    const full = recent.length < CODES.perHour ? 0 : recent[recent.length - CODES.perHour]! + HOUR - now
    if (cooling <= 0 && full === 0) return undefined
    return full > cooling ? { refused: "OtpHourlyCap", wait: full } : { refused: "OtpCooldown", wait: cooling }
  }

  private issue(
    purpose: Purpose,
    email: number,
    about: { readonly account?: number | undefined; readonly handle?: number; readonly decoy: boolean },
    now: number
  ): number {
    this.codes.push({
      purpose,
      email,
      account: about.account,
      handle: about.handle,
      decoy: about.decoy,
      expires: now + CODES.ttl,
      attempts: 0,
      state: "open",
      digits: ""
    })
    const key = `${email} ${purpose}`
    const sent = this.addresses.get(key)?.sent ?? []
    this.addresses.set(key, { last: now, cleared: false, sent: [...sent, now], code: this.codes.length - 1 })
    return this.stand(this.codes.length - 1)
  }

  /** Adds a pending id for a code. */
  private stand(code: number): number {
    return this.pendings.push({ code, attempts: 0, exhausted: false }) - 1
  }

  /** The code that a pending id stands for. */
  codeOf(pending: number): Code {
    return this.codes[this.pendings[pending]!.code]!
  }

  /** The state of a pending id, apart from its expiry. */
  stateOf(pending: number): Code["state"] {
    return this.pendings[pending]!.exhausted ? "exhausted" : this.codeOf(pending).state
  }

  register(email: number, handle: number, now: number): Issued {
    if (this.accounts.some((account) => account.handle === handle)) return { refused: "HandleTaken", wait: 0 }
    return this.module(email, "register", now) ??
      { pending: this.issue("register", email, { handle, decoy: false }, now), bound: false }
  }

  rotate(account: number, now: number): Issued {
    const { email } = this.accounts[account]!
    return this.module(email, "rotate", now) ??
      { pending: this.issue("rotate", email, { account, decoy: false }, now), bound: false }
  }

  /**
   * Begins a recovery, which is never refused. If no mail may be sent now, the new pending id stands for the last
   * mailed code.
   */
  recover(email: number, now: number): { readonly pending: number; readonly bound: boolean } {
    if (this.module(email, "recover", now) !== undefined) {
      return { pending: this.stand(this.addresses.get(`${email} recover`)!.code), bound: true }
    }
    const account = this.live(email)
    return { pending: this.issue("recover", email, { account, decoy: account === undefined }, now), bound: false }
  }

  /** One attempt with a pending id for a purpose. `by` is the account that attempts a rotation. */
  attempt(n: number, purpose: Purpose, digits: string, by: number | undefined, now: number): Tried {
    const pending = this.pendings[n]!
    const code = this.codeOf(n)
    if (code.purpose !== purpose) return "CodeExpired"
    // For a rotation, another agent than the owner is refused before the code's state is checked.
    if (by !== undefined && code.account !== by) return "Forbidden"
    if (this.stateOf(n) !== "open" || code.expires <= now) return "CodeExpired"
    if (pending.attempts >= CODES.attempts || code.attempts >= CODES.perCode) {
      pending.exhausted = true
      if (code.attempts >= CODES.perCode) code.state = "exhausted"
      return "OtpAttemptsExhausted"
    }
    if (code.decoy || digits !== code.digits) {
      pending.attempts++
      code.attempts++
      return { remaining: Math.min(CODES.attempts - pending.attempts, CODES.perCode - code.attempts) }
    }
    code.state = "used"
    const address = this.addresses.get(`${code.email} ${purpose}`)
    if (address?.code === pending.code) address.cleared = true
    if (purpose !== "register") {
      const account = code.account!
      return this.accounts[account]!.alive ? { account } : "CodeExpired"
    }
    if (this.live(code.email) !== undefined) return "EmailTaken"
    if (this.accounts.filter((account) => account.email === code.email).length >= CODES.lifetime)
      return "EmailExhausted"
    if (this.accounts.some((account) => account.handle === code.handle)) return "HandleTaken"
    this.accounts.push({ email: code.email, handle: code.handle!, alive: true, id: "" })
    return { account: this.accounts.length - 1 }
  }

  /** The times at which something changes without a request. */
  edges(): ReadonlyArray<number> {
    return [
      ...this.codes.filter(({ state }) => state === "open").map(({ expires }) => expires),
      ...[...this.addresses.values()].flatMap((
        { last, sent }
      ) => [last + CODES.cooldown, ...sent.map((at) => at + HOUR)])
    ]
  }
}
