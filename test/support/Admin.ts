import { ConfigProvider, Console, Effect } from "effect"
import { format } from "node:util"
import { adminProgram } from "../../runners/AdminProgram.ts"
import { Environment } from "../../src/platform/Misspelt.ts"
import { within } from "./Eventually.ts"
import { runScript, type ScriptResult } from "./RunScript.ts"

/** An operator's command in a process of its own, as `npm run admin -- …` gives it. */
export const admin = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<ScriptResult> =>
  runScript("runners/admin.ts", args, env)

/** The same command without a process of its own, which takes most of a second: what it writes, and how it ends. */
export const adminHere = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<ScriptResult> => {
  let stdout = ""
  let stderr = ""
  const written: Console.Console = Object.assign(Object.create(console), {
    log: (...parts: ReadonlyArray<unknown>) => stdout += `${format(...parts)}\n`,
    error: (...parts: ReadonlyArray<unknown>) => stderr += `${format(...parts)}\n`
  })
  const program = adminProgram(args).pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })),
    Effect.provideService(Environment, env),
    Effect.provideService(Console.Console, written),
    Effect.map((done): ScriptResult => ({ code: done ? 0 : 1, stdout, stderr }))
  )
  return within(`admin ${args.join(" ")}`, Effect.runPromise(program))
}
