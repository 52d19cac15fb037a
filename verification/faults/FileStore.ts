import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { join, resolve } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { eventually } from "../../test/support/Eventually.ts"

const ROOT = resolve(import.meta.dirname, "../..")

export const BUCKET = "parley"

/** An S3 server (s3rver) with one bucket, in a process that can be killed and started again with its files. */
export class FileStore {
  readonly host: string
  readonly port: number
  private readonly folder: string
  private process: ChildProcess | undefined

  private constructor(folder: string, host: string, port: number) {
    this.folder = folder
    this.host = host
    this.port = port
  }

  static async start(folder: string, host: string): Promise<FileStore> {
    const store = new FileStore(folder, host, await freePort())
    await store.launch()
    return store
  }

  get url(): string {
    return `http://${this.host}:${this.port}`
  }

  async launch(): Promise<void> {
    const child = spawn(
      process.execPath,
      [
        join(ROOT, "node_modules/s3rver/bin/s3rver.js"),
        "--directory",
        this.folder,
        "--address",
        this.host,
        "--port",
        String(this.port),
        "--silent",
        "--configure-bucket",
        BUCKET
      ],
      { stdio: "ignore" }
    )
    this.process = child
    process.once("exit", () => child.kill("SIGKILL"))
    const alive = () => fetch(`${this.url}/`).then(() => true as const, () => undefined)
    await eventually("s3rver", alive, 20_000)
  }

  async kill(): Promise<void> {
    const child = this.process
    this.process = undefined
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    child.kill("SIGKILL")
    await once(child, "exit")
  }
}
