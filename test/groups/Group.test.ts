import {
  type Change,
  decideDelete,
  decideDemote,
  decideJoin,
  decideLeave,
  decideOperation,
  decideProfile,
  decidePromote,
  decideRemove,
  decideReplacement,
  evolve,
  type GroupState,
  type Member
} from "#domain/groups/Group"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const MAX = 6

const begun: GroupState = {
  id: "grp_x",
  version: 0,
  profile: { name: "n", description: null, avatarUrl: null },
  creatorId: "a0",
  createdAt: 0,
  lastMessageAt: null,
  deleted: null,
  members: [{ agentId: "a0", handle: "a0", role: "admin", joinedAt: 0, founder: true, suspended: false }]
}

const named = (agentId: string) => ({ agentId, handle: agentId })

interface Step {
  readonly kind:
    | "join"
    | "leave"
    | "remove"
    | "promote"
    | "demote"
    | "rename"
    | "delete"
    | "suspend"
    | "replace"
    | "operator removes"
    | "operator promotes"
  readonly actor: number
  readonly target: number
}

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.constantFrom(
    "join",
    "join",
    "join",
    "leave",
    "remove",
    "promote",
    "promote",
    "demote",
    "rename",
    "delete",
    "suspend",
    "replace",
    "operator removes",
    "operator promotes"
  ),
  actor: fc.nat(8),
  target: fc.nat(8)
}) as fc.Arbitrary<Step>

const find = (state: GroupState, id: string) => state.members.find((member) => member.agentId === id)

/** What a step comes to, with the checks that the actor makes before it decides. */
const decide = (state: GroupState, { actor, kind, target }: Step): Change | undefined => {
  const [actorId, targetId] = [`a${actor}`, `a${target}`]
  const member = find(state, actorId)
  const change = (decided: Change | string | undefined) => typeof decided === "string" ? undefined : decided
  if (kind === "join") return change(decideJoin(state, named(actorId), "gri_1", MAX))
  if (kind === "operator removes" || kind === "operator promotes") {
    const decided = decideOperation(state, kind === "operator removes" ? "remove" : "promote", targetId)
    return decided === "NotMember" ? undefined : decided?.change
  }
  if (member === undefined) return undefined
  if (kind === "leave") return decideLeave(state, member).change
  if (kind === "replace") return decideReplacement(state, member)
  if (kind === "delete") return target === 0 ? change(decideDelete(state, member)) : undefined
  if (member.role !== "admin" || member.suspended) return undefined
  if (kind === "remove") return change(decideRemove(state, member, targetId))
  if (kind === "promote") return change(decidePromote(state, member, targetId))
  if (kind === "demote") return change(decideDemote(state, member, targetId))
  return decideProfile(state, member, { name: `n${target}` })
}

const suspend = (state: GroupState, agentId: string): GroupState => ({
  ...state,
  members: state.members.map((member) => member.agentId === agentId ? { ...member, suspended: true } : member)
})

const acting = (members: ReadonlyArray<Member>) =>
  members.filter((member) => member.role === "admin" && !member.suspended)

