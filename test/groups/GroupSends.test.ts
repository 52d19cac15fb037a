import type { GroupState } from "#domain/groups/Group"
import { decideInGroup, settleInGroup } from "#domain/groups/GroupActor"
import type { GroupAppend, GroupAppended } from "#domain/groups/GroupAppend"
import type { GroupSendCommand } from "#domain/groups/GroupEntity"
import { assert, describe, it } from "@effect/vitest"
import { draft } from "../support/Modules.ts"

const STATE: GroupState = {
  id: "grp_1",
  version: 7,
  profile: { name: "Group", description: null, avatarUrl: null },
  creatorId: "agt_a",
  createdAt: 0,
  lastMessageAt: null,
  deleted: null,
  members: [{ agentId: "agt_a", handle: "aaa", role: "admin", joinedAt: 0, founder: true, suspended: false }]
}
const command = (senderId: string): GroupSendCommand => ({
  sender: { id: senderId, handle: senderId, displayName: senderId },
  draft: draft("m1")
})
const WRITE: GroupAppend = {
  groupId: "grp_1",
  version: 7,
  size: 1,
  senderId: "agt_a",
  messageId: "msg_1",
  at: 9,
  draft: draft("m1"),
  requestId: null
}
const STORED: GroupAppended = { _tag: "Stored", seq: 1, envelopes: [], senderLastInboxNo: 0, senderNextInboxNo: null }

describe("a send to a group", () => {
  it("is allowed to members; what is not there is not remembered", () => {
    const decided = (state: GroupState | null, senderId = "agt_a") => {
      const decision = decideInGroup(state, command(senderId))
      return decision._tag === "Refuse" ? [decision.failure._tag, decision.forget] : [decision._tag]
    }
    assert.deepStrictEqual(decided(STATE), ["Append"])
    assert.deepStrictEqual(decided(STATE, "agt_b"), ["GroupNotFound", false])
    assert.deepStrictEqual(decided({ ...STATE, deleted: { by: "agt_a", at: 1 } }), ["GroupNotFound", false])
    assert.deepStrictEqual(decided(null), ["GroupNotFound", true])
  })

  it("that is stored shows the group on which it was decided, and keeps the state that came meanwhile", () => {
    const renamed = { ...STATE, version: 8, profile: { ...STATE.profile, name: "Renamed" } }
    const settlement = settleInGroup(renamed, WRITE, STORED, STATE)
    assert.isTrue(settlement._tag === "Stored" && settlement.state === renamed)
    assert.deepStrictEqual(settlement._tag === "Stored" && settlement.group, { name: "Group", memberCount: 1 })
  })

  it("that is fenced is decided again, on rows that are read unless the state is newer than the write", () => {
    assert.deepStrictEqual(settleInGroup(STATE, WRITE, { _tag: "Fenced" }, STATE), { _tag: "Retry", state: undefined })
    const newer = { ...STATE, version: 8 }
    assert.deepStrictEqual(settleInGroup(newer, WRITE, { _tag: "Fenced" }, STATE), { _tag: "Retry", state: newer })
  })

  it("that was sent before, or whose sender is gone, stores nothing", () => {
    assert.deepStrictEqual(settleInGroup(STATE, WRITE, { _tag: "Replayed" }, STATE), { _tag: "Replay" })
    assert.deepStrictEqual(settleInGroup(STATE, WRITE, { _tag: "SenderGone" }, STATE), { _tag: "RefuseSender" })
  })
})
