import { type ChildProcess, spawn } from "node:child_process"
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { keepLog } from "./ServerLogs.ts"

const ROOT = resolve(import.meta.dirname, "../..")

export interface ServerOptions {
  readonly dataDir: string
  /**
   * Parley's variables. The server also gets PATH, HOME and TMPDIR from this process's environment, and nothing else.
   */
  readonly env?: Readonly<Record<string, string>>
  /** The subcommand of `parley` to run; `start` by default. */
  readonly command?: "start" | "runner"
  /** The folder of the sources to run; this checkout by default. */
  readonly root?: string
  /** Node's own options, before the script. */
  readonly nodeOptions?: ReadonlyArray<string>
  /** Opens an IPC channel to the server's process. */
  readonly channel?: boolean
  /** The address on which it listens; 127.0.0.1 by default. */
  readonly host?: string
  /** Its port, for a server that is started again; a free one by default. */
  readonly port?: number
  /** A command that runs the command that follows it, such as in a container or namespace. */
  readonly through?: ReadonlyArray<string>
  /** How long it may take until it is ready, in milliseconds. */
  readonly timeoutMs?: number
}

/**
 * A server in a process of its own, as `npm start` or `npm run runner` runs it, for programs outside the default suite:
 * benches, the demonstration, tests that run for long.
 */
export interface ServerProcess {
  readonly url: string
  readonly host: string
  readonly port: number
  readonly pid: number
  readonly child: ChildProcess
  /** Everything it has written to standard output and standard error. */
  readonly output: () => string
  /** Completes when the process has ended, with its exit code, or null for a signal. */
  readonly ended: Promise<number | null>
  /** Sends SIGTERM and resolves with the exit code; sends SIGKILL if it has not ended after 15 s. */
  readonly stop: () => Promise<number | null>
  /** Sends SIGKILL and waits for the end. */
  readonly kill: () => Promise<void>
}

/** Node's options in the script that starts a server of these sources, so that it is measured as it is run. */
const optionsOf = (root: string): ReadonlyArray<string> => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly scripts: { readonly start: string }
  }
  return scripts.start.split(" ").filter((word) => word.startsWith("--"))
}

/** Starts the process and does not wait for it; its output goes to `DATA_DIR.log`. */
export const spawnServer = async (options: ServerOptions): Promise<ServerProcess> => {
  mkdirSync(options.dataDir, { recursive: true })
  const host = options.host ?? "127.0.0.1"
  const port = options.port ?? await freePort()
  const logFile = `${options.dataDir}.log`
  const log = openSync(logFile, "a")
  const inherited = Object.fromEntries(
    ["PATH", "HOME", "TMPDIR"].flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]]))
  )
  const subcommand = options.command ?? "start"
  const root = options.root ?? ROOT
  const [command = process.execPath, ...before] = [...options.through ?? [], process.execPath]
  const child = spawn(
    command,
    [
      ...before,
      ...optionsOf(root),
      ...options.nodeOptions ?? [],
      "--import",
      join(root, "runners/require-node.js"),
      join(root, "runners/parley.js"),
      subcommand
    ],
    {
      cwd: root,
      env: { ...inherited, HOST: host, PORT: String(port), DATA_DIR: options.dataDir, ...options.env },
      stdio: options.channel === true ? ["ignore", log, log, "ipc"] : ["ignore", log, log]
    }
  )
  closeSync(log)
  const orphaned = () => child.kill("SIGKILL")
  process.once("exit", orphaned)
  const kept = keepLog(
    `parley ${subcommand} (process ${child.pid})`,
    () => existsSync(logFile) ? readFileSync(logFile, "utf8") : ""
  )
  const ended = new Promise<number | null>((resolve) =>
    child.once("exit", (code, signal) => {
      process.off("exit", orphaned)
      kept.end(code ?? signal ?? -1)
      resolve(code)
    })
  )
  if (child.pid === undefined) throw new Error("the server's process could not be started")
  return {
    url: `http://${host}:${port}`,
    host,
    port,
    pid: child.pid,
    child,
    output: () => readFileSync(logFile, "utf8"),
    ended,
    stop: async () => {
      child.kill("SIGTERM")
      const late = setTimeout(() => child.kill("SIGKILL"), 15_000)
      const code = await ended
      clearTimeout(late)
      return code
    },
    kill: async () => {
      child.kill("SIGKILL")
      await ended
    }
  }
}

/** Waits until the server answers that it is ready; fails with its output if it ends first or takes too long. */
export const untilReady = async (server: ServerProcess, timeoutMs = 90_000): Promise<void> => {
  const deadline = Date.now() + timeoutMs
  let over = false
  void server.ended.then(() => (over = true))
  for (;;) {
    const ready = await fetch(`${server.url}/v1/ready`).then(
      async (response) => {
        await response.arrayBuffer()
        return response.status === 200
      },
      () => false
    )
    if (ready) return
    if (over) throw new Error(`the server ended before it was ready:\n${server.output().slice(-4000)}`)
    if (Date.now() > deadline) {
      await server.kill()
      throw new Error(`the server was not ready after ${timeoutMs} ms:\n${server.output().slice(-4000)}`)
    }
    await new Promise((resolve) => setTimeout(resolve, 25))
  }
}

/** Starts a server and waits until it is ready. */
export const startServer = async (options: ServerOptions): Promise<ServerProcess> => {
  const server = await spawnServer(options)
  await untilReady(server, options.timeoutMs)
  return server
}
