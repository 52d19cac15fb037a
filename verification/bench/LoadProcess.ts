import { type ChildProcess, fork } from "node:child_process"
import { join } from "node:path"
import { whenOver } from "./CleanUps.ts"
import type { Call, Commands, Reply } from "./Load.ts"

/** Starts the load's process and sends it commands. */
export class LoadProcess {
  private readonly child: ChildProcess
  private readonly failed: Promise<never>
  private onWindow: ((edge: "begin" | "end") => void) | undefined

  constructor() {
    this.child = fork(join(import.meta.dirname, "Load.ts"), { execArgv: [] })
    this.failed = new Promise((_, reject) =>
      this.child.once("exit", (code) => reject(new Error(`the load ended by itself with ${code}`)))
    )
    this.failed.catch(() => undefined)
    whenOver(() => this.end())
  }

  ask<K extends keyof Commands>(
    command: K,
    argument: Parameters<Commands[K]>[0] | undefined,
    onWindow?: (edge: "begin" | "end") => void
  ): ReturnType<Commands[K]> {
    this.onWindow = onWindow
    const answered = new Promise((resolve, reject) => {
      const listen = (reply: Reply) => {
        switch (reply.event) {
          case "begin":
          case "end":
            return this.onWindow?.(reply.event)
          case "failure":
            reject(new Error(reply.message))
            break
          case "result":
            resolve(reply.result)
        }
        this.child.off("message", listen)
      }
      this.child.on("message", listen)
      this.child.send({ command, argument: argument ?? {} } satisfies Call)
    })
    // The channel carries JSON. The types of both ends come from `Commands`.
    return Promise.race([answered, this.failed]) as ReturnType<Commands[K]>
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return
    const over = new Promise((resolve) => this.child.once("exit", resolve))
    this.child.kill("SIGKILL")
    await over
  }
}
