/** @import { Conversation, Message, Outcome, OutcomeChange, Reaction, Receipt } from "./Wire.ts" */

/**
 * The known messages of one conversation, oldest first. `messages` has no gaps: it contains every message that this
 * agent may see, from the first to the last one in the list. A message that arrives while earlier messages are missing
 * is kept in `aside` until the missing messages are fetched.
 *
 * `complete` is true if there are no older messages. `newer` is true if the newest messages are not loaded, because the
 * conversation was opened at an earlier message. In that case, new messages are not added when they arrive. Later reads
 * add them.
 *
 * @typedef {{ readonly messages: ReadonlyArray<Message>, readonly aside: ReadonlyArray<Message>, readonly complete: boolean, readonly newer: boolean }} Timeline
 */

/** @type {Timeline} */
export const empty = { messages: [], aside: [], complete: false, newer: false }

/** @param {Message} a @param {Message} b */
const bySeq = (a, b) => a.seq - b.seq

const rank = { stored: 0, delivered: 1, read: 2 }

/** @param {Outcome | undefined} outcome */
const outcomeRank = (outcome) => outcome === undefined ? 0 : outcome.state === "working" ? 1 : 2

/**
 * Of two copies of one message, returns the copy with the later state, with the later outcome. States and outcomes only
 * move forward.
 * @param {Message} known
 * @param {Message} seen
 * @returns {Message}
 */
const later = (known, seen) => {
  const copy = rank[seen.status] >= rank[known.status]
    ? { ...seen, delivery_id: known.delivery_id ?? seen.delivery_id ?? null }
    : known
  const outcome = outcomeRank(seen.outcome) >= outcomeRank(known.outcome) ? seen.outcome : known.outcome
  return copy.outcome === outcome ? copy : { ...copy, outcome }
}

/**
 * Adds the result of a read of history. The result must have no gaps, and must touch or overlap `messages` unless
 * `messages` is empty.
 * @param {Timeline} timeline
 * @param {ReadonlyArray<Message>} read
 * @returns {Timeline}
 */
export const withRead = (timeline, read) => {
  /** @type {Map<string, Message>} */
  const known = new Map(timeline.messages.map((message) => [message.id, message]))
  for (const message of read) {
    const before = known.get(message.id)
    known.set(message.id, before === undefined ? message : later(before, message))
  }
  return settle({ ...timeline, messages: [...known.values()].sort(bySeq) })
}

/**
 * Moves the messages of `aside` that now follow the last message to `messages`.
 * @param {Timeline} timeline
 * @returns {Timeline}
 */
const settle = (timeline) => {
  if (timeline.aside.length === 0) return timeline
  const messages = [...timeline.messages]
  const ids = new Set(messages.map(({ id }) => id))
  let last = messages.at(-1)?.seq ?? 0
  const aside = []
  for (const message of timeline.aside) {
    if (ids.has(message.id)) continue
    if (message.seq === last + 1) {
      messages.push(message)
      last = message.seq
    } else if (message.seq > last) aside.push(message)
  }
  return { ...timeline, messages, aside }
}

/**
 * Adds a message from the socket or from the response to a send.
 * @param {Timeline} timeline
 * @param {Message} message
 * @returns {Timeline}
 */
export const withLive = (timeline, message) => {
  const index = timeline.messages.findLastIndex(({ seq }) => seq <= message.seq)
  const there = timeline.messages[index]
  if (there?.id === message.id) {
    // A pushed message has no reactions.
    const reactions = message.reactions ?? there.reactions
    const copy = later(there, message)
    return {
      ...timeline,
      messages: timeline.messages.with(index, reactions === undefined ? copy : { ...copy, reactions })
    }
  }
  if (timeline.newer) return timeline
  const last = timeline.messages.at(-1)?.seq ?? 0
  // The message is older than the last one. If the agent may see it, a read of history returns it.
  if (message.seq <= last) return timeline
  if (message.seq === last + 1) return settle({ ...timeline, messages: [...timeline.messages, message] })
  if (timeline.aside.some(({ id }) => id === message.id)) return timeline
  return { ...timeline, aside: [...timeline.aside, message].sort(bySeq) }
}

/**
 * The seq after which messages are missing; undefined if none are missing.
 * @param {Timeline} timeline
 */
export const gapAfter = ({ aside, messages }) => aside.length === 0 ? undefined : messages.at(-1)?.seq ?? 0

