import { mcpRequests } from "#infrastructure/platform/Metrics"

/** The families of agent hosts. The server distinguishes them by their `User-Agent`. */
export const HOST_FAMILIES = [
  "claude-code",
  "claude",
  "codex",
  "openai",
  "gemini",
  "opencode",
  "openclaw",
  "cursor",
  "vscode",
  "cline",
  "goose",
  "python",
  "bun",
  "node",
  "none",
  "other"
] as const
type Family = (typeof HOST_FAMILIES)[number]

/**
 * The patterns of `User-Agent` for each family. The first pattern that matches decides. Several hosts name only the
 * HTTP client that they use.
 */
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

/**
 * Returns the family of an agent host according to its `User-Agent`. The family is one of a few names, because it is a
 * label of a metric.
 */
export const hostFamily = (userAgent: string | undefined): Family => {
  const text = (userAgent ?? "").toLowerCase()
  return text === "" ? "none" : PATTERNS.find(([, pattern]) => pattern.test(text))?.[0] ?? "other"
}

// Creates all series, so that the metric shows every family from the start, with zero.
for (const family of HOST_FAMILIES)
  for (const outcome of ["answered", "refused", "unauthorized"]) mcpRequests.at(family, outcome)

/** Counts a request to `/mcp` that got a response. */
export const countMcpRequest = (family: string, status: number, isRefused: boolean): void =>
  mcpRequests.at(family, status === 401 ? "unauthorized" : isRefused || status >= 400 ? "refused" : "answered").add()
