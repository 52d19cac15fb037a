import { Refusals, SLOWED_MS } from "#interfaces/realtime/Refusals"
import { assert, it } from "@effect/vitest"

/** Frames that are refused at this rate, of a sender that waits while it is slowed, for so many seconds. */
const run = (rate: number, seconds: number) => {
  const refusals = new Refusals()
  let answered = 0
  let slowed = 0
  let due = 0
  for (let ms = 0; ms < seconds * 1_000; ms++) {
    due += rate / 1_000
    if (ms < slowed) continue
    // All that has come while nothing was read.
    for (; due >= 1; due--) {
      answered++
      const outcome = refusals.add(200, ms)
      if (outcome === "closed") return { answered, closedAfterMs: ms }
      if (outcome === "slowed") slowed = ms + SLOWED_MS
    }
  }
  return { answered, closedAfterMs: undefined }
}

it("frames that are refused now and then, or a burst of them, neither slow nor close a socket", () => {
  for (const rate of [1, 50, 150, 200]) {
    assert.deepStrictEqual(run(rate, 60), { answered: rate * 60, closedAfterMs: undefined })
  }
  const refusals = new Refusals()
  for (let burst = 0; burst < 50; burst++) {
    for (let i = 0; i < 199; i++) assert.strictEqual(refusals.add(200, burst * 1_000), "stays")
  }
})

it("more than the allowance slows a socket, and a flood closes it: sooner the larger it is, each frame answered until then", () => {
  const refusals = new Refusals()
  const outcomes = Array.from({ length: 2_000 }, () => refusals.add(200, 5_000))
  assert.deepStrictEqual(outcomes.slice(0, 199).filter((outcome) => outcome !== "stays"), [])
  assert.deepStrictEqual(outcomes.slice(199, 1_999).filter((outcome) => outcome !== "slowed"), [])
  assert.strictEqual(outcomes[1_999], "closed")
  const ends = [300, 1_000, 9_000, 100_000].map((rate) => run(rate, 60))
  for (const { answered } of ends) assert.strictEqual(answered, 2_000)
  const times = ends.map(({ closedAfterMs }) => closedAfterMs ?? Infinity)
  assert.deepStrictEqual(times, times.toSorted((a, b) => b - a))
  assert.isBelow(times[0]!, 12_000)
})

it("a flood is forgotten once its allowance is whole again", () => {
  const refusals = new Refusals()
  for (let i = 0; i < 1_999; i++) refusals.add(200, 0)
  assert.strictEqual(refusals.add(200, 11_000), "stays")
  for (let i = 0; i < 198; i++) assert.strictEqual(refusals.add(200, 11_000), "stays")
})
