import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { PROGRAM, programEnv, type Server, SHORT_LIVED, type TestAgent } from "../support/Server.ts"
import type { Machine } from "./Connectors.ts"

const NODE = fileURLToPath(new URL("../../node_modules/.bin/node", import.meta.url))

/** The variables that say where connect.json and the journal of a machine are. */
export const placesOf = (machine: Machine) => ({
  XDG_CONFIG_HOME: join(machine.root, "config"),
  XDG_STATE_HOME: join(machine.root, "state")
})
export const fileOf = (machine: Machine): string => join(machine.root, "config", "parley", "connect.json")

/** Writes connect.json for one agent, whose command resumes sessions unless `more` says otherwise. */
export const configure = (server: Server, machine: Machine, agent: TestAgent, more: object = {}): void => {
  mkdirSync(join(machine.root, "config", "parley"), { recursive: true })
  const command = { new: [machine.program, "new"], resume: [machine.program, "{session}"], text: "json" }
  const settings = {
    key: agent.key,
    agent: "command",
    command,
    allow: "all",
    settleMs: 0,
    retrySeconds: [0, 0],
    ...more
  }
  writeFileSync(fileOf(machine), JSON.stringify({ server: server.url, agents: { [agent.handle]: settings } }), {
    mode: 0o600
  })
}

export interface Started {
  readonly child: ChildProcess
  readonly output: () => string
  readonly ended: Promise<readonly [code: number | null, signal: NodeJS.Signals | null]>
}

/** Starts `parley connect` in a process of its own, with the settings that `configure` wrote. */
export const connect = (
  machine: Machine,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
): Started => {
  const child = spawn(NODE, [...SHORT_LIVED, PROGRAM, "connect", ...args], {
    env: { ...programEnv(), ...placesOf(machine), ...env },
    stdio: ["ignore", "pipe", "pipe"]
  })
  let output = ""
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => (output += text))
  const kill = (): void => void child.kill("SIGKILL")
  process.once("exit", kill)
  child.once("close", () => process.off("exit", kill))
  return { child, output: () => output, ended: once(child, "close") as Promise<[number | null, NodeJS.Signals | null]> }
}
