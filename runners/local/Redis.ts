import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { createConnection } from "node:net"
import { setTimeout as pause } from "node:timers/promises"
import { freePort } from "./FreePort.ts"

/** Empty if redis-server is installed, else the note that skipped tests append to their names. */
export const missingRedis = spawnSync("redis-server", ["--version"]).status === 0
  ? ""
  : " (redis-server not found: apt-get install redis-server)"

/** A Redis server on a free port of 127.0.0.1, without persistence. */
export class RedisServer {
  readonly port: number
  private process: ChildProcess | undefined

  private readonly apart: boolean

  private constructor(port: number, apart: boolean) {
    this.port = port
    this.apart = apart
  }

  /** With `apart` the server runs detached, so that Ctrl-C in the terminal does not reach it. */
  static async start({ apart = false }: { readonly apart?: boolean } = {}): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), apart)
    await server.launch()
    return server
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`
  }

  get pid(): number {
    return this.process?.pid ?? 0
  }

  /** Kills the server as a crash would. Its data are lost. */
  async kill(): Promise<void> {
    const child = this.process
    this.process = undefined
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    child.kill("SIGKILL")
    await once(child, "exit")
  }

  /** Starts the server, or starts it again on the same port without data. */
  async launch(): Promise<void> {
    await this.kill()
    const child = spawn(
      "redis-server",
      ["--port", String(this.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"],
      { stdio: "ignore", detached: this.apart }
    )
    this.process = child
    process.once("exit", () => child.kill("SIGKILL"))
    for (const deadline = Date.now() + 180_000; await this.answers() !== true;) {
      if (Date.now() > deadline) throw new Error("redis-server did not start")
      await pause(5)
    }
  }

  /** Pauses the server's process. Connections stay open. */
  pause(): void {
    this.process?.kill("SIGSTOP")
  }

  resume(): void {
    this.process?.kill("SIGCONT")
  }

  private answers(): Promise<true | undefined> {
    return new Promise((resolve) => {
      const socket = createConnection(this.port, "127.0.0.1")
      socket.on("error", () => resolve(undefined))
      socket.on("connect", () => socket.write("PING\r\n"))
      socket.on("data", () => {
        socket.destroy()
        resolve(true)
      })
    })
  }
}
