import { existsSync } from "node:fs"
import { basename, delimiter, join, relative } from "node:path"

/** Formats a command line as a person types it. It may begin with variables such as `PORT=8080`. */
export type Typed = (commandLine: string) => string

/** Matches `parley` with leading variables, a subcommand and arguments. */
const COMMAND = /^((?:[A-Z0-9_]+=\S+ )*)parley(?: ([a-z]+))?( .*)?$/

/** The subcommands for which package.json has a script. */
export const SCRIPTS: ReadonlyArray<string> = ["start", "runner", "cluster", "migrate", "admin", "connect", "demo"]

const asScript = (name: string, rest: string): string =>
  `npm ${name === "start" ? name : `run ${name}`}${rest === "" ? "" : ` --${rest}`}`

/** How this process was started. */
export interface Started {
  /** The script of package.json, if npm runs one. */
  readonly script: string | undefined
  /** The path of the program, as it was passed to Node. */
  readonly program: string
  readonly folder: string
  /** The variable PATH of this process. */
  readonly path: string
}

/** Whether a shell finds `parley`. npm and npx add folders to the PATH of what they run, which a shell does not have. */
const isFound = (path: string): boolean =>
  path.split(delimiter).some((folder) =>
    folder !== "" && !folder.endsWith(join("node_modules", ".bin")) && existsSync(join(folder, "parley"))
  )

const quoted = (word: string): string => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`

/**
 * Formats `parley …` as a person types it where the process was started. With the scripts of a checkout, that is
 * `npm run … -- …`. Without npm, and for a command without a script, it is `node runners/parley.js …`. In a folder in
 * which the package is installed, it is `npx parley …`. If a shell does not find `parley`, as after `npx` with the file
 * of a package, it is the path of the program.
 */
export const typedAt = ({ folder, path, program, script }: Started): Typed => {
  const isScript = script?.includes("runners/parley.js") === true
  // The Node of the checkout, which npm finds first. That of a shell may be too old.
  const node = isScript && existsSync(`${folder}/node_modules/.bin/node`) ? "node_modules/.bin/node" : "node"
  const words = program.endsWith("parley.js")
    ? `${node} ${relative(folder, program)}`
    : existsSync(`${folder}/node_modules/.bin/parley`)
    ? "npx parley"
    : basename(program) !== "parley" || isFound(path)
    ? "parley"
    : quoted(program)
  return (commandLine) =>
    commandLine.replace(
      COMMAND,
      (_, variables: string, name: string | undefined, rest = "") =>
        variables + (name !== undefined && SCRIPTS.includes(name) && isScript
          ? asScript(name, rest)
          : `${words}${name === undefined ? "" : ` ${name}`}${rest}`)
    )
}

/** Formats a command line as a person types it where this process was started. */
export const typed: Typed = typedAt({
  script: process.env["npm_lifecycle_script"],
  program: process.argv[1] ?? "",
  folder: process.cwd(),
  path: process.env["PATH"] ?? ""
})
