import { Context, Effect, Layer } from "effect"
import { spawn } from "node:child_process"
import { mkdir, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { type Adapter, argvOf, givenTools, TOOLS_TOKEN, TOOLS_URL } from "./Adapters.ts"
import { endLeftovers, MARK } from "./Leftovers.ts"
import type { Ended } from "./Outcome.ts"
import type { Tools } from "./ToolGate.ts"

/** A run to start. */
export interface RunRequest {
  readonly run: string
  readonly conversation: string
  readonly session: string | null
  readonly prompt: string
  /** Parley's tools, if the program sends messages itself. */
  readonly tools: Tools | null
}

/** The environment and the limits of the runs of one agent. */
export interface RunPlace {
  readonly adapter: Adapter
  /** The HOME of all runs of this agent. It contains the program's credentials and sessions. */
  readonly home: string
  /** The folder of the conversations' working directories. */
  readonly work: string
  readonly env: Readonly<Record<string, string>>
  readonly args: ReadonlyArray<string>
  readonly runSeconds: number
}

/** How many bytes a run may write to standard output. JSON formats are much longer than the text of the reply. */
const MAX_OUTPUT_BYTES = 16_777_216
/** How long a program may take to end after SIGTERM before it gets SIGKILL, in milliseconds. */
const TERM_MS = 10_000
/** How long the end of a run waits while processes outside of its group keep standard output open, in milliseconds. */
const CLOSE_MS = 1_000
const SECOND_MS = 1_000

/**
 * The environment of a run: PATH, LANG, the HOME of the runs, and the variables that the adapter and the settings name.
 */
export const environmentOf = (
  { adapter, env, home }: Pick<RunPlace, "adapter" | "env" | "home">,
  inherited: Readonly<Record<string, string | undefined>>
): Record<string, string> => {
  const passed = ["PATH", "LANG", ...adapter.passes].flatMap((name) => {
    const value = inherited[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return { ...Object.fromEntries(passed), ...adapter.sets, ...env, HOME: home }
}

/** Starts programs, and ends all processes that they have started. */
export class Runs extends Context.Service<Runs, {
  /** Runs a program until it ends. An interruption ends the program and its children first. */
  readonly run: (request: RunRequest) => Effect.Effect<Ended>
  /** Ends the remaining processes of a run after the connector has crashed. */
  readonly endLeftovers: (run: string) => Effect.Effect<void>
}>()("parley/connect/Runs") {
  static readonly layer = (place: RunPlace) =>
    Layer.succeed(Runs, {
      run: (request) =>
        Effect.gen(function*() {
          const { session, tools } = request
          const cwd = join(place.work, request.conversation)
          const adapter = givenTools(place.adapter, tools?.url ?? null)
          yield* Effect.promise(() => prepare(adapter, place.home, cwd))
          const env = {
            ...environmentOf({ ...place, adapter }, process.env),
            ...tools === null ? {} : { [TOOLS_URL]: tools.url, [TOOLS_TOKEN]: tools.token }
          }
          return yield* ending(request, argvOf(adapter, session, place.args), cwd, env, place.runSeconds)
        }),
      endLeftovers: (run) => Effect.promise(() => endLeftovers(run))
    })
}

const prepare = async (adapter: Adapter, home: string, cwd: string): Promise<void> => {
  for (const folder of [home, cwd]) await mkdir(folder, { recursive: true, mode: 0o700 })
  for (const [name, text] of Object.entries(adapter.files)) {
    await mkdir(dirname(join(home, name)), { recursive: true, mode: 0o700 })
    await writeFile(join(home, name), text, { mode: 0o600 })
  }
}

const ending = (
  { prompt, run }: RunRequest,
  [program = "", ...args]: ReadonlyArray<string>,
  cwd: string,
  env: Record<string, string>,
  runSeconds: number
): Effect.Effect<Ended> =>
  Effect.callback<Ended>((resume) => {
    const child = spawn(program, args, {
      cwd,
      env: { ...env, [MARK]: run },
      detached: true,
      stdio: ["pipe", "pipe", "ignore"]
    })
    const toGroup = (signal: NodeJS.Signals): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, signal)
      } catch {
        // The group has no processes any more.
      }
    }
    let forced: Ended | undefined
    let late: NodeJS.Timeout | undefined
    const end = (how: Ended | undefined): void => {
      forced ??= how
      toGroup("SIGTERM")
      late ??= setTimeout(() => toGroup("SIGKILL"), TERM_MS)
    }
    const limit = setTimeout(() => end({ _tag: "TimedOut" }), runSeconds * SECOND_MS)

    const parts: Array<Buffer> = []
    let size = 0
    child.stdout.on("data", (part: Buffer) => {
      size += part.length
      if (size <= MAX_OUTPUT_BYTES) parts.push(part)
      else end({ _tag: "TooMuchOutput" })
    })
    child.stdout.on("error", () => undefined)
    // Ignore the error if a program ends without reading its input.
    child.stdin.on("error", () => undefined)
    child.stdin.end(prompt)

    const closed = new Promise<void>((resolve) => child.once("close", () => resolve()))
    const over = new Promise<Ended>((resolve) => {
      child.once("error", (error) => resolve({ _tag: "NotStarted", reason: error.message }))
      child.once("exit", (code) => {
        clearTimeout(late)
        // Children in the group must not outlive the run.
        toGroup("SIGKILL")
        const gone = endLeftovers(run)
        let wait: NodeJS.Timeout | undefined
        const patience = new Promise<void>((resolve) => (wait = setTimeout(resolve, CLOSE_MS)))
        void gone.then(() => Promise.race([closed, patience])).then(() => {
          clearTimeout(wait)
          child.stdout.destroy()
          resolve(forced ?? { _tag: "Exited", code, stdout: Buffer.concat(parts).toString("utf8") })
        })
      })
    })
    void over.then((ended) => {
      clearTimeout(limit)
      resume(Effect.succeed(ended))
    })
    return Effect.promise(() => {
      end(undefined)
      return over
    })
  })
