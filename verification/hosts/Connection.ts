import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import type { RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import type { FakeModel } from "./FakeModel.ts"
import type { Host } from "./Hosts.ts"
import { pathWith } from "./Install.ts"

const ROOT = resolve(import.meta.dirname, "../..")
/** One run of a host, with its start. */
const RUN_MS = 120_000
const SECOND_MS = 1_000

/** A text in files of the host's user, which no run may see. */
export const CANARY = "canary-in-a-file"

export interface Reply {
  readonly id: string
  readonly content: { readonly text?: string }
  readonly metadata: { readonly connect?: { readonly answers: ReadonlyArray<string> } }
}

/**
 * Files that a person's own sessions of a host read: memory, rules, hooks and MCP servers. Each would leave a trace.
 */
const ownFiles = (folder: string): Readonly<Record<string, string>> => {
  const touch = (name: string) => ["/bin/sh", "-c", `touch ${join(folder, name)}`]
  const [command, ...args] = touch("canary-mcp")
  const hook = touch("canary-hook").map((word) => JSON.stringify(word)).join(" ")
  const servers = { canary: { command, args } }
  const hooks = Object.fromEntries(
    ["SessionStart", "UserPromptSubmit", "Stop"].map((
      event
    ) => [event, [{ hooks: [{ type: "command", command: hook }] }]])
  )
  return {
    ".claude/CLAUDE.md": CANARY,
    ".claude/settings.json": JSON.stringify({ hooks, permissions: { allow: ["Bash", "Read"] } }),
    ".claude.json": JSON.stringify({ mcpServers: servers }),
    ".codex/AGENTS.md": CANARY,
    ".codex/hooks.json": JSON.stringify({ hooks }),
    ".gemini/GEMINI.md": CANARY,
    ".config/opencode/AGENTS.md": CANARY,
    ".config/opencode/opencode.json": JSON.stringify({
      mcp: { canary: { type: "local", command: touch("canary-mcp") } }
    })
  }
}

/** A host that `parley connect` starts for messages of the tester. */
export interface Connection {
  readonly home: string
  readonly output: () => string
  /**
   * Sends a message, and returns the reply that names it, if there is one once the message is acknowledged or its run
   * is parked.
   */
  readonly exchange: (text: string) => Promise<{ readonly reply: Reply | undefined; readonly left: boolean }>
  /** The tester thanks for a reply by a reaction. Returns what is wrong with the answer; empty if the server stored it. */
  readonly thank: (reply: Reply) => Promise<string>
  /** How many messages of the tester the agent has not acknowledged. */
  readonly waiting: () => Promise<number>
  /** How many runs the connector has started. */
  readonly runs: () => number
  readonly stop: () => Promise<void>
}

/** A host, its agent, and the agent that writes to it. */
export interface Pair {
  readonly subject: Subject
  readonly url: string
  readonly tester: RegisteredAgent
}

/** A host, the folder in which it is installed, and its agent. */
export interface Subject {
  readonly host: Host
  readonly folder: string
  readonly agent: RegisteredAgent
}

/** Starts `parley connect` for this host, in a HOME of its own with canaries in the files of the host's user. */
export const startConnection = async (
  { subject: { agent, folder, host }, tester, url }: Pair,
  model: FakeModel,
  more: { readonly reply: "output" | "tools" }
): Promise<Connection> => {
  const home = await mkdtemp(join(tmpdir(), `parley-connect-${host.program}-`))
  const { env, files = {} } = host.settings(model.url)
  const state = join(home, "state")
  const runHome = join(state, "parley/connect", agent.handle, "home")
  for (const [place, written] of [[home, ownFiles(home)], [runHome, files]] as const) {
    for (const [name, text] of Object.entries(written)) {
      await mkdir(dirname(join(place, name)), { recursive: true })
      await writeFile(join(place, name), text)
    }
  }
  const args = host.connectArgs?.(model.url) ?? []
  const settings = {
    key: agent.key,
    agent: host.program,
    allow: [tester.handle],
    env,
    args,
    settleMs: 0,
    retrySeconds: [],
    runSeconds: RUN_MS / SECOND_MS,
    ...more
  }
  await mkdir(join(home, "config/parley"), { recursive: true })
  await writeFile(
    join(home, "config/parley/connect.json"),
    JSON.stringify({ server: url, agents: { [agent.handle]: settings } }),
    { mode: 0o600 }
  )
  const child = spawn(process.execPath, [join(ROOT, "runners/parley.js"), "connect"], {
    cwd: home,
    env: { HOME: home, PATH: pathWith(folder), XDG_CONFIG_HOME: join(home, "config"), XDG_STATE_HOME: state },
    stdio: ["ignore", "pipe", "pipe"]
  })
  let output = ""
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => (output += text))

  const ask = async (key: string, method: string, path: string, body?: object): Promise<unknown> => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    return response.json()
  }
  const exchange: Connection["exchange"] = async (text) => {
    const sent = await ask(tester.key, "POST", "/v1/messages", {
      to: agent.handle,
      client_msg_id: `${host.program}-${more.reply}-${text}`,
      content: { text }
    }) as { readonly id: string }
    // Messages of agents that start no run wait in the inbox too.
    const left = async () =>
      (await ask(agent.key, "GET", "/v1/messages/sync") as ReadonlyArray<{ readonly id: string }>).some(({ id }) =>
        id === sent.id
      )
    for (
      const until = performance.now() + RUN_MS;
      performance.now() < until && await left() && !output.includes("parked");
    ) await pause(100)
    const got = await ask(tester.key, "GET", "/v1/messages/sync") as ReadonlyArray<Reply>
    return { reply: got.find(({ metadata }) => metadata.connect?.answers.includes(sent.id)), left: await left() }
  }
  return {
    home,
    output: () => output,
    exchange,
    thank: async ({ id }) => {
      const answer = await ask(tester.key, "PUT", `/v1/messages/${id}/reactions/thanks`) as {
        readonly reactions?: ReadonlyArray<{ readonly emoji: string; readonly mine: boolean }>
      }
      return answer.reactions?.some(({ emoji, mine }) => emoji === "thanks" && mine) === true
        ? ""
        : `the reaction is answered with ${JSON.stringify(answer)}`
    },
    waiting: async () =>
      (await ask(agent.key, "GET", "/v1/messages/sync") as ReadonlyArray<{ readonly sender: string }>)
        .filter(({ sender }) => sender === tester.handle).length,
    runs: () => output.match(/^parley connect: runs /gm)?.length ?? 0,
    stop: async () => {
      child.kill("SIGTERM")
      if (child.exitCode === null) await Promise.race([once(child, "exit"), pause(RUN_MS / 10)])
      await rm(home, { recursive: true, force: true, maxRetries: 3 })
    }
  }
}
