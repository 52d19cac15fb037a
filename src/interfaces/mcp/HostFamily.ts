import { MCP_HOSTS } from "#infrastructure/platform/Metrics"

type Family = (typeof MCP_HOSTS)[number]

/** The first pattern that matches names the family. Several hosts name only the HTTP client that they use. */
const PATTERNS: ReadonlyArray<readonly [Family, RegExp]> = [
  ["claude-code", /claude-code/],
  ["claude", /claude/],
  ["codex", /codex/],
  ["openai", /openai/],
  ["gemini", /gemini/],
  ["opencode", /opencode/],
  ["openclaw", /openclaw/],
  ["cursor", /cursor/],
  ["vscode", /visual studio code|vscode/],
  ["cline", /\bcline\b/],
  ["goose", /goose/],
  ["python", /python/],
  ["bun", /\bbun\b/],
  ["node", /\bnode\b|undici|axios/]
]

/** The family of an agent host by its `User-Agent`: one of a few names, because it is a label of a metric. */
export const hostFamily = (userAgent: string | undefined): Family => {
  const text = (userAgent ?? "").toLowerCase()
  return text === "" ? "none" : PATTERNS.find(([, pattern]) => pattern.test(text))?.[0] ?? "other"
}
