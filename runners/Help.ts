import { settings } from "#infrastructure/platform/Config"
import type { CliOutput, HelpDoc } from "effect/cli"
import { fold } from "./Fold.ts"
import { groupsOf, type SettingName } from "./SettingGroups.ts"
import type { Typed } from "./Typed.ts"

interface Row {
  readonly name: string
  readonly shown: string
  readonly about: string
}

interface Rows {
  /** Null for rows without a heading. */
  readonly title: string | null
  readonly rows: ReadonlyArray<Row>
}

const rowOf = (name: SettingName): Row => ({ name, shown: settings[name].shown, about: settings[name].about })

const everySetting: ReadonlyArray<Rows> = groupsOf(Object.keys(settings) as ReadonlyArray<SettingName>)
  .map(({ names, title }) => ({ title, rows: names.map(rowOf) }))

const few = (...rows: ReadonlyArray<Row>): ReadonlyArray<Rows> => [{ title: null, rows }]

/** The settings that the help of each subcommand shows. */
const settingsOf: Readonly<Record<string, ReadonlyArray<Rows>>> = {
  start: everySetting,
  runner: everySetting,
  migrate: few(
    { name: "DATABASE_URL", shown: "none", about: "the PostgreSQL to bring up to this version" },
    rowOf("LOG_LEVEL")
  ),
  admin: few(
    { name: "DATA_DIR", shown: "./data", about: "folder of the server, if its database is in that folder" },
    { name: "DATABASE_URL", shown: "none", about: "URL of the server's database, if the server uses PostgreSQL" }
  ),
  cluster: few(
    { name: "PORT", shown: "3000", about: "TCP port of the balancer; 0 takes any free port" },
    { name: "DATA_DIR", shown: "./data", about: "folder in which the cluster creates a folder of its own" },
    { name: "REDIS_URL", shown: "none", about: "URL of the Redis to use if redis-server is not installed" },
    {
      name: "and those of runner",
      shown: "",
      about: "applied to every node, except addresses and folders, which the cluster sets"
    }
  )
}

/** The names of the settings that the help of a subcommand shows. */
export const settingNamesOf = (subcommand: string): ReadonlyArray<string> =>
  (settingsOf[subcommand] ?? []).flatMap(({ rows }) => rows.map(({ name }) => name)).filter((name) => name in settings)

const linesOf = ({ rows, title }: Rows): ReadonlyArray<string> => {
  const indent = title === null ? "  " : "    "
  return [
    ...title === null ? [] : ["", `  ${title}`],
    ...rows.flatMap((
      { about, name, shown }
    ) => [`${indent}${name}${shown === "" ? "" : ` (${shown})`}`, `${indent}    ${about}`])
  ]
}

/**
 * The help text. It contains usage and flags as Effect renders them, the settings in the groups of
 * docs/configuration.md, and the examples. Lines are folded at `width`. Commands in examples are not folded, because
 * people copy them.
 */
export const helpText = (
  formatter: CliOutput.Formatter,
  { examples = [], ...doc }: HelpDoc.HelpDoc,
  typed: Typed,
  width: number
): string => {
  const groups = settingsOf[doc.commandPath?.[1] ?? ""] ?? []
  const folded = [
    formatter.formatHelpDoc({ ...doc, usage: typed(doc.usage) }),
    ...groups.length === 0
      ? []
      : ["", "SETTINGS (environment variables, with their defaults)", ...groups.flatMap(linesOf)]
  ]
  return [
    fold(folded.join("\n"), width),
    ...examples.length === 0 ? [] : [
      "",
      "EXAMPLES",
      ...examples.flatMap((
        { command, description }
      ) => [...description === undefined ? [] : [`  # ${description}`], `  ${typed(command)}`])
    ]
  ].join("\n")
}
