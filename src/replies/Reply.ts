import { Text } from "../wire/Text.ts"

/** How long a claim stands. Longer than an agent takes for one answer; it cannot be given back. */
export const CLAIM_MS = 600_000

const LEASE_SECONDS = { default: 90, min: 1, max: 3_600 }
export const LONGEST_LEASE_MS = LEASE_SECONDS.max * 1_000

/** How long a lease stands that was asked for with this many seconds. */
export const leaseMs = (seconds: number | null | undefined): number =>
  Math.min(Math.max(seconds ?? LEASE_SECONDS.default, LEASE_SECONDS.min), LEASE_SECONDS.max) * 1_000

/** Seconds until an end, rounded up; 0 if there is none. */
export const secondsTo = (endsAt: number | null, now: number): number =>
  endsAt === null ? 0 : Math.max(0, Math.ceil((endsAt - now) / 1_000))

/** A process that answers for the agent, by its own name: `daemon:<id>`, `session:<id>`. */
export const Holder = Text(1, 160)
export const SessionId = Text(1, 128)

/** The leases of an agent that stand. */
export interface Leases {
  readonly sessions: number
  /** Seconds until the last of them ends. */
  readonly expiresIn: number
}

/** What came of an attempt to claim messages. */
export interface ClaimOutcome {
  /** How many, from the first on. */
  readonly claimed: number
  /** Nothing was claimed, because a session is working. */
  readonly deferred: boolean
  /** Seconds until what decided it ends: the claim, that of another holder, or the last lease. */
  readonly expiresIn: number
}
