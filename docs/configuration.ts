import { settings } from "#infrastructure/platform/Config"
import { Result } from "effect"
import { writeFileSync } from "node:fs"
import { fold } from "../runners/Fold.ts"
import { groupsOf, type SettingName } from "../runners/SettingGroups.ts"

/** Writes docs/configuration.md and deploy/parley.env.sample from the settings in the code: `npm run docs`. */

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

Parley reads its settings from environment variables, and from one file. It checks all of them before it starts, and reports every invalid one.
\`npm start -- --help\` prints these tables in a terminal. An empty variable counts as not set.

The file is \`.env\` in the current folder, or the file that the variable \`PARLEY_CONFIG\` names instead. If the environment sets a setting too, the
file's value has no effect. \`PARLEY_CONFIG=/dev/null\` means no file. [\`deploy/parley.env.sample\`](../deploy/parley.env.sample) is a file with every
setting and its default. The format is that of systemd's \`EnvironmentFile=\`, so a service may pass the file in either way:

- A line is \`NAME=value\`. Spaces around the value are removed. \`$\` has no special meaning, and there is no \`export\`.
- A line that begins with \`#\` or \`;\` is a comment. In another place, these characters belong to the value.
- A value in \`'single'\` or \`"double"\` quotes may contain line breaks. In double quotes, \`\\\` before \`"\`, \`\\\`, \`$\` or a backquote
  means the character itself.
- Without quotes, \`\\\` means the next character itself. A line that ends with \`\\\` continues in the next line.
- Only the settings on this page are read. Variables for other programs, such as \`AWS_PROFILE\` or \`NODE_OPTIONS\`, belong into the environment.

A file with secrets should be readable for the service's user only (\`chmod 600\`, or 640 with its group). Otherwise there is a warning.

\`\`\`sh
parley config check             # every problem, with its file and line; exits with 1 if there is one; --node for a node
parley config show              # every setting, without secrets, and whether it is from a file and line, the environment, or a default
\`\`\`

\`parley admin config\` shows the same of the server that runs. In a checkout, \`parley\` is \`node runners/parley.js\`.

If a name is no setting but is similar to one, the log contains a warning with both names. An unknown name that begins with \`LIMITS_\` or \`CONSOLE_\` stops
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

const SAMPLE_HEAD =
  `# Settings of Parley with their defaults. Copy this file, remove the # before a setting, and change its value:
#   install -m 600 parley.env.sample /etc/parley.env
#   PARLEY_CONFIG=/etc/parley.env parley config check
# The format is that of systemd's EnvironmentFile=. A comment has a line of its own. Quote a value with spaces.
#
# This file is made from the code: change src/infrastructure/platform/Config.ts, then run npm run docs.
`

/** Text as comment lines. */
const comment = (text: string): string =>
  fold(`# ${text}`, 118).split("\n").map((line) => line.replace(/^(# )? */, "# ")).join("\n")

const quotedValue = (value: string): string =>
  /^[\w:/.,*@-]*$/.test(value) ? value : `"${value.replaceAll(/["\\$`]/g, "\\$&")}"`

const sampleOf = (name: SettingName): string => {
  const { about, fallback, secret, shown } = settings[name]
  const facts = [
    `takes: ${takes(name)}`,
    ...fallback === undefined ? [`default: ${shown}`] : [],
    ...secret ? ["secret"] : []
  ]
  const value = fallback === undefined ? "" : quotedValue(String(fallback))
  return [comment(about), comment(facts.join("; ")), `#${name}=${value}`, ""].join("\n")
}

/** The whole sample of a settings file. */
export const sampleFile = (): string => {
  const parts = groupsOf(Object.keys(settings) as ReadonlyArray<SettingName>).flatMap(({ names, title }) => [
    `# ===== ${title} =====\n`,
    ...names.map(sampleOf)
  ])
  return [SAMPLE_HEAD, ...parts].join("\n")
}

if (import.meta.main) {
  writeFileSync(new URL("configuration.md", import.meta.url), configurationPage())
  writeFileSync(new URL("../deploy/parley.env.sample", import.meta.url), sampleFile())
}
