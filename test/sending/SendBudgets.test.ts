import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { Conversations, type Sender, type SendTarget } from "#domain/conversations/Conversations"
import { ByModel, SendBudgets } from "#domain/conversations/SendBudgets"
import { Groups } from "#domain/groups/Groups"
import { Limits } from "#infrastructure/rates/Limits"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect, Fiber } from "effect"
import { layerPgliteTest } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

let serial = 0

/** A send, and how it ended: `created`, `replayed` or the refusal; with what is left if that is said. */
const send = (from: Sender, target: SendTarget, id = `budget-${serial++}`) =>
  Effect.flatMap(Conversations, (conversations) =>
    Effect.match(conversations.send(from, target, draft(id)), {
      onSuccess: ({ budget, created }) => {
        const outcome = created ? "created" : "replayed"
        return budget === undefined ? outcome : `${outcome}, ${budget.left} of ${budget.limit} left (${budget.scope})`
      },
      onFailure: (failure) =>
        failure._tag === "BudgetExceeded"
          ? `${failure.details?.scope} ${failure.details?.limit} in ${failure.details?.window} until ${failure.details?.resets_at}, ${failure.retryAfterMs} ms`
          : failure._tag
    }))

const times = (count: number, from: Sender, target: SendTarget) =>
  Effect.forEach(Array.from({ length: count }), () => send(from, target))

const to = ({ handle }: { readonly handle: string }): SendTarget => ({ _tag: "Direct", handle })

/** Two agents that know each other; the first has this budget. */
const pair = Effect.fnUntraced(function*(perConversation: number | null, inAll: number | null) {
  const n = serial++
  const [a, b] = [yield* newAgent(`budget-a${n}`), yield* newAgent(`budget-b${n}`)]
  yield* send(a, to(b))
  yield* send(b, to(a))
  yield* (yield* Accounts).update(a.id, { conversationBudget: perConversation, dayBudget: inAll })
  const found = (yield* (yield* Agents).byIds([a.id])).get(a.id)!
  return [found, b] as const
})

