import { Text } from "#infrastructure/wire/Text"

/**
 * How long a claim lasts, in milliseconds. This is longer than an agent needs for one reply. A claim cannot be
 * released.
 */
export const CLAIM_MS = 600_000

const LEASE_SECONDS = { default: 90, min: 1, max: 3_600 }
export const LONGEST_LEASE_MS = LEASE_SECONDS.max * 1_000

/** The lifetime of a lease that was requested for this many seconds, in milliseconds. */
export const leaseMs = (seconds: number | null | undefined): number =>
  Math.min(Math.max(seconds ?? LEASE_SECONDS.default, LEASE_SECONDS.min), LEASE_SECONDS.max) * 1_000

/** The seconds until `endsAt`, rounded up. 0 if there is no end. */
export const secondsTo = (endsAt: number | null, now: number): number =>
  endsAt === null ? 0 : Math.max(0, Math.ceil((endsAt - now) / 1_000))

/** The name of a process that answers for the agent, such as `daemon:<id>` or `session:<id>`. */
export const Holder = Text(1, 160)
export const SessionId = Text(1, 128)

/** The current leases of an agent. */
export interface Leases {
  readonly sessions: number
  /** The seconds until the last of these leases ends. */
  readonly expiresIn: number
}

/** The result of an attempt to claim messages. */
export interface ClaimOutcome {
  /** How many messages were claimed, from the first on. */
  readonly claimed: number
  /** Whether nothing was claimed because a session is working. */
  readonly deferred: boolean
  /**
   * The seconds until the claim ends. If nothing was claimed, the seconds until the claim of the other holder ends, or
   * the last lease.
   */
  readonly expiresIn: number
}
