import { dayOf, MONTH, startOfDay } from "#domain/search/Lexemes"
import { spanOf, split, type Window, windows } from "#domain/search/Windows"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const DAY = startOfDay(1)

/**
 * Asserts that parts follow each other without gap and overlap, the newest first, and name the periods of their times.
 */
const assertPartition = (parts: ReadonlyArray<Window>, from: number, to: number): void => {
  assert.isAbove(parts.length, 0)
  assert.isTrue(parts[0]!.to > to && parts.at(-1)!.from <= from)
  for (const [i, part] of parts.entries()) {
    assert.isBelow(part.from, part.to)
    if (i > 0) assert.strictEqual(part.to, parts[i - 1]!.from)
    const { periods } = part
    const length = "days" in periods ? periods.days : periods.months
    assert.deepStrictEqual(length, length.toSorted((one, other) => other - one))
    const newest = "days" in periods ? periods.days[0]! : periods.months[0]! * MONTH + MONTH - 1
    const oldest = "days" in periods ? periods.days.at(-1)! : periods.months.at(-1)! * MONTH
    assert.isTrue(dayOf(part.to - 1) <= newest && dayOf(part.from) === oldest)
  }
}

describe("windows", () => {
  it("cover the time of a search once, newest first, in few parts, and so do the parts of a part", () =>
    fc.assert(
      fc.property(fc.nat(30_000 * DAY), fc.nat(3_000 * DAY), fc.integer({ min: 1, max: 500 }), (from, length, most) => {
        const to = from + length
        const parts = [...windows(from, to, most)]
        assertPartition(parts, from, to)
        assert.isAtMost(parts.length, 6 + 6 / Math.min(most, 6) + length / DAY / MONTH / Math.min(most, 9) + 2)
        for (const part of parts) {
          assert.isAtMost("days" in part.periods ? part.periods.days.length : part.periods.months.length, most)
          const shorter = split(part)
          if (shorter === undefined) assert.isTrue("days" in part.periods && part.periods.days.length === 1)
          else assertPartition(shorter, part.from, part.to - 1)
        }
      })
    ))
})

describe("spanOf", () => {
  it("covers more conversations than a function call can have arguments", () => {
    const conversations = Array.from({ length: 300_000 }, (_, i) => ({
      createdAt: 400_000 - i,
      lastMessageAt: 500_000 + i
    }))
    assert.deepStrictEqual(spanOf(conversations), { oldest: 100_001, newest: 799_999 })
  })
})
