import { decideSend, type DirectState, makeDirectIds } from "#domain/direct/DirectConversation"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const agents = ["agt_a", "agt_b"] as const

/** States that sends and blocks can lead to. */
const reachable: fc.Arbitrary<DirectState> = fc.record({
  initiatorId: fc.constantFrom(null, ...agents),
  at: fc.nat(),
  established: fc.boolean(),
  blocked: fc.boolean()
}).map(({ at, blocked, established, initiatorId }) => ({
  initiatorId,
  createdAt: initiatorId === null ? null : at,
  established: initiatorId !== null && established,
  blocked
}))

/** What the state is once a send that was accepted is stored. */
const after = (state: DirectState, sender: string, at: number): DirectState => {
  const decision = decideSend(state, sender)
  switch (decision._tag) {
    case "Open":
      return { ...state, initiatorId: sender, createdAt: at }
    case "Establish":
      return { ...state, established: true }
    default:
      return state
  }
}

describe("decideSend", () => {
  it("a block comes before everything else", () => {
    fc.assert(fc.property(reachable, fc.constantFrom(...agents), (state, sender) => {
      assert.strictEqual(decideSend({ ...state, blocked: true }, sender)._tag, "Blocked")
      assert.notStrictEqual(decideSend({ ...state, blocked: false }, sender)._tag, "Blocked")
    }))
  })

  it("only the initiator of an unanswered conversation waits, from the time of its first message", () => {
    fc.assert(fc.property(reachable, fc.constantFrom(...agents), (state, sender) => {
      const decision = decideSend({ ...state, blocked: false }, sender)
      const waits = state.initiatorId === sender && !state.established
      assert.strictEqual(decision._tag === "AwaitingReply", waits)
      if (decision._tag === "AwaitingReply") assert.strictEqual(decision.since, state.createdAt)
    }))
  })

  it("a conversation opens once and is established by the first answer, for good, in any order of sends", () => {
    fc.assert(fc.property(fc.array(fc.constantFrom(...agents), { minLength: 1, maxLength: 30 }), (senders) => {
      let state: DirectState = { initiatorId: null, createdAt: null, established: false, blocked: false }
      const tags = senders.map((sender, at) => {
        const { _tag } = decideSend(state, sender)
        state = after(state, sender, at)
        return _tag
      })
      const answer = senders.findIndex((sender) => sender !== senders[0])
      assert.deepStrictEqual(
        tags,
        senders.map((_, i) =>
          i === 0 ? "Open" : answer === -1 || i < answer ? "AwaitingReply" : i === answer ? "Establish" : "Continue"
        )
      )
    }))
  })
})

describe("ids of direct conversations", () => {
  it("are the same from both sides, differ between pairs, and need the secret", () => {
    const id = fc.string({ minLength: 1 }).map((text) => `agt_${text.replaceAll(" ", "")}`)
    fc.assert(fc.property(id, id, id, (a, b, c) => {
      const ids = makeDirectIds(Buffer.alloc(32, 1))
      assert.match(ids(a, b), /^conv_[A-Za-z0-9_-]{16}$/)
      assert.strictEqual(ids(a, b), ids(b, a))
      if (c !== b) assert.notStrictEqual(ids(a, b), ids(a, c))
      assert.notStrictEqual(ids(a, b), makeDirectIds(Buffer.alloc(32, 2))(a, b))
    }))
  })
})
