import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"

const ROOT = resolve(import.meta.dirname, "../..")

/** Empty if HAProxy is installed; else the note that skipped tests append to their names. */
export const missingHaproxy = spawnSync("haproxy", ["-v"]).status === 0
  ? ""
  : " (haproxy not found: apt-get install haproxy)"

export interface HaproxyOptions {
  readonly port: number
  /** Host and port of each node, up to as many as the file has. */
  readonly nodes: ReadonlyArray<string>
  /** Host and port of the file store. */
  readonly files: string
  /** The folder of the sources whose file is used; this checkout by default. */
  readonly root?: string
}

/**
 * HAProxy with `deploy/haproxy.cfg`. Only its addresses are changed, and the lines of nodes that do not exist are left
 * out.
 */
export class Haproxy {
  readonly url: string
  readonly process: ChildProcess
  readonly #folder: string
  #log = ""

  private constructor(port: number, folder: string, file: string) {
    this.url = `http://127.0.0.1:${port}`
    this.#folder = folder
    this.process = spawn("haproxy", ["-db", "-f", file], { stdio: ["ignore", "pipe", "pipe"] })
    process.once("exit", () => this.process.kill("SIGKILL"))
    for (const stream of [this.process.stdout, this.process.stderr])
      stream?.setEncoding("utf8").on("data", (text: string) => (this.#log += text))
  }

  static async start({ files, nodes, port, root = ROOT }: HaproxyOptions): Promise<Haproxy> {
    const folder = await mkdtemp(join(tmpdir(), "parley-haproxy-"))
    let config = await readFile(join(root, "deploy/haproxy.cfg"), "utf8")
    const addresses: ReadonlyArray<readonly [string, string]> = [
      ["bind :3000", `bind 127.0.0.1:${port}`],
      ["127.0.0.1:8404", `127.0.0.1:${await freePort()}`],
      ["store:9000", files],
      ...nodes.map((node, i) => [`node-${i + 1}:3000`, node] as const)
    ]
    for (const [from, to] of addresses) {
      if (!config.includes(from)) throw new Error(`deploy/haproxy.cfg has no ${from}`)
      config = config.replaceAll(from, to)
    }
    config = config.split("\n").filter((line) => !/^ *server node-\d+ node-\d+:3000/.test(line)).join("\n")
    const file = join(folder, "haproxy.cfg")
    await writeFile(file, config)
    return new Haproxy(port, folder, file)
  }

  /** Everything it has written. */
  get log(): string {
    return this.#log
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill("SIGKILL")
      await once(this.process, "exit")
    }
    await rm(this.#folder, { recursive: true, force: true })
  }
}
