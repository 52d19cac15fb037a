import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import type { Append, Appended } from "../../src/conversations/Append.ts"
import type { DirectState } from "../../src/conversations/Conversation.ts"
import { ConversationActor, type Published, type Dependencies } from "../../src/conversations/ConversationActor.ts"
import type { SendCommand } from "../../src/conversations/ConversationEntity.ts"
import type { Settled } from "../../src/database/GroupCommit.ts"
import { Unavailable } from "../../src/wire/WireError.ts"
import { draft } from "../support/Rooms.ts"
import { makeDependencies } from "../support/ActorDependencies.ts"

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

/** An actor whose commits and reads wait for the test. */
const make = Effect.fnUntraced(function*(loaded: DirectState, own: Partial<Dependencies> = {}, beforeFacts: Effect.Effect<void> = Effect.void) {
  const commits: Array<{ readonly append: Append; readonly settle: (settled: Settled<Appended>) => void }> = []
  const loads: Array<Deferred.Deferred<{ epoch: number; version: number; state: DirectState }>> = []
  const published: Array<Published> = []
  let ids = 0
  const world = yield* makeDependencies({
    appends: { submit: (append, settle) => commits.push({ append, settle }), size: () => 0, idle: Effect.void },
    newMessageId: () => `msg_${++ids}`,
    load: () =>
      Effect.suspend(() => {
        const waiting = Deferred.makeUnsafe<{ epoch: number; version: number; state: DirectState }>()
        loads.push(waiting)
        return Deferred.await(waiting)
      }),
    facts: () => ({ opened: loaded.initiatorId !== null }),
    publish: (stored) => published.push(stored)
  }, own)
  const actor = new ConversationActor("conv_1", { ...world, facts: (...of) => Effect.andThen(beforeFacts, world.facts(...of)) })
  const send = (sender: typeof a, key: string) =>
    Effect.forkChild(Effect.exit(actor.send(command(sender, sender === a ? b : a, key))), { startImmediately: true })
  let seq = 0
  const stored = (i: number) =>
    commits[i]!.settle({ _tag: "Done", value: { _tag: "Stored", seq: ++seq, inboxNo: seq, undelivered: 1, senderLastInboxNo: 0, senderNextInboxNo: null } })
  const answer = (i: number, state = loaded.initiatorId === null ? ESTABLISHED : loaded, epoch = 1, version = 0) =>
    Effect.andThen(Deferred.succeed(loads[i]!, { epoch, version, state }), Effect.yieldNow)
  return { actor, send, commits, loads, published, stored, answer }
})

const keys = (commits: ReadonlyArray<{ readonly append: Append }>) => commits.map(({ append }) => append.draft.clientMsgId)
const failure = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit) ? exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag)[0] : "success"

