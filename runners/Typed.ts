import { existsSync } from "node:fs"
import { relative } from "node:path"

/** Formats a command line as a person types it. It may begin with variables such as `PORT=8080`. */
export type Typed = (commandLine: string) => string

/** Matches `parley` with leading variables, a subcommand and arguments. */
const COMMAND = /^((?:[A-Z0-9_]+=\S+ )*)parley(?: ([a-z]+))?( .*)?$/

const asScript = (name: string, rest: string): string =>
  `npm ${name === "start" ? name : `run ${name}`}${rest === "" ? "" : ` --${rest}`}`

/** How this process was started. */
export interface Started {
  /** The script of package.json, if npm runs one. */
  readonly script: string | undefined
  /** The path of the program, as it was passed to Node. */
  readonly program: string
  readonly folder: string
}

/**
 * Formats `parley …` as a person types it where the process was started. With the scripts of a checkout, that is
 * `npm run … -- …`. Without npm, it is `node runners/parley.js …`. In a folder in which the package is installed, it is
 * `npx parley …`.
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

/** Formats a command line as a person types it where this process was started. */
export const typed: Typed = typedAt({
  script: process.env["npm_lifecycle_script"],
  program: process.argv[1] ?? "",
  folder: process.cwd()
})
