import { Effect } from "effect"
import { searchAmong, SEED } from "../Search.ts"
import { inWords, lineCommandsOf } from "./Commands.ts"
import { type Coverage, makeRun, type Mutant } from "./World.ts"

/** The number of runs, each of at least COMMANDS commands. */
export const LINE_RUNS = Number(process.env["LINE_RUNS"] ?? 40)
const COMMANDS = 30

/** Searches for a list of commands that breaks a rule. */
export const searchLines = Effect.fnUntraced(
  function*({ mutant, runs: least = LINE_RUNS, seconds = 0, seed = SEED, shrinks = 300 }: {
    readonly mutant?: Mutant
    readonly runs?: number
    readonly seconds?: number
    readonly seed?: number
    readonly shrinks?: number
  } = {}) {
    const coverage: Coverage = new Map()
    const run = makeRun(coverage, mutant)
    let runs = 0
    const found = yield* searchAmong({
      run: (commands, reaches) => Effect.suspend(() => (runs++, run(commands, reaches))),
      commandsOf: (each) => lineCommandsOf(each, COMMANDS),
      inWords,
      runs: least,
      seconds,
      seed,
      shrinks,
      again: (each) => `SIMULATION_SEED=${each} LINE_RUNS=1`
    })
    return { coverage, found, runs }
  }
)
