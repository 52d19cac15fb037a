import { Effect, Exit } from "effect"
import type { AnswerStep } from "./AnswerSteps.ts"
import type { Metadata } from "./Causes.ts"
import type { Letter } from "./Inboxes.ts"
import { AGENTS, isGroup, pairOf } from "./Society.ts"
import { choose, type Stage } from "./Stage.ts"

const DAY = 86_400_000

type StepOf<T extends AnswerStep["_tag"]> = Extract<AnswerStep, { readonly _tag: T }>

/** Steps in which agents name causes of their messages and send within budgets (wire.md G.19). */
export const makeSpending = (stage: Stage) => {
  const { able, add, alive, attempt, key, later, now, said, send, society, someone } = stage

  const partnersIn = (talk: string): ReadonlyArray<number> =>
    (isGroup(talk)
      ? society.groups.all.find(({ name }) => name === talk)?.members.map(({ agent }) => agent) ?? []
      : pairOf(talk)).filter(able)

  /** The conversations to which the agent may send at present, as far as other rules allow it. */
  const openTo = (agent: number): ReadonlyArray<string> =>
    society.talksOf(agent).filter((talk) => {
      if (isGroup(talk)) return true
      const [one, other] = pairOf(talk)
      return alive(one) && alive(other) && society.talks.get(talk)?.established === true &&
        !society.standing.apart(one, other)
    })

  const targetOf = (agent: number, talk: string): number | string =>
    isGroup(talk) ? talk : pairOf(talk).find((one) => one !== agent)!

  const sentWith = Effect.fnUntraced(function*(from: number, talk: string, metadata: Metadata) {
    const id = metadata["caused_by"]
    const named = [...society.letters.values()].flat().find((letter) => letter.id === id && id !== undefined)
    const isOld = named !== undefined && named.at <= now() - DAY
    const before = society.causes.decide(from, metadata, now())
    const letter = yield* send(from, targetOf(from, talk), key(), metadata)
    if (typeof id !== "string" || !able(from)) return letter
    if ("hops" in before) add("Hops", "beyond the limit")
    else if (letter === undefined) return letter
    else if (before.cause !== undefined) add("Hops", society.causes.hopsOf(letter) === 1 ? "none → 1" : "n → n + 1")
    else add("Hops", isOld ? "none: the cause is too old" : "none: the sender does not know the cause")
    return letter
  })

  const circle = Effect.fnUntraced(function*({ late, pick, times }: StepOf<"Circle">) {
    const agents = Array.from({ length: AGENTS }, (_, agent) => agent).filter(able)
    const talks = [...new Set(agents.flatMap(openTo))].filter((talk) => partnersIn(talk).length > 1)
    const talk = choose(talks, pick >> 2)
    if (talk === undefined) return
    const partners = partnersIn(talk)
    let last = yield* send(partners[0]!, targetOf(partners[0]!, talk), key())
    for (let i = 1; i <= times; i++) {
      if (last?.id === undefined) return
      const from = partners[i % partners.length]!
      if (late !== null && i === times) yield* later(DAY + late)
      if (!able(from) || !society.isParticipant(from, talk)) return
      // Sometimes, the client counts the hops itself.
      const metadata: Metadata = pick % 3 === 0 ? { hops: 9, caused_by: last.id, own: i } : { caused_by: last.id }
      last = yield* sentWith(from, talk, metadata)
    }
  })

  const cause = Effect.fnUntraced(function*(step: StepOf<"Cause">) {
    const agent = someone(step.agent, (one) => openTo(one).length > 0)
    const talk = choose(openTo(agent), step.pick >> 3)
    if (talk === undefined || !able(agent)) return
    const letters = [...society.letters.values()].flat().filter(({ id }) => id !== undefined)
    const knows = (letter: Letter) => letter.sender === agent || letter.recipients.includes(agent)
    const some = [
      letters.filter((letter) => !knows(letter)),
      letters.filter((letter) => !knows(letter) && society.isParticipant(agent, letter.talk)),
      letters.filter((letter) => knows(letter) && !society.sees(agent, letter)),
      letters.filter((letter) => knows(letter) && society.causes.hopsOf(letter) > 0),
      letters
    ][step.pick % 5]!
    const named = choose(some.length === 0 ? letters : some, step.pick >> 4)
    const metadata = [
      { caused_by: named?.id },
      { caused_by: named?.id, hops: 1 },
      { caused_by: named?.id },
      { caused_by: "msg_of_nobody", hops: 3 },
      { caused_by: 7, hops: 3 },
      { hops: 3 }
    ][step.pick % 6]!
    // Another message follows, because of this one.
    const letter = yield* sentWith(agent, talk, metadata)
    if (letter?.id !== undefined) yield* sentWith(agent, talk, { caused_by: letter.id })
  })

  const spend = Effect.fnUntraced(function*({ agent: named, budget, early, offset, pick }: StepOf<"Spend">) {
    const agent = someone(named, (one) => openTo(one).length > 1)
    if (!able(agent)) return
    society.budgets.set(agent, budget)
    let first: Letter | undefined
    let spent: { readonly talk: string; readonly until: number } | undefined
    for (let i = 0; i < 8 && spent === undefined; i++) {
      const open = openTo(agent)
      // Some sends are refused by other rules, and must not count.
      const talk = choose(i === 1 ? society.talksOf(agent) : open.slice(0, 2), pick + i * (pick % 2))
      if (talk === undefined) return
      const full = society.budgets.refusal(agent, talk, now())
      const letter = yield* send(agent, targetOf(agent, talk), key())
      first ??= letter
      if (full !== undefined) spent = { talk, until: Date.parse(String(full["resets_at"])) }
      else if (i % 2 === 1) yield* later(60_000)
      if (!able(agent)) return
    }
    // A spent budget does not refuse a replay.
    if (first !== undefined) yield* send(agent, targetOf(agent, first.talk), first.key!)
    if (spent !== undefined) {
      yield* later(Math.max(1, spent.until - (early ? 1_800_000 : 0) + offset - now()))
      if (able(agent) && openTo(agent).includes(spent.talk)) {
        const full = society.budgets.refusal(agent, spent.talk, now())
        yield* send(agent, targetOf(agent, spent.talk), key())
        if (full === undefined) add("Budget", "spent → open: clock")
      }
    }
    if (pick % 4 > 0) society.budgets.set(agent, null)
  })

  const rush = Effect.fnUntraced(function*({ agent: named, budget, pick, times }: StepOf<"Rush">) {
    const agent = someone(named, (one) => openTo(one).length > 0)
    const talk = choose(openTo(agent), pick)
    if (!able(agent) || talk === undefined) return
    society.budgets.set(agent, budget)
    const keys = Array.from({ length: times }, key)
    const exits = yield* Effect.all(
      keys.map((one) => Effect.map(attempt(agent, targetOf(agent, talk), one), (exit) => ({ key: one, exit }))),
      { concurrency: "unbounded" }
    )
    const stored = exits.flatMap(({ exit, key }) =>
      Exit.isSuccess(exit) ? [{ key, exit, seq: (JSON.parse(exit.value.body) as { readonly seq: number }).seq }] : []
    ).toSorted((a, b) => a.seq - b.seq)
    const refused = exits.filter(({ exit }) => Exit.isFailure(exit))
    for (const { exit, key } of [...stored, ...refused])
      said(exit, society.send(agent, targetOf(agent, talk), key), "send")
    if (stored.length > 0 && refused.length > 0) add("Budget", "spent: of several at once")
    if (pick % 4 > 0) society.budgets.set(agent, null)
  })

  return { circle, cause, spend, rush }
}
