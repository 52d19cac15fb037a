import type { HOST_FAMILIES } from "#interfaces/mcp/HostFamily"
import type { Program } from "./Install.ts"

/**
 * A host from npm that `npm run test:hosts` runs unmodified. docs/clients.md has its entry, under its name. The
 * versions are pinned here and nowhere else; docs/clients.md repeats them.
 */
export interface Host extends Program {
  readonly name: string
  /**
   * The most bytes that the definitions of Parley's tools may have in a request to the model: a tenth more than they
   * had.
   */
  readonly mostToolBytes: number
  /** Under which name the server counts its requests. */
  readonly family: (typeof HOST_FAMILIES)[number]
  /**
   * What makes the host ask the fake model, and leaves out telemetry, updates and sharing: variables, and files in its
   * HOME.
   */
  readonly settings: (model: string) => {
    readonly env: Readonly<Record<string, string>>
    readonly files?: Readonly<Record<string, string>>
  }
  /**
   * What makes the host ask the fake model when `parley connect` starts it, which ignores the host's own configuration.
   */
  readonly connectArgs?: (model: string) => ReadonlyArray<string>
  /** The file in HOME to which the entry's TOML is added. */
  readonly toml?: string
}

export const hosts: ReadonlyArray<Host> = [
  {
    name: "Claude Code",
    package: "@anthropic-ai/claude-code",
    version: "2.1.330",
    program: "claude",
    family: "claude-code",
    mostToolBytes: 3_300,
    settings: (model) => ({
      env: {
        ANTHROPIC_BASE_URL: model,
        ANTHROPIC_API_KEY: "fake",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
        DISABLE_AUTOUPDATER: "1"
      }
    })
  },
  {
    name: "Codex",
    package: "@openai/codex",
    version: "0.169.0",
    program: "codex",
    family: "codex",
    mostToolBytes: 24_500,
    toml: ".codex/config.toml",
    connectArgs: (model) => [
      "-c",
      'model="fake"',
      "-c",
      'model_provider="fake"',
      "-c",
      `model_providers.fake={ name = "fake", base_url = "${model}/v1", wire_api = "responses" }`
    ],
    settings: (model) => ({
      env: {},
      files: {
        ".codex/config.toml": `model = "fake"
model_provider = "fake"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.fake]
name = "fake"
base_url = "${model}/v1"
wire_api = "responses"

`
      }
    })
  },
  {
    name: "Gemini CLI",
    package: "@google/gemini-cli",
    version: "0.61.0",
    program: "gemini",
    // Its MCP client sends the User-Agent of Node.
    family: "node",
    mostToolBytes: 35_000,
    settings: (model) => ({
      env: { GOOGLE_GEMINI_BASE_URL: model, GEMINI_API_KEY: "fake" },
      files: {
        ".gemini/settings.json": JSON.stringify({
          general: { enableAutoUpdate: false, enableAutoUpdateNotification: false },
          model: { name: "gemini-2.5-pro" },
          privacy: { usageStatisticsEnabled: false },
          security: { auth: { selectedType: "gemini-api-key" } }
        })
      }
    })
  },
  {
    name: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    program: "opencode",
    family: "opencode",
    mostToolBytes: 25_500,
    settings: (model) => ({
      env: {
        OPENCODE_DISABLE_AUTOUPDATE: "1",
        OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
        OPENCODE_DISABLE_MODELS_FETCH: "1",
        OPENCODE_DISABLE_SHARE: "1",
        OPENCODE_CONFIG_CONTENT: JSON.stringify({
          model: "fake/fake",
          provider: {
            fake: {
              npm: "@ai-sdk/openai-compatible",
              options: { baseURL: `${model}/v1`, apiKey: "fake" },
              models: { fake: {} }
            }
          }
        })
      }
    })
  }
]
