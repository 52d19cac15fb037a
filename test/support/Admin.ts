import { spawn } from "node:child_process"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { within } from "./Eventually.ts"

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
        ["--import", "./runners/require-node.js", "runners/admin.ts", ...args],
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