layer(layerModules(layerPgliteTest, { LIMITS_SENDS_PER_SECOND: 1_000_000, LIMITS_SENDS_PER_DAY: 40 }))((it) => {
  it.effect("of a conversation refuses the next send until the oldest is 24 hours old, and says before what is left", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair(10, null)
      const began = yield* Clock.currentTimeMillis
      assert.deepStrictEqual(yield* times(5, a, to(b)), Array.from({ length: 5 }, () => "created"))
      yield* leap("1 hour")
      assert.deepStrictEqual(yield* times(3, a, to(b)), Array.from({ length: 3 }, () => "created"))
      assert.deepStrictEqual(yield* times(2, a, to(b)), [
        "created, 1 of 10 left (conversation)",
        "created, 0 of 10 left (conversation)"
      ])
      const resetsAt = new Date(began + 86_400_000).toISOString()
      assert.strictEqual(yield* send(a, to(b)), `conversation 10 in 24h until ${resetsAt}, 82800000 ms`)
      assert.strictEqual(yield* send(b, to(a)), "created", "the budget is that of the sender")
      const other = yield* newAgent(`budget-other${serial++}`)
      assert.strictEqual(yield* send(a, to(other)), "created", "and of one conversation")
      yield* leap(82_799_000)
      assert.match(yield* send(a, to(b)), /^conversation 10 .* 1000 ms$/)
      yield* leap("1 second")
      assert.strictEqual(yield* send(a, to(b)), "created")
    }))

  it.effect("in all counts direct and group messages together; the smallest of the agent's and the server's counts", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair(null, 4)
      const groups = yield* Groups
      const profile = { name: "Band", description: null, avatarUrl: null }
      const { group } = yield* groups.create(a, { profile, handles: [] })
      const inGroup: SendTarget = { _tag: "Conversation", id: group.id }
      assert.deepStrictEqual(yield* times(2, a, to(b)), ["created", "created"])
      assert.strictEqual(yield* send(a, inGroup), "created, 0 of 4 left (agent)", "one was sent before")
      assert.match(yield* send(a, inGroup), /^agent 4 in 24h/)
      assert.match(yield* send(a, to(b)), /^agent 4 in 24h/)

      const [c, d] = yield* pair(null, 100)
      assert.deepStrictEqual(
        new Set(yield* times(31, c, to(d))),
        new Set(["created"]),
        "one before, of the server's 40"
      )
      assert.strictEqual(yield* send(c, to(d)), "created, 7 of 40 left (agent)")
      // An operator's change, for all agents and for one.
      const limits = yield* Limits
      const change = { name: "LIMITS_SENDS_PER_DAY", until: null }
      limits.set([{ ...change, agentId: null, value: 20 }])
      assert.match(yield* send(c, to(d)), /^agent 20 in 24h/)
      limits.set([{ ...change, agentId: null, value: 20 }, { ...change, agentId: c.id, value: 0 }])
      assert.strictEqual(yield* send(c, to(d)), "created", "its own 100 are left")
      limits.set([])
    }))

  it.effect("counts neither replays nor refusals", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair(5, null)
      assert.strictEqual(yield* send(a, to(b), "the same"), "created")
      for (let i = 0; i < 20; i++) {
        assert.strictEqual(yield* send(a, to(b), "the same"), "replayed")
        assert.strictEqual(yield* send(a, { _tag: "Direct", handle: "nobody-here" }), "AgentNotFound")
        assert.strictEqual(yield* send(a, { _tag: "Conversation", id: "grp_00000000000000000000" }), "GroupNotFound")
      }
      assert.deepStrictEqual(yield* times(4, a, to(b)), [
        "created",
        "created",
        "created",
        "created, 0 of 5 left (conversation)"
      ])
      assert.match(yield* send(a, to(b)), /^conversation 5/)
      assert.strictEqual(yield* send(a, to(b), "the same"), "replayed", "a stored send is answered at the budget too")
    }))

  it.effect("is exact for a hundred sends at once", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair(7, null)
      const ends = yield* Effect.all(Array.from({ length: 100 }, () => send(a, to(b))), { concurrency: "unbounded" })
      assert.strictEqual(ends.filter((end) => end.startsWith("created")).length, 7)
      assert.strictEqual(ends.filter((end) => end.startsWith("conversation 7")).length, 93)
    }))

  it.effect("a repetition of the last send that is under way gets its message, and takes no place from another", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair(2, null)
      const repeated = Array.from({ length: 20 }, () => send(a, to(b), "under way"))
      const [other, ...ends] = yield* Effect.all([...repeated, send(a, to(b))].toReversed(), {
        concurrency: "unbounded"
      })
      assert.match(other!, /^created/)
      assert.strictEqual(ends.filter((end) => end.startsWith("created")).length, 1)
      assert.strictEqual(ends.filter((end) => end === "replayed").length, 19)
      assert.match(yield* send(a, to(b)), /^conversation 2/)
    }))

  it.effect("a repetition gets its message if the caller of the first send, which is still under way, has gone", () =>
    Effect.gen(function*() {
      // The caller goes after each number of steps of the send.
      for (let steps = 0; steps < 20; steps++) {
        const [a, b] = yield* pair(1, null)
        const first = yield* Effect.forkChild(send(a, to(b), "gone"), { startImmediately: true })
        for (let i = 0; i < steps; i++) yield* Effect.yieldNow
        yield* Effect.forkChild(Fiber.interrupt(first), { startImmediately: true })
        assert.match(yield* send(a, to(b), "gone"), /^created|^replayed/, `after ${steps}`)
      }
    }))

  it.effect("of what a model sends is counted apart, and operators see who is near", () =>
    Effect.gen(function*() {
      const [a, b] = yield* pair(null, null)
      const limits = yield* Limits
      const budgets = yield* SendBudgets
      limits.set([{ name: "LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY", agentId: null, value: 5, until: null }])
      const byModel = Effect.suspend(() => Effect.provideService(send(a, to(b)), ByModel, true))
      assert.deepStrictEqual(
        yield* Effect.all(Array.from({ length: 6 }, () => byModel)).pipe(
          Effect.map((ends) => ends.map((end) => end.replace(/ until.*/, "")))
        ),
        [
          "created",
          "created",
          "created",
          "created",
          "created, 0 of 5 left (conversation)",
          "conversation 5 in 24h"
        ]
      )
      assert.deepInclude(budgets.near(), {
        key: a.id,
        limit: "LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY",
        value: 5,
        count: 5,
        windowMs: 86_400_000
      })
      assert.strictEqual(yield* send(a, to(b)), "created", "a program is not limited by it")
      yield* leap("24 hours")
      assert.isUndefined(budgets.near().find(({ key }) => key === a.id))
      limits.set([])
    }))
})
