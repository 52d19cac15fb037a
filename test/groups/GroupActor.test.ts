import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
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

const make = (own: Partial<GroupDependencies> = {}) => {
  const commits: Array<(settled: Settled<GroupAppended>) => void> = []
  const published: Array<GroupPublished> = []
  const needed: Partial<GroupDependencies> = {
    appends: { submit: (_append, settle) => void commits.push(settle), size: () => 0, hurry: () => {}, idle: Effect.void },
    now: () => 0,
    newMessageId: () => "msg_1",
    load: () => Effect.succeed(STATE),
    publish: (stored) => published.push(stored),
    ...own
  }
  const actor = new GroupActor("grp_1", needed as GroupDependencies)
  const sender = { id: "agt_a", handle: "aaa", displayName: "aaa" }
  return {
    actor,
    published,
    send: (attachmentId?: string) =>
      Effect.forkChild(Effect.exit(actor.send({ sender, draft: { ...draft("m1"), ...(attachmentId === undefined ? {} : { attachmentId }) } })), {
        startImmediately: true
      }),
    stored: () => commits[0]!({ _tag: "Done", value: { _tag: "Stored", seq: 1, envelopes: [], senderLastInboxNo: 0, senderNextInboxNo: null } })
  }
}

describe("GroupActor", () => {
  it.effect("a caller waits for a commit for 5 s at most; what is committed later is published all the same", () =>
    Effect.gen(function*() {
      const { actor, published, send, stored } = make()
      const sending = yield* send()
      yield* TestClock.adjust("4999 millis")
      assert.isUndefined(sending.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      const exit = yield* Fiber.join(sending)
      assert.deepStrictEqual(Exit.isFailure(exit) && exit.cause.reasons.map((reason) => reason._tag === "Fail" && reason.error._tag), ["Unavailable"])
      assert.isTrue(actor.idle)
      stored()
      assert.strictEqual(published.length, 1)
    }))

  it.effect("the check of an attachment does not count as waiting", () =>
    Effect.gen(function*() {
      const { send, stored } = make({ useAttachment: () => Effect.sleep("20 seconds") })
      const sending = yield* send("att_1")
      yield* TestClock.adjust("24 seconds")
      assert.isUndefined(sending.pollUnsafe())
      stored()
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(sending)))
    }))
})
