import { Cause, Effect, Exit } from "effect"
import { commandsOf, commandsWithTasks, type Command } from "./Commands.ts"
import type { Coverage } from "./World.ts"

const setting = (name: string, fallback: number): number => Number(process.env[name] ?? fallback)

/** How many runs, of how many commands at least, beginning with which seed: run n has seed SEED + n. */
export const RUNS = setting("SIMULATION_RUNS", 60)
export const COMMANDS = setting("SIMULATION_COMMANDS", 50)
export const SEED = setting("SIMULATION_SEED", Date.now() % 1_000_000_000)
/** How many seconds a search goes on at least, with further seeds after the given number of runs. */
export const SECONDS = setting("SEARCH_SECONDS", 0)
/** Time for a search of these. */
export const TIMEOUT_MS = 1_200_000 + SECONDS * 1_000

type Run<C, R> = (commands: ReadonlyArray<C>) => Effect.Effect<void, unknown, R>

const problemOf = (exit: Exit.Exit<void, unknown>): string | undefined =>
  Exit.isSuccess(exit) ? undefined : Cause.prettyErrors(exit.cause).map((error) => error.stack ?? error.message).join("\n")

/** Takes out what the failure does not need, in ever smaller pieces. */
const shrink = Effect.fnUntraced(function*<C, R>(run: Run<C, R>, failing: ReadonlyArray<C>, shrinks: number) {
  let commands = failing
  let left = shrinks
  for (let size = commands.length >> 1; size >= 1 && left > 0;) {
    let removed = false
    for (let from = 0; from < commands.length && left > 0;) {
      const shorter = [...commands.slice(0, from), ...commands.slice(from + size)]
      left--
      if (Exit.isFailure(yield* Effect.exit(run(shorter)))) {
        commands = shorter
        removed = true
      } else from += size
    }
    if (size > 1) size >>= 1
    else if (!removed) break
  }
  return commands
})

/** Runs lists made from successive seeds until one fails; what failed, as short as it gets, with the seed that finds it again. */
export const searchAmong = Effect.fnUntraced(function*<C, R>(options: {
  readonly run: Run<C, R>
  readonly commandsOf: (seed: number) => ReadonlyArray<C>
  /** So many at least, and further ones until so many seconds have passed. */
  readonly runs: number
  readonly seconds?: number
  readonly seed: number
  /** How often a shorter list is tried. */
  readonly shrinks: number
  /** How to run one seed again. */
  readonly again: (seed: number) => string
}) {
  const { again, run, runs, seconds = 0, seed, shrinks } = options
  const until = performance.now() + seconds * 1_000
  for (let i = 0; i < runs || performance.now() < until; i++) {
    const commands = options.commandsOf(seed + i)
    const exit = yield* Effect.exit(run(commands))
    if (Exit.isSuccess(exit)) continue
    const shortest = yield* shrink(run, commands, shrinks)
    const last = problemOf(yield* Effect.exit(run(shortest))) ?? problemOf(exit)
    return [
      `run ${i + 1} failed; again with ${again(seed + i)}`,
      ...shortest.map((command) => `  ${JSON.stringify(command)}`),
      last
    ].join("\n")
  }
  return undefined
})

/** Every second seed makes a history with tasks. */
export const halfWithTasks = (seed: number, length: number): ReadonlyArray<Command> =>
  seed % 2 === 0 ? commandsOf(seed, length) : commandsWithTasks(seed, length)

export const search = <R>(
  run: Run<Command, R>,
  runs: number,
  seed: number,
  { commands = commandsOf, seconds = 0, shrinks = 300 }: {
    readonly commands?: typeof commandsOf
    readonly seconds?: number
    readonly shrinks?: number
  } = {}
) =>
  searchAmong({
    run,
    runs,
    seconds,
    seed,
    shrinks,
    commandsOf: (each) => commands(each, COMMANDS),
    again: (each) => `SIMULATION_SEED=${each} SIMULATION_RUNS=1`
  })

/** How often each command and each transition ran. */
export const covered = ({ commands, transitions }: Coverage): string => {
  const rows = (title: string, counts: Map<string, number>) => [
    `${title} (${[...counts.values()].reduce((sum, n) => sum + n, 0)})`,
    ...[...counts].sort(([, a], [, b]) => b - a).map(([name, n]) => `${String(n).padStart(8)}  ${name}`)
  ]
  return [`seed ${SEED}`, ...rows("commands", commands), ...rows("transitions and answers", transitions)].join("\n")
}
