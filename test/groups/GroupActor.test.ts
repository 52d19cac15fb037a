import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger } from "effect"
import type { Settled } from "../../src/database/GroupCommit.ts"
import type { GroupState } from "../../src/groups/Group.ts"
import { GroupActor, type GroupDependencies, type GroupPublished } from "../../src/groups/GroupActor.ts"
import type { GroupAppended } from "../../src/groups/GroupAppend.ts"
import { draft } from "../support/Rooms.ts"

const STATE: GroupState = {
  id: "grp_1",
  version: 1,
  profile: { name: "Group", description: null, avatarUrl: null },
  creatorId: "agt_a",
  createdAt: 0,
  lastMessageAt: null,
  deleted: null,
  members: [{ agentId: "agt_a", handle: "aaa", role: "admin", joinedAt: 0, founder: true, suspended: false }]
}

const make = Effect.fnUntraced(function*(own: Partial<GroupDependencies> = {}) {
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const commits: Array<(settled: Settled<GroupAppended>) => void> = []
  const published: Array<GroupPublished> = []
  const needed: Partial<GroupDependencies> = {
    appends: { submit: (_append, settle) => void commits.push(settle), size: () => 0, hurry: () => {}, idle: Effect.void },
    now: () => 0,
    monotonic: () => 1_000,
    newMessageId: () => "msg_1",
    load: () => Effect.succeed(STATE),
    publish: (stored) => published.push(stored),
    fork: (effect) => {
      runFork(effect)
    },
    ...own
  }
  const actor = new GroupActor("grp_1", needed as GroupDependencies)
  const sender = { id: "agt_a", handle: "aaa", displayName: "aaa" }
  return {
    actor,
    commits,
    published,
    send: (attachmentId?: string) =>
      Effect.forkChild(Effect.exit(actor.send({ sender, draft: { ...draft("m1"), ...(attachmentId === undefined ? {} : { attachmentId }) } })), {
        startImmediately: true
      }),
    stored: () => commits[0]!({ _tag: "Done", value: { _tag: "Stored", seq: 1, envelopes: [], senderLastInboxNo: 0, senderNextInboxNo: null } })
  }
})

const failure = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit) ? exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag)[0] : "success"

describe("GroupActor", () => {
  it.effect("callers that have waited too long are told so; what was being committed is published all the same", () =>
    Effect.gen(function*() {
      const { actor, published, send, stored } = yield* make()
      const sending = yield* send()
      actor.giveUpCallers(1_000)
      assert.isUndefined(sending.pollUnsafe())
      actor.giveUpCallers(1_001)
      assert.strictEqual(failure(yield* Fiber.join(sending)), "Unavailable")
      assert.isFalse(actor.idle)
      stored()
      yield* Effect.yieldNow
      assert.strictEqual(published.length, 1)
      assert.isTrue(actor.idle)
    }))

  it.effect("senders whose callers were given up while the group was read are dropped; the others go on with what was read", () =>
    Effect.gen(function*() {
      let time = 1_000
      const read = Deferred.makeUnsafe<GroupState>()
      let loads = 0
      const { actor, commits, send, stored } = yield* make({
        monotonic: () => time,
        load: () => Effect.suspend(() => {
          loads++
          return Deferred.await(read)
        })
      })
      const early = [yield* send(), yield* send()]
      time = 9_000
      const late = yield* send()
      actor.giveUpCallers(4_000)
      for (const one of early) assert.strictEqual(failure(yield* Fiber.join(one)), "Unavailable")
      yield* Deferred.succeed(read, STATE)
      // The turn goes from one to the next.
      yield* Effect.repeat(Effect.yieldNow, { times: 20 })
      assert.deepStrictEqual([loads, commits.length], [1, 1])
      stored()
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(late)))
      assert.isTrue(actor.idle)
    }))

  it.effect("a send whose caller has gone is dropped if it is not decided yet", () =>
    Effect.gen(function*() {
      const checked = Deferred.makeUnsafe<void>()
      const { actor, commits, send } = yield* make({
        useAttachment: (_sender, _group, _id, asks) => {
          asks(true)
          return Effect.ensuring(Deferred.await(checked), Effect.sync(() => asks(false)))
        }
      })
      const sending = yield* send("att_1")
      yield* Fiber.interrupt(sending)
      assert.isFalse(actor.idle)
      yield* Deferred.succeed(checked, undefined)
      yield* Effect.yieldNow
      assert.strictEqual(commits.length, 0)
      assert.isTrue(actor.idle)
    }))

  it.effect("a defect is logged where no caller is left to hear of it", () =>
    Effect.gen(function*() {
      const logged: Array<unknown> = []
      const logger = Logger.make(({ message }) => void logged.push(message))
      const { actor, commits, send } = yield* Effect.provide(make(), Logger.layer([logger]))
      const sending = yield* send()
      actor.giveUpCallers(1_001)
      yield* Fiber.join(sending)
      commits[0]!({ _tag: "Failed", exit: Exit.die(new Error("a defect of the batch")) })
      yield* Effect.yieldNow
      assert.match(String(logged[0]), /caller had timed out/)
      assert.isTrue(actor.idle)
    }))

  it.effect("the file store may take its time", () =>
    Effect.gen(function*() {
      let time = 1_000
      const checked = Deferred.makeUnsafe<void>()
      const { actor, commits, send, stored } = yield* make({
        monotonic: () => time,
        useAttachment: (_sender, _group, _id, asks) => {
          asks(true)
          return Effect.ensuring(Deferred.await(checked), Effect.sync(() => asks(false)))
        }
      })
      const sending = yield* send("att_1")
      time = 21_000
      actor.giveUpCallers(16_000)
      yield* Deferred.succeed(checked, undefined)
      yield* Effect.yieldNow
      actor.giveUpCallers(16_000)
      assert.strictEqual(commits.length, 1)
      stored()
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(sending)))
    }))
})
