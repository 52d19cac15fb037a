import { makeFolder, reasonOf } from "#infrastructure/platform/disk/Folder"
import { Effect } from "effect"
import { chmodSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { dirname, join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { SettingsInvalid } from "./Settings.ts"

type Environment = Readonly<Record<string, string | undefined>>

const folder = (env: Environment, name: string, ...otherwise: ReadonlyArray<string>): string =>
  env[name] !== undefined && env[name] !== "" ? env[name] : join(env["HOME"] ?? homedir(), ...otherwise)

/** The path of connect.json, in `$XDG_CONFIG_HOME/parley` or ~/.config/parley. */
export const settingsPath = (env: Environment): string =>
  join(folder(env, "XDG_CONFIG_HOME", ".config"), "parley", "connect.json")

/** The folders and files of one agent's connector, in `$XDG_STATE_HOME/parley` or ~/.local/state/parley. */
export interface Places {
  readonly root: string
  readonly journal: string
  readonly lock: string
  readonly home: string
  readonly work: string
  readonly logs: string
}

/** The folders and files for the agent with this handle. */
export const placesOf = (env: Environment, handle: string): Places => {
  const root = join(folder(env, "XDG_STATE_HOME", ".local", "state"), "parley", "connect", handle)
  const inside = (name: string): string => join(root, name)
  return {
    root,
    journal: inside("journal"),
    lock: inside("lock"),
    home: inside("home"),
    work: inside("work"),
    logs: inside("logs")
  }
}

/** Runs operations on a folder or a file. A failure names it and says why it cannot be used. */
const using = (path: string, run: () => void): Effect.Effect<void, SettingsInvalid> =>
  Effect.try({
    try: run,
    catch: (error) => new SettingsInvalid({ message: `${path} cannot be used: ${reasonOf(error)}` })
  })

/**
 * Creates a folder of an agent's connector, readable only for the user. Also removes the access of other users if the
 * folder already exists.
 */
export const prepare = (folder: string): Effect.Effect<void, SettingsInvalid> =>
  using(folder, () => {
    makeFolder(folder, 0o700)
    if ((statSync(folder).mode & 0o077) !== 0) chmodSync(folder, 0o700)
  })

const SQLITE_BUSY = 5

/**
 * Locks the folder of an agent until the scope ends, so that a second connector of the agent on this machine is
 * refused. The lock is SQLite's lock on a file. The kernel releases it when the process ends for any reason.
 */
export const lock = ({ lock: file }: Places, handle: string) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const held = new DatabaseSync(file, { timeout: 0 })
        try {
          held.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")
          return held
        } catch (error) {
          held.close()
          throw error
        }
      },
      catch: (error) =>
        new SettingsInvalid({
          message: Reflect.get(Object(error), "errcode") === SQLITE_BUSY
            ? `a connector for ${handle} runs already on this machine`
            : `${file} cannot be locked: ${error instanceof Error ? error.message : String(error)}`
        })
    }),
    (held) => Effect.sync(() => held.close())
  )

/**
 * Reads the text of connect.json; undefined if the file does not exist. The file contains keys, so a file that other
 * users can read is refused.
 */
export const readSettings = (path: string): Effect.Effect<string | undefined, SettingsInvalid> =>
  Effect.try({
    try: () => {
      const { mode } = statSync(path)
      if ((mode & 0o077) !== 0) throw new Error(`other users can read it, and it holds keys: chmod 600 ${path}`)
      return readFileSync(path, "utf8")
    },
    catch: (error) => error
  }).pipe(Effect.catch((error) =>
    Reflect.get(Object(error), "code") === "ENOENT"
      ? Effect.succeed(undefined)
      : Effect.fail(
        new SettingsInvalid({
          message: `${path} cannot be used: ${error instanceof Error ? error.message : String(error)}`
        })
      )
  ))

/** Writes a file atomically, and creates its folder. Only the user can read the file. */
export const writePrivately = (path: string, text: string): Effect.Effect<void, SettingsInvalid> =>
  Effect.andThen(
    using(dirname(path), () => makeFolder(dirname(path), 0o700)),
    using(path, () => {
      writeFileSync(`${path}.new`, text, { mode: 0o600 })
      renameSync(`${path}.new`, path)
    })
  )

/** Writes connect.json. */
export const writeSettings = (path: string, value: unknown): Effect.Effect<void, SettingsInvalid> =>
  writePrivately(path, `${JSON.stringify(value, null, 2)}\n`)
