import { afterFailure, afterSuccess, type Circuit, closed, stateAt } from "#domain/webhooks/Circuit"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const PAUSE_MS = 300_000
const rules = { inARow: 5, perMinute: 10, pauseMs: PAUSE_MS }

const failing = (times: ReadonlyArray<number>): Circuit =>
  times.reduce((circuit, now) => afterFailure(rules, circuit, now), closed)

describe("the circuit", () => {
  it("opens with the fifth failure in a row, for five minutes, and then lets one through", () => {
    assert.strictEqual(stateAt(rules, failing([0, 1, 2, 3]), 3), "Closed")
    const open = failing([0, 100_000, 200_000, 300_000, 400_000])
    assert.strictEqual(stateAt(rules, open, 400_000 + PAUSE_MS - 1), "Pause")
    assert.strictEqual(stateAt(rules, open, 400_000 + PAUSE_MS), "Probe")
    assert.strictEqual(stateAt(rules, afterFailure(rules, open, 800_000), 800_000 + PAUSE_MS - 1), "Pause")
    assert.strictEqual(stateAt(rules, afterSuccess(rules, open, 500_000), 500_000), "Pause")
    assert.strictEqual(stateAt(rules, afterSuccess(rules, open, 800_000), 800_000), "Closed")
  })

  it("opens with the tenth failure of a minute, successes in between or not", () => {
    let circuit = closed
    for (let i = 0; i < 9; i++) circuit = afterSuccess(rules, afterFailure(rules, circuit, i * 6_000), i * 6_000)
    assert.strictEqual(stateAt(rules, circuit, 54_000), "Closed")
    assert.strictEqual(stateAt(rules, afterFailure(rules, circuit, 59_999), 59_999), "Pause")
    assert.strictEqual(stateAt(rules, afterFailure(rules, circuit, 60_000), 60_000), "Closed")
  })

  it("is open exactly when one of the two is reached", () => {
    fc.assert(fc.property(
      fc.array(fc.record({ wait: fc.nat(20_000), ok: fc.boolean() }), { maxLength: 60 }),
      (steps) => {
        let circuit = closed
        let now = 0
        let row = 0
        let failures: Array<number> = []
        for (const { ok, wait } of steps) {
          now += wait
          if (stateAt(rules, circuit, now) === "Pause") continue
          const probing = stateAt(rules, circuit, now) === "Probe"
          if (ok) {
            circuit = afterSuccess(rules, circuit, now)
            row = 0
          } else {
            circuit = afterFailure(rules, circuit, now)
            row++
            failures = [...failures, now].filter((at) => at > now - 60_000)
          }
          const open = !ok && (probing || row >= 5 || failures.length >= 10)
          assert.strictEqual(stateAt(rules, circuit, now), open ? "Pause" : "Closed")
          if (open) {
            row = 0
            failures = []
          }
        }
      }
    ))
  })

  it("after the clock is set back by an hour, a pause is over, and the next one is as long as ever", () => {
    const open = failing([0, 1, 2, 3, 3_600_000])
    assert.strictEqual(stateAt(rules, open, 3_600_001), "Pause")
    assert.strictEqual(stateAt(rules, { ...open, pausedUntil: 3_600_000 + PAUSE_MS }, 1_000), "Probe")
    const again = afterFailure(rules, { ...open, pausedUntil: 3_600_000 + PAUSE_MS }, 1_000)
    assert.strictEqual(stateAt(rules, again, 1_000 + PAUSE_MS - 1), "Pause")
    assert.strictEqual(stateAt(rules, again, 1_000 + PAUSE_MS), "Probe")
  })
})
