import { DirectActor, type DirectDependencies } from "#domain/direct/DirectActor"
import type { DirectAppend, DirectAppended, DirectState } from "#domain/direct/DirectConversation"
import type { SendCommand } from "#domain/direct/DirectEntity"
import type { Settled } from "#infrastructure/database/CommitQueue"
import { Unavailable } from "#infrastructure/wire/WireError"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import { makeDependencies } from "../support/ActorDependencies.ts"
import { draft } from "../support/Modules.ts"

const a = { id: "agt_a", handle: "aaa" }
const b = { id: "agt_b", handle: "bbb" }
const command = (sender: typeof a, recipient: typeof a, key: string): SendCommand => ({
  sender: { ...sender, displayName: sender.handle },
  recipient,
  draft: draft(key)
})

const FAILED = { _tag: "Failed", exit: Exit.fail(new Unavailable()) } as const
const ESTABLISHED: DirectState = { initiatorId: a.id, createdAt: 0, established: true, blocked: false }
const COLD: DirectState = { ...ESTABLISHED, established: false }
const NEW: DirectState = { initiatorId: null, createdAt: null, established: false, blocked: false }

/**
 * An actor whose commits and reads wait for the test: each case here needs an order of them, or a defect, that the
 * service cannot arrange.
 */
const make = Effect.fnUntraced(
  function*(
    loaded: DirectState,
    own: Partial<DirectDependencies> = {},
    beforeFacts: Effect.Effect<void> = Effect.void
  ) {
    const commits: Array<
      { readonly append: DirectAppend; readonly settle: (settled: Settled<DirectAppended>) => void }
    > = []
    const loads: Array<Deferred.Deferred<{ epoch: number; version: number; state: DirectState }>> = []
    let ids = 0
    const world = yield* makeDependencies({
      appends: { submit: (append, settle) => commits.push({ append, settle }) },
      newMessageId: () => `msg_${++ids}`,
      load: () =>
        Effect.suspend(() => {
          const waiting = Deferred.makeUnsafe<{ epoch: number; version: number; state: DirectState }>()
          loads.push(waiting)
          return Deferred.await(waiting)
        }),
      facts: () => ({ opened: loaded.initiatorId !== null })
    }, own)
    const actor = DirectActor.make({
      ...world,
      facts: (...of) => Effect.andThen(beforeFacts, world.facts(...of))
    })("conv_1")
    const send = (sender: typeof a, key: string) =>
      Effect.forkChild(Effect.exit(actor.send(command(sender, sender === a ? b : a, key))), { startImmediately: true })
    let seq = 0
    const stored = (i: number) =>
      commits[i]!.settle({
        _tag: "Done",
        value: {
          _tag: "Stored",
          seq: ++seq,
          inboxNo: seq,
          undelivered: 1,
          senderLastInboxNo: 0,
          senderNextInboxNo: null
        }
      })
    const answer = (i: number, state = loaded.initiatorId === null ? ESTABLISHED : loaded, epoch = 1, version = 0) =>
      Effect.andThen(Deferred.succeed(loads[i]!, { epoch, version, state }), Effect.yieldNow)
    return { actor, send, commits, loads, stored, answer }
  }
)

const keys = (commits: ReadonlyArray<{ readonly append: DirectAppend }>) =>
  commits.map(({ append }) => append.draft.clientMsgId)
const failure = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit)
    ? exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag)[0]
    : "success"

