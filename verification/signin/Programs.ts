import type { RegisteredAgent } from "../../test/support/RegisterAgents.ts"
import { textsIn } from "../hosts/Checks.ts"
import { FakeModel } from "../hosts/FakeModel.ts"
import { hosts } from "../hosts/Hosts.ts"
import { type Ended, type Program, run } from "../hosts/Install.ts"
import { INSPECTOR, MCP_REMOTE } from "../mcp/Packages.ts"
import { handleOver } from "../mcp/Stdio.ts"
import type { Home } from "./Home.ts"

const LIMIT_MS = 120_000

/** Where a program runs, for whom, and against which server. */
export interface Place {
  readonly url: string
  readonly agent: RegisteredAgent
  readonly home: Home
  /** Keeps what a program has printed, to be shown if something is wrong. */
  readonly note: (output: string) => void
}

/** A program that signs in by itself. */
export interface Client extends Program {
  readonly name: string
  /** What the list of connections has to show of it. */
  readonly listed: { readonly client_name: string | null; readonly client_host: string | null }
  /** Prepares the program's home. */
  readonly prepare?: (place: Place) => Promise<void>
  /** Signs in. The program opens its browser meanwhile. Returns a problem, or an empty text. */
  readonly signIn: (place: Place) => Promise<string>
  /** Uses the tokens in the program's store, as a new process. Returns a problem, or an empty text. */
  readonly use: (place: Place) => Promise<string>
  /**
   * Calls a tool that writes while the program may only read, which has to be refused. Returns a problem, or an empty
   * text.
   */
  readonly write?: (place: Place) => Promise<string>
}

const start = async (
  { home, note }: Place,
  program: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
): Promise<Ended> => {
  const ended = await run(program, args, { cwd: home.work, env: { ...env, ...home.env }, limitMs: LIMIT_MS })
  note(
    `$ ${program} ${args.join(" ")}\n${ended.output}\n(${
      ended.timedOut ? "it did not end in time" : `exit code ${ended.code}`
    })`
  )
  return ended
}

/** What is wrong with how a program ended; empty if it ended with 0 and printed this. */
const problemOf = ({ code, output, timedOut }: Ended, printed: RegExp): string =>
  timedOut
    ? "it did not end in time"
    : code !== 0
    ? `it ended with ${code}: ${output.trim().slice(-200)}`
    : printed.test(output)
    ? ""
    : `it printed ${output.trim().slice(-200)}`

const pinned = (program: string) => {
  const host = hosts.find((one) => one.program === program)
  if (host === undefined) throw new Error(`there is no host ${program}`)
  return host
}

/** Starts mcp-remote. It signs in by itself if it has to. */
const throughRemote = async ({ agent, home, note, url }: Place): Promise<string> => {
  const server = {
    command: "mcp-remote",
    args: [`${url}/mcp`, "--transport", "http-only"],
    env: { ...home.env },
    cwd: home.work,
    stderr: "ignore" as const
  }
  const handle = await handleOver(server).catch((error: unknown) => {
    note(`mcp-remote: ${String(error)}`)
    return String(error)
  })
  return handle === agent.handle ? "" : `it acts for ${handle}`
}

const mcpRemote: Client = {
  ...MCP_REMOTE,
  name: "mcp-remote",
  listed: { client_name: "MCP CLI Proxy", client_host: null },
  signIn: throughRemote,
  use: throughRemote
}

const codex = pinned("codex")

/** Codex, whose model calls one tool. A session of Codex without a model would not use its tokens. */
const codexSession = async (place: Place): Promise<string> => {
  const model = await FakeModel.start([{ tool: "agentchat_get_my_status", args: {} }])
  try {
    const args = [
      "-c",
      `model_providers.fake.base_url="${model.url}/v1"`,
      "exec",
      "--skip-git-repo-check",
      "Look at your status."
    ]
    const problem = problemOf(await start(place, "codex", args), /./)
    if (problem !== "") return problem
    const texts = textsIn(model.shown.at(-1)?.body).map((text) => text.replaceAll('\\"', '"'))
    return texts.some((text) => text.includes(`"handle":"${place.agent.handle}"`))
      ? ""
      : "its model does not see the status of the agent"
  } finally {
    model.close()
  }
}

