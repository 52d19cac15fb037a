import * as fc from "fast-check"
import { inWordsBy } from "../Words.ts"
import { ANSWERS_IN_WORDS, answersOf, type AnswerStep } from "./AnswerSteps.ts"
import { AGENTS } from "./Society.ts"

/**
 * The steps of one history. Fields such as `pick` are choices, modulo the number of things that exist when the step
 * runs. So a list stays meaningful when steps are removed from it.
 */
export type Step =
  | AnswerStep
  | { readonly _tag: "Jump"; readonly ms: number }
  /**
   * Advances the clock to just before, exactly at, or just after a time at which something changes without a request.
   */
  | { readonly _tag: "Edge"; readonly pick: number; readonly offset: -1 | 0 | 1 }
  | { readonly _tag: "Send"; readonly from: number; readonly to: number; readonly key: number }
  | { readonly _tag: "Reply"; readonly agent: number; readonly pick: number; readonly key: number }
  | { readonly _tag: "Speak"; readonly agent: number; readonly pick: number; readonly key: number }
  | { readonly _tag: "Hooked"; readonly agent: number; readonly pick: number }
  | {
    readonly _tag: "Block" | "Report" | "Unblock"
    readonly by: number
    readonly pick: number
    readonly wild: boolean
  }
  | { readonly _tag: "Restore" | "Suspend" | "Delete"; readonly pick: number }
  /** An agent writes to all agents that it may write to. They complain about it, one after the other. */
  | {
    readonly _tag: "Mob"
    readonly agent: number
    readonly complaints: ReadonlyArray<
      { readonly kind: "Block" | "Report"; readonly victim: number; readonly hours: number }
    >
    readonly end: "nothing" | "suspend" | "restore" | "unblock" | "delete"
  }
  /**
   * Something that a rule forbids for a while is attempted again just before, exactly at, or just after the end of that
   * time.
   */
  | {
    readonly _tag: "Probe"
    readonly agent: number
    readonly pick: number
    readonly early: boolean
    readonly offset: -1 | 0 | 1
  }
  /** A message is delivered to all recipients and then read by all, while its sender's view is checked. */
  | { readonly _tag: "Follow"; readonly pick: number }
  | { readonly _tag: "Contact"; readonly agent: number; readonly other: number }
  | { readonly _tag: "Create"; readonly by: number; readonly with: ReadonlyArray<number>; readonly join: number }
  | { readonly _tag: "Add"; readonly agent: number; readonly pick: number; readonly other: number }
  | { readonly _tag: "Accept" | "Reject"; readonly pick: number }
  | { readonly _tag: "Cancel"; readonly pick: number; readonly by: number }
  | { readonly _tag: "Leave" | "Dissolve"; readonly agent: number; readonly pick: number }
  | {
    readonly _tag: "Remove" | "Promote" | "Demote"
    readonly agent: number
    readonly pick: number
    readonly other: number
  }
  | { readonly _tag: "Attach"; readonly agent: number; readonly acknowledges: boolean }
  | { readonly _tag: "Detach"; readonly pick: number }
  | {
    readonly _tag: "AckFrame" | "AckThrough" | "Read" | "ReadThrough" | "HideMessage" | "Hide"
    readonly agent: number
    readonly pick: number
  }
  | {
    readonly _tag: "Mute"
    readonly agent: number
    readonly pick: number
    readonly group: boolean
    readonly ms: number | null
  }
  | { readonly _tag: "Unmute"; readonly agent: number; readonly pick: number }
  | { readonly _tag: "Mutes"; readonly agent: number }
  | { readonly _tag: "Look"; readonly agent: number; readonly pick: number }
  | {
    readonly _tag: "Reserve"
    readonly agent: number
    readonly pick: number
    readonly group: boolean
    readonly put: boolean
  }
  | { readonly _tag: "Put"; readonly pick: number; readonly bytes: "right" | "other" | "short" }
  | { readonly _tag: "Carry"; readonly pick: number; readonly wild: number }
  | { readonly _tag: "Download"; readonly agent: number; readonly pick: number }

const agent = fc.nat(AGENTS - 1)
const other = agent
/** An agent that writes. The first two are chosen more often, so that they reach the limits of writing. */
const writer = fc.oneof(agent, fc.nat(1))
const pick = fc.nat(10_000)
const key = fc.nat(80)
const offset = fc.constantFrom(-1 as const, 0 as const, 1 as const)

const step = <T extends Step["_tag"], R>(tag: T, fields: fc.Arbitrary<R>) =>
  fields.map((rest) => ({ _tag: tag, ...rest }))

const HOUR = 3_600_000
const DAY = 24 * HOUR

