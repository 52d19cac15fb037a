import { type CachedDirect, confirmDirect, decideDirect, decideOpening, settleDirect } from "#domain/direct/DirectActor"
import type { DirectAppend, DirectAppended, DirectState } from "#domain/direct/DirectConversation"
import type { SendCommand } from "#domain/direct/DirectEntity"
import type { OutreachFacts } from "#domain/direct/DirectRepo"
import { AwaitingReply, Blocked } from "#domain/sending/SendErrors"
import { assert, describe, it } from "@effect/vitest"
import { draft } from "../support/Modules.ts"

const NEW: DirectState = { initiatorId: null, createdAt: null, established: false, blocked: false }
const COLD: DirectState = { initiatorId: "agt_a", createdAt: 5, established: false, blocked: false }
const ESTABLISHED: DirectState = { ...COLD, established: true }

const cached = (state: DirectState, claimed = true): CachedDirect => ({ epoch: 3, version: 7, state, claimed })
const command = (senderId: string): SendCommand => ({
  sender: { id: senderId, handle: senderId, displayName: senderId },
  recipient: { id: "agt_r", handle: "rrr" },
  draft: draft("m1")
})
const write = (own: Partial<DirectAppend> = {}): DirectAppend => ({
  conversationId: "conv_1",
  epoch: 3,
  nextEpoch: 3,
  version: 7,
  opens: false,
  establishes: false,
  senderId: "agt_b",
  recipientId: "agt_r",
  messageId: "msg_1",
  at: 9,
  draft: draft("m1"),
  requestId: null,
  ...own
})
const STORED: DirectAppended = {
  _tag: "Stored",
  seq: 1,
  inboxNo: 4,
  undelivered: 50,
  senderLastInboxNo: 0,
  senderNextInboxNo: null
}
const settle = (current: CachedDirect | undefined, of: DirectAppend, outcome: DirectAppended) =>
  settleDirect(current, of, outcome, "rrr", 50)

const FACTS: OutreachFacts = {
  replayOf: null,
  opened: false,
  established: false,
  senderStatus: "active",
  recipientDeleted: false,
  recipientSuspended: false,
  inboxMode: "open",
  isContact: false,
  blocked: false,
  undelivered: 0
}
const failureOf = (verdict: { readonly _tag: string; readonly failure?: { readonly _tag: string } }) =>
  verdict.failure?._tag ?? verdict._tag

