import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { mutants } from "./line/Mutants.ts"
import { searchLines } from "./line/Search.ts"

/** A fixed seed, so that a mutant is found every time. */
const SEARCH_SEED = 2_000_000
const SEARCH_RUNS = 150

for (const [name, mutant] of Object.entries(mutants)) {
  it.live(`a search of ${SEARCH_RUNS} runs finds it if ${name}`, () =>
    Effect.map(searchLines({ mutant, runs: SEARCH_RUNS, seed: SEARCH_SEED, shrinks: 0 }), ({ found }) => {
      assert.match(found ?? "nothing", /^Rule broken/)
    }))
}