const time = [
  {
    weight: 3,
    arbitrary: step(
      "Jump",
      fc.record({ ms: fc.constantFrom(1, 999, 60_000, HOUR, 6 * HOUR, 12 * HOUR, 23 * HOUR, DAY, 3 * DAY) })
    )
  },
  { weight: 5, arbitrary: step("Edge", fc.record({ pick, offset })) },
  { weight: 4, arbitrary: step("Probe", fc.record({ agent, pick, early: fc.boolean(), offset })) }
]
const talk = [
  { weight: 7, arbitrary: step("Send", fc.record({ from: writer, to: other, key })) },
  { weight: 7, arbitrary: step("Reply", fc.record({ agent, pick, key })) },
  { weight: 8, arbitrary: step("Speak", fc.record({ agent, pick, key })) }
]
const complaint = fc.record({ by: agent, pick, wild: fc.nat(4).map((n) => n === 0) })
const standing = [
  { weight: 4, arbitrary: step("Block", complaint) },
  { weight: 2, arbitrary: step("Unblock", complaint) },
  { weight: 3, arbitrary: step("Report", complaint) },
  {
    weight: 10,
    arbitrary: step(
      "Mob",
      fc.record({
        agent: writer,
        complaints: fc.array(
          fc.record({
            kind: fc.constantFrom("Block" as const, "Report" as const),
            victim: agent,
            hours: fc.constantFrom(0, 0, 0, 13, 25)
          }),
          { minLength: 2, maxLength: 4, size: "max" }
        ),
        end: fc.constantFrom<Extract<Step, { readonly _tag: "Mob" }>["end"]>(
          "nothing",
          "nothing",
          "nothing",
          "suspend",
          "unblock",
          "delete",
          "restore"
        )
      })
    )
  },
  { weight: 2, arbitrary: step("Restore", fc.record({ pick })) },
  { weight: 1, arbitrary: step("Suspend", fc.record({ pick })) }
]
const ends = [{ weight: 4, arbitrary: step("Delete", fc.record({ pick })) }]
const groups = [
  {
    weight: 3,
    arbitrary: step(
      "Create",
      fc.record({ by: agent, with: fc.uniqueArray(agent, { minLength: 1, maxLength: 4 }), join: fc.nat(2) })
    )
  },
  { weight: 8, arbitrary: step("Add", fc.record({ agent, pick, other })) },
  { weight: 6, arbitrary: step("Accept", fc.record({ pick })) },
  { weight: 4, arbitrary: step("Reject", fc.record({ pick })) },
  { weight: 3, arbitrary: step("Cancel", fc.record({ pick, by: agent })) },
  { weight: 3, arbitrary: step("Leave", fc.record({ agent, pick })) },
  { weight: 1, arbitrary: step("Dissolve", fc.record({ agent, pick })) },
  { weight: 3, arbitrary: step("Remove", fc.record({ agent, pick, other })) },
  { weight: 2, arbitrary: step("Promote", fc.record({ agent, pick, other })) },
  { weight: 2, arbitrary: step("Demote", fc.record({ agent, pick, other })) }
]
const sockets = [
  { weight: 5, arbitrary: step("Attach", fc.record({ agent, acknowledges: fc.boolean() })) },
  { weight: 2, arbitrary: step("Detach", fc.record({ pick })) },
  { weight: 5, arbitrary: step("AckFrame", fc.record({ agent, pick })) },
  { weight: 3, arbitrary: step("Hooked", fc.record({ agent, pick })) }
]
const inboxes = [
  { weight: 3, arbitrary: step("AckThrough", fc.record({ agent, pick })) },
  { weight: 4, arbitrary: step("Read", fc.record({ agent, pick })) },
  { weight: 4, arbitrary: step("ReadThrough", fc.record({ agent, pick })) },
  { weight: 3, arbitrary: step("Follow", fc.record({ pick })) },
  { weight: 3, arbitrary: step("HideMessage", fc.record({ agent, pick })) },
  { weight: 3, arbitrary: step("Hide", fc.record({ agent, pick })) },
  { weight: 10, arbitrary: step("Look", fc.record({ agent, pick })) }
]
const mutes = [
  {
    weight: 4,
    arbitrary: step(
      "Mute",
      fc.record({ agent, pick, group: fc.boolean(), ms: fc.constantFrom(null, 2, 1_000, HOUR, DAY) })
    )
  },
  { weight: 1, arbitrary: step("Unmute", fc.record({ agent, pick })) },
  { weight: 2, arbitrary: step("Mutes", fc.record({ agent })) }
]
const bytes = fc.constantFrom("right" as const, "right" as const, "right" as const, "other" as const, "short" as const)
const files = [
  {
    weight: 3,
    arbitrary: step("Reserve", fc.record({ agent, pick, group: fc.boolean(), put: fc.nat(3).map((n) => n > 0) }))
  },
  { weight: 3, arbitrary: step("Put", fc.record({ pick, bytes })) },
  { weight: 7, arbitrary: step("Carry", fc.record({ pick, wild: fc.nat(60) })) },
  { weight: 1, arbitrary: step("Download", fc.record({ agent, pick })) }
]
const answers = answersOf(agent)
const contacts = [{ weight: 1, arbitrary: step("Contact", fc.record({ agent, other })) }]

