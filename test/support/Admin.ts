import { ConfigProvider, Console, Effect } from "effect"
import { spawn } from "node:child_process"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { format } from "node:util"
import { adminProgram } from "../../runners/AdminProgram.ts"
import { within } from "./Eventually.ts"
import { SHORT_LIVED } from "./Server.ts"

const ROOT = fileURLToPath(new URL("../..", import.meta.url))

export interface AdminResult {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** An operator's command in a process of its own, as `npm run admin -- …` gives it. */
export const admin = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<AdminResult> =>
  within(
    `admin ${args.join(" ")}`,
    new Promise((resolve, reject) => {
      const child = spawn(
        join(ROOT, "node_modules/.bin/node"),
        [...SHORT_LIVED, "--import", "./runners/require-node.js", "runners/admin.ts", ...args],
        {
          cwd: ROOT,
          env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env },
          stdio: ["ignore", "pipe", "pipe"]
        }
      )
      let stdout = ""
      let stderr = ""
      child.stdout.setEncoding("utf8").on("data", (text: string) => stdout += text)
      child.stderr.setEncoding("utf8").on("data", (text: string) => stderr += text)
      child.once("error", reject)
      child.once("close", (code) => resolve({ code, stdout, stderr }))
    }),
    30_000
  )

/** The same command without a process of its own, which takes most of a second: what it writes, and how it ends. */
export const adminHere = (env: Readonly<Record<string, string>>, ...args: ReadonlyArray<string>): Promise<AdminResult> => {
  let stdout = ""
  let stderr = ""
  const written: Console.Console = Object.assign(Object.create(console), {
    log: (...parts: ReadonlyArray<unknown>) => stdout += `${format(...parts)}\n`,
    error: (...parts: ReadonlyArray<unknown>) => stderr += `${format(...parts)}\n`
  })
  const program = adminProgram(args).pipe(
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env })),
    Effect.provideService(Console.Console, written),
    Effect.map((done): AdminResult => ({ code: done ? 0 : 1, stdout, stderr }))
  )
  return within(`admin ${args.join(" ")}`, Effect.runPromise(program), 30_000)
}
