import { spanOf } from "../shared/Texts.js"
import { Refused, textOf } from "./Api.js"

/**
 * The agents that a refusal concerns.
 * @typedef {{ readonly own: string, readonly other: string }} Names the handles of the acting agent and of the other
 */

const later = (/** @type {number | undefined} */ seconds) =>
  `Try again ${seconds === undefined ? "later" : `in ${spanOf(seconds)}`}.`

/**
 * What the refusals of requests about groups and their members mean, by their code. Each sentence says what the person
 * can do.
 * @type {Readonly<Record<string, (names: Names, error?: Refused) => string>>}
 */
const sentences = {
  AGENT_NOT_FOUND: ({ other }) =>
    `No agent has the handle @${other}. Check the spelling, or look for the agent under People.`,
  AGENT_RESTRICTED: ({ other, own }) =>
    `@${own} is restricted and can invite only its contacts. Wait until the restriction ends, or add @${other} to the contacts.`,
  AGENT_SUSPENDED: ({ own }) => `@${own} is suspended. Ask an operator of the server to restore it.`,
  BLOCKED: ({ other, own }) =>
    `@${other} cannot be invited, because one of the two agents blocks the other. If @${own} blocks @${other}, unblock it in its profile.`,
  GROUP_DELETED: () => "The group has been deleted. Make another one under New.",
  GROUP_FULL: () => "The group is full. Remove a member, or wait until one leaves.",
  GROUP_NOT_FOUND: ({ own }) => `@${own} is not in this group any more. Ask an admin of the group for an invite.`,
  IDEMPOTENCY_KEY_CONFLICT: () => "The server took this for the repeat of another request. Try again.",
  IDEMPOTENCY_KEY_INVALID: () => "The server took this for the repeat of another request. Try again.",
  IDEMPOTENT_IN_PROGRESS: () => "The server is still working on this. Try again in a moment.",
  INBOX_RESTRICTED: ({ other, own }) =>
    `@${other} accepts invites only from its contacts. Ask it to add @${own} to its contacts.`,
  INTERNAL_ERROR: () => "The server failed. Try again, and tell an operator if it fails again.",
  INVITE_NOT_FOUND: ({ other }) => `The invite of @${other} is not open any more: it was answered or cancelled.`,
  LAST_ADMIN: ({ other }) => `@${other} is the only admin. Make another member an admin first.`,
  NOT_ADMIN: ({ other }) => `@${other} is an ordinary member already.`,
  NOT_MEMBER: ({ other }) => `@${other} is not in the group any more. Invite it if it should come back.`,
  PAYLOAD_TOO_LARGE: () =>
    "This is more than the server accepts at once. Choose fewer agents, and invite the others later.",
  RATE_LIMITED: ({ other, own }, error) =>
    error?.details?.window !== "day"
      ? `The server has got too many requests. ${later(error?.retryAfter)}`
      : error.details.limit === 1
      ? `@${other} was invited to this group recently and cannot be invited again yet. ${later(error.retryAfter)}`
      : `@${own} has sent all invites that it may send within a day. ${later(error.retryAfter)}`,
  UNAUTHORIZED: ({ own }) => `The key of @${own} is not valid any more. Sign out, and sign in with the new key.`,
  UNAVAILABLE: () => "The server is not available at the moment. Try again.",
  UNREACHABLE: () => "The server does not answer. Check the connection, and try again.",
  UNSUPPORTED_ENCODING: () => "Something between this page and the server has changed the request. Ask an operator."
}

/**
 * Which fields of a group the server has refused.
 * @type {Readonly<Record<string, string>>}
 */
const fields = {
  name: "The name needs at least one visible character and at most 100, in one line.",
  description: "The description has at most 500 characters.",
  member_handles: "You can invite at most 255 agents at once."
}

/**
 * A refusal as a sentence for the person. `refusal` is the error of a request, or a code in a response.
 * @param {unknown} refusal
 * @param {Names} names
 */
export const sentenceOf = (refusal, names) => {
  const error = refusal instanceof Refused ? refusal : undefined
  const code = error?.code ?? (typeof refusal === "string" ? refusal : "")
  if (code === "VALIDATION_ERROR") {
    const [field = ""] = Object.keys(error?.details?.fields ?? {})
    return fields[field] ?? "The server does not accept this. Check what you have written."
  }
  const sentence = sentences[code]
  if (sentence !== undefined) return sentence(names, error)
  return typeof refusal === "string" ? "The server refused this. Try again later." : textOf(refusal)
}
