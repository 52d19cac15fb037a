import type { Settings } from "./Settings.ts"

/** A message that has arrived, as the journal has it: without its text. */
export interface Arrived {
  readonly id: string
  readonly seq: number
  /** Milliseconds since 1970. */
  readonly at: number
}

/** Why a conversation waits, for `status`. */
export const HOLDS = ["settling", "deferred", "claimed elsewhere", "unreachable", "retry", "budget", "paused"] as const
export type Hold = (typeof HOLDS)[number]

/**
 * The journal's entry for one conversation. Invariants: `batch` is empty exactly if the phase is `idle`; `reply` is set
 * exactly if the phase is `replying`; no message is in two of `waiting`, `batch` and `handled`.
 *
 * - `idle`: nothing is under way.
 * - `running`: a program runs for `batch`, or the connector ended while it ran.
 * - `replying`: the program has ended, and `reply` was perhaps sent.
 */
export interface Work {
  readonly conversation: string
  readonly phase: "idle" | "running" | "replying"
  /** Messages without an answer, oldest first. */
  readonly waiting: ReadonlyArray<Arrived>
  /** The messages that the run answers, oldest first. */
  readonly batch: ReadonlyArray<Arrived>
  readonly reply: Reply | null
  /** Messages that were answered or need no answer, oldest first, until the server shows them as acknowledged. */
  readonly handled: ReadonlyArray<Arrived>
  /** When the acknowledgements are checked next, and how often they were checked in vain. */
  readonly confirm: { readonly at: number; readonly tries: number }
  /** Failed runs in a row. */
  readonly failures: number
  /** The connector does nothing before this time, because of `hold`. */
  readonly notBefore: number
  readonly hold: Hold | null
  /** Why the connector waits for `retry` or a newer message; null if the conversation is not parked. */
  readonly parked: string | null
  /** The session of the program, with which a later run resumes. */
  readonly session: string | null
}

/** A reply, until the server is known to have it. The server stores only one message for a `clientMsgId`. */
export interface Reply {
  readonly clientMsgId: string
  readonly to: { readonly to: string } | { readonly conversation_id: string }
  readonly text: string
  readonly hop: number
}

export type Step =
  /** Nothing is left to do until something changes. */
  | { readonly _tag: "Rest" }
  | { readonly _tag: "Wait"; readonly until: number; readonly hold: Hold }
  /** The connector ended during a run: end what is left of the run, and count it as failed. */
  | { readonly _tag: "Recover" }
  | { readonly _tag: "Begin"; readonly batch: ReadonlyArray<Arrived> }
  | { readonly _tag: "Reply"; readonly reply: Reply }
  | { readonly _tag: "Confirm" }

/** The longest wait for a conversation to settle, in multiples of `settleMs`. */
const MAX_SETTLING = 10

export interface Situation {
  readonly now: number
  readonly paused: boolean
  /** When the budgets permit a run in this conversation. */
  readonly budgetAt: number
}

/** The next step in a conversation. A run comes before the check of earlier acknowledgements. */
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
  const settled = Math.min(
    Math.max(...waiting.map(({ at }) => at)) + settleMs,
    Math.min(...waiting.map(({ at }) => at)) + MAX_SETTLING * settleMs
  )
  if (settled > now) return { _tag: "Wait", until: settled, hold: "settling" }
  if (budgetAt > now) return { _tag: "Wait", until: budgetAt, hold: "budget" }
  return { _tag: "Begin", batch: waiting.slice(0, maxBatch) }
}

const SECOND_MS = 1_000

/**
 * How long to wait after this number of failed runs in a row, in milliseconds; null if the conversation is to be
 * parked.
 */
export const afterFailure = (failures: number, retrySeconds: ReadonlyArray<number>): number | null => {
  const seconds = retrySeconds[failures - 1]
  return seconds === undefined ? null : seconds * SECOND_MS
}

const LONGEST_LOOK_MS = 15_000

/** How long to wait after a claim that a live session or another connector prevented. `expiresIn` is in seconds. */
export const lookAgainMs = (expiresIn: number): number =>
  expiresIn <= 0 ? LONGEST_LOOK_MS : Math.min(expiresIn * SECOND_MS, LONGEST_LOOK_MS)

/**
 * How long to wait before a failed call is repeated: 1 s after the first failure, then twice as long each time, up to
 * 60 s.
 */
export const callAgainMs = (failures: number): number => Math.min(60_000, SECOND_MS * 2 ** Math.min(failures, 6))
