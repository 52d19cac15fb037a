import { similar } from "#infrastructure/platform/UnknownSettings"
import { CliError, type HelpDoc } from "effect/cli"
import { settingNamesOf } from "./Help.ts"

/** The words of a command after `parley`, such as `admin agents list`. */
export type CommandPath = ReadonlyArray<string>

const isBelow = (parent: CommandPath, path: CommandPath): boolean => parent.every((word, i) => path[i] === word)

const childrenOf = (parent: CommandPath, commands: ReadonlyArray<CommandPath>): ReadonlyArray<string> =>
  commands.filter((path) => path.length === parent.length + 1 && isBelow(parent, path)).map((path) => path.at(-1) ?? "")

/** The command with this last word that has the fewest words; undefined if several have equally few. */
const onlyOne = (last: string, commands: ReadonlyArray<CommandPath>): CommandPath | undefined => {
  const named = commands.filter((path) => path.at(-1) === last)
  const shortest = named.filter((path) => named.every((other) => path.length <= other.length))
  return shortest.length === 1 ? shortest[0] : undefined
}

/**
 * Guesses the intended command if `word` is not a subcommand of `parent`. The guess is a subcommand of `parent` with a
 * similar name, or the only command with the same or a similar name. Commands elsewhere are considered only if none is
 * below `parent`. Then follows the words after `word` as long as they name subcommands.
 */
export const meantCommand = (
  parent: CommandPath,
  [word = "", ...rest]: ReadonlyArray<string>,
  commands: ReadonlyArray<CommandPath>
): CommandPath | undefined => {
  const sibling = similar(word, childrenOf(parent, commands))
  const namedAmong = (some: ReadonlyArray<CommandPath>): string | undefined => {
    const names = [...new Set(some.map((path) => path.at(-1) ?? ""))]
    return names.includes(word) ? word : similar(word, names)
  }
  const elsewhere = () => {
    const below = commands.filter((path) => isBelow(parent, path))
    const near = namedAmong(below)
    if (near !== undefined) return onlyOne(near, below)
    const far = namedAmong(commands)
    return far === undefined ? undefined : onlyOne(far, commands)
  }
  let found = sibling === undefined ? elsewhere() : [...parent, sibling]
  for (const next of rest) {
    const child: string | undefined = found === undefined ? undefined : similar(next, childrenOf(found, commands))
    if (found === undefined || child === undefined) break
    found = [...found, child]
  }
  return found
}

const nameOf = (option: string): string => option.replace(/^-+/, "").replace(/=.*$/, "")

/** The setting that a person has typed as an option, for example `--port` for PORT. */
const meantSetting = (option: string, path: CommandPath): string | undefined =>
  similar(nameOf(option).replaceAll("-", "_").toUpperCase(), settingNamesOf(path[0] ?? ""))

const flagsOf = ({ flags, globalFlags = [], inheritedFlags = [] }: HelpDoc.HelpDoc): ReadonlyArray<string> =>
  [...flags, ...inheritedFlags, ...globalFlags].map(({ name }) => name)

/**
 * Describes a mistake in a command line, in one line without a full stop. Adds what the person may have meant if this
 * can be guessed.
 */
export const mistakeOf = (
  error: CliError.NonShowHelpErrors,
  given: {
    readonly args: ReadonlyArray<string>
    readonly commands: ReadonlyArray<CommandPath>
    readonly helpDoc: HelpDoc.HelpDoc
    /** Writes a command as a person types it. */
    readonly typed: (command: string) => string
  }
): string => {
  const { args, commands, helpDoc, typed } = given
  const path = (helpDoc.commandPath ?? []).slice(1)
  const command = ["parley", ...path].join(" ")
  const environment = (setting: string) => `${setting} is an environment variable: ${typed(`${setting}=… ${command}`)}`
  if (error instanceof CliError.UnknownSubcommand) {
    const said = `Unknown subcommand "${error.subcommand}" for "${command}"`
    const meant = meantCommand(path, args.slice(args.indexOf(error.subcommand)), commands)
    return meant === undefined ? said : `${said}. Did you mean ${typed(["parley", ...meant].join(" "))}?`
  }
  if (error instanceof CliError.UnrecognizedOption) {
    const said = `Unrecognized flag: ${error.option} in command ${command}`
    const flag = similar(nameOf(error.option), flagsOf(helpDoc))
    if (flag !== undefined) return `${said}. Did you mean --${flag}?`
    const setting = meantSetting(error.option, path)
    return setting === undefined ? said : `${said}. ${environment(setting)}`
  }
  const message = error.message.replaceAll(/\s*\n\s*/g, " ")
  if (error instanceof CliError.UnexpectedArgument) {
    const [, name] = /^([A-Z][A-Z0-9_]*)=/.exec(error.arguments[0] ?? "") ?? []
    const setting = name === undefined ? undefined : meantSetting(name, path)
    if (setting !== undefined) return `${message}. ${environment(setting)}`
  }
  return message
}
