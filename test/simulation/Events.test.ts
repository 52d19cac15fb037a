import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { layerPgliteTest } from "../support/Databases.ts"
import { searchAmong } from "../../verification/simulation/Search.ts"
import { eventStepsOf, layerEvents, makeEventsWorld } from "../../verification/simulation/rules/EventsWorld.ts"
import { RUNS, SEED, TIMEOUT_MS } from "../../verification/simulation/rules/Runs.ts"

layer(layerEvents(layerPgliteTest))((it) => {
  it.effect(`in ${RUNS} histories, a webhook of MCP Events gets exactly what waits and is unmuted, in order`, () =>
    Effect.gen(function*() {
      const found = yield* searchAmong({
        run: yield* makeEventsWorld(),
        commandsOf: (seed) => eventStepsOf(seed, 60),
        runs: RUNS,
        seed: SEED,
        shrinks: 200,
        again: (seed) => `SEED=${seed} RUNS=1`
      })
      if (found !== undefined) assert.fail(found)
    }), TIMEOUT_MS)
})
