import { existsSync } from "node:fs"
import { relative } from "node:path"

/** Writes a command line, which may begin with variables such as `PORT=8080`, as a person types it. */
export type Typed = (commandLine: string) => string

/** `parley`, its subcommand, and its arguments. */
const COMMAND = /^((?:[A-Z0-9_]+=\S+ )*)parley(?: ([a-z]+))?( .*)?$/

const asScript = (name: string, rest: string): string =>
  `npm ${name === "start" ? name : `run ${name}`}${rest === "" ? "" : ` --${rest}`}`

/** How this process was started. */
export interface Started {
  /** The script of package.json, if npm runs one. */
  readonly script: string | undefined
  /** The path of the program, as Node was given it. */
  readonly program: string
  readonly folder: string
}

/**
 * Writes `parley …` as it is typed where a process was started: `npm run … -- …` by the scripts of a checkout,
 * `node runners/parley.js …` without npm, and `npx parley …` in a folder where the package is installed.
 */
export const typedAt = ({ folder, program, script }: Started): Typed => {
  const words = program.endsWith("parley.js")
    ? `node ${relative(folder, program)}`
    : existsSync(`${folder}/node_modules/.bin/parley`)
    ? "npx parley"
    : "parley"
  return (commandLine) =>
    commandLine.replace(
      COMMAND,
      (_, variables: string, name: string | undefined, rest = "") =>
        variables + (name !== undefined && script?.includes("runners/parley.js") === true
          ? asScript(name, rest)
          : `${words}${name === undefined ? "" : ` ${name}`}${rest}`)
    )
}

/** Writes a command line as a person types it where this process was started. */
export const typed: Typed = typedAt({
  script: process.env["npm_lifecycle_script"],
  program: process.argv[1] ?? "",
  folder: process.cwd()
})
