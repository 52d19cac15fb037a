import { Conversations, type Sender, type SendTarget } from "#domain/conversations/Conversations"
import { Groups } from "#domain/groups/Groups"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Limits } from "#infrastructure/rates/Limits"
import { assert, layer } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"
import { WindowModel } from "../support/WindowModel.ts"

const SENDS = 4
const GROUP_SENDS = 3
const RUNS = Number(process.env["RATE_RUNS"] ?? 12)

/** How a send ended: in a new message, an old one, or which refusal. */
const send = (from: Sender, target: SendTarget, id: string) =>
  Effect.flatMap(Conversations, (conversations) =>
    Effect.match(conversations.send(from, target, draft(id)), {
      onSuccess: ({ created }) => ({ outcome: created ? "created" : "replayed", waitMs: 0 }),
      onFailure: (failure) =>
        failure._tag === "RateLimited"
          ? { outcome: `limited: ${failure.details?.window}`, waitMs: failure.details?.retry_after_ms ?? 0 }
          : { outcome: failure._tag, waitMs: 0 }
    }))

interface Step {
  readonly pause: number
  readonly kind: "direct" | "group" | "nobody" | "replay" | "replay in the group"
  readonly agent: 0 | 1
}

const steps: fc.Arbitrary<ReadonlyArray<Step>> = fc.array(
  fc.record<Step>({
    pause: fc.oneof({ weight: 9, arbitrary: fc.integer({ min: 0, max: 60 }) }, {
      weight: 1,
      arbitrary: fc.integer({ min: 100, max: 1_100 })
    }),
    kind: fc.constantFrom("direct", "direct", "group", "group", "nobody", "replay", "replay in the group"),
    agent: fc.constantFrom(0, 1)
  }),
  { minLength: 40, maxLength: 80 }
)