/**
 * Moves all messages in `aside` to `messages`. Call it after a read from the gap to the newest message. Seqs that are
 * still missing then belong to messages that this agent may not see.
 * @param {Timeline} timeline
 * @returns {Timeline}
 */
export const closeGap = (timeline) =>
  timeline.aside.length === 0 ? timeline : withRead({ ...timeline, aside: [] }, timeline.aside)

/**
 * Marks the agent's own messages of a direct conversation as read, up to the seq of the receipt. Do not pass a receipt
 * of a group, because it means only that one member has read the messages.
 * @param {Timeline} timeline
 * @param {Receipt} receipt
 * @param {string} own
 * @returns {Timeline}
 */
export const withReceipt = (timeline, receipt, own) => ({
  ...timeline,
  messages: timeline.messages.map((message) =>
    message.sender === own && message.status !== "read" &&
      (message.id === receipt.message_id || message.seq <= receipt.through_seq)
      ? { ...message, status: "read", read_at: receipt.at }
      : message
  )
})

/**
 * Sets the outcome of the agent's own message in a direct conversation. Do not pass the outcome of a message in a
 * group, because it is that of one member.
 * @param {Timeline} timeline
 * @param {OutcomeChange} change
 * @returns {Timeline}
 */
export const withOutcome = (timeline, { at, message_id, reason, state }) => ({
  ...timeline,
  messages: timeline.messages.map((message) =>
    message.id === message_id ? later(message, { ...message, outcome: { state, reason, at } }) : message
  )
})

/**
 * Empties a message that an operator has removed. The reason of its outcome and its reactions are removed too.
 * @param {Timeline} timeline
 * @param {string} id
 * @returns {Timeline}
 */
export const withRemoval = (timeline, id) => {
  const emptied = (/** @type {ReadonlyArray<Message>} */ messages) =>
    messages.map((message) =>
      message.id === id
        ? {
          ...message,
          content: {},
          metadata: { removed: {} },
          outcome: message.outcome && { ...message.outcome, reason: null },
          reactions: []
        }
        : message
    )
  return { ...timeline, messages: emptied(timeline.messages), aside: emptied(timeline.aside) }
}

/**
 * Replaces the reactions to a message.
 * @param {Timeline} timeline
 * @param {string} id
 * @param {ReadonlyArray<Reaction>} reactions
 * @returns {Timeline}
 */
export const withReactions = (timeline, id, reactions) => ({
  ...timeline,
  messages: timeline.messages.map((message) => message.id === id ? { ...message, reactions } : message)
})

/** @param {Timeline} timeline @param {string} id @returns {Timeline} */
export const without = (timeline, id) => ({
  ...timeline,
  messages: timeline.messages.filter((message) => message.id !== id)
})

/**
 * The seq after which the page polls for states. It is the seq before the first of the agent's own messages that is not
 * read, among the newest 200 messages. Undefined if all are read.
 * @param {Timeline} timeline
 * @param {string} own
 */
export const unsettledAfter = ({ messages }, own) => {
  const first = messages.slice(-200).find(({ sender, status, type }) =>
    sender === own && status !== "read" && type !== "system"
  )
  return first === undefined ? undefined : first.seq - 1
}

/** @typedef {Pick<Conversation, "unread_count" | "oldest_unread_seq" | "newest_unread_seq">} Unread */

/** @param {Message} message @param {string} own */
const isUnread = ({ sender, status }, own) => sender !== own && status !== "read"

/**
 * Whether the messages from this seq on are loaded, except newer ones than the last loaded message.
 * @param {Timeline} timeline
 * @param {number} seq
 */
const reachesBack = ({ complete, messages }, seq) => {
  const [first] = messages
  return first !== undefined && (complete || first.seq <= seq)
}

/**
 * Whether the message with this seq is among the loaded messages, or would be if the agent could still see it.
 * @param {Timeline} timeline
 * @param {number} seq
 */
export const covers = (timeline, seq) =>
  reachesBack(timeline, seq) && (!timeline.newer || (timeline.messages.at(-1)?.seq ?? 0) >= seq)

/**
 * Which messages become read after messages were on the screen. `through` is a seq if every unread message up to this
 * seq was on the screen. `single` contains the other messages that were on the screen and are unread.
 * @param {Timeline} timeline
 * @param {Unread} unread
 * @param {string} own
 * @param {ReadonlySet<string>} seen the ids of the messages that were on the screen
 * @returns {{ readonly through: number | undefined, readonly single: ReadonlyArray<Message> }}
 */
