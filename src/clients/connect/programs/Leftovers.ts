import { execFile } from "node:child_process"
import { readdir, readFile } from "node:fs/promises"
import { promisify } from "node:util"

/** The environment variable that marks every process of a run, even a process that has left the run's process group. */
export const MARK = "PARLEY_CONNECT_RUN"

const execute = promisify(execFile)

const fromProc = async (entry: string): Promise<ReadonlyArray<number>> => {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(pids.map(async (pid) => {
    const environment = await readFile(`/proc/${pid}/environ`, "latin1").catch(() => "")
    return environment.split("\0").includes(entry) ? [Number(pid)] : []
  }))
  return found.flat()
}

const fromPs = async (entry: string): Promise<ReadonlyArray<number>> => {
  const { stdout } = await execute("ps", ["-Eww", "-x", "-o", "pid=,command="], { maxBuffer: 67_108_864 })
  return stdout.split("\n").flatMap((line) => line.split(" ").includes(entry) ? [Number.parseInt(line, 10)] : [])
}

/**
 * Ends the remaining processes of a run with SIGKILL. Finds them by the variable in their environment. So a process is
 * found even if the connector crashed before it could store a process id. A process of another program is not ended if
 * it reuses a process id.
 */
export const endLeftovers = async (run: string): Promise<void> => {
  const entry = `${MARK}=${run}`
  const pids = await (process.platform === "linux" ? fromProc(entry) : fromPs(entry)).catch(() => [])
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL")
    } catch {
      // The process has already ended.
    }
  }
}
