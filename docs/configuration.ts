import { Result } from "effect"
import { writeFileSync } from "node:fs"
import { settings } from "#ground/platform/Config"

/** Writes docs/configuration.md from the settings in the code: `npm run docs`. */

type Name = keyof typeof settings

interface Group {
  readonly title: string
  readonly names: (name: string) => boolean
}

const beginning = (...beginnings: ReadonlyArray<string>) => (name: string): boolean =>
  beginnings.some((beginning) => name.startsWith(beginning))

/** A setting is in the first group that takes it; `LIMITS_…` are parted by what they limit. */
const GROUPS: ReadonlyArray<Group> = [
  { title: "Addresses and logs", names: beginning("PORT", "HOST", "PUBLIC_URL", "TRUST_PROXY", "ALLOWED_ORIGINS", "LOG_LEVEL", "METRICS_TOKEN", "PROBE_", "DRAIN_SECONDS") },
  { title: "Traces", names: beginning("OTEL_") },
  { title: "Database", names: beginning("DATA_DIR", "DATABASE_", "VACUUM_") },
  { title: "Redis", names: beginning("REDIS_") },
  { title: "Files", names: beginning("S3_", "SHARED_DIR", "UPLOADS_", "DOWNLOADS_") },
  { title: "Mail", names: beginning("SMTP_", "MAIL_") },
  { title: "Nodes", names: beginning("ROLE", "RUNNER_") },
  { title: "Requests", names: beginning("HTTP_", "HELD_", "IDEMPOTENCY_") },
  { title: "Sockets and presence", names: beginning("SOCKETS_", "PRESENCE_", "ECHO_OWN") },
  { title: "Webhooks", names: beginning("WEBHOOK_") },
  { title: "Sign in by OAuth", names: beginning("OAUTH", "LIMITS_OAUTH", "LIMITS_SIGN_IN") },
  { title: "How long things are kept", names: beginning("RETENTION_") },
  { title: "Limits of sending", names: beginning("LIMITS_SENDS", "LIMITS_GROUP_SENDS", "LIMITS_WARNING", "LIMITS_COLD", "LIMITS_BACKLOG", "LIMITS_MESSAGE") },
  { title: "Limits of blocks and reports", names: beginning("LIMITS_RESTRICT", "LIMITS_SUSPEND") },
  { title: "Limits of registration and codes", names: beginning("LIMITS_REGISTER", "LIMITS_REGISTRATIONS", "LIMITS_RECOVER", "LIMITS_ROTATE", "LIMITS_OTP") },
  { title: "Limits of groups", names: beginning("LIMITS_GROUP") },
  { title: "Limits of files and pictures", names: beginning("LIMITS_ATTACHMENT", "LIMITS_AVATAR", "LIMITS_STORAGE") },
  { title: "Limits of sockets", names: beginning("LIMITS_SOCKETS", "LIMITS_FRAMES", "LIMITS_REFUSALS") },
  { title: "Other limits", names: beginning("LIMITS_") }
]

/** A value that no setting takes, if it does not take every text. */
const NONSENSE = "\u0000"

/** What a setting may be, in the words with which a wrong value is refused. */
const takes = (name: Name): string => {
  const { parse }: { readonly parse: (text: string) => Result.Result<unknown, string> } = settings[name]
  const parsed = parse(NONSENSE)
  if (Result.isSuccess(parsed)) return "text"
  const refusal = parsed.failure.replace(/^expected /, "")
  const range = /^a whole number from (\d+) to (\d+)$/.exec(refusal)
  if (range === null) return refusal.replace(/^one of /, "").replace(/^an? /, "")
  const [, min, max] = range
  return Number(max) === Number.MAX_SAFE_INTEGER ? `from ${min}` : `${min}–${max}`
}

/** Text in a cell of a table. */
const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("<", "\\<")

const row = (name: Name): string => {
  const { about, fallback, secret, shown } = settings[name]
  const standard = String(fallback) === shown ? `\`${shown}\`` : cell(shown)
  return `| \`${name}\` | ${standard} | ${cell(takes(name))}${secret ? "; secret" : ""} | ${cell(about)} |`
}

const HEAD = `# Configuration

Parley reads its settings from environment variables. It checks all of them before it starts, and reports every wrong one.
\`npm start -- --help\` prints these tables in a terminal; \`npm run admin -- config\` prints the settings in effect, without
secrets. An empty variable counts as not set.

If a variable is unknown but resembles a setting, the log names both; an unknown \`LIMITS_…\` stops the start. All nodes of a cluster
should have the same limits.

“Takes” is what is accepted. Rates are accepted requests in a sliding window. The [contract](wire.md) says what the limits mean to a client.

This page is made from the code: change \`src/ground/platform/Config.ts\`, then run \`npm run docs\`.
`

/** The whole page. */
export const configurationPage = (): string => {
  const left = new Set(Object.keys(settings) as ReadonlyArray<Name>)
  const parts = GROUPS.map(({ names, title }) => {
    const own = [...left].filter(names)
    for (const name of own) left.delete(name)
    return [`## ${title}`, "", "| variable | default | takes | meaning |", "| --- | --- | --- | --- |", ...own.map(row), ""].join("\n")
  })
  if (left.size > 0) throw new Error(`docs/configuration.ts has no group for ${[...left].join(", ")}`)
  return [HEAD, ...parts].join("\n")
}

if (import.meta.main) {
  writeFileSync(new URL("configuration.md", import.meta.url), configurationPage())
}
