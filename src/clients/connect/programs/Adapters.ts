import { extname, join } from "node:path"

/** Matches an object of the output that contains each of these values. The names are paths, such as `item.type`. */
export type Where = Readonly<Record<string, unknown>>

/**
 * A value in the objects of the output that match `where`. `at` is the path of the value. A negative number in the path
 * counts from the end of an array.
 */
export interface Found {
  readonly where?: Where
  readonly at: string
}

/**
 * How a program's output is read. With `json`, it is one object, possibly after other text. With `lines`, it is one
 * object on each line.
 */
export interface JsonReading {
  readonly format: "json" | "lines"
  readonly text: Found
  readonly session: Found
  /** The run has succeeded only if an object matches this. */
  readonly success: Where
  /**
   * The run has failed if an object matches this, whatever the exit code is. `true` matches any value that is present.
   */
  readonly failure?: Where
}

/** The environment variables that contain the URL of Parley's tools and the token for it. */
export const TOOLS_URL = "PARLEY_TOOLS_URL"
export const TOOLS_TOKEN = "PARLEY_TOOLS_TOKEN"

/**
 * How a program gets access to Parley's tools over MCP. `{url}` in a text stands for the URL of the tools. The token is
 * in an environment variable.
 */
interface ToolAccess {
  readonly args?: ReadonlyArray<string>
  readonly sets?: Readonly<Record<string, string>>
  readonly files?: Readonly<Record<string, string>>
}

/** How to start a program for a run, and how to read its output. Adapters are plain data. */
export interface Adapter {
  readonly name: string
  /**
   * The version with which the adapter was tested; null if it was written from the program's documentation and not
   * tested.
   */
  readonly tried: string | null
  /**
   * The command of a run. Arguments are passed unchanged, without a shell. `{args}` stands for the user's own
   * arguments, and `{tools}` for the arguments in `tools`. The prompt is on standard input.
   */
  readonly new: ReadonlyArray<string>
  /**
   * The command for a conversation with an earlier run. The session of that run replaces `{session}`. Null if each run
   * begins a new session.
   */
  readonly resume: ReadonlyArray<string> | null
  readonly reading: "text" | JsonReading
  /** Variables that a run inherits from the connector. */
  readonly passes: ReadonlyArray<string>
  readonly sets: Readonly<Record<string, string>>
  /** Files that are written into HOME before each run. */
  readonly files: Readonly<Record<string, string>>
  /** The command with which a person signs in to the program. It must run with the HOME of the runs. */
  readonly signIn: ReadonlyArray<string> | null
  /**
   * How the program gets access to Parley's tools, for `"reply": "tools"`. Null if the program cannot be limited to
   * these tools.
   */
  readonly tools: ToolAccess | null
  /** Whether a run returns its final text. If not, the program can only send messages itself. */
  readonly returnsText: boolean
  /**
   * Whether the program may read the user's files even if its tools are turned off. Such a program needs `allowReads`.
   */
  readonly readsFiles: boolean
}

export const ADAPTER_NAMES = [
  "claude",
  "codex",
  "gemini",
  "opencode",
  "goose",
  "cursor",
  "openclaw",
  "command"
] as const
export type AdapterName = (typeof ADAPTER_NAMES)[number]

const CLAUDE = [
  "claude",
  "--print",
  "--output-format=json",
  // No built-in tools, no MCP servers, and no settings of the user or of a project. So there are no hooks and no rules.
  "--tools=",
  "--strict-mcp-config",
  "--setting-sources=",
  "--disable-slash-commands",
  "{tools}",
  "{args}"
]

/** The features of Codex that are tools or add tools. Each of them can be disabled. */
const CODEX_FEATURES = [
  "shell_tool",
  "unified_exec",
  "view_image",
  "image_generation",
  "browser_use",
  "computer_use",
  "in_app_browser",
  "sleep_tool",
  "goals",
  "multi_agent",
  "memories",
  "apps",
  "plugins",
  "remote_plugin",
  "tool_suggest",
  "skill_mcp_dependency_install",
  "hooks"
]

/**
 * Options for Codex without tools, MCP servers and rules. A resumed session needs the same options as a new session,
 * because it forgets its sandbox.
 */
const CODEX_OPTIONS = [
  "--json",
  "--skip-git-repo-check",
  "--ignore-user-config",
  "--ignore-rules",
  ...CODEX_FEATURES.flatMap((feature) => ["--disable", feature]),
  ...[
    'sandbox_mode="read-only"',
    'approval_policy="never"',
    'web_search="disabled"',
    "include_apply_patch_tool=false",
    "project_doc_max_bytes=0"
  ]
    .flatMap((setting) => ["-c", setting]),
  "{tools}",
  "{args}"
]

/** The path of PostHook.ts in a checkout, and of PostHook.js in the package. */
const POST_HOOK = join(import.meta.dirname, `PostHook${extname(import.meta.filename)}`)

