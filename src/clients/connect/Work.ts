import type { Settings } from "./Settings.ts"

/** A received message, as the journal stores it: without its text. */
export interface Arrived {
  readonly id: string
  readonly seq: number
  /** Milliseconds since 1970. */
  readonly at: number
}

/** The reasons why a conversation waits, as `status` shows them. */
export const HOLDS = ["settling", "deferred", "claimed elsewhere", "unreachable", "retry", "budget", "paused"] as const
export type Hold = (typeof HOLDS)[number]

/**
 * The journal's entry for one conversation. `batch` is empty exactly if the phase is `idle`. `reply` is set exactly if
 * the phase is `replying`. Each message is in only one of `waiting`, `batch` and `handled`.
 *
 * - `idle`: no run has begun.
 * - `running`: a program runs for `batch`, or the connector ended while the program ran.
 * - `replying`: the program has ended, and `reply` may have been sent.
 */
export interface Work {
  readonly conversation: string
  readonly phase: "idle" | "running" | "replying"
  /** The messages that have not been answered, oldest first. */
  readonly waiting: ReadonlyArray<Arrived>
  /** The messages that the run answers, oldest first. */
  readonly batch: ReadonlyArray<Arrived>
  readonly reply: Reply | null
  /**
   * The messages that were answered or need no answer, oldest first. They are kept until the server shows them as
   * acknowledged.
   */
  readonly handled: ReadonlyArray<Arrived>
  /** When the acknowledgements are checked next, and how many checks did not find them. */
  readonly confirm: { readonly at: number; readonly tries: number }
  /** How many runs in a row have failed. */
  readonly failures: number
  /** Until when the connector does nothing, because of `hold`. */
  readonly notBefore: number
  readonly hold: Hold | null
  /** Why the conversation is parked until `retry` or a newer message; null if it is not parked. */
  readonly parked: string | null
  /** The session of the program that a later run resumes. */
  readonly session: string | null
}

/**
 * A reply that the server is not yet known to have stored. The server stores only one message for each `clientMsgId`.
 */
export interface Reply {
  readonly clientMsgId: string
  readonly to: { readonly to: string } | { readonly conversation_id: string }
  readonly text: string
  readonly hop: number
}

export type Step =
  /** There is nothing to do until something changes. */
  | { readonly _tag: "Rest" }
  | { readonly _tag: "Wait"; readonly until: number; readonly hold: Hold }
  /** The connector ended during a run. End the remaining processes of the run, and count the run as failed. */
  | { readonly _tag: "Recover" }
  | { readonly _tag: "Begin"; readonly batch: ReadonlyArray<Arrived> }
  | { readonly _tag: "Reply"; readonly reply: Reply }
  | { readonly _tag: "Confirm" }

/** How long a conversation may take to settle, as a multiple of `settleMs`. */
const MAX_SETTLING = 10

export interface Situation {
  readonly now: number
  readonly paused: boolean
  /** From when the budgets allow a run in this conversation. */
  readonly budgetAt: number
}

/** Decides the next step of a conversation. A run has priority over the check of earlier acknowledgements. */
export const nextStep = (
  work: Work,
  { budgetAt, now, paused }: Situation,
  { maxBatch, settleMs }: Pick<Settings, "maxBatch" | "settleMs">
): Step => {
  if (work.phase === "running") return { _tag: "Recover" }
  const held: Step | undefined = work.notBefore > now
    ? { _tag: "Wait", until: work.notBefore, hold: work.hold ?? "retry" }
    : undefined
  if (work.reply !== null) return held ?? { _tag: "Reply", reply: work.reply }
  const begin = beginning(work, held, { budgetAt, now, paused }, { maxBatch, settleMs })
  if (begin._tag === "Begin" || work.handled.length === 0) return begin
  if (work.confirm.at <= now) return { _tag: "Confirm" }
  return begin._tag === "Wait" && begin.until <= work.confirm.at
    ? begin
    : { _tag: "Wait", until: work.confirm.at, hold: begin._tag === "Wait" ? begin.hold : "settling" }
}

const beginning = (
  { parked, waiting }: Work,
  held: Step | undefined,
  { budgetAt, now, paused }: Situation,
  { maxBatch, settleMs }: Pick<Settings, "maxBatch" | "settleMs">
): Step => {
  const [first, last] = [waiting[0], waiting.at(-1)]
  if (parked !== null || first === undefined || last === undefined) return { _tag: "Rest" }
  if (paused) return { _tag: "Wait", until: Infinity, hold: "paused" }
  if (held !== undefined) return held
  const newest = waiting.reduce((latest, { at }) => Math.max(latest, at), first.at)
  const oldest = waiting.reduce((earliest, { at }) => Math.min(earliest, at), first.at)
  const settled = Math.min(newest + settleMs, oldest + MAX_SETTLING * settleMs)
  if (settled > now) return { _tag: "Wait", until: settled, hold: "settling" }
  if (budgetAt > now) return { _tag: "Wait", until: budgetAt, hold: "budget" }
  return { _tag: "Begin", batch: waiting.slice(0, maxBatch) }
}

const SECOND_MS = 1_000

/** How long to wait after this number of failed runs in a row, in milliseconds; null to park the conversation. */
export const afterFailure = (failures: number, retrySeconds: ReadonlyArray<number>): number | null => {
  const seconds = retrySeconds[failures - 1]
  return seconds === undefined ? null : seconds * SECOND_MS
}

const LONGEST_LOOK_MS = 15_000

/**
 * How many milliseconds to wait after a live session or another connector has prevented a claim. `expiresIn` is in
 * seconds.
 */
export const lookAgainMs = (expiresIn: number): number =>
  expiresIn <= 0 ? LONGEST_LOOK_MS : Math.min(expiresIn * SECOND_MS, LONGEST_LOOK_MS)

/**
 * How long to wait before a failed call is retried, in milliseconds. The delay doubles with each failure, up to 60 s.
 */
export const callAgainMs = (failures: number): number => Math.min(60_000, SECOND_MS * 2 ** Math.min(failures, 6))
