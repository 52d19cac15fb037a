import { DirectActor } from "#domain/direct/DirectActor"
import type { DirectAppend, DirectAppended } from "#domain/direct/DirectConversation"
import type { SendFailure } from "#domain/direct/DirectEntity"
import { AttachmentNotReady } from "#domain/sending/SendErrors"
import type { Settled } from "#infrastructure/database/CommitQueue"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { makeDependencies } from "../support/ActorDependencies.ts"
import { draft } from "../support/Modules.ts"

const a = { id: "agt_a", handle: "aaa" }
const b = { id: "agt_b", handle: "bbb" }

/** An established conversation whose files are looked at for as long as the test wants. */
const make = Effect.gen(function*() {
  const looked: Array<{ readonly id: string; readonly answer: Deferred.Deferred<void, SendFailure> }> = []
  const appended: Array<string> = []
  const stored = { blocked: false }
  let seq = 0
  const settleNow = (append: DirectAppend, settle: (settled: Settled<DirectAppended>) => void) => {
    appended.push(append.draft.clientMsgId)
    settle({
      _tag: "Done",
      value: { _tag: "Stored", seq: ++seq, inboxNo: seq, undelivered: 1, senderLastInboxNo: 0, senderNextInboxNo: null }
    })
    return 0
  }
  const world = yield* makeDependencies({
    appends: { submit: settleNow },
    newMessageId: () => `msg_${seq}`,
    load: () =>
      Effect.succeed({
        epoch: 1,
        version: 0,
        state: { initiatorId: a.id, createdAt: 0, established: true, blocked: false }
      }),
    facts: () => ({ blocked: stored.blocked }),
    useAttachment: (_sender, _recipient, id) =>
      Effect.suspend(() => {
        const answer = Deferred.makeUnsafe<void, SendFailure>()
        looked.push({ id, answer })
        return Deferred.await(answer)
      })
  })
  const actor = DirectActor.make(world)("conv_1")
  const send = (key: string, attachmentId?: string) =>
    Effect.exit(actor.send({
      sender: { ...a, displayName: a.handle },
      recipient: b,
      draft: { ...draft(key), attachmentId }
    }))
  return { actor, appended, looked, send, stored }
})

describe("a send that carries a file", () => {
  it.effect("is refused if its file is, and if a block came meanwhile", () =>
    Effect.gen(function*() {
      const { actor, appended, looked, send, stored } = yield* make
      const refused = yield* Effect.forkChild(send("file-1", "att_1"), { startImmediately: true })
      yield* Effect.yieldNow
      yield* Deferred.fail(looked[0]!.answer, new AttachmentNotReady({ details: { reason: "checksum" } }))
      assert.include(String(yield* Fiber.join(refused)), "AttachmentNotReady")
      const late = yield* Effect.forkChild(send("file-2", "att_1"), { startImmediately: true })
      yield* Effect.yieldNow
      stored.blocked = true
      yield* actor.block(Effect.succeed({ outcome: "Blocked", fence: { epoch: 1, version: 1 } }))
      yield* Deferred.succeed(looked[1]!.answer, undefined)
      assert.include(String(yield* Fiber.join(late)), "Blocked")
      assert.deepStrictEqual(appended, [])
    }))
})
