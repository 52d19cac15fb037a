import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { LINE_RUNS, searchLines } from "../../verification/simulation/line/Search.ts"
import { SECONDS, SEED, TIMEOUT_MS } from "../../verification/simulation/Search.ts"

/** What 500 runs must have met, or they have shown less than they say. */
const MET = [
  "call done",
  "call absent",
  "call lost",
  "call late",
  "call unsent",
  "call refused",
  "send stored",
  "send replayed",
  "send unanswered",
  "message shown",
  "echo shown",
  "flood"
]

describe("nodes whose lines break, double and delay what they say", () => {
  it.live(`keep the rules in ${LINE_RUNS} runs`, () =>
    Effect.gen(function*() {
      const { coverage, found, runs } = yield* searchLines({ seconds: 0.5 * SECONDS })
      console.log([
        `seed ${SEED}, ${runs} runs of lines`,
        ...[...coverage].sort(([, a], [, b]) => b - a).map(([what, n]) => `${String(n).padStart(8)}  ${what}`)
      ].join("\n"))
      if (found !== undefined)
        assert.fail(found)
      if (LINE_RUNS >= 500) assert.deepStrictEqual(MET.filter((what) => !coverage.has(what)), [])
    }), TIMEOUT_MS)

  it.live("do the same each time", () =>
    Effect.gen(function*() {
      const [one, other] = [yield* searchLines({ runs: 3, seed: SEED }), yield* searchLines({ runs: 3, seed: SEED })]
      assert.isAbove(one.coverage.size, 5)
      assert.deepStrictEqual([...one.coverage], [...other.coverage])
    }))
})
