import { createHash, createHmac } from "node:crypto"

/** An access token (`oat_`) and a refresh token (`ort_`), each with 43 url-safe base64 characters. */
export interface TokenPair {
  readonly access: string
  readonly refresh: string
}

const ACCESS = /^oat_[A-Za-z0-9_-]{43}$/
const REFRESH = /^ort_[A-Za-z0-9_-]{43}$/
const CODE = /^oac_[A-Za-z0-9_-]{43}$/

export const isAccessToken = (text: string): boolean => ACCESS.test(text)
export const isRefreshToken = (text: string): boolean => REFRESH.test(text)
export const isCode = (text: string): boolean => CODE.test(text)

/**
 * How long after the first use of its successor a repeated refresh token still returns the same pair, in milliseconds.
 */
export const REPEAT_MS = 60_000

/**
 * Derives the pair of tokens from the code or the refresh token that is exchanged for it. So the server can return the
 * same pair for a repeat, although it stores only hashes. Deriving the pair requires the server's key.
 */
export const pairOf = (key: Buffer, presented: string): TokenPair => {
  const derived = (kind: string): string =>
    createHmac("sha256", key).update(kind).update("\0").update(presented).digest("base64url")
  return { access: `oat_${derived("access")}`, refresh: `ort_${derived("refresh")}` }
}

/** A new code: `oac_` and 43 url-safe base64 characters. `random` contains 32 random bytes. */
export const codeOf = (random: Buffer): string => `oac_${random.toString("base64url")}`

/** Whether a verifier matches an S256 challenge (RFC 7636, 4.6). A verifier has 43 to 128 characters. */
export const fits = (verifier: string, challenge: string): boolean =>
  /^[A-Za-z0-9\-._~]{43,128}$/.test(verifier) && createHash("sha256").update(verifier).digest("base64url") === challenge

/** The state of a stored refresh token when it is used. */
export interface RefreshState {
  /** Whether the token has been exchanged before. */
  readonly isUsed: boolean
  /**
   * When a token of the pair for which this token was exchanged was first used, in milliseconds; `null` if neither was.
   */
  readonly successorUsedAt: number | null
  /** When the token expires if it is not used, in milliseconds. */
  readonly expiresAt: number
}

/**
 * The effect of using a refresh token (wire.md P, "refresh"). For `next` and `same`, the response contains the derived
 * pair.
 */
export type RefreshOutcome = "next" | "same" | "expired" | "reused"

/**
 * Decides on a use of a refresh token. A repeat gets the same pair, because responses can get lost and processes of one
 * host share a token. When the successor has been in use for `REPEAT_MS`, a repeat shows that two parties have the
 * token, so the grant ends.
 */
export const refreshOutcome = ({ expiresAt, isUsed, successorUsedAt }: RefreshState, now: number): RefreshOutcome => {
  if (!isUsed) return now < expiresAt ? "next" : "expired"
  return successorUsedAt === null || now < successorUsedAt + REPEAT_MS ? "same" : "reused"
}
