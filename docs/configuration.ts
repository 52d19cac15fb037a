import { settings } from "#infrastructure/platform/Config"
import { Result } from "effect"
import { writeFileSync } from "node:fs"
import { groupsOf, type SettingName } from "../runners/SettingGroups.ts"

/** Writes docs/configuration.md from the settings in the code: `npm run docs`. */

/** A value that no setting takes, if it does not take every text. */
const NONSENSE = "\u0000"

/** What a setting may be, in the words with which a wrong value is refused. */
const takes = (name: SettingName): string => {
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

const row = (name: SettingName): string => {
  const { about, fallback, secret, shown } = settings[name]
  const standard = String(fallback) === shown ? `\`${shown}\`` : cell(shown)
  return `| \`${name}\` | ${standard} | ${cell(takes(name))}${secret ? "; secret" : ""} | ${cell(about)} |`
}

const HEAD = `# Configuration

Parley reads its settings from environment variables. It checks all of them before it starts, and reports every invalid one.
\`npm start -- --help\` prints these tables in a terminal; \`npm run admin -- config\` prints the settings in effect, without
secrets. An empty variable counts as not set.

If a variable is no setting but has a similar name, the log contains a warning with both names. An unknown name that begins with \`LIMITS_\` stops
the start. All nodes of a cluster should have the same limits.

The column *takes* gives the valid values. A rate is the number of accepted requests in a sliding window. The [contract](wire.md) explains what the
limits mean for clients.

This page is made from the code: change \`src/infrastructure/platform/Config.ts\`, then run \`npm run docs\`.
`

/** The whole page. */
export const configurationPage = (): string => {
  const parts = groupsOf(Object.keys(settings) as ReadonlyArray<SettingName>).map(({ names, title }) =>
    [`## ${title}`, "", "| variable | default | takes | meaning |", "| --- | --- | --- | --- |", ...names.map(row), ""]
      .join("\n")
  )
  return [HEAD, ...parts].join("\n")
}

if (import.meta.main) {
  writeFileSync(new URL("configuration.md", import.meta.url), configurationPage())
}
