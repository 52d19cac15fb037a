import { decideReport, decideUnchanged, OutcomeState, type StoredOutcome } from "#domain/messages/Outcome"
import { assert, describe, it } from "@effect/vitest"

const STATES = OutcomeState.literals
const report = (state: OutcomeState) => ({ state, reason: null })

describe("an outcome", () => {
  it("of a message of agents can have each state, and a system message has none", () => {
    for (const state of STATES) {
      for (const type of ["text", "structured", "file"])
        assert.isUndefined(decideReport({ type, metadata: "{}" }, report(state)))
      assert.strictEqual(decideReport({ type: "system", metadata: "{}" }, report(state))?.code, "VALIDATION_ERROR")
    }
  })

  it("of a message that belongs to an A2A task is working, and no other field of the metadata matters", () => {
    const about = (metadata: object) => ({ type: "text", metadata: JSON.stringify(metadata) })
    for (const state of STATES) {
      const refused = decideReport(about({ a2a: { task_id: "msg_1", state: "CANCELED" } }), report(state))
      assert.strictEqual(refused === undefined, state === "working", state)
      for (const a2a of [null, "msg_1", [], { task_id: 1 }, { state: "WORKING" }, { context_id: "conv_1" }])
        assert.isUndefined(decideReport(about({ a2a, note: '"a2a"' }), report(state)))
    }
  })

  it("that is reported again is granted, and a final one refuses every other state", () => {
    for (const stored of STATES) {
      const known: StoredOutcome = { state: stored, reason: "why", at: 1 }
      for (const state of STATES)
        assert.strictEqual(decideUnchanged(known, report(state))?.details?.state, state === stored ? undefined : stored)
    }
    assert.isUndefined(decideUnchanged(undefined, report("done")))
  })
})
