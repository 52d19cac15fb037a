import { ConfigProvider, Console, Effect } from "effect"
import { format } from "node:util"
import { run } from "../../runners/CommandLine.ts"
import type { Typed } from "../../runners/Typed.ts"
import { Environment } from "#ground/platform/Misspelt"
import { within } from "./Eventually.ts"
import { type ProgramResult, runParley } from "./RunParley.ts"

/** Runs an operator's command in a process of its own, as `npm run admin -- …` does. */
export const admin = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<ProgramResult> =>
  runParley(["admin", ...args], env)

/** Runs the command in this process, which saves most of a second; returns its output and exit code. */
export const adminHere = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<ProgramResult> =>
  parleyHere(env, ["admin", ...args])

/** Runs `parley` with these arguments in this process; its help shows commands as `typed` writes them. */
export const parleyHere = (
  env: Readonly<Record<string, string>>,
  args: ReadonlyArray<string>,
  typed?: Typed
): Promise<ProgramResult> => {
  let stdout = ""
  let stderr = ""
  const written: Console.Console = Object.assign(Object.create(console), {
    log: (...parts: ReadonlyArray<unknown>) => stdout += `${format(...parts)}\n`,
    error: (...parts: ReadonlyArray<unknown>) => stderr += `${format(...parts)}\n`
  })
  const program = run(args, typed).pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })),
    Effect.provideService(Environment, env),
    Effect.provideService(Console.Console, written),
    Effect.map((done): ProgramResult => ({ code: done ? 0 : 1, stdout, stderr }))
  )
  return within(`parley ${args.join(" ")}`, Effect.runPromise(program))
}
