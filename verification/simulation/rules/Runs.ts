import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { type Run, searchAmong, SECONDS, TIMEOUT_MS } from "../Search.ts"
import { Ledger, type Machine } from "./Ledger.ts"

/** The number of histories. History n has the seed SEED + n. */
export const RUNS = Number(process.env["RUNS"] ?? 12)
export const SEED = Number(process.env["SEED"] ?? Date.now() % 1_000_000_000)
/** The least number of times that 500 histories must go through each transition. */
const LEAST = 50

export { TIMEOUT_MS }

/**
 * Runs histories until one fails, and prints what all of them went through; `part` of the time that a long search has.
 */
export const inHistories = <C, R, R2>(
  machines: ReadonlyArray<Machine>,
  commandsOf: (seed: number) => ReadonlyArray<C>,
  inWords: (command: C) => string,
  makeWorld: (ledger: Ledger) => Effect.Effect<Run<C, R>, never, R2>,
  part = 1
): Effect.Effect<void, never, R | R2> =>
  Effect.gen(function*() {
    const ledger = new Ledger()
    const run = yield* makeWorld(ledger)
    let histories = 0
    const found = yield* searchAmong({
      run: (commands, reaches) => Effect.suspend(() => (histories++, run(commands, reaches))),
      commandsOf,
      inWords,
      runs: RUNS,
      seconds: part * SECONDS,
      seed: SEED,
      shrinks: 200,
      again: (seed) => `SEED=${seed} RUNS=1`
    })
    console.log(`${histories} histories, seed ${SEED}\n${ledger.table(machines)}`)
    if (found !== undefined) assert.fail(found)
    if (RUNS >= 500) assert.deepStrictEqual(ledger.rarer(machines, LEAST), [])
  })