/** The settings of Gemini CLI: the only tools that it may use, and its MCP servers. */
const geminiSettings = (tools: string, servers: object): string =>
  JSON.stringify({
    general: { enableAutoUpdate: false, enableAutoUpdateNotification: false },
    privacy: { usageStatisticsEnabled: false },
    security: { auth: { selectedType: "gemini-api-key" } },
    tools: { core: [tools] },
    hooksConfig: { enabled: false },
    skills: { enabled: false },
    ...servers
  })

const programs: Readonly<Record<Exclude<AdapterName, "command">, Omit<Adapter, "name">>> = {
  claude: {
    tried: "2.1.330",
    new: CLAUDE,
    resume: [...CLAUDE, "--resume={session}"],
    reading: {
      format: "json",
      text: { where: { type: "result" }, at: "result" },
      session: { where: { type: "result" }, at: "session_id" },
      success: { type: "result", subtype: "success", is_error: false }
    },
    passes: [
      "ANTHROPIC_API_KEY",
      "ANTHROPIC_AUTH_TOKEN",
      "ANTHROPIC_BASE_URL",
      "ANTHROPIC_MODEL",
      "CLAUDE_CODE_OAUTH_TOKEN"
    ],
    sets: {
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      CLAUDE_CODE_DISABLE_AUTO_MEMORY: "1",
      DISABLE_AUTOUPDATER: "1"
    },
    files: {},
    signIn: ["claude", "auth", "login"],
    tools: {
      args: [
        `--mcp-config=${
          JSON.stringify({
            mcpServers: {
              parley: { type: "http", url: "{url}", headers: { Authorization: `Bearer \${${TOOLS_TOKEN}}` } }
            }
          })
        }`,
        "--allowedTools=mcp__parley"
      ]
    },
    returnsText: true,
    readsFiles: false
  },
  codex: {
    tried: "0.169.0",
    new: ["codex", "exec", ...CODEX_OPTIONS, "-"],
    resume: ["codex", "exec", "resume", ...CODEX_OPTIONS, "{session}", "-"],
    reading: {
      format: "lines",
      text: { where: { type: "item.completed", "item.type": "agent_message" }, at: "item.text" },
      session: { where: { type: "thread.started" }, at: "thread_id" },
      success: { type: "turn.completed" },
      failure: { type: "turn.failed" }
    },
    passes: ["OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"],
    sets: {},
    files: {},
    signIn: ["codex", "login"],
    tools: {
      args: [
        'mcp_servers.parley.url="{url}"',
        `mcp_servers.parley.bearer_token_env_var="${TOOLS_TOKEN}"`,
        'mcp_servers.parley.default_tools_approval_mode="approve"',
        "mcp_servers.parley.required=true"
      ].flatMap((setting) => ["-c", setting])
    },
    returnsText: true,
    readsFiles: false
  },
  gemini: {
    tried: "0.61.0",
    new: ["gemini", "--output-format=json", "--approval-mode=default", "--skip-trust", "--extensions=none", "{args}"],
    resume: [
      "gemini",
      "--output-format=json",
      "--approval-mode=default",
      "--skip-trust",
      "--extensions=none",
      "--resume={session}",
      "{args}"
    ],
    reading: {
      format: "json",
      text: { at: "response" },
      session: { at: "session_id" },
      success: { stats: true },
      failure: { error: true }
    },
    passes: ["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"],
    sets: {},
    files: { ".gemini/settings.json": geminiSettings("none", { mcp: { allowed: [] } }) },
    signIn: null,
    tools: {
      files: {
        ".gemini/settings.json": geminiSettings("mcp_parley_*", {
          mcp: { allowed: ["parley"] },
          mcpServers: {
            parley: { httpUrl: "{url}", headers: { Authorization: `Bearer $${TOOLS_TOKEN}` }, trust: true }
          }
        })
      }
    },
    returnsText: true,
    readsFiles: false
  },
  opencode: {
    tried: "1.18.33",
    new: ["opencode", "run", "--format=json", "--pure", "{args}"],
    resume: ["opencode", "run", "--format=json", "--pure", "--session={session}", "{args}"],
    reading: {
      format: "lines",
      text: { where: { type: "text" }, at: "part.text" },
      session: { where: { type: "step_start" }, at: "sessionID" },
      success: { type: "step_finish", "part.reason": "stop" },
      failure: { type: "error" }
    },
    passes: ["OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_CONFIG_CONTENT"],
    sets: {
      OPENCODE_PERMISSION: JSON.stringify({ "*": "deny" }),
      OPENCODE_DISABLE_AUTOUPDATE: "1",
      OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
      OPENCODE_DISABLE_SHARE: "1",
      OPENCODE_DISABLE_CLAUDE_CODE: "1"
    },
    files: {},
    signIn: ["opencode", "auth", "login"],
    tools: {
      sets: { OPENCODE_PERMISSION: JSON.stringify({ "*": "deny", "parley_*": "allow" }) },
      files: {
        ".config/opencode/opencode.json": JSON.stringify({
          mcp: {
            parley: {
              type: "remote",
              url: "{url}",
              oauth: false,
              headers: { Authorization: `Bearer {env:${TOOLS_TOKEN}}` }
            }
          }
        })
      }
    },
    returnsText: true,
    readsFiles: false
  },
  goose: {
    tried: null,
    // Goose cannot resume a session by the session name that its output contains, so each run begins a new session.
    new: [
      "goose",
      "run",
      "--no-session",
      "--no-profile",
      "--quiet",
      "--output-format=json",
      "--instructions=-",
      "{args}"
    ],
    resume: null,
    reading: {
      format: "json",
      text: { at: "messages.-1.content.-1.text" },
      session: { at: "session" },
      // Goose exits with 0 even if the model fails.
      success: { "metadata.status": "completed" }
    },
    passes: ["GOOSE_PROVIDER", "GOOSE_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY"],
    sets: { GOOSE_DISABLE_KEYRING: "1", GOOSE_MODE: "chat" },
    files: {},
    signIn: ["goose", "configure"],
    tools: null,
    returnsText: true,
    readsFiles: false
  },
  cursor: {
    tried: null,
    new: ["cursor-agent", "--print", "--output-format=json", "--mode=ask", "{args}"],
    resume: ["cursor-agent", "--print", "--output-format=json", "--mode=ask", "--resume={session}", "{args}"],
    reading: {
      format: "json",
      text: { where: { type: "result" }, at: "result" },
      session: { where: { type: "result" }, at: "session_id" },
      success: { type: "result", subtype: "success", is_error: false }
    },
    passes: ["CURSOR_API_KEY"],
    sets: {},
    files: {},
    signIn: ["cursor-agent", "login"],
    tools: null,
    returnsText: true,
    // Its read-only mode still has tools that read files.
    readsFiles: true
  },
  openclaw: {
    tried: null,
    // OpenClaw runs in its gateway, which accepts a prompt over HTTP. PostHook.ts posts the prompt and waits for the
    // end of the run.
    new: [process.execPath, POST_HOOK],
    resume: null,
    reading: { format: "json", text: { at: "text" }, session: { at: "session" }, success: { text: true } },
    passes: ["OPENCLAW_HOOK_TOKEN", "OPENCLAW_HOOK_URL", "OPENCLAW_HOOK_AGENT"],
    sets: {},
    files: {},
    signIn: null,
    // The user's OpenClaw configuration gives the agent access to Parley's tools, with the agent's key.
    tools: {},
    returnsText: false,
    readsFiles: true
  }
}