interface Weighted {
  readonly weight: number
  readonly arbitrary: fc.Arbitrary<Step>
}

const everything: ReadonlyArray<ReadonlyArray<Weighted>> = [
  time,
  talk,
  standing,
  ends,
  groups,
  sockets,
  inboxes,
  mutes,
  files,
  contacts,
  answers
]

/** The steps that a history contains most often. Every history may contain all steps. */
const THEMES: ReadonlyArray<ReadonlyArray<ReadonlyArray<Weighted>>> = [
  [standing],
  [groups],
  [sockets, inboxes],
  [groups, inboxes, ends],
  [mutes, sockets],
  [files],
  [standing, ends],
  [answers],
  [answers, groups, inboxes],
  []
]

const histories = THEMES.map((theme) =>
  fc.oneof(...everything.flatMap((kinds) => {
    const times = theme.includes(kinds) ? 8 : kinds === talk ? 6 : kinds === time ? 3 : 2
    return kinds.map(({ arbitrary, weight }) => ({ weight: weight * times, arbitrary }))
  }))
)

/** The steps of one history, which depend only on the seed and the length. */
export const stepsOf = (seed: number, length: number): ReadonlyArray<Step> => {
  const [steps] = fc.sample(
    // With fast-check's bias, most steps would concern the first and the last agent.
    fc.noBias(
      fc.array(histories[seed % histories.length]!, { minLength: length, maxLength: length + 20, size: "max" })
    ),
    { numRuns: 1, seed }
  )
  return steps ?? []
}

/**
 * Describes a step. Most choices such as `pick` are left out, because they have no meaning without the state at that
 * time.
 */
export const stepInWords = inWordsBy<Step>({
  ...ANSWERS_IN_WORDS,
  Jump: "the clock advances by {ms} ms",
  Edge: "the clock advances to {offset} ms beside a moment at which something changes",
  Send: "agent {from} sends a direct message to agent {to}, or to an agent that it has not written to",
  Reply: "agent {agent} answers in a direct conversation",
  Speak: "agent {agent}, or the next agent that is in a group, sends a message to a group",
  Hooked: "agent {agent} gets a message while it has a webhook",
  Block: "agent {by}, or an agent whose block counts, blocks another agent",
  Report: "agent {by}, or an agent whose report counts, reports another agent",
  Unblock: "agent {by}, or an agent that blocks, unblocks another agent",
  Restore: "an operator restores an agent",
  Suspend: "an operator suspends an agent",
  Delete: "an account is deleted",
  Mob:
    "agent {agent}, or the next agent that has written to others, writes to all, is blocked or reported by some of them, and then: {end}",
  Probe: "agent {agent} tries again what is forbidden for a while, {offset} ms beside the end of that time",
  Follow: "a message is delivered to all its recipients and then read by them",
  Contact: "agent {agent} adds agent {other} to its contacts",
  Create: "agent {by} makes a group with the agents {with}",
  Add: "an admin invites agent {other}, or a former member, to a group",
  Accept: "an invite to a group is accepted",
  Reject: "an invite to a group is refused",
  Cancel: "agent {by}, or an admin, cancels an invite to a group",
  Leave: "agent {agent}, or the next agent that is in a group, leaves a group",
  Dissolve: "agent {agent}, or an agent that may, deletes a group",
  Remove: "an admin removes agent {other}, or another member, from a group",
  Promote: "an admin makes a member of a group an admin",
  Demote: "an admin makes an admin of a group a member",
  Attach: "agent {agent} opens a socket (with ack: {acknowledges})",
  Detach: "a socket is closed",
  AckFrame: "a message is acknowledged by a frame on a socket",
  AckThrough: "agent {agent}, or the next agent with an undelivered message, acknowledges by sync/ack",
  Read: "agent {agent}, or the next agent with an unread message, reads a message",
  ReadThrough: "agent {agent}, or the next agent with an unread message, reads a conversation up to a seq",
  HideMessage: "agent {agent}, or the next agent with an undelivered message, hides a message",
  Hide: "agent {agent}, or the next agent with an undelivered message, hides a conversation",
  Mute: "agent {agent} mutes an agent or a conversation for {ms} ms",
  Unmute: "agent {agent}, or the next agent that mutes, lifts a mute",
  Mutes: "agent {agent}, or the next agent that mutes, lists its mutes",
  Look: "agents look at their invites and at the histories of their conversations",
  Reserve: "agent {agent}, or the next agent that is in a group, announces a file",
  Put: "a file is uploaded with {bytes} bytes",
  Carry: "a message with a file is sent",
  Download: "agent {agent} asks for the bytes of a file"
})
