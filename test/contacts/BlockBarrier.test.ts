import { DirectActor } from "#domain/direct/DirectActor"
import type { DirectAppend, DirectAppended } from "#domain/direct/DirectConversation"
import type { BlockChange, LoadedDirect } from "#domain/direct/DirectRepo"
import type { Settled } from "#infrastructure/database/CommitQueue"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import { makeDependencies } from "../support/ActorDependencies.ts"
import { draft } from "../support/Modules.ts"

const a = { id: "agt_a", handle: "aaa" }
const b = { id: "agt_b", handle: "bbb" }

/** An actor on rows that say `loaded`, whose commits wait for the test. */
const make = Effect.fnUntraced(function*(loaded: LoadedDirect) {
  const commits: Array<{ readonly append: DirectAppend; readonly settle: (settled: Settled<DirectAppended>) => void }> =
    []
  let rows = loaded
  let loads = 0
  const world = yield* makeDependencies({
    appends: { submit: (append, settle) => commits.push({ append, settle }) },
    newMessageId: () => "msg_1",
    load: () =>
      Effect.sync(() => {
        loads++
        return rows
      }),
    facts: () => ({
      opened: rows.state.initiatorId !== null,
      established: rows.state.established,
      blocked: rows.state.blocked
    })
  })
  const actor = DirectActor.make(world)("conv_1")
  const run = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(Effect.exit(effect), { startImmediately: true })
  const send = (key: string) =>
    run(actor.send({ sender: { ...a, displayName: a.handle }, recipient: b, draft: draft(key) }))
  let seq = 0
  const stored: Settled<DirectAppended> = {
    _tag: "Done",
    get value(): DirectAppended {
      return { _tag: "Stored", seq: ++seq, inboxNo: seq, undelivered: 1, senderLastInboxNo: 0, senderNextInboxNo: null }
    }
  }
  /** A block whose statement waits for the test. */
  const block = Effect.fnUntraced(function*() {
    const statement = Deferred.makeUnsafe<BlockChange, Unavailable>()
    let began = false
    const fiber = yield* run(actor.block(Effect.suspend(() => {
      began = true
      return Deferred.await(statement)
    })))
    return {
      fiber,
      began: () => began,
      commit: (epoch: number, version: number) => {
        rows = { epoch, version, state: { ...rows.state, blocked: true } }
        return Effect.andThen(
          Deferred.succeed(statement, { outcome: "Blocked", fence: { epoch, version } }),
          Effect.yieldNow
        )
      }
    }
  })
  const setRows = (next: LoadedDirect) => {
    rows = next
  }
  return { actor, block, commits, loads: () => loads, run, send, setRows, stored }
})

const tagOf = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit)
    ? exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag)[0]
    : "done"

const NEW: LoadedDirect = {
  epoch: 0,
  version: 0,
  state: { initiatorId: null, createdAt: null, established: false, blocked: false }
}
const ESTABLISHED: LoadedDirect = {
  epoch: 1,
  version: 0,
  state: { initiatorId: a.id, createdAt: 0, established: true, blocked: false }
}

describe("a block in the order of a conversation", () => {
  it.effect("waits for a first message under way, and what comes behind it is refused", () =>
    Effect.gen(function*() {
      const { block, commits, send, stored } = yield* make(NEW)
      const first = yield* send("m1")
      assert.strictEqual(commits.length, 1)
      const blocking = yield* block()
      const second = yield* send("m2")
      assert.isFalse(blocking.began())
      commits[0]!.settle(stored)
      yield* Effect.yieldNow
      assert.isTrue(blocking.began())
      assert.strictEqual(tagOf(yield* Fiber.join(first)), "done")
      assert.isUndefined(second.pollUnsafe(), "not decided before the block is")
      yield* blocking.commit(1, 1)
      assert.strictEqual(tagOf(yield* Fiber.join(blocking.fiber)), "done")
      assert.strictEqual(tagOf(yield* Fiber.join(second)), "Blocked")
      assert.strictEqual(commits.length, 1)
    }))

  it.effect("is known from then on without a read, unless the state changed in between", () =>
    Effect.gen(function*() {
      for (const [version, loads] of [[1, 1], [2, 2]] as const) {
        const made = yield* make(ESTABLISHED)
        const first = yield* made.send("m1")
        made.commits[0]!.settle(made.stored)
        yield* Fiber.join(first)
        const blocking = yield* made.block()
        // The owner's first write has raised the epoch.
        yield* blocking.commit(2, version)
        assert.strictEqual(tagOf(yield* Fiber.join(yield* made.send("m2"))), "Blocked")
        assert.strictEqual(made.loads(), loads)
        assert.strictEqual(made.commits.length, 1)
      }
    }))

  it.effect("fences a send that was decided before it: it is decided again", () =>
    Effect.gen(function*() {
      const { block, commits, send, stored } = yield* make(ESTABLISHED)
      const first = yield* send("m1")
      commits[0]!.settle(stored)
      yield* Fiber.join(first)
      const late = yield* send("m2")
      assert.strictEqual(commits.length, 2)
      const blocking = yield* block()
      assert.isTrue(blocking.began(), "a send under way does not hold it up")
      yield* blocking.commit(2, 1)
      commits[1]!.settle({ _tag: "Done", value: { _tag: "Fenced" } })
      assert.strictEqual(tagOf(yield* Fiber.join(late)), "Blocked")
    }))

  it.effect("is forgotten once it was removed, here or by another owner", () =>
    Effect.gen(function*() {
      for (const here of [true, false]) {
        const made = yield* make({ ...ESTABLISHED, version: 1, state: { ...ESTABLISHED.state, blocked: true } })
        assert.strictEqual(tagOf(yield* Fiber.join(yield* made.send("m1"))), "Blocked")
        made.setRows({ ...ESTABLISHED, version: 2 })
        if (here) yield* made.actor.unblock(Effect.succeed("Unblocked" as const))
        const sending = yield* made.send("m2")
        assert.strictEqual(made.commits.length, 1)
        assert.strictEqual(made.commits[0]!.append.version, 2)
        made.commits[0]!.settle(made.stored)
        assert.strictEqual(tagOf(yield* Fiber.join(sending)), "done")
      }
    }))
})