/** The program of `"agent": "command"`. */
export interface Command {
  readonly new: ReadonlyArray<string>
  readonly resume?: ReadonlyArray<string> | undefined
  readonly text?: "stdout" | "json" | undefined
}

const commandAdapter = (command: Command): Adapter => ({
  name: "command",
  tried: null,
  new: command.new,
  resume: command.resume ?? null,
  reading: command.text === "json"
    ? { format: "json", text: { at: "text" }, session: { at: "session" }, success: { text: true } }
    : "text",
  passes: [],
  sets: {},
  files: {},
  signIn: null,
  tools: {},
  // The user has written or chosen this program and knows which files it reads.
  returnsText: true,
  readsFiles: false
})

/** The adapter of this name. A `command` must be given for `"command"`. */
export const adapterOf = (name: AdapterName, command: Command | undefined): Adapter =>
  name === "command" ? commandAdapter(command ?? { new: ["false"] }) : { name, ...programs[name] }

/** The adapter for a run with Parley's tools at this URL. If the URL is null, the adapter for a run without tools. */
export const givenTools = (adapter: Adapter, url: string | null): Adapter => {
  const { args = [], files = {}, sets = {} } = url === null ? {} : adapter.tools ?? {}
  const filled = (text: string): string => text.replaceAll("{url}", url ?? "")
  const words = (command: ReadonlyArray<string>) =>
    command.flatMap((word) => word === "{tools}" ? args.map(filled) : [word])
  const written = Object.fromEntries(Object.entries(files).map(([name, text]) => [name, filled(text)]))
  return {
    ...adapter,
    new: words(adapter.new),
    resume: adapter.resume === null ? null : words(adapter.resume),
    sets: { ...adapter.sets, ...sets },
    files: { ...adapter.files, ...written }
  }
}

/** The command line of a run, with the user's own arguments in place of `{args}`. */
export const argvOf = (
  adapter: Adapter,
  session: string | null,
  args: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const words = session === null || adapter.resume === null
    ? adapter.new
    : adapter.resume.map((word) => word.replaceAll("{session}", session))
  return words.flatMap((word) => word === "{args}" ? args : [word])
}
