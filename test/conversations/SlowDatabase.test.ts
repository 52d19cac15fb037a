import { Conversations, type SendTarget } from "#domain/conversations/Conversations"
import { Groups } from "#domain/groups/Groups"
import { assert, layer } from "@effect/vitest"
import { Cause, Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { hang, layerHanging, waited } from "../support/HangingDatabase.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const isUnavailable = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit) && exit.cause.reasons.find(Cause.isFailReason)?.error._tag === "Unavailable"

layer(layerModules(layerHanging))((it) => {
  /** Two agents who know each other, one target of the first for each kind of conversation. */
  const meet = Effect.fnUntraced(function*(name: string) {
    const { send } = yield* Conversations
    const groups = yield* Groups
    const [a, b] = [yield* newAgent(`${name}-a`), yield* newAgent(`${name}-b`)]
    yield* send(a, { _tag: "Direct", handle: b.handle }, draft("hello"))
    yield* send(b, { _tag: "Direct", handle: a.handle }, draft("hello"))
    const profile = { name: "Group", description: null, avatarUrl: null }
    const { group } = yield* groups.create(a, { profile, handles: [] })
    const targets: ReadonlyArray<SendTarget> = [{ _tag: "Direct", handle: b.handle }, {
      _tag: "Conversation",
      id: group.id
    }]
    return { a, targets }
  })

  it.effect("a send whose commit does not end is answered with 503 after 5 s, and is stored when it does", () =>
    Effect.gen(function*() {
      const { send } = yield* Conversations
      const { a, targets } = yield* meet("commit")
      for (const [i, target] of targets.entries()) yield* send(a, target, draft(`known-${i}`))
      const sends = targets.map((target, i) => send(a, target, draft(`slow-${i}`)))
      const goOn = yield* hang
      const waiting = yield* Effect.all(
        sends.map((slow) => Effect.forkChild(Effect.exit(slow), { startImmediately: true }))
      )
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(waiting.map((one) => one.pollUnsafe()), [undefined, undefined])
      yield* TestClock.adjust("3 seconds")
      yield* Effect.yieldNow
      assert.isTrue(waiting.every((one) => one.pollUnsafe() !== undefined), "both have an answer")
      for (const one of waiting) assert.isTrue(isUnavailable(yield* Fiber.join(one)))
      yield* goOn
      for (const slow of sends) assert.isFalse((yield* slow).created)
    }))

  it.effect("many sends to a group whose read hangs are all answered after 5 s, and cause one read", () =>
    Effect.gen(function*() {
      const { send } = yield* Conversations
      const { a, targets: [, group] } = yield* meet("read")
      const goOn = yield* hang
      const waiting = yield* Effect.all(
        Array.from(
          { length: 20 },
          (_, i) => Effect.forkChild(Effect.exit(send(a, group!, draft(`read-${i}`))), { startImmediately: true })
        )
      )
      yield* TestClock.adjust("7 seconds")
      yield* Effect.yieldNow
      assert.isTrue(waiting.every((one) => one.pollUnsafe() !== undefined), "all have an answer")
      for (const one of waiting) assert.isTrue(isUnavailable(yield* Fiber.join(one)))
      assert.strictEqual(waited.get("load_group"), 1)
      yield* goOn
      // What was not decided when its caller was given up is dropped.
      assert.isTrue((yield* send(a, group!, draft("read-0"))).created)
    }))
})