describe("ConversationActor", () => {
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

  it.effect("equal ids in flight share one result, of which one is the creation", () =>
    Effect.gen(function*() {
      const { answer, commits, published, send, stored } = yield* make(ESTABLISHED)
      const fibers = [yield* send(a, "m1"), yield* send(a, "m1"), yield* send(a, "m1")]
      yield* answer(0)
      stored(0)
      const exits = yield* Fiber.joinAll(fibers)
      assert.deepStrictEqual(exits.map((exit) => Exit.isSuccess(exit) && exit.value.created), [true, false, false])
      assert.strictEqual(new Set(exits.map((exit) => Exit.isSuccess(exit) ? exit.value.body : "")).size, 1)
      assert.strictEqual(commits.length, 1)
      assert.strictEqual(published.length, 1)
    }))

  it.effect("nothing is published or answered before the commit, and in this order after it", () =>
    Effect.gen(function*() {
      const { answer, published, send, stored } = yield* make(ESTABLISHED)
      const fiber = yield* send(a, "m1")
      yield* answer(0)
      assert.strictEqual(published.length, 0)
      assert.isUndefined(fiber.pollUnsafe())
      stored(0)
      assert.strictEqual(published.length, 1)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(fiber)))
    }))

  it.effect("a refused batch is read and decided again, each send at most five times", () =>
    Effect.gen(function*() {
      const { answer, commits, loads, send } = yield* make(ESTABLISHED)
      const fiber = yield* send(a, "m1")
      for (let i = 0; i < 5; i++) {
        assert.strictEqual(loads.length, i + 1)
        yield* answer(i, ESTABLISHED, i + 1, i)
        assert.strictEqual(commits[i]?.append.version, i)
        commits[i]!.settle({ _tag: "Done", value: { _tag: "Fenced" } })
      }
      assert.strictEqual(failure(yield* Fiber.join(fiber)), "Unavailable")
    }))

  it.effect("a failed commit is answered as unavailable, and the next send reads what became of it", () =>
    Effect.gen(function*() {
      const { answer, commits, loads, send, stored } = yield* make(ESTABLISHED)
      const first = yield* send(a, "m1")
      yield* answer(0)
      commits[0]!.settle(FAILED)
      assert.strictEqual(failure(yield* Fiber.join(first)), "Unavailable")
      const again = yield* send(a, "m1")
      assert.strictEqual(loads.length, 2)
      yield* answer(1, ESTABLISHED, 2)
      stored(1)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(again)))
      assert.strictEqual(commits[1]?.append.nextEpoch, 3)
    }))

  it.effect("callers that have waited too long are told so; what was being committed is published all the same", () =>
    Effect.gen(function*() {
      let time = 1_000
      const { actor, answer, commits, published, send, stored } = yield* make(ESTABLISHED, { monotonic: () => time })
      const committing = yield* send(a, "m1")
      yield* answer(0)
      const queued = yield* send(b, "m2")
      time = 3_000
      const repeated = yield* send(a, "m1")
      const later = yield* send(a, "m3")
      actor.giveUpCallers(1_000)
      assert.isUndefined(queued.pollUnsafe())
      actor.giveUpCallers(2_000)
      assert.strictEqual(failure(yield* Fiber.join(queued)), "Unavailable")
      assert.isUndefined(committing.pollUnsafe())
      actor.giveUpCallers(4_000)
      const exits = yield* Fiber.joinAll([committing, repeated, later])
      assert.deepStrictEqual(exits.map(failure), ["Unavailable", "Unavailable", "Unavailable"])
      // One of the queued is asked for again in time: the other one alone is dropped.
      const again = yield* send(b, "m2")
      stored(0)
      assert.deepStrictEqual(published.map(({ message }) => message.clientMsgId), ["m1"])
      assert.deepStrictEqual(keys(commits), ["m1", "m2"])
      stored(1)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(again)))
      assert.isTrue(actor.idle)
    }))

  it.effect("a first message whose callers have been given up is not stored, and holds no place", () =>
    Effect.gen(function*() {
      for (const what of ["facts", "reserve"] as const) {
        const ready = Deferred.makeUnsafe<void>()
        const taken: Array<string> = []
        const world = yield* make(NEW, {
          reserve: () => Effect.andThen(what === "reserve" ? Deferred.await(ready) : Effect.void, Effect.sync(() => void taken.push("reserved"))),
          release: () => Effect.sync(() => void taken.push("released"))
        }, what === "facts" ? Deferred.await(ready) : Effect.void)
        const opening = yield* world.send(a, "m1")
        yield* world.answer(0, NEW, 0)
        world.actor.giveUpCallers(1_001)
        assert.strictEqual(failure(yield* Fiber.join(opening)), "Unavailable")
        yield* Deferred.succeed(ready, undefined)
        yield* Effect.yieldNow
        assert.deepStrictEqual(taken, what === "facts" ? [] : ["reserved", "released"])
        assert.deepStrictEqual(keys(world.commits), [])
        assert.isTrue(world.actor.idle)
      }
    }))

  it.effect("the file store may take its time", () =>
    Effect.gen(function*() {
      let time = 1_000
      const checked = Deferred.makeUnsafe<void>()
      const { actor, answer, commits, stored } = yield* make(ESTABLISHED, {
        monotonic: () => time,
        useAttachment: (_sender, _recipient, _id, asks) => {
          asks(true)
          return Effect.ensuring(Deferred.await(checked), Effect.sync(() => asks(false)))
        }
      })
      const send = yield* Effect.forkChild(
        Effect.exit(actor.send({ ...command(a, b, "m1"), draft: { ...draft("m1"), attachmentId: "att_1" } })),
        { startImmediately: true }
      )
      yield* answer(0)
      time = 20_000
      actor.giveUpCallers(15_000)
      yield* Deferred.succeed(checked, undefined)
      yield* Effect.yieldNow
      actor.giveUpCallers(15_000)
      assert.deepStrictEqual(keys(commits), ["m1"])
      stored(0)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(send)))
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
  const dead = (exit: Exit.Exit<unknown, unknown>) => Exit.isFailure(exit) ? exit.cause.reasons.flatMap((reason) => reason._tag === "Die" ? [reason.defect] : []) : []

  it.effect("a defect in reading the conversation ends the send that met it, as a defect; the others go on", () =>
    Effect.gen(function*() {
      let times = 0
      const { actor, commits, send, stored } = yield* make(ESTABLISHED, {
        load: () => ++times === 1 ? Effect.die(defect) : Effect.succeed({ epoch: 1, version: 0, state: ESTABLISHED })
      })
      assert.deepStrictEqual(dead(yield* Fiber.join(yield* send(a, "m1"))), [defect])
      const next = yield* send(a, "m2")
      assert.deepStrictEqual(keys(commits), ["m2"])
      stored(0)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(next)))
      assert.isTrue(actor.idle)
    }))

  for (const what of ["facts", "original", "useAttachment", "reserve"] as const) {
    it.effect(`a defect in ${what} is the answer to its send, and the conversation goes on`, () =>
      Effect.gen(function*() {
        const opens = what === "facts" || what === "reserve"
        let broken = true
        const { actor, answer, commits, send, stored } = yield* make(opens ? NEW : ESTABLISHED, {
          [what]: () => Effect.suspend((): Effect.Effect<undefined> => broken ? Effect.die(defect) : Effect.succeed(undefined))
        })
        const first = yield* what === "useAttachment"
          ? Effect.forkChild(
            Effect.exit(actor.send({ ...command(a, b, "m1"), draft: { ...draft("m1"), attachmentId: "att_1" } })),
            { startImmediately: true }
          )
          : send(a, "m1")
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

  it.effect("a defect of a batch is the answer to its send; whom its barrier held back goes on", () =>
    Effect.gen(function*() {
      const { answer, commits, loads, send, stored } = yield* make(ESTABLISHED)
      const first = yield* send(a, "m1")
      const second = yield* send(a, "m2")
      yield* answer(0)
      commits[0]!.settle({ _tag: "Failed", exit: Exit.die(defect) })
      assert.deepStrictEqual(dead(yield* Fiber.join(first)), [defect])
      assert.strictEqual(loads.length, 2)
      yield* answer(1)
      stored(1)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(second)))
    }))

  it.effect("a defect in a block's statement is the answer to the block, and the sends behind it go on", () =>
    Effect.gen(function*() {
      const { actor, answer, commits, send, stored } = yield* make(ESTABLISHED)
      const gate = yield* Deferred.make<never>()
      const block = yield* Effect.forkChild(Effect.exit(actor.unblock(Deferred.await(gate))), { startImmediately: true })
      const behind = yield* send(a, "m1")
      yield* Deferred.die(gate, defect)
      assert.deepStrictEqual(dead(yield* Fiber.join(block)), [defect])
      yield* answer(0)
      assert.deepStrictEqual(keys(commits), ["m1"])
      stored(0)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(behind)))
    }))
})