export const toRead = (timeline, unread, own, seen) => {
  const { messages } = timeline
  const oldest = unread.oldest_unread_seq ?? 0
  const from = reachesBack(timeline, oldest) ? messages.findIndex(({ seq }) => seq >= oldest) : -1
  /** @type {number | undefined} */
  let through
  let hasUnread = false
  for (const message of from === -1 ? [] : messages.slice(from)) {
    if (seen.has(message.id)) {
      through = message.seq
      hasUnread ||= isUnread(message, own)
    } else if (isUnread(message, own)) break
  }
  // The server may count messages as unread that are read here, because its list was read before.
  if (!hasUnread && (through ?? 0) < (unread.newest_unread_seq ?? 0)) through = undefined
  return {
    through,
    single: messages.filter((message) => seen.has(message.id) && isUnread(message, own) && message.seq > (through ?? 0))
  }
}

/**
 * Marks messages of other agents as read: all up to the seq `through`, and those in `single`.
 * @param {Timeline} timeline
 * @param {string} own
 * @param {{ readonly through: number | undefined, readonly single: ReadonlyArray<Message> }} read
 * @returns {Timeline}
 */
export const withSeen = (timeline, own, { single, through = 0 }) => {
  const ids = new Set(single.map(({ id }) => id))
  return {
    ...timeline,
    messages: timeline.messages.map((message) =>
      isUnread(message, own) && (message.seq <= through || ids.has(message.id))
        ? { ...message, status: "read" }
        : message
    )
  }
}

/**
 * What is unread after `before` became `after` through reading.
 * @param {Timeline} before
 * @param {Timeline} after
 * @param {Unread} unread
 * @param {string} own
 * @param {number} [through] the seq up to which all messages are read
 * @returns {Pick<Unread, "unread_count" | "oldest_unread_seq">}
 */
export const unreadAfter = (before, after, unread, own, through = 0) => {
  const count = (/** @type {Timeline} */ { messages }) => messages.filter((message) => isUnread(message, own)).length
  const oldest = unread.oldest_unread_seq ?? 0
  const next = after.messages.find((message) => message.seq >= oldest && isUnread(message, own))?.seq
  const newest = unread.newest_unread_seq ?? 0
  const last = after.messages.at(-1)?.seq ?? 0
  const isAllKnown = reachesBack(after, oldest) && newest <= last
  if (through >= newest || (isAllKnown && next === undefined)) return { unread_count: 0, oldest_unread_seq: null }
  return {
    unread_count: Math.max(1, unread.unread_count - count(before) + count(after)),
    oldest_unread_seq: reachesBack(after, oldest) ? next ?? last + 1 : oldest
  }
}

/**
 * How many unread messages are above and below the rows that are on the screen, loaded or not. If it is not known on
 * which side the unread messages are that are not loaded, `isExact` is false and there are at least so many.
 * @param {Timeline} timeline
 * @param {Unread} unread
 * @param {string} own
 * @param {number} first the index of the first message on the screen
 * @param {number} last the index of the last message on the screen
 */
export const unreadBeyond = (timeline, unread, own, first, last) => {
  const { messages, newer } = timeline
  if (unread.unread_count === 0) return { above: 0, below: 0, isExact: true }
  const counted = (/** @type {number} */ from, /** @type {number} */ to) => {
    let count = 0
    for (const message of messages.slice(from, to)) if (isUnread(message, own)) count++
    return count
  }
  const above = counted(0, first)
  const below = counted(last + 1, messages.length)
  const missing = Math.max(0, unread.unread_count - counted(0, messages.length))
  const oldest = unread.oldest_unread_seq ?? 0
  const newest = unread.newest_unread_seq ?? 0
  const before = reachesBack(timeline, oldest) ? 0 : Math.max(0, (messages[0]?.seq ?? newest + 1) - oldest)
  const after = newer ? Math.max(0, newest - (messages.at(-1)?.seq ?? newest)) : 0
  // So many of the missing messages fit on neither other side. At least the oldest and the newest are where they are.
  const leastBefore = before === 0 ? 0 : after === 0 ? missing : Math.max(1, missing - after)
  const leastAfter = after === 0 ? 0 : before === 0 ? missing : Math.max(1, missing - before)
  return {
    above: above + leastBefore,
    below: below + leastAfter,
    isExact: before === 0 || after === 0 || leastBefore + leastAfter >= missing
  }
}