describe("a direct send", () => {
  it("is decided on the cached state alone", () => {
    const decided = (state: DirectState, senderId: string, claimed = true) =>
      decideDirect(cached(state, claimed), command(senderId))
    assert.deepStrictEqual(decided(ESTABLISHED, "agt_a"), { _tag: "Append", alone: false })
    assert.deepStrictEqual(decided(ESTABLISHED, "agt_a", false), { _tag: "Append", alone: true })
    assert.deepStrictEqual(decided(COLD, "agt_b"), { _tag: "Append", alone: false })
    assert.deepStrictEqual(decided(NEW, "agt_a"), { _tag: "Open" })
    for (const [state, tag] of [[COLD, "AwaitingReply"], [{ ...ESTABLISHED, blocked: true }, "Blocked"]] as const) {
      const decision = decided(state, "agt_a")
      assert.strictEqual(decision._tag === "Refuse" ? decision.failure._tag : decision._tag, tag)
    }
  })

  it("that is stored leaves the state as it is, unless it opened, established or claimed the conversation", () => {
    const state = cached(ESTABLISHED)
    const plain = settle(state, write(), STORED)
    assert.isTrue(plain._tag === "Stored" && plain.state === state)
    const stateAfter = (current: CachedDirect, own: Partial<DirectAppend>) => {
      const settlement = settle(current, write(own), STORED)
      return settlement._tag === "Stored" ? settlement.state : undefined
    }
    assert.deepStrictEqual(stateAfter(cached(NEW, false), { opens: true, nextEpoch: 4 }), {
      epoch: 4,
      version: 7,
      claimed: true,
      state: { initiatorId: "agt_b", createdAt: 9, established: false, blocked: false }
    })
    assert.deepStrictEqual(stateAfter(cached(COLD), { establishes: true }), cached(ESTABLISHED))
    assert.deepStrictEqual(stateAfter(cached(ESTABLISHED, false), { nextEpoch: 4 }), {
      ...cached(ESTABLISHED),
      epoch: 4
    })
    // A late answer to a write of an older epoch changes nothing.
    assert.deepStrictEqual(stateAfter({ ...cached(COLD), epoch: 8 }, { establishes: true }), {
      ...cached(COLD),
      epoch: 8
    })
  })

  it("shows the sender a backlog from the soft bound on", () => {
    const backlog = (undelivered: number) => {
      const settlement = settle(cached(ESTABLISHED), write(), { ...STORED, undelivered })
      return settlement._tag === "Stored" ? settlement.backlog : undefined
    }
    assert.deepStrictEqual([backlog(49), backlog(50)], [null, 50])
  })

  it("that is fenced is decided again, on rows that are read unless the state is newer than the write", () => {
    assert.deepStrictEqual(settle(cached(ESTABLISHED), write(), { _tag: "Fenced" }), {
      _tag: "Retry",
      state: undefined
    })
    const newer = { ...cached(ESTABLISHED), version: 8 }
    assert.deepStrictEqual(settle(newer, write(), { _tag: "Fenced" }), { _tag: "Retry", state: newer })
  })

  it("that the statement refuses gets the failure of its outcome", () => {
    const settled = (outcome: DirectAppended) => failureOf(settle(cached(ESTABLISHED), write(), outcome))
    assert.strictEqual(settled({ _tag: "Replayed" }), "Replay")
    assert.strictEqual(settled({ _tag: "SenderGone" }), "RefuseSender")
    assert.strictEqual(settled({ _tag: "RecipientGone" }), "AgentNotFound")
    assert.strictEqual(settled({ _tag: "Backlogged", undelivered: 10_000 }), "RecipientBacklogged")
  })

  it("is refused only if storage agrees: a replay never is, and an outdated decision is made again", () => {
    const blocked = new Blocked()
    const awaiting = new AwaitingReply({
      details: { recipient_handle: "rrr", waiting_since: "2026-01-01T00:00:00.000Z" }
    })
    const confirmed = (failure: Blocked | AwaitingReply, own: Partial<OutreachFacts> | undefined, isLast = false) =>
      failureOf(
        confirmDirect(failure, own === undefined ? undefined : { ...FACTS, ...own }, {
          command: command("agt_a"),
          isLast
        })
      )
    assert.strictEqual(confirmed(blocked, { blocked: true }), "Blocked")
    assert.strictEqual(confirmed(blocked, { blocked: true, replayOf: "msg_0" }), "Replay")
    assert.strictEqual(
      confirmed(blocked, { blocked: true, replayOf: "msg_0", senderStatus: "suspended" }),
      "AgentSuspended"
    )
    assert.strictEqual(confirmed(blocked, { blocked: false }), "Reload")
    assert.strictEqual(confirmed(blocked, { blocked: false }, true), "Blocked")
    assert.strictEqual(confirmed(awaiting, { established: true }), "Reload")
    assert.strictEqual(confirmed(awaiting, { blocked: true }), "Blocked")
    assert.strictEqual(confirmed(awaiting, { inboxMode: "contacts_only" }), "InboxRestricted")
    assert.strictEqual(confirmed(awaiting, { inboxMode: "contacts_only", isContact: true }), "AwaitingReply")
    assert.strictEqual(confirmed(awaiting, { recipientDeleted: true }), "AgentNotFound")
    assert.strictEqual(confirmed(awaiting, undefined), "AgentNotFound")
  })

  it("that opens a conversation passes the guards in the order of the contract", () => {
    const guards: ReadonlyArray<readonly [Partial<OutreachFacts>, string]> = [
      [{ senderStatus: "suspended" }, "AgentSuspended"],
      [{ replayOf: "msg_0" }, "Replay"],
      [{ opened: true }, "Reload"],
      [{ recipientDeleted: true }, "AgentNotFound"],
      [{ blocked: true }, "Blocked"],
      [{ senderStatus: "restricted" }, "AgentRestricted"],
      [{ inboxMode: "contacts_only" }, "InboxRestricted"]
    ]
    const decided = (facts: OutreachFacts | undefined) => failureOf(decideOpening(facts, command("agt_a")))
    for (const [i, [, first]] of guards.entries()) {
      // All later obstacles are there too.
      const facts = guards.slice(i).reduceRight((all, [own]) => ({ ...all, ...own }), FACTS)
      assert.strictEqual(decided(facts), first)
    }
    assert.strictEqual(decided({ ...FACTS, senderStatus: null }), "Unauthorized")
    assert.strictEqual(decided(undefined), "AgentNotFound")
    assert.strictEqual(decided(FACTS), "Append")
  })
})
