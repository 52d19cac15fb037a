import { Deliveries } from "#domain/deliveries/Deliveries"
import { Outcomes } from "#domain/deliveries/Outcomes"
import { Reactions } from "#domain/reactions/Reactions"
import { Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { check, same } from "../Violation.ts"
import type { AnswerStep } from "./AnswerSteps.ts"
import type { Letter } from "./Inboxes.ts"
import type { OutcomeState, Reported } from "./Outcomes.ts"
import { EMOJI, type Given } from "./Reactions.ts"
import { isGroup, pairOf } from "./Society.ts"
import { choose, type Stage } from "./Stage.ts"

type Json = Readonly<Record<string, unknown>>
type StepOf<T extends AnswerStep["_tag"]> = Extract<AnswerStep, { readonly _tag: T }>

export const reactionEvent = ({ added, emoji, handle, message_id }: Json): string =>
  `reaction ${String(message_id)} ${String(handle)} ${String(emoji)} ${String(added)}`

export const outcomeEvent = ({ at, handle, message_id, reason, state }: Json): string =>
  `outcome ${String(message_id)} ${String(handle)} ${String(state)} ${String(reason)} ${String(at)}`

/** The orders of some things. */
const orders = <A>(all: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  all.length === 0
    ? [[]]
    : all.flatMap((first, i) => orders(all.filter((_, other) => other !== i)).map((rest) => [first, ...rest]))

/** Steps in which agents react to messages and report their outcomes (wire.md C.6). */
export const makeAnswers = Effect.gen(function*() {
  const deliveries = yield* Deliveries
  const outcomes = yield* Outcomes
  const reactions = yield* Reactions
  const sql = yield* SqlClient.SqlClient

  return (stage: Stage) => {
    const { able, add, expect, iso, lookAt, now, society, someone, tell, the } = stage

    const letters = (): ReadonlyArray<Letter> =>
      [...society.letters.values()].flat().filter(({ id }) => id !== undefined)
    const areApart = ({ talk }: Letter): boolean => !isGroup(talk) && society.standing.apart(...pairOf(talk))

    const shownOutcome = (one: Reported | undefined) =>
      one === undefined ? null : { state: one.state, reason: one.reason, at: iso(one.at) }

    const checkReactions = (viewer: number, letter: Letter, shown: unknown): void =>
      same("reactions", shown, society.reactions.shownTo(viewer, letter), `reactions to ${letter.talk} ${letter.seq}`)

    /** Notes who is told of a change of a reaction. */
    const tellReaction = (letter: Letter, agent: number, emoji: string, added: boolean): void => {
      const payload = { message_id: letter.id, handle: the(agent).handle, emoji, added }
      for (let to = 0; to < society.inboxes.of.length; to++) {
        if (!society.sees(to, letter) || (areApart(letter) && to !== agent)) continue
        if (!society.mutes.covers(to, agent, letter.talk, now())) tell(to, reactionEvent(payload))
      }
    }

    const isHiddenFrom = (agent: number, letter: Letter): boolean =>
      society.isParticipant(agent, letter.talk) && !society.sees(agent, letter)

    /** The messages of one of several kinds, which the agent mostly sees. */
    const candidates = (agent: number, kind: number): ReadonlyArray<Letter> => {
      if (kind === 0) return letters()
      if (kind === 1) return letters().filter((letter) => isHiddenFrom(agent, letter))
      const seen = letters().filter((letter) => society.sees(agent, letter))
      if (kind === 2) return seen.filter(areApart)
      if (kind === 3) return seen.filter((letter) => letter.key === null)
      if (kind === 4) return seen.filter((letter) => society.reactions.of(letter).some((one) => one.agent === agent))
      if (kind === 5) return seen.filter((letter) => society.inboxes.of.some((_, one) => isHiddenFrom(one, letter)))
      return kind === 6 ? seen.slice(-5) : seen
    }

    /** A reaction that the agent takes back, preferably across a block, or that it gives as others did. */
    const known = (agent: number, takesBack: boolean, pick: number): Given | undefined => {
      const some = society.reactions.all.filter((one) =>
        takesBack ? one.agent === agent : one.agent !== agent && society.sees(agent, one.letter)
      )
      const alike = some.filter(({ emoji, letter }) =>
        society.reactions.of(letter).filter((one) => one.emoji === emoji).length > 1
      )
      const across = some.filter(({ letter }) => areApart(letter))
      return choose([alike, across, some][pick % 3]!, pick >> 4) ?? choose(some, pick >> 4)
    }

    const refusalOf = (agent: number, letter: Letter): string | undefined =>
      !society.sees(agent, letter)
        ? "MessageNotFound"
        : letter.key === null
        ? "ValidationFailed"
        : areApart(letter)
        ? "Blocked"
        : undefined

    /** Compares an attempt to react with the model. Returns whether the agent has one reaction more. */
    const given = (agent: number, letter: Letter, emoji: string, exit: Exit.Exit<unknown, unknown>): boolean => {
      const refused = refusalOf(agent, letter)
      const outcome = refused === undefined ? society.reactions.give(letter, agent, emoji, now()) : false
      expect("reactions", exit, outcome === "full" ? "TooManyReactions" : refused, "react")
      if (outcome !== true) return false
      add("Reaction", "none → given")
      tellReaction(letter, agent, emoji, true)
      return true
    }

    /** Compares an attempt to take a reaction back with the model. */
    const takenBack = (agent: number, letter: Letter, emoji: string, exit: Exit.Exit<unknown, unknown>): void => {
      const refused = society.sees(agent, letter) ? undefined : "MessageNotFound"
      if (!expect("reactions", exit, refused, "take back")) return
      if (!society.reactions.takeBack(letter, agent, emoji)) return
      add("Reaction", "given → none")
      tellReaction(letter, agent, emoji, false)
    }

    const oneByOne = Effect.fnUntraced(
      function*(agent: number, letter: Letter, emojis: ReadonlyArray<string>, how: "give" | "take back") {
        for (const emoji of emojis) {
          const change = how === "give" ? reactions.add : reactions.remove
          const exit = yield* Effect.exit(change(the(agent), letter.id!, emoji))
          if (how === "give") given(agent, letter, emoji, exit)
          else takenBack(agent, letter, emoji, exit)
          if (Exit.isSuccess(exit)) checkReactions(agent, letter, exit.value)
        }
      }
    )

    const giveAtOnce = Effect.fnUntraced(function*(agent: number, letter: Letter, emojis: ReadonlyArray<string>) {
      const exits = yield* Effect.all(
        emojis.map((emoji) =>
          Effect.map(Effect.exit(reactions.add(the(agent), letter.id!, emoji)), (exit) => ({ emoji, exit }))
        ),
        { concurrency: "unbounded" }
      )
      const done = exits.filter(({ exit }) => Exit.isSuccess(exit))
      const more = [...done, ...exits.filter((one) => !done.includes(one))].filter(({ emoji, exit }) =>
        given(agent, letter, emoji, exit)
      )
      if (more.length > 1) add("Reaction", "none → given: one of several at once", more.length)
    })

    const react = Effect.fnUntraced(function*(step: StepOf<"React">) {
      const kind = step.pick % 12
      const takesBack = step.how === "take back"
      const repeats = takesBack ? kind > 0 : step.how !== "give at once" && (kind === 7 || kind === 8)
      const agent = someone(
        step.agent,
        (one) => repeats ? known(one, takesBack, 2) !== undefined : candidates(one, kind).length > 0
      )
      const repeated = repeats ? known(agent, takesBack, step.pick >> 3) : undefined
      const letter = repeated?.letter ?? choose(candidates(agent, kind), step.pick >> 3)
      if (!able(agent) || letter?.id === undefined) return
      const first = repeated === undefined ? -1 : EMOJI.findIndex((emoji) => emoji === repeated.emoji)
      const from = first === -1 ? step.emoji : first
      const emojis = Array.from({ length: step.times }, (_, i) => EMOJI[(from + i) % EMOJI.length]!)
      // Sometimes, one of them is given twice.
      if (step.how === "give at once")
        yield* giveAtOnce(agent, letter, step.pick % 3 === 0 ? [...emojis, emojis[0]!] : emojis)
      else yield* oneByOne(agent, letter, emojis, takesBack ? "take back" : "give")
      if (step.how === "give and take back") yield* oneByOne(agent, letter, emojis, "take back")
      expect(
        "reactions",
        yield* Effect.exit(reactions.add(the(agent), letter.id, "nonsense")),
        "ValidationFailed",
        "react with nonsense"
      )
      const viewers = society.inboxes.of.flatMap((_, one) => able(one) && society.sees(one, letter) ? [one] : [])
      const viewer = choose(viewers, step.pick >> 5)
      if (viewer !== undefined) yield* lookAt(viewer, letter.talk)
    })

    /** The refusal of a report that the stored outcome does not cause. */
    const obstacle = (agent: number, letter: Letter): string | undefined =>
      letter.sender === agent
        ? "Forbidden"
        : !letter.recipients.includes(agent)
        ? "MessageNotFound"
        : letter.key === null
        ? "ValidationFailed"
        : undefined

    const reportOf = (agent: number, letter: Letter, state: OutcomeState, reason: string | null) =>
      Effect.exit(deliveries.read(the(agent).id, the(agent).handle, letter.id!, { state, reason }))

    const readBy = (agent: number, letter: Letter): void => {
      const slip = society.inboxes.slip(agent, letter)!
      const was = society.inboxes.read(slip, now())
      if (was !== undefined) add("Envelope", `${was} → read: read`)
    }

    /** Stores a report in the model, and compares its answer. */
    const reported = (
      agent: number,
      letter: Letter,
      state: OutcomeState,
      reason: string | null,
      exit: Exit.Exit<unknown, unknown>
    ): void => {
      const isApart = areApart(letter)
      const outcome = society.outcomes.report(letter, agent, state, isApart ? null : reason, now())
      expect("outcomes", exit, typeof outcome === "object" && "final" in outcome ? "OutcomeFinal" : undefined, "report")
      if (typeof outcome !== "object" || "final" in outcome) return
      if (state === "working") add("Outcome", "none → working")
      else add("Outcome", `${outcome.was} → ${state}`)
      const payload = { message_id: letter.id, handle: the(agent).handle, state, reason, at: iso(now()) }
      if (!isApart) tell(letter.sender, outcomeEvent(payload))
    }

    const reportAtOnce = Effect.fnUntraced(
      function*(agent: number, letter: Letter, states: ReadonlyArray<OutcomeState>, reason: string | null) {
        const exits = yield* Effect.all(
          states.map((state) => Effect.map(reportOf(agent, letter, state, reason), (exit) => ({ state, exit }))),
          { concurrency: "unbounded" }
        )
        readBy(agent, letter)
        const was = society.outcomes.of(letter, agent)?.state
        /** Whether the reports could have been answered like this one after the other. */
        const agrees = (order: Readonly<typeof exits>): boolean => {
          let stored = was
          return order.every(({ exit, state }) => {
            const isRefused = stored !== state && (stored === "done" || stored === "refused")
            if (!isRefused) stored = state === "working" ? stored ?? state : state
            return Exit.isSuccess(exit) !== isRefused
          })
        }
        const order = orders(exits).find(agrees)
        check(
          "concurrent",
          order !== undefined,
          () => `reports of ${states.join(", ")} at once: ${exits.map(({ exit }) => exit._tag).join(", ")}`
        )
        for (const { exit, state } of order ?? []) reported(agent, letter, state, reason, exit)
        const is = society.outcomes.of(letter, agent)?.state
        if (was === undefined && states.length > 1 && is !== "working")
          add("Outcome", "none → final: of several at once")
      }
    )

    /** A message that the agent mostly received. Some have an outcome already. */
    const forReport = (agent: number, pick: number): Letter | undefined => {
      const received = society.inboxes.of[agent]!.map((slip) => slip.letter).filter(({ id }) => id !== undefined)
      const some = [
        letters(),
        received.filter(areApart),
        received.filter((letter) => society.outcomes.of(letter, agent)?.state === "working"),
        received.filter((letter) => society.outcomes.of(letter, agent) !== undefined),
        received.filter((letter) => !society.sees(agent, letter)),
        received.filter((letter) => letter.key !== null),
        received.filter((letter) => letter.key !== null).slice(-4),
        received
      ][pick % 8]!
      return choose(some.length === 0 ? received : some, pick >> 3)
    }

    /** Compares the list of a message's outcomes, and that only the sender gets the list. */
    const checkList = Effect.fnUntraced(function*(agent: number, letter: Letter) {
      const exit = yield* Effect.exit(outcomes.ofMessage(the(agent).id, letter.id!))
      const mayList = letter.sender === agent
      if (!expect(mayList ? "outcomes" : "masked", exit, mayList ? undefined : "MessageNotFound", "list outcomes"))
        return
      if (!Exit.isSuccess(exit)) return
      same(
        "outcomes",
        exit.value.map(({ at, handle, reason, state }) => [handle, state, reason, at]),
        society.outcomes.list(letter)
          .toSorted((a, b) => a.at - b.at || (the(a.recipient).id < the(b.recipient).id ? -1 : 1))
          .map((one) => [the(one.recipient).handle, one.state, one.reason, iso(one.at)]),
        `outcomes of ${letter.talk} ${letter.seq}`
      )
    })

    const report = Effect.fnUntraced(function*(step: StepOf<"Outcome">) {
      const agent = someone(step.agent, (one) => society.inboxes.of[one]!.length > 0)
      const letter = forReport(agent, step.pick)
      if (!able(agent) || letter?.id === undefined) return
      const refused = obstacle(agent, letter)
      if (refused === undefined && step.atOnce) yield* reportAtOnce(agent, letter, step.states, step.reason)
      else {
        for (const [i, state] of step.states.entries()) {
          const reason = i % 2 === 0 ? step.reason : step.reason === null ? "because" : null
          const exit = yield* reportOf(agent, letter, state, reason)
          if (refused !== undefined) {
            expect("outcomes", exit, refused, "report")
            continue
          }
          readBy(agent, letter)
          reported(agent, letter, state, reason, exit)
          if (!Exit.isSuccess(exit)) continue
          const message = JSON.parse(exit.value) as Json
          same(
            "outcomes",
            [message["status"], message["outcome"]],
            ["read", shownOutcome(society.outcomes.of(letter, agent))],
            `the answer to a report on ${letter.talk} ${letter.seq}`
          )
        }
      }
      for (const one of [letter.sender, agent]) {
        if (!able(one)) continue
        yield* checkList(one, letter)
        if (society.isParticipant(one, letter.talk)) yield* lookAt(one, letter.talk)
      }
    })

    /** Compares all stored reactions and outcomes of these conversations with the model. */
    const audit = Effect.fnUntraced(function*(talkNames: ReadonlyMap<string, string>) {
      const agentOf = new Map(society.inboxes.of.map((_, agent) => [the(agent).id, agent]))
      const stored = yield* sql<{ conversation_id: string; seq: number; agent_id: string; emoji: string }>`
        SELECT * FROM reactions WHERE ${sql.in("conversation_id", [...talkNames.keys()])}`
      same(
        "reactions",
        stored.map((row) =>
          `${talkNames.get(row.conversation_id)} ${row.seq} ${agentOf.get(row.agent_id)} ${row.emoji}`
        ).toSorted(),
        society.reactions.all.map(({ agent, emoji, letter }) => `${letter.talk} ${letter.seq} ${agent} ${emoji}`)
          .toSorted(),
        "stored reactions"
      )
      const rows = yield* sql<
        { conversation_id: string; seq: number; recipient_id: string; state: string; reason: string | null; at: number }
      >`SELECT * FROM outcomes WHERE ${sql.in("conversation_id", [...talkNames.keys()])}`
      same(
        "outcomes",
        rows.map((row) =>
          [talkNames.get(row.conversation_id), row.seq, agentOf.get(row.recipient_id), row.state, row.reason, row.at]
            .join(" ")
        ).toSorted(),
        society.outcomes.every().map(({ at, letter, reason, recipient, state }) =>
          [letter.talk, letter.seq, recipient, state, reason, at].join(" ")
        ).toSorted(),
        "stored outcomes"
      )
    })

    /** Compares the reactions and the outcome that a message shows. */
    const checkShown = (viewer: number, letter: Letter, message: Json): void => {
      checkReactions(viewer, letter, message["reactions"] ?? [])
      same(
        "outcomes",
        message["outcome"] ?? null,
        shownOutcome(society.outcomes.shownTo(viewer, letter, isGroup(letter.talk))),
        `the outcome of ${letter.talk} ${letter.seq} as ${viewer} sees it`
      )
    }

    return { react, report, checkShown, audit }
  }
})
