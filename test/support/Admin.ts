import { Environment } from "#infrastructure/platform/UnknownSettings"
import { Console, Effect } from "effect"
import { format } from "node:util"
import { run, type Shown } from "../../runners/CommandLine.ts"
import { within } from "./Eventually.ts"
import { type ProgramResult, runParley } from "./RunParley.ts"

/** Runs an operator's command in a process of its own, as `npm run admin -- …` does. */
export const admin = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<ProgramResult> =>
  runParley(["admin", ...args], env)

/** Runs the command in this process, which saves most of a second; returns its output and exit code. */
export const adminHere = (
  env: Readonly<Record<string, string>>,
  ...args: ReadonlyArray<string>
): Promise<ProgramResult> => parleyHere(env, ["admin", ...args])

/** Runs `parley` with these arguments in this process; its help is 80 columns wide, unless `shown` says otherwise. */
export const parleyHere = (
  env: Readonly<Record<string, string>>,
  args: ReadonlyArray<string>,
  shown: Partial<Shown> = {}
): Promise<ProgramResult> => {
  let stdout = ""
  let stderr = ""
  const written: Console.Console = Object.assign(Object.create(console), {
    log: (...parts: ReadonlyArray<unknown>) => stdout += `${format(...parts)}\n`,
    error: (...parts: ReadonlyArray<unknown>) => stderr += `${format(...parts)}\n`
  })
  const program = run(args, { width: 80, ...shown }).pipe(
    Effect.provideService(Environment, { PARLEY_CONFIG: "/dev/null", ...env }),
    Effect.provideService(Console.Console, written),
    Effect.map((code): ProgramResult => ({ code, stdout, stderr }))
  )
  return within(`parley ${args.join(" ")}`, Effect.runPromise(program))
}