describe("DirectActor", () => {
  it.effect("the first write of an owner goes alone and raises the epoch; the rest follow in order", () =>
    Effect.gen(function*() {
      const { answer, commits, loads, send, stored } = yield* make(ESTABLISHED)
      for (const key of ["m1", "m2", "m3"]) yield* send(a, key)
      assert.strictEqual(loads.length, 1)
      yield* answer(0)
      assert.deepStrictEqual(keys(commits), ["m1"])
      assert.deepStrictEqual([commits[0]?.append.epoch, commits[0]?.append.nextEpoch], [1, 2])
      stored(0)
      assert.deepStrictEqual(keys(commits), ["m1", "m2", "m3"])
      assert.deepStrictEqual(commits.slice(1).map(({ append }) => [append.epoch, append.nextEpoch]), [[2, 2], [2, 2]])
    }))

  it.effect("a first write that is fenced keeps its place before the sends that wait for it", () =>
    Effect.gen(function*() {
      const { answer, commits, send, stored } = yield* make(ESTABLISHED)
      for (const key of ["m1", "m2"]) yield* send(a, key)
      yield* answer(0)
      commits[0]!.settle({ _tag: "Done", value: { _tag: "Fenced" } })
      yield* answer(1, ESTABLISHED, 2)
      assert.deepStrictEqual(keys(commits), ["m1", "m1"])
      stored(1)
      assert.deepStrictEqual(keys(commits), ["m1", "m1", "m2"])
    }))

  it.effect("a first message whose callers have timed out is not stored, and holds no cold slot", () =>
    Effect.gen(function*() {
      for (const what of ["facts", "reserve"] as const) {
        const ready = Deferred.makeUnsafe<void>()
        const taken: Array<string> = []
        const world = yield* make(NEW, {
          reserve: () =>
            Effect.andThen(
              what === "reserve" ? Deferred.await(ready) : Effect.void,
              Effect.sync(() => void taken.push("reserved"))
            ),
          release: () => Effect.sync(() => void taken.push("released"))
        }, what === "facts" ? Deferred.await(ready) : Effect.void)
        const opening = yield* world.send(a, "m1")
        yield* world.answer(0, NEW, 0)
        world.actor.timeOutCallers(1_001)
        assert.strictEqual(failure(yield* Fiber.join(opening)), "Unavailable")
        yield* Deferred.succeed(ready, undefined)
        yield* Effect.yieldNow
        assert.deepStrictEqual(taken, what === "facts" ? [] : ["reserved", "released"])
        assert.deepStrictEqual(keys(world.commits), [])
        assert.isTrue(world.actor.idle)
      }
    }))

  it.effect("a reply that is stored while the conversation is being read again is not forgotten", () =>
    Effect.gen(function*() {
      const { answer, commits, loads, send, stored } = yield* make(NEW)
      yield* send(a, "opening")
      yield* answer(0, NEW, 0)
      stored(0)
      // Two answers in one batch, of which one is poison: the batch is halved, and the poison's half fails first.
      const poison = yield* send(b, "poison")
      const reply = yield* send(b, "reply")
      assert.deepStrictEqual(keys(commits), ["opening", "poison", "reply"])
      commits[1]!.settle(FAILED)
      assert.strictEqual(failure(yield* Fiber.join(poison)), "Unavailable")
      // Whoever comes now has the row read, while the reply is still on its way to it.
      const early = yield* send(a, "early")
      assert.strictEqual(loads.length, 2)
      stored(2)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(reply)))
      yield* answer(1, COLD)
      if (loads.length > 2) yield* answer(2)
      const late = yield* send(a, "late")
      assert.isUndefined(late.pollUnsafe(), "the reply was acknowledged: nobody waits for one any more")
      assert.isUndefined(early.pollUnsafe())
    }))

  const defect = new TypeError("what nobody thought of")
  const dead = (exit: Exit.Exit<unknown, unknown>) =>
    Exit.isFailure(exit) ? exit.cause.reasons.flatMap((reason) => reason._tag === "Die" ? [reason.defect] : []) : []

  for (const what of ["facts", "original", "reserve"] as const) {
    it.effect(`a defect in ${what} is the answer to its send, and the conversation goes on`, () =>
      Effect.gen(function*() {
        const opens = what === "facts" || what === "reserve"
        let broken = true
        const { actor, answer, commits, send, stored } = yield* make(opens ? NEW : ESTABLISHED, {
          [what]: () =>
            Effect.suspend((): Effect.Effect<undefined> => broken ? Effect.die(defect) : Effect.succeed(undefined))
        })
        const first = yield* send(a, "m1")
        yield* answer(0, opens ? NEW : ESTABLISHED)
        if (what === "original") commits[0]!.settle({ _tag: "Done", value: { _tag: "Replayed" } })
        assert.deepStrictEqual(dead(yield* Fiber.join(first)), [defect])
        assert.isTrue(actor.idle)
        broken = false
        if (opens) return
        const at = commits.length
        const next = yield* send(a, "m2")
        assert.deepStrictEqual(keys(commits).slice(at), ["m2"])
        stored(at)
        assert.isTrue(Exit.isSuccess(yield* Fiber.join(next)))
      }))
  }
})