describe("the rules of a group", () => {
  it("keep an admin, the seats, and tell each change to everybody whom it concerns", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        let state = begun
        for (const one of steps) {
          if (state.deleted !== null) return
          if (one.kind === "suspend") {
            const member = find(state, `a${one.actor}`)
            if (member === undefined) continue
            state = suspend(state, member.agentId)
            const replacement = decideReplacement(state, { ...member, suspended: true })
            if (replacement !== undefined) state = evolve(state, replacement, 1, String)
          } else {
            const change = decide(state, one)
            if (change === undefined) continue
            const before = state
            state = evolve(state, change, 1, (id) => id)
            assert.strictEqual(state.version, before.version + 1)
            for (const { event, recipients, senderId } of change.messages) {
              const told = new Set(recipients)
              assert.strictEqual(told.size, recipients.length, "nobody is told twice")
              assert.isFalse(told.has(senderId), "the sender has no envelope")
              const audience = event.event === "member_removed" || event.event === "group_deleted"
                ? before.members
                : state.members
              const expected = audience.flatMap(({ agentId }) => agentId === senderId ? [] : agentId)
              assert.sameMembers([...recipients], expected)
            }
          }
          assert.isAtMost(state.members.length, MAX)
          assert.strictEqual(new Set(state.members.map((member) => member.agentId)).size, state.members.length)
          if (state.members.length === 0) assert.isNotNull(state.deleted, "the last member takes the group along")
          if (state.members.some((member) => !member.suspended))
            assert.isNotEmpty(acting(state.members), "an admin that can act")
        }
      }),
      { numRuns: 500 }
    )
  })

  const trio: GroupState = {
    ...begun,
    members: [
      ...begun.members,
      { agentId: "b", handle: "b", role: "member", joinedAt: 1, founder: false, suspended: false },
      { agentId: "c", handle: "c", role: "member", joinedAt: 2, founder: false, suspended: false }
    ]
  }
  const [a, b] = trio.members as [Member, Member, Member]

  it("the last admin's place goes to the member that joined first, and both messages are the leaver's", () => {
    const { change, promoted } = decideLeave(trio, a)
    assert.strictEqual(promoted?.agentId, "b")
    assert.deepStrictEqual(change.messages.map(({ event, senderId }) => [senderId, event]), [
      ["a0", { event: "member_left", agent_handle: "a0" }],
      ["a0", { event: "admin_promoted", agent_handle: "b", actor_handle: null }]
    ])
  })

  it("a suspended admin does not count, and a suspended member does not inherit", () => {
    const halted = suspend(suspend(trio, "a0"), "b")
    assert.strictEqual(decideReplacement(halted, halted.members[0]!)?.roles[0]?.agentId, "c")
    assert.strictEqual(
      decideDemote({ ...halted, members: halted.members.map((m) => ({ ...m, role: "admin" })) }, b, "c"),
      "LastAdmin"
    )
  })

  it("only the creator deletes while it is a member that can act, else any admin", () => {
    const admins: GroupState = { ...trio, members: trio.members.map((member) => ({ ...member, role: "admin" })) }
    assert.strictEqual(decideDelete(admins, admins.members[1]!), "Forbidden")
    assert.isObject(decideDelete(admins, admins.members[0]!))
    assert.isObject(decideDelete(suspend(admins, "a0"), admins.members[1]!))
    const left = evolve(admins, decideLeave(admins, a).change, 1, String)
    assert.isObject(decideDelete(left, left.members[0]!))
    assert.strictEqual(decideDelete({ ...left, members: [b] }, b), "Forbidden")
    // Come back, it is a member like any other.
    const back = evolve(left, decideJoin(left, named("a0"), "gri_1", MAX) as Change, 2, String)
    const again = find(back, "a0") ?? assert.fail()
    assert.strictEqual(decideDelete(back, again), "Forbidden")
    assert.isObject(decideDelete(back, back.members[0]!))
    assert.isObject(decideRemove(back, b, "a0"))
    assert.strictEqual(decideDemote(back, b, "a0"), "NotAdmin")
  })

  it("the creator is neither removed nor demoted, nobody removes itself", () => {
    const admins: GroupState = { ...trio, members: trio.members.map((member) => ({ ...member, role: "admin" })) }
    assert.strictEqual(decideRemove(admins, b, "a0"), "Creator")
    assert.strictEqual(decideRemove(admins, b, "b"), "Self")
    assert.strictEqual(decideRemove(admins, b, "x"), "NotMember")
    assert.strictEqual(decideDemote(admins, b, "a0"), "Creator")
    assert.strictEqual(decideDemote(trio, a, "b"), "NotAdmin")
    assert.strictEqual(decideDemote(trio, a, "a0"), "LastAdmin")
    assert.isUndefined(decidePromote(admins, a, "b"))
  })

  it("an operator removes also the creator, promotes and deletes, and members hear it from the server", () => {
    const told = (decided: ReturnType<typeof decideOperation>) =>
      typeof decided === "object"
        ? decided.change.messages.map(({ event, recipients, senderHandle }) => [senderHandle, event, recipients])
        : decided
    assert.deepStrictEqual(told(decideOperation(trio, "remove", "a0")), [
      ["system", { event: "member_removed", agent_handle: "a0", actor_handle: "system" }, ["b", "c", "a0"]],
      ["a0", { event: "admin_promoted", agent_handle: "b", actor_handle: null }, ["b", "c"]]
    ])
    assert.deepStrictEqual(told(decideOperation(trio, "promote", "c")), [
      ["system", { event: "admin_promoted", agent_handle: "c", actor_handle: "system" }, ["a0", "b", "c"]]
    ])
    assert.deepStrictEqual(told(decideOperation(trio, "delete", null)), [
      ["system", { event: "group_deleted", actor_handle: "system" }, ["a0", "b", "c"]]
    ])
    assert.isUndefined(decideOperation(trio, "promote", "a0"))
    for (const operation of ["remove", "promote"] as const)
      assert.strictEqual(decideOperation(trio, operation, "x"), "NotMember")
    const alone = decideOperation(begun, "remove", "a0")
    assert.deepInclude(typeof alone === "object" ? alone.change : {}, { deletedBy: "agt_0000000000system" })
  })

  it("a change sends one notice for each field that really changes", () => {
    assert.isUndefined(decideProfile(trio, a, { name: "n", description: null }))
    const change = decideProfile(trio, a, { name: "m", description: "d", avatarUrl: "https://x.example/y" })
    assert.deepStrictEqual(change?.messages.map(({ event }) => event), [
      { event: "name_changed", new_name: "m", actor_handle: "a0" },
      { event: "description_changed", actor_handle: "a0" },
      { event: "avatar_changed", actor_handle: "a0" }
    ])
  })
})
