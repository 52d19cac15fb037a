import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { dirname, join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"

/** A program from npm, in the one version that is used. */
export interface Program {
  readonly package: string
  readonly version: string
  readonly program: string
  /** False if the program has no `--version`. */
  readonly printsVersion?: boolean
}

/** Not in the project's own packages: `npm ci` stays quick, and removes this folder. */
const CACHE = resolve(import.meta.dirname, "../../node_modules/.cache/parley-hosts")
const SECOND = 1_000
const MINUTES_5 = 300_000

export interface Ended {
  /** Null if a signal ended it. */
  readonly code: number | null
  readonly output: string
  readonly timedOut: boolean
}

/** PATH for hosts: their own folder, the Node that runs this programme, and what else there is. */
export const pathWith = (folder: string): string =>
  [join(folder, "node_modules/.bin"), dirname(process.execPath), process.env["PATH"]].join(":")

/** Runs a program, and ends it with all that it started when `limitMs` are over. */
export const run = async (
  program: string,
  args: ReadonlyArray<string>,
  options: {
    readonly cwd: string
    readonly env: Readonly<Record<string, string | undefined>>
    readonly limitMs: number
    /** Called with each part of the output. */
    readonly heard?: (text: string) => void
  }
): Promise<Ended> => {
  const { cwd, env, heard, limitMs } = options
  const child = spawn(program, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] })
  let output = ""
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text
      heard?.(text)
    })
  }
  const killAll = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL")
    } catch {
      // Nothing of it is left.
    }
  }
  let timedOut = false
  const limit = setTimeout(() => {
    timedOut = true
    killAll()
  }, limitMs)
  process.once("exit", killAll)
  const closed = once(child, "close").catch(() => undefined)
  const code = await once(child, "exit").then(([code]: Array<unknown>) => code as number | null, (error: unknown) => {
    output += String(error)
    return null
  })
  clearTimeout(limit)
  process.off("exit", killAll)
  // What a host leaves behind may hold its output open, even from outside of its process group.
  killAll()
  await Promise.race([closed, pause(SECOND)])
  return { code, output, timedOut }
}

/** The version of the program in this folder; `undefined` if the program is not there. */
const installed = async ({ package: name }: Program, folder: string): Promise<string | undefined> => {
  const manifest = await readFile(join(folder, "node_modules", name, "package.json"), "utf8").catch(() => "{}")
  return (JSON.parse(manifest) as { readonly version?: string }).version
}

/** Whether the program in this folder runs on this machine; else why not. */
const tried = async (program: Program, folder: string): Promise<string> => {
  if (await installed(program, folder) !== program.version) return "npm did not install it"
  if (program.printsVersion === false) return ""
  const home = join(folder, "home")
  await mkdir(home, { recursive: true })
  const { code, output } = await run(program.program, ["--version"], {
    cwd: folder,
    env: { HOME: home, PATH: pathWith(folder) },
    limitMs: MINUTES_5
  })
  return code === 0 && output.includes(program.version)
    ? ""
    : `\`${program.program} --version\` failed: ${output.trim().slice(-300)}`
}

/**
 * Fetches a program with npm unless it is there, and removes its other versions. Returns its folder, or why it cannot
 * run on this machine.
 */
export const install = async (program: Program): Promise<{ readonly folder: string; readonly missing: string }> => {
  const folder = join(CACHE, `${program.program}-${program.version}`)
  if (await tried(program, folder) === "") return { folder, missing: "" }
  for (const other of await readdir(CACHE).catch(() => [])) {
    if (other.startsWith(`${program.program}-`)) await rm(join(CACHE, other), { recursive: true, force: true })
  }
  await mkdir(folder, { recursive: true })
  const manifest = {
    private: true,
    dependencies: { [program.package]: program.version },
    allowScripts: { [program.package]: true }
  }
  await writeFile(join(folder, "package.json"), JSON.stringify(manifest))
  const args = ["install", "--no-audit", "--no-fund", "--fetch-retries=1"]
  const { code, output, timedOut } = await run("npm", args, {
    cwd: folder,
    env: { ...process.env, PATH: pathWith(folder) },
    limitMs: MINUTES_5
  })
  const said = (/npm error [^]*/.exec(output)?.[0] ?? output).slice(0, 200)
  if (code !== 0)
    return { folder, missing: `npm ${timedOut ? "took too long to fetch it" : "could not fetch it"}: ${said}` }
  return { folder, missing: await tried(program, folder) }
}