const codexClient: Client = {
  package: codex.package,
  version: codex.version,
  program: codex.program,
  name: codex.name,
  listed: { client_name: "Codex", client_host: "chatgpt.com" },
  prepare: async ({ home, url }) => {
    const settings = codex.settings("http://127.0.0.1:1").files?.[".codex/config.toml"] ?? ""
    await home.write(
      ".codex/config.toml",
      `mcp_oauth_credentials_store = "file"\n${settings}[mcp_servers.parley]\nurl = "${url}/mcp"\nrequired = true\ndefault_tools_approval_mode = "approve"\n`
    )
  },
  signIn: async (place) => {
    const signedIn = problemOf(await start(place, "codex", ["mcp", "login", "parley"]), /./)
    return signedIn || problemOf(await start(place, "codex", ["mcp", "list", "--json"]), /"auth_status":\s*"o_?auth"/i)
  },
  use: codexSession
}

const opencode = pinned("opencode")

const startOpencode = (place: Place, ...args: ReadonlyArray<string>): Promise<Ended> => {
  const { env } = opencode.settings("http://127.0.0.1:1")
  const config = JSON.parse(env["OPENCODE_CONFIG_CONTENT"] ?? "{}") as object
  const mcp = { parley: { type: "remote", url: `${place.url}/mcp` } }
  return start(place, "opencode", args, { ...env, OPENCODE_CONFIG_CONTENT: JSON.stringify({ ...config, mcp }) })
}

const opencodeClient: Client = {
  package: opencode.package,
  version: opencode.version,
  program: opencode.program,
  name: opencode.name,
  listed: { client_name: "OpenCode", client_host: null },
  signIn: async (place) => {
    // It asks on the terminal before it replaces tokens.
    await startOpencode(place, "mcp", "logout", "parley")
    const signedIn = problemOf(await startOpencode(place, "mcp", "auth", "parley"), /Authentication successful/)
    return signedIn || problemOf(await startOpencode(place, "mcp", "auth", "list"), /parley[^]*?(?<!not )authenticated/)
  },
  // It connects, and lists the tools.
  use: async (place) => problemOf(await startOpencode(place, "mcp", "list"), /parley[^]*?connected/)
}

const inspect = (
  place: Place,
  method: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
): Promise<Ended> =>
  start(place, "mcp-inspector", ["--cli", `${place.url}/mcp`, "--transport", "http", ...method], {
    ...env,
    MCP_INSPECTOR_SECRET_STORE: "file"
  })

/** Without a terminal, the inspector opens a browser only if it is told to. */
const AUTO_OPEN = { MCP_AUTO_OPEN_ENABLED: "true" }
const ARGS = JSON.stringify({ to: "@somebody", text: "hello" })

const inspectorClient: Client = {
  ...INSPECTOR,
  name: "the inspector",
  listed: { client_name: "MCP Inspector", client_host: null },
  signIn: async (place) =>
    problemOf(await inspect(place, ["--method", "tools/list"], AUTO_OPEN), /agentchat_wait_for_messages/),
  use: async (place) => {
    const ended = await inspect(place, [
      "--method",
      "tools/call",
      "--tool-name",
      "agentchat_get_my_status",
      "--stored-auth-only"
    ])
    return problemOf(ended, new RegExp(place.agent.handle))
  },
  write: async (place) => {
    // It says only that it needs another sign-in.
    const { code, output } = await inspect(place, [
      "--method",
      "tools/call",
      "--tool-name",
      "agentchat_send_message",
      "--tool-args-json",
      ARGS,
      "--stored-auth-only"
    ])
    return code === 3 && output.includes("auth_required") ? "" : `it printed ${output.trim().slice(-200)}`
  }
}

/** The programs that sign in by themselves, in the order in which they run. */
export const clients: ReadonlyArray<Client> = [mcpRemote, inspectorClient, codexClient, opencodeClient]
