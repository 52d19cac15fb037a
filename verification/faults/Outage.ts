import { type History, NEVER, Outcome, type Tick, TICKS_PER_MS } from "./History.ts"

export interface Outage {
  /**
   * The longest time in seconds for which a conversation accepted no sends; Infinity if one never accepted a send
   * again.
   */
  readonly seconds: number
  /** Conversations that accepted no sends for longer than a busy machine explains. */
  readonly affected: number
  /** The conversation with the longest such time, and the beginning of that time. */
  readonly worst: { readonly conversation: number; readonly from: Tick } | undefined
}

/** A busy machine alone explains outages up to this. */
const NOTICEABLE_SECONDS = 1
/**
 * A conversation counts as dead if its sends failed over this time and none was accepted afterwards. One failed send
 * shows nothing.
 */
const DEAD_SECONDS = 5

/** A send without an outcome and with fewer attempts is still under way. */
const ATTEMPTS = 4

const SECOND = 1_000 * TICKS_PER_MS

/**
 * Measures for how long conversations accepted no sends: from the request of a send (or from `since`, if the send was
 * under way then) until a send requested then or later was accepted or refused because of a block. Such a refusal
 * counts, because the conversation's owner makes it, as it accepts sends. Only sends requested before `until` count. A
 * conversation without sends does not count. A send that goes to a node that answers nobody shows nothing from then on,
 * because its sender waits for this node, whatever the conversation does. An outage that it had shown before goes on if
 * another send shows it.
 */
export const outageOf = ({ sends }: History, since: Tick, until: Tick): Outage => {
  /**
   * For each conversation, while the loop goes back from the end: the earliest answer to a send requested at or after
   * send `n`.
   */
  const accepted = new Map<number, number>()
  /** For each conversation, while the loop goes back: the outages that later sends show, the latest first. */
  const shown = new Map<number, Array<{ readonly from: Tick; readonly end: Tick }>>()
  /** For each conversation, when the last send without an answer was requested. */
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
    // The send is still under way, or one of its attempts was refused: by a block, by the cap, or because the other
    // account has ended.
    if (outcome === Outcome.Unknown && (sends.attempts.get(n) < ATTEMPTS || sends.refusal(n) !== "")) continue
    let next = accepted.get(conversation) ?? NEVER
    if (answered && ended < next) accepted.set(conversation, next = ended)
    if (next === NEVER && over.has(conversation)) continue
    const from = Math.max(since, invoked)
    const unheard = sends.unheardSince.get(n)
    if (unheard <= from) continue
    if (next === NEVER && unheard === NEVER && !unanswered.has(conversation)) unanswered.set(conversation, invoked)
    const dead = (unanswered.get(conversation) ?? 0) - invoked > DEAD_SECONDS * SECOND
    const later = shown.get(conversation) ?? []
    let end = Math.min(next, unheard)
    while (later.length > 0 && later.at(-1)!.from <= end) end = Math.min(next, Math.max(end, later.pop()!.end))
    later.push({ from, end })
    shown.set(conversation, later)
    const ticks = end !== NEVER ? end - from : dead ? Infinity : 0
    if (ticks > (longest.get(conversation)?.ticks ?? 0)) longest.set(conversation, { ticks, from })
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
