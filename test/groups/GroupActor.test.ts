import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import type { GroupState } from "#domain/groups/Group"
import { GroupActor, type GroupDependencies } from "#domain/groups/GroupActor"
import type { GroupAppended } from "#domain/groups/GroupAppend"
import { GroupNotFound } from "#domain/messages/SendErrors"
import { draft } from "../support/Rooms.ts"

const a = { id: "agt_a", handle: "aaa", displayName: "aaa" }
const EMPTY: GroupState = {
  id: "grp_1",
  version: 1,
  profile: { name: "Group", description: null, avatarUrl: null },
  creatorId: "agt_b",
  createdAt: 0,
  lastMessageAt: null,
  deleted: null,
  members: []
}
const JOINED: GroupState = {
  ...EMPTY,
  version: 2,
  members: [{ agentId: a.id, handle: a.handle, role: "member", joinedAt: 0, founder: false, suspended: false }]
}
const STORED: GroupAppended = { _tag: "Stored", seq: 1, envelopes: [], senderLastInboxNo: 0, senderNextInboxNo: null }

/** A group whose rows are `rows()`, and whose writes end with these outcomes, one after the other. */
const make = Effect.fnUntraced(function*(rows: () => GroupState | undefined, outcomes: Array<GroupAppended> = [], own: Partial<GroupDependencies> = {}) {
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  let loads = 0
  const needed: Partial<GroupDependencies> = {
    appends: { submit: (_append, settle) => settle({ _tag: "Done", value: outcomes.shift() ?? STORED }) },
    now: () => 1_000,
    monotonic: () => 1_000,
    newMessageId: () => "msg_1",
    load: () => Effect.sync(() => {
      loads++
      return rows()
    }),
    outside: () => Effect.succeed(new GroupNotFound()),
    publish: () => {},
    fork: (effect) => void runFork(effect),
    ...own
  }
  const actor = new GroupActor("grp_1", needed as GroupDependencies)
  return { loads: () => loads, send: Effect.exit(actor.send({ sender: a, draft: draft("m1") })) }
})

const answerOf = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isSuccess(exit) ? exit.value : exit.cause.reasons.map((reason) => reason._tag === "Fail" ? reason.error._tag : reason._tag).join()

describe("GroupActor", () => {
  it.effect("refuses an agent only on rows that were read for its send", () =>
    Effect.gen(function*() {
      let rows = EMPTY
      const { loads, send } = yield* make(() => rows)
      assert.strictEqual(answerOf(yield* send), "GroupNotFound")
      const before = loads()
      assert.strictEqual(answerOf(yield* send), "GroupNotFound")
      assert.strictEqual(loads(), before + 1)
      // Another owner lets the agent join.
      rows = JOINED
      assert.isTrue(Exit.isSuccess(yield* send))
      assert.strictEqual(loads(), before + 2)
      assert.isTrue(Exit.isSuccess(yield* send))
      assert.strictEqual(loads(), before + 2)
    }))

  it.effect("does not remember that a group is missing", () =>
    Effect.gen(function*() {
      let rows: GroupState | undefined
      const { loads, send } = yield* make(() => rows)
      assert.strictEqual(answerOf(yield* send), "GroupNotFound")
      assert.strictEqual(loads(), 1)
      rows = JOINED
      assert.isTrue(Exit.isSuccess(yield* send))
      assert.strictEqual(loads(), 2)
    }))

  it.effect("counts a send that is fenced and decided again once in the group's rate", () =>
    Effect.gen(function*() {
      let taken = 0
      const admit = () => {
        taken++
        return () => {
          taken--
        }
      }
      const { send } = yield* make(() => JOINED, [{ _tag: "Fenced" }, STORED], { admit })
      assert.isTrue(Exit.isSuccess(yield* send))
      assert.strictEqual(taken, 1)
    }))
})