layer(layerModules(layerPgliteTest, { LIMITS_SENDS_PER_SECOND: SENDS, LIMITS_GROUP_SENDS_PER_SECOND: GROUP_SENDS }))(
  (it) => {
    let pairs = 0

    /** Two agents in an established conversation and a group, a moment after their last send. */
    const pair = Effect.gen(function*() {
      const groups = yield* Groups
      const n = pairs++
      const [a, b] = [yield* newAgent(`rate-a${n}`), yield* newAgent(`rate-b${n}`)] as const
      yield* send(a, { _tag: "Direct", handle: b.handle }, "first")
      yield* send(b, { _tag: "Direct", handle: a.handle }, "first")
      const profile = { name: "Band", description: null, avatarUrl: null }
      const { add_results, group } = yield* groups.create(a, { profile, handles: [b.handle] })
      yield* groups.accept(b, add_results[0]?.invite_id ?? "")
      yield* send(a, { _tag: "Conversation", id: group.id }, "first in the group")
      yield* TestClock.adjust("1 second")
      return { agents: [a, b], groupId: group.id } as const
    })

    it.effect(`sends are limited as the definition says, in ${RUNS} histories with pauses`, () =>
      Effect.gen(function*() {
        const { agents, groupId } = yield* pair
        const reached = new Map<string, number>()
        const seed = Number(process.env["RATE_SEED"] ?? Date.now() % 1_000_000_000)
        let now = 1_000_000
        let serial = 0
        for (const [run, history] of fc.sample(steps, { numRuns: RUNS, seed }).entries()) {
          yield* TestClock.adjust("2 seconds")
          now += 2_000
          const rule = { name: "", windowMs: 1_000, window: "" }
          const senders = agents.map(() => new WindowModel({ ...rule, limit: SENDS }))
          const group = new WindowModel({ ...rule, limit: GROUP_SENDS })
          for (const [i, { agent, kind, pause }] of history.entries()) {
            yield* TestClock.adjust(pause)
            now += pause
            const from = agents[agent]
            const sender = senders[agent]!
            const about = `RATE_SEED=${seed}, run ${run}, step ${i}: ${kind}`
            const direct: SendTarget = { _tag: "Direct", handle: agents[1 - agent]!.handle }
            const inGroup: SendTarget = { _tag: "Conversation", id: groupId }
            let expected = { outcome: "created", waitMs: 0 }
            let actual: typeof expected
            if (kind === "replay" || kind === "replay in the group") {
              expected = { outcome: "replayed", waitMs: 0 }
              actual = yield* send(from, kind === "replay" ? direct : inGroup, "first")
            } else {
              const id = `m${serial++}`
              actual = yield* send(
                from,
                kind === "direct" ? direct : kind === "group" ? inGroup : { _tag: "Direct", handle: "nobody" },
                id
              )
              const waits = [sender.wait(now), kind === "group" ? group.wait(now) : 0] as const
              if (waits[0] > 0) expected = { outcome: "limited: second", waitMs: waits[0] }
              else if (waits[1] > 0) expected = { outcome: "limited: group", waitMs: waits[1] }
              else {
                sender.add(now)
                if (kind === "group") group.add(now)
                if (kind === "nobody") expected = { outcome: "AgentNotFound", waitMs: 0 }
              }
            }
            assert.deepStrictEqual(actual, expected, about)
            const seen = `${kind} ${expected.outcome}`
            reached.set(seen, (reached.get(seen) ?? 0) + 1)
          }
        }
        for (
          const least of [
            "direct created",
            "direct limited: second",
            "group created",
            "group limited: group",
            "group limited: second",
            "replay replayed"
          ]
        ) {
          // Histories are drawn anew each time: few of them reach each outcome, how often is chance.
          assert.isAtLeast(reached.get(least) ?? 0, RUNS < 100 ? 1 : 50, `${least}: ${JSON.stringify([...reached])}`)
        }
      }))

    it.effect("exactly the limit of 200 sends at once is accepted", () =>
      Effect.gen(function*() {
        const { agents: [a, b] } = yield* pair
        const ends = yield* Effect.all(
          Array.from({ length: 200 }, (_, i) => send(a, { _tag: "Direct", handle: b.handle }, `at once ${i}`)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(ends.filter(({ outcome }) => outcome === "created").length, SENDS)
        assert.strictEqual(ends.filter(({ outcome }) => outcome === "limited: second").length, 200 - SENDS)
      }))

    it.effect("200 repetitions of one send at once count once", () =>
      Effect.gen(function*() {
        const { agents: [a, b] } = yield* pair
        const target: SendTarget = { _tag: "Direct", handle: b.handle }
        const conversations = yield* Conversations
        // In flight together, some are turned away by the limiter and still told what was stored.
        const ends = yield* Effect.all(
          Array.from({ length: SENDS }, () => Effect.exit(conversations.send(a, target, draft("one")))),
          { concurrency: "unbounded" }
        )
        assert.isTrue(ends.every(Exit.isSuccess))
        assert.strictEqual(ends.filter((end) => Exit.isSuccess(end) && end.value.created).length, 1)
        for (let i = 0; i < 200 - SENDS; i++) assert.strictEqual((yield* send(a, target, "one")).outcome, "replayed")
        for (let i = 1; i < SENDS; i++) assert.strictEqual((yield* send(a, target, `fresh ${i}`)).outcome, "created")
        assert.strictEqual((yield* send(a, target, "too many")).outcome, "limited: second")
      }))

    it.effect("the warning before the limit goes by the limit that an operator has set", () =>
      Effect.gen(function*() {
        const limits = yield* Limits
        const { agents: [a, b] } = yield* pair
        const frames: Array<string> = []
        ;(yield* LiveAgents).attach(a.id, {
          hint: () => undefined,
          echo: () => undefined,
          event: (frame) => void frames.push(frame),
          close: () => undefined
        })
        limits.set([{ name: "LIMITS_SENDS_PER_SECOND", agentId: a.id, value: 10, until: null }])
        for (let i = 0; i < 7; i++) yield* send(a, { _tag: "Direct", handle: b.handle }, `slow ${i}`)
        assert.deepStrictEqual(frames, [])
        yield* send(a, { _tag: "Direct", handle: b.handle }, "the eighth")
        limits.set([])
        const [frame, ...others] = frames.map((text) => JSON.parse(text) as { type: string; payload: object })
        assert.strictEqual(frame?.type, "rate_limit.warning")
        assert.deepInclude(frame?.payload, { limit: 10, remaining: 2 })
        assert.deepStrictEqual(others, [])
      }))
  }
)
