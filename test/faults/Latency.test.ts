import { describe, expect, it } from "vitest"
import { History, TICKS_PER_MS } from "../../verification/faults/History.ts"
import { isAsFast, latencyOfSends } from "../../verification/faults/Latency.ts"

/** Sends: when each began and was answered, in milliseconds; one without an answer is not accepted. */
const latency = (...sends: ReadonlyArray<readonly [began: number, ended?: number]>) => {
  const history = new History("latency")
  sends.forEach(([began, ended], i) => {
    const n = history.sends.begin(0, 0, began * TICKS_PER_MS, 0)
    if (ended !== undefined) history.sends.ok(n, ended * TICKS_PER_MS, `msg_${"A".repeat(16)}`, i + 1)
  })
  return latencyOfSends(history, 1_000 * TICKS_PER_MS, 2_000 * TICKS_PER_MS)
}

describe("latencyOfSends", () => {
  it("times the accepted sends that began in the span", () => {
    expect(latency([999, 9_999], [1_000, 1_010], [1_500, 1_520], [1_600], [1_999, 2_099], [2_000, 9_999])).toEqual({
      median: 20,
      p95: 100
    })
  })
})

describe("isAsFast", () => {
  const of = (median: number) => ({ median, p95: median })

  it("allows three times the median of before, and what a busy machine explains", () => {
    expect([isAsFast(of(50), of(150)), isAsFast(of(50), of(151)), isAsFast(of(2), of(100)), isAsFast(of(2), of(101))])
      .toEqual([true, false, true, false])
  })

  it("is not so if nothing was accepted", () => expect(isAsFast(of(2), latency())).toBe(false))
})
