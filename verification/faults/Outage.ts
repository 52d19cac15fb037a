import { type History, NEVER, Outcome, type Tick, TICKS_PER_MS } from "./History.ts"

export interface Outage {
  /** The longest that a conversation which was written to took nothing, in seconds; Infinity if one never took anything again. */
  readonly seconds: number
  /** Conversations that took nothing for longer than a busy machine explains. */
  readonly affected: number
  /** The conversation that took nothing for the longest, and when that began. */
  readonly worst: { readonly conversation: number; readonly from: Tick } | undefined
}

/** Longer than that is not the machine's doing alone. */
const NOTICEABLE_SECONDS = 1
/** A conversation that took nothing so long, and nothing after it, is taken for dead; of one send alone nobody knows. */
const DEAD_SECONDS = 5

/** With fewer it is still under way. */
const ATTEMPTS = 4

const SECOND = 1_000 * TICKS_PER_MS

/**
 * For how long conversations took no messages: from when a send was asked for (or from
 * `since`, if it was under way) until one that was asked for then or later was accepted, or
 * refused because of a block: whoever has the conversation says that, as it says yes.
 * Of what was asked for before `until`. A conversation that nobody writes to counts for nothing.
 */
export const outageOf = ({ sends }: History, since: Tick, until: Tick): Outage => {
  /** Of each conversation, walking back from the end: the earliest answer to what was asked for from here on. */
  const accepted = new Map<number, number>()
  /** And when the latest was asked for that is still without an answer. */
  const unanswered = new Map<number, number>()
  const longest = new Map<number, { readonly ticks: number; readonly from: Tick }>()
  /** Conversations with an agent that has been deleted: they have ended. */
  const over = new Set<number>()
  for (let n = sends.length - 1; n >= 0; n--) {
    const conversation = sends.conversation.get(n)
    const ended = sends.ended.get(n)
    const invoked = sends.invoked.get(n)
    const outcome = sends.outcome.get(n)
    if (outcome === Outcome.Refused && sends.refusal(n) === "AGENT_NOT_FOUND") over.add(conversation)
    const answered = outcome === Outcome.Ok || (outcome === Outcome.Refused && sends.refusal(n) === "BLOCKED")
    if (ended <= since || invoked >= until || (outcome === Outcome.Refused && !answered)) continue
    // Under way, or refused by one of its attempts: by a block, by the cap, or because the other account has ended.
    if (outcome === Outcome.Unknown && (sends.attempts.get(n) < ATTEMPTS || sends.refusal(n) !== "")) continue
    let next = accepted.get(conversation) ?? NEVER
    if (answered && ended < next) accepted.set(conversation, next = ended)
    if (next === NEVER && over.has(conversation)) continue
    if (next === NEVER && !unanswered.has(conversation)) unanswered.set(conversation, invoked)
    const dead = (unanswered.get(conversation) ?? 0) - invoked > DEAD_SECONDS * SECOND
    const ticks = next !== NEVER ? next - Math.max(since, invoked) : dead ? Infinity : 0
    if (ticks > (longest.get(conversation)?.ticks ?? 0)) longest.set(conversation, { ticks, from: Math.max(since, invoked) })
  }
  let most = 0
  let affected = 0
  let worst: Outage["worst"]
  for (const [conversation, { from, ticks }] of longest) {
    if (ticks > most) {
      most = ticks
      worst = { conversation, from }
    }
    if (ticks > NOTICEABLE_SECONDS * SECOND) affected++
  }
  return { seconds: most / SECOND, affected, worst }
}
