import { spawn } from "node:child_process"
import { once } from "node:events"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { LONGEST_WAIT_MS, within } from "./Eventually.ts"
import { PROGRAM, programEnv, SHORT_LIVED } from "./Server.ts"
import { keepLog } from "./ServerLogs.ts"

const ROOT = fileURLToPath(new URL("../..", import.meta.url))

export interface ProgramResult {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/**
 * Runs `parley` in a process of its own until it ends. The process gets only PATH and HOME from this process's
 * environment.
 */
export const runParley = async (
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>,
  { cwd = ROOT, timeoutMs = LONGEST_WAIT_MS }: { readonly cwd?: string; readonly timeoutMs?: number } = {}
): Promise<ProgramResult> => {
  const child = spawn(join(ROOT, "node_modules/.bin/node"), [...SHORT_LIVED, PROGRAM, ...args], {
    cwd,
    env: { ...programEnv(), ...env },
    stdio: ["ignore", "pipe", "pipe"]
  })
  let stdout = ""
  let stderr = ""
  const command = ["parley", ...args].join(" ")
  const log = keepLog(command)
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text
    log.add(text)
  })
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text
    log.add(text)
  })
  child.on("close", (code, signal) => log.end(code ?? signal ?? -1))
  const [code] = await within(`the end of ${command}`, once(child, "close"), timeoutMs).finally(() =>
    child.kill("SIGKILL")
  )
  return { code: code as number | null, stdout, stderr }
}
