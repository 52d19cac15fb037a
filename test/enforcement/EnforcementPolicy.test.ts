import { judge, type Thresholds } from "#domain/enforcement/EnforcementPolicy"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const HOUR = 3_600_000
const DAY = 24 * HOUR
const defaults: Thresholds = {
  restrictBlocks: 15,
  restrictWindowMs: DAY,
  suspendBlocks: 50,
  suspendReports: 10,
  suspendWindowMs: 7 * DAY
}

const times = (n: number, at = 0): ReadonlyArray<number> => Array.from({ length: n }, () => at)

describe("the thresholds of enforcement", () => {
  it("restrict for 15 blocks in 24 hours until the 15th newest is 24 hours old, to the millisecond", () => {
    const blocks = [...times(14, 10 * HOUR), 2 * HOUR, HOUR]
    assert.deepStrictEqual(judge({ blocks, reports: [] }, defaults, 11 * HOUR), {
      suspend: null,
      restrictedUntil: 26 * HOUR
    })
    assert.strictEqual(judge({ blocks, reports: [] }, defaults, 26 * HOUR - 1).restrictedUntil, 26 * HOUR)
    assert.isNull(judge({ blocks, reports: [] }, defaults, 26 * HOUR).restrictedUntil)
    assert.isNull(judge({ blocks: blocks.slice(0, 14), reports: [] }, defaults, 11 * HOUR).restrictedUntil)
  })

  it("suspend for 50 blocks or 10 reports in 7 days, and not for one fewer or one too old", () => {
    const suspend = (blocks: ReadonlyArray<number>, reports: ReadonlyArray<number>, now: number) =>
      judge({ blocks, reports }, defaults, now).suspend
    assert.strictEqual(suspend(times(50), [], 7 * DAY - 1), "blocks")
    assert.isNull(suspend(times(50), [], 7 * DAY))
    assert.isNull(suspend(times(49), times(9), 0))
    assert.strictEqual(suspend([], times(10), 7 * DAY - 1), "reports")
    assert.isNull(suspend([], times(10), 7 * DAY))
    assert.isNull(suspend([], [...times(9, DAY), 0], 7 * DAY))
  })

  it("agree with counting, whatever the times, windows and thresholds", () => {
    const small = fc.integer({ min: 1, max: 6 })
    const made = fc.array(fc.integer({ min: 0, max: 40 }), { maxLength: 10 }).map((all) =>
      all.toSorted((a, b) => b - a)
    )
    fc.assert(fc.property(made, made, small, small, small, small, small, fc.integer({ min: 0, max: 60 }), (
      blocks,
      reports,
      restrictBlocks,
      restrictWindowMs,
      suspendBlocks,
      suspendReports,
      suspendWindowMs,
      now
    ) => {
      const thresholds = { restrictBlocks, restrictWindowMs, suspendBlocks, suspendReports, suspendWindowMs }
      const counted = (all: ReadonlyArray<number>, windowMs: number, at: number) =>
        all.filter((one) => one > at - windowMs).length
      const verdict = judge({ blocks, reports }, thresholds, now)
      assert.strictEqual(
        verdict.suspend !== null,
        counted(blocks, suspendWindowMs, now) >= suspendBlocks ||
          counted(reports, suspendWindowMs, now) >= suspendReports
      )
      for (let at = now; at <= now + 10; at++) {
        assert.strictEqual(
          verdict.restrictedUntil !== null && at < verdict.restrictedUntil,
          counted(blocks, restrictWindowMs, at) >= restrictBlocks,
          `at ${at}`
        )
      }
    }))
  })
})
