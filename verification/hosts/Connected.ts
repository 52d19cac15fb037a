import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import type { RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import { textsIn } from "./Checks.ts"
import { FakeModel, type Shown, type Turn } from "./FakeModel.ts"
import type { Host } from "./Hosts.ts"
import { pathWith } from "./Install.ts"

const ROOT = resolve(import.meta.dirname, "../..")
/** One run of a host, with its start. */
const RUN_MS = 120_000
const SECOND_MS = 1_000

/** What the fake model does, by a word in the newest message. */
const SILENT = "thanks-only"
const TOOLS = "use-your-tools"
const CANARY = "canary-in-a-file"

/** What a host did when `parley connect` started it. */
export interface Connected {
  readonly name: string
  readonly problem: string
}

interface Reply {
  readonly content: { readonly text?: string }
  readonly metadata: { readonly connect?: { readonly answers: ReadonlyArray<string> } }
}

/** Files that a person's own sessions of a host read: memory, rules, hooks and MCP servers. Each would leave a trace. */
const ownFiles = (folder: string): Readonly<Record<string, string>> => {
  const touch = (name: string) => ["/bin/sh", "-c", `touch ${join(folder, name)}`]
  const [command, ...args] = touch("canary-mcp")
  const hook = touch("canary-hook").map((word) => JSON.stringify(word)).join(" ")
  const servers = { canary: { command, args } }
  const hooks = Object.fromEntries(["SessionStart", "UserPromptSubmit", "Stop"].map((event) => [event, [{ hooks: [{ type: "command", command: hook }] }]]))
  return {
    ".claude/CLAUDE.md": CANARY,
    ".claude/settings.json": JSON.stringify({ hooks, permissions: { allow: ["Bash", "Read"] } }),
    ".claude.json": JSON.stringify({ mcpServers: servers }),
    ".codex/AGENTS.md": CANARY,
    ".codex/hooks.json": JSON.stringify({ hooks }),
    ".gemini/GEMINI.md": CANARY,
    ".config/opencode/AGENTS.md": CANARY,
    ".config/opencode/opencode.json": JSON.stringify({ mcp: { canary: { type: "local", command: touch("canary-mcp") } } })
  }
}

/** Calls of the tools with which each host reads files and runs commands, whether or not the request offers them. */
const forbidden = (file: string, trace: string): ReadonlyArray<Extract<Turn, { readonly name: string }>> => [
  { name: "Bash", args: { command: `cat ${file}; touch ${trace}` } },
  { name: "Read", args: { file_path: file } },
  { name: "exec_command", args: { cmd: `cat ${file}; touch ${trace}` } },
  { name: "shell", args: { command: ["sh", "-c", `cat ${file}; touch ${trace}`] } },
  { name: "shell_command", args: { command: `cat ${file}; touch ${trace}` } },
  { name: "run_shell_command", args: { command: `cat ${file}; touch ${trace}`, description: "x" } },
  { name: "read_file", args: { absolute_path: file, file_path: file } },
  { name: "bash", args: { command: `cat ${file}; touch ${trace}`, description: "x" } },
  { name: "read", args: { filePath: file } }
]

/** The newest message of the conversation is the last of these words in a request. */
const wordIn = (text: string): string | undefined => /.*(first-question|second-question|thanks-only|use-your-tools)/s.exec(text)?.[1]

/** Has `parley connect` start this host for messages of the tester, with a fake model, and says what went wrong. */
export const connectHost = async (
  { agent, folder, host }: { readonly host: Host; readonly folder: string; readonly agent: RegisteredAgent },
  url: string,
  tester: RegisteredAgent
): Promise<ReadonlyArray<Connected>> => {
  const home = await mkdtemp(join(tmpdir(), `parley-connect-${host.program}-`))
  const [secret, trace] = [join(home, "secret.txt"), join(home, "canary-tool")]
  const calls = forbidden(secret, trace)
  let made = 0
  const model = await FakeModel.answering((text): Turn => {
    const word = wordIn(text)
    if (word === SILENT) return { say: "NO_REPLY" }
    const call = word === TOOLS ? calls[made++] : undefined
    return call ?? { say: `An answer to ${word}.` }
  })
  const results: Array<Connected> = []
  const check = (name: string, problem: string): void => void results.push({ name, problem })
  let child: ChildProcess | undefined
  let output = ""
  try {
    const { env, files = {} } = host.settings(model.url)
    const state = join(home, "state")
    const runHome = join(state, "parley/connect", agent.handle, "home")
    await writeFile(secret, CANARY)
    for (const [place, written] of [[home, ownFiles(home)], [runHome, files]] as const) {
      for (const [name, text] of Object.entries(written)) {
        await mkdir(dirname(join(place, name)), { recursive: true })
        await writeFile(join(place, name), text)
      }
    }
    const args = host.connectArgs?.(model.url) ?? []
    const settings = { key: agent.key, agent: host.program, allow: [tester.handle], env, args, settleMs: 0, retrySeconds: [], runSeconds: RUN_MS / SECOND_MS }
    await mkdir(join(home, "config/parley"), { recursive: true })
    await writeFile(join(home, "config/parley/connect.json"), JSON.stringify({ server: url, agents: { [agent.handle]: settings } }), { mode: 0o600 })
    child = spawn(process.execPath, [join(ROOT, "runners/parley.js"), "connect"], {
      cwd: home,
      env: { HOME: home, PATH: pathWith(folder), XDG_CONFIG_HOME: join(home, "config"), XDG_STATE_HOME: state },
      stdio: ["ignore", "pipe", "pipe"]
    })
    for (const stream of [child.stdout, child.stderr]) stream?.setEncoding("utf8").on("data", (text: string) => (output += text))

    const ask = async (key: string, method: string, path: string, body?: object): Promise<unknown> => {
      const response = await fetch(`${url}${path}`, {
        method,
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
      return response.json()
    }
    /** Sends a message; the reply that names it, or undefined once the message is acknowledged or its run is parked. */
    const exchange = async (text: string): Promise<{ readonly reply: Reply | undefined; readonly left: boolean }> => {
      const sent = await ask(tester.key, "POST", "/v1/messages", { to: agent.handle, client_msg_id: `${host.program}-${text}`, content: { text } }) as { readonly id: string }
      // Messages of agents that start no run wait in the inbox too.
      const left = async () => (await ask(agent.key, "GET", "/v1/messages/sync") as ReadonlyArray<{ readonly id: string }>).some(({ id }) => id === sent.id)
      for (const until = performance.now() + RUN_MS; performance.now() < until && await left() && !output.includes("parked");) await pause(100)
      const got = await ask(tester.key, "GET", "/v1/messages/sync") as ReadonlyArray<Reply>
      return { reply: got.find(({ metadata }) => metadata.connect?.answers.includes(sent.id)), left: await left() }
    }
    const answers = (reply: Reply | undefined, word: string): string =>
      reply?.content.text === `An answer to ${word}.` ? "" : `the reply is ${JSON.stringify(reply?.content.text)}; ${output.slice(-300)}`

    check("is started by parley connect", answers((await exchange("first-question")).reply, "first-question"))
    const second = await exchange("second-question")
    const resumed = model.shown.findLast((shown) => JSON.stringify(shown.body).includes("second-question"))
    check(
      "is resumed for the next message",
      answers(second.reply, "second-question") || (JSON.stringify(resumed?.body).includes("An answer to first-question.") ? "" : "the model does not see its first answer")
    )
    const silent = await exchange(SILENT)
    check("sends nothing for NO_REPLY", silent.reply !== undefined ? "there is a reply" : silent.left ? "the message is not acknowledged" : "")
    const tools = await exchange(TOOLS)
    check("offers no tools that read, write or run", offeredProblem(model.shown))
    check(
      "refuses tools that its model calls all the same",
      existsSync(trace) ? "a command ran" : made === 0 ? "its model called none" : tools.left && !output.includes("parked") ? "the run did not end" : ""
    )
    const leaked = model.shown.find(({ body }) => textsIn(body).some((text) => text.includes(CANARY)))
    check(
      "sees no file, memory, hook or MCP server of the user",
      leaked !== undefined
        ? "the model sees a canary"
        : existsSync(join(home, "canary-hook")) ? "a hook ran" : existsSync(join(home, "canary-mcp")) ? "an MCP server was started" : ""
    )
    return results
  } finally {
    child?.kill("SIGTERM")
    if (child !== undefined && child.exitCode === null) await Promise.race([once(child, "exit"), pause(RUN_MS / 10)])
    model.close()
    await rm(home, { recursive: true, force: true, maxRetries: 3 })
  }
}

/** Tools that do nothing outside of the conversation. */
const HARMLESS = /^(update_plan|todo\w*|TodoWrite|request_user_input|invalid|write_todos|StructuredOutput)$/i

const offeredProblem = (shown: ReadonlyArray<Shown>): string => {
  const names = new Set(shown.flatMap(({ tools }) => tools.map(({ name }) => name)).filter((name) => !HARMLESS.test(name)))
  return names.size === 0 ? "" : `the model is offered ${[...names].join(", ")}`
}
