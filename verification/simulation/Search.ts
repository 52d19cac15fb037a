import { Cause, Effect, Exit } from "effect"
import { type Command, commandsOf, commandsWithTasks, inWords } from "./Commands.ts"
import { RULES, Violation } from "./Violation.ts"

const setting = (name: string, fallback: number): number => Number(process.env[name] ?? fallback)

/** The number of runs. Run n has the seed SEED + n and at least COMMANDS commands. */
export const RUNS = setting("SIMULATION_RUNS", 40)
export const COMMANDS = setting("SIMULATION_COMMANDS", 50)
export const SEED = setting("SIMULATION_SEED", Date.now() % 1_000_000_000)
/** The least duration of a search in seconds. After the given number of runs, it continues with further seeds. */
export const SECONDS = setting("SEARCH_SECONDS", 0)
/** The time-out of such a search. */
export const TIMEOUT_MS = 1_200_000 + SECONDS * 1_000

/** Called before each command with its index, and with the number of commands before the comparison at the end. */
export type Reaches = (index: number) => void

/** How often each command and each transition was run. */
export interface Coverage {
  readonly commands: Map<string, number>
  readonly transitions: Map<string, number>
}

export type Run<C, R> = (commands: ReadonlyArray<C>, reaches?: Reaches) => Effect.Effect<void, unknown, R>

/** A run that failed: its commands, how far it came, and why. */
interface Failure<C> {
  readonly commands: ReadonlyArray<C>
  readonly reached: number
  readonly cause: Cause.Cause<unknown>
}

const attempt = <C, R>(run: Run<C, R>, commands: ReadonlyArray<C>): Effect.Effect<Failure<C> | undefined, never, R> =>
  Effect.suspend(() => {
    let reached = 0
    return Effect.map(
      Effect.exit(run(commands, (index) => {
        reached = index
      })),
      (exit) => Exit.isSuccess(exit) ? undefined : { commands, reached, cause: exit.cause }
    )
  })

/** Removes commands that the failure does not need, in smaller and smaller pieces. */
const shrink = Effect.fnUntraced(function*<C, R>(run: Run<C, R>, failing: Failure<C>, shrinks: number) {
  let shortest = failing
  let left = shrinks
  for (let size = failing.commands.length >> 1; size >= 1 && left > 0;) {
    let removed = false
    for (let from = 0; from < shortest.commands.length && left > 0;) {
      left--
      const shorter = yield* attempt(run, [
        ...shortest.commands.slice(0, from),
        ...shortest.commands.slice(from + size)
      ])
      if (shorter !== undefined) {
        shortest = shorter
        removed = true
      } else from += size
    }
    if (size > 1) size >>= 1
    else if (!removed) break
  }
  return shortest
})

/** The number of characters of the observed value in the summary. The stack has the whole value. */
const SEEN = 300

/** A report: which command broke which rule, how to run it again, the history, and the stack. */
const reportOf = <C>(
  { cause, commands, reached }: Failure<C>,
  describe: (command: C) => string,
  again: string
): string => {
  const violation =
    cause.reasons.flatMap((reason) =>
      reason._tag === "Die" && reason.defect instanceof Violation ? [reason.defect] : []
    )[0]
  const errors = Cause.prettyErrors(cause)
  const seen = violation?.message ?? errors[0]?.message ?? "the run was interrupted"
  const command = commands[reached]
  return [
    violation === undefined ? "No rule was compared: the run itself failed." : `Rule broken: ${RULES[violation.rule]}`,
    command === undefined
      ? `Found by the comparison at the end, after ${commands.length} commands.`
      : `By command ${reached + 1} of ${commands.length}: ${describe(command)}.`,
    `Seen: ${seen.length > SEEN ? `${seen.slice(0, SEEN)} …` : seen}`,
    again,
    "The history, as short as it was found to fail:",
    ...commands.map((each, i) => `  ${i + 1}. ${JSON.stringify(each)}`),
    ...errors.map((error) => error.stack ?? error.message)
  ].join("\n")
}

/** Runs lists of commands from successive seeds until one fails. Returns a report on that list after shortening it. */
export const searchAmong = Effect.fnUntraced(function*<C, R>(options: {
  readonly run: Run<C, R>
  readonly commandsOf: (seed: number) => ReadonlyArray<C>
  readonly inWords?: (command: C) => string
  /** The least number of runs. Further ones follow until `seconds` have passed. */
  readonly runs: number
  readonly seconds?: number
  readonly seed: number
  /** The number of attempts to shorten the list. */
  readonly shrinks: number
  /** The command that runs one seed again. */
  readonly again: (seed: number) => string
}) {
  const { again, inWords: describe = JSON.stringify, run, runs, seconds = 0, seed, shrinks } = options
  const until = performance.now() + seconds * 1_000
  for (let i = 0; i < runs || performance.now() < until; i++) {
    const failure = yield* attempt(run, options.commandsOf(seed + i))
    if (failure === undefined) continue
    return reportOf(
      yield* shrink(run, failure, shrinks),
      describe,
      `Run ${i + 1} failed; it runs again with ${again(seed + i)}`
    )
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
    inWords,
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
