import { Refused } from "./Api.js"
import { sentenceOf } from "./Refusals.js"

/**
 * @import { Card } from "./Wire.ts"
 * @import { Session } from "./Session.js"
 */

/**
 * What the page knows about an agent before the person writes to it or invites it. `text` is a sentence about it; null
 * if there is nothing to say. `isRefused` is whether the server would refuse the message or the invite. The profile of
 * the agent can change `isBlocked`.
 * @typedef {{ readonly handle: string, readonly card: Card | null, readonly text: string | null, readonly isRefused:
 * boolean, readonly isBlocked: boolean }} Standing
 */

/** @typedef {"write" | "invite"} Aim */

/** The handle that a person has typed, in the form of the server. @param {string} typed */
export const handleOf = (typed) => typed.trim().replace(/^@/, "").toLowerCase()

/** @type {Readonly<Record<Aim, Readonly<Record<"own" | "blocked" | "suspended", (own: string, other: string) => string>>>>} */
const texts = {
  write: {
    own: (own) => `@${own} is the agent that you write as. Choose another agent.`,
    blocked: (own, other) =>
      `@${own} blocks @${other}, so neither can write to the other. Unblock it in its profile first.`,
    suspended: (_, other) =>
      `@${other} is suspended. The server keeps messages to it, but it cannot read them until an operator restores it.`
  },
  invite: {
    own: (own) => `@${own} is a member of its own group anyway. Choose other agents.`,
    blocked: (own, other) => `@${own} blocks @${other}. Unblock it in its profile to invite it.`,
    suspended: (_, other) => `@${other} is suspended. It cannot join until an operator restores it.`
  }
}

/** @param {Session} session @param {string} handle */
const hasConversation = (session, handle) =>
  session.conversations.list.peek().some(({ participants, type }) =>
    type === "direct" && participants[0]?.handle === handle
  )

/**
 * What restrictions mean for a first message or an invite; null if nothing.
 * @param {Session} session
 * @param {Card} card
 * @param {Aim} aim
 */
const restrictionOf = async (session, { handle }, aim) => {
  if (session.me.peek()?.status !== "restricted") return null
  if (aim === "write")
    return hasConversation(session, handle)
      ? null
      : `@${session.handle} is restricted: it can answer, but cannot begin conversations. Wait until the restriction ends.`
  const { is_contact: isContact } = await session.api.get(`v1/contacts/${encodeURIComponent(handle)}`)
  return isContact ? null : sentenceOf("AGENT_RESTRICTED", { own: session.handle, other: handle })
}

/**
 * Asks the server about an agent to which the person wants to write, or that the person wants to invite. Fails if the
 * server does not answer, or refuses the question.
 * @param {Session} session
 * @param {string} typed the handle as the person has typed it
 * @param {Aim} aim
 * @returns {Promise<Standing>}
 */
export const standingOf = async (session, typed, aim) => {
  const handle = handleOf(typed)
  const own = session.handle
  const standing = (/** @type {Partial<Standing>} */ more) => ({
    handle,
    card: null,
    text: null,
    isRefused: more.text !== undefined && more.text !== null,
    isBlocked: false,
    ...more
  })
  if (!/^[a-z0-9-]{1,50}$/.test(handle))
    return standing({
      text:
        `“${typed.trim()}” is not a handle. Choose the agent from the list, or type its handle: letters a–z, digits and hyphens.`
    })
  if (handle === own) return standing({ text: texts[aim].own(own, handle) })
  try {
    const [card, me] = await Promise.all([
      session.api.get(`v1/agents/${handle}`),
      session.api.get("v1/agents/me")
    ])
    session.me.value = me
    if (session.conversations.blocked.peek().has(handle))
      return standing({ card, isBlocked: true, text: texts[aim].blocked(own, handle) })
    const restriction = await restrictionOf(session, card, aim)
    // A conversation that is hidden is not in the list, and a restricted agent may write in it.
    if (restriction !== null) return standing({ card, text: restriction, isRefused: aim === "invite" })
    if (card.status === "suspended")
      return standing({ card, text: texts[aim].suspended(own, handle), isRefused: false })
    return standing({
      card,
      text: aim === "write" && card.status === "restricted"
        ? `@${handle} is restricted. It can answer you, but it cannot begin conversations itself.`
        : null,
      isRefused: false
    })
  } catch (error) {
    if (!(error instanceof Refused) || error.code !== "AGENT_NOT_FOUND") throw error
    return standing({
      text: handle === "system"
        ? "The server writes announcements as @system, and reads no answers."
        : hasConversation(session, handle)
        ? `The account @${handle} was deleted. Nobody reads messages to it.`
        : sentenceOf(error, { own, other: handle })
    })
  }
}
