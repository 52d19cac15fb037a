import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { eventually } from "./Eventually.ts"

export const DEPLOY = resolve(import.meta.dirname, "../../deploy")

/** Empty if Prometheus is installed; else the note that skipped tests append to their names. */
export const missingPrometheus = ["prometheus", "promtool"].every((name) => spawnSync(name, ["--version"]).status === 0)
  ? ""
  : " (prometheus not found: apt-get install prometheus)"

export const promtool = (
  ...args: ReadonlyArray<string>
): { readonly status: number | null; readonly output: string } => {
  const { status, stderr, stdout } = spawnSync("promtool", args, { encoding: "utf8" })
  return { status, output: `${stdout}${stderr}` }
}

/** A value of a query's result; NaN for a division of 0 by 0. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>
  readonly value: number
}

/**
 * Prometheus with the configuration in `deploy/prometheus`, of which only the addresses and the interval are changed.
 */
export class Prometheus {
  readonly url: string
  readonly process: ChildProcess
  private readonly folder: string
  private log = ""

  private constructor(port: number, folder: string) {
    this.url = `http://127.0.0.1:${port}`
    this.folder = folder
    this.process = spawn("prometheus", [
      `--config.file=${join(folder, "prometheus.yml")}`,
      `--storage.tsdb.path=${join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`
    ], { stdio: ["ignore", "pipe", "pipe"] })
    process.once("exit", () => this.process.kill("SIGKILL"))
    for (const stream of [this.process.stdout, this.process.stderr])
      stream?.setEncoding("utf8").on("data", (text: string) => (this.log += text))
  }

  /** Scrapes these hosts and ports every second. */
  static async start(targets: readonly [string, string]): Promise<Prometheus> {
    const folder = await mkdtemp(join(tmpdir(), "parley-prometheus-"))
    await cp(join(DEPLOY, "prometheus"), folder, { recursive: true })
    const example = await readFile(join(folder, "prometheus.yml"), "utf8")
    const config = example
      .replaceAll("_interval: 15s", "_interval: 1s")
      .replace("- 127.0.0.1:3000", targets.map((target) => `- ${target}`).join("\n          "))
    for (const target of targets)
      if (!config.includes(target)) throw new Error(`no place for ${target} in prometheus.yml`)
    await writeFile(join(folder, "prometheus.yml"), config)
    const made = new Prometheus(await freePort(), folder)
    await eventually(
      "a ready Prometheus",
      () => fetch(`${made.url}/-/ready`).then(({ ok }) => ok || undefined, () => undefined)
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${made.log}`)
    })
    return made
  }

  private async get(path: string): Promise<unknown> {
    const answer = await fetch(this.url + path)
    const body = await answer.json() as { readonly status: string; readonly data: unknown; readonly error?: string }
    if (body.status !== "success") throw new Error(`${path}: ${body.error}`)
    return body.data
  }

  /** Runs a query. Fails if the query is not valid. */
  async query(text: string): Promise<ReadonlyArray<Sample>> {
    const { result } = await this.get(`/api/v1/query?query=${encodeURIComponent(text)}`) as {
      readonly result: ReadonlyArray<
        { readonly metric: Record<string, string>; readonly value: readonly [number, string] }
      >
    }
    return result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }))
  }

  /** The rules that it has loaded. */
  async rules(): Promise<
    ReadonlyArray<{ readonly name: string; readonly query: string; readonly health: string; readonly state: string }>
  > {
    const { groups } = await this.get("/api/v1/rules") as {
      readonly groups: ReadonlyArray<
        { readonly rules: ReadonlyArray<{ name: string; query: string; health: string; state: string }> }
      >
    }
    return groups.flatMap(({ rules }) => rules)
  }

  async stop(): Promise<void> {
    const gone = once(this.process, "exit")
    this.process.kill("SIGKILL")
    await gone
    await rm(this.folder, { recursive: true, force: true })
  }
}
