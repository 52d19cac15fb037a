import { assert, describe, it } from "@effect/vitest"
import { check, type Verdict } from "../../verification/faults/Checker.ts"
import { type Bug, BUGS, makeWorld, MODEL_OPTIONS } from "../../verification/faults/Model.ts"

/** How many worlds of each kind: few by default, 200 and more by `npm run test:checker`. */
const WORLDS = Number(process.env["CHECKER_WORLDS"] ?? 3)
/** Not each world has an occasion for each bug. */
const TRIES = 100
const LONG = { timeout: 5_000 + WORLDS * 5_000 }

const told = (verdict: Verdict): ReadonlyArray<string> => verdict.violations.map(({ line, rule }) => `${rule}: ${line}`)

describe("the checker", () => {
  it("finds nothing wrong with a service that makes no mistake", LONG, () => {
    for (let seed = 0; seed < 5 * WORLDS; seed++) {
      const { final, history } = makeWorld(seed)
      const verdict = check(history, final, MODEL_OPTIONS)
      assert.deepStrictEqual(told(verdict), [], `seed ${seed}`)
      assert.isAbove(verdict.accepted, 30)
      assert.isAbove(verdict.refused, 0)
    }
  })

  // The keys of the record are its bugs.
  for (const bug of Object.keys(BUGS) as Array<Bug>) {
    it(`finds that ${bug}`, LONG, () => {
      let bitten = 0
      for (let seed = 0; bitten < WORLDS; seed++) {
        assert.isBelow(seed, TRIES * WORLDS, `worlds with an occasion: ${bitten}`)
        const world = makeWorld(seed, bug)
        if (!world.bitten) continue
        bitten++
        const verdict = check(world.history, world.final, MODEL_OPTIONS)
        // What is lost of a send that nobody answered leaves it half there.
        const found = (verdict.found[BUGS[bug]] ?? 0) + (BUGS[bug] === "lost" ? verdict.found.half ?? 0 : 0)
        assert.isAbove(found, 0, `seed ${seed}: ${told(verdict).slice(0, 5).join("\n")}`)
      }
    })
  }
})
