import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import { constants } from "node:os"
import * as path from "node:path"

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "permission denied",
  EPERM: "permission denied",
  EROFS: "its file system is read-only",
  ENOENT: "its file system does not permit files or folders there",
  ENOTDIR: "a part of the path is a file",
  EEXIST: "it is a file",
  ENOSPC: "no space left on its disk"
}

const codeOf = (error: unknown): unknown => Reflect.get(Object(error), "code")

/** Whether an error of Node says that a disk quota is used up. Node has no code for this error. */
export const isOverQuota = (error: unknown): boolean => Reflect.get(Object(error), "errno") === -constants.errno.EDQUOT

/** Returns in a few words why an operation on a folder failed. */
export const reasonOf = (error: unknown): string => {
  if (isOverQuota(error)) return "the disk quota is used up"
  const code = codeOf(error)
  return (typeof code === "string" ? REASONS[code] : undefined) ??
    (error instanceof Error ? error.message : String(error))
}

const statOf = (file: string): fs.Stats | undefined => {
  try {
    return fs.statSync(file, { throwIfNoEntry: false })
  } catch {
    return undefined
  }
}

const isFolder = (file: string): boolean => statOf(file)?.isDirectory() === true

/**
 * Creates a folder and its missing parents. Does nothing if the folder exists. Node's own option `recursive` never
 * returns for a path such as `/proc/x`, whose parent exists but for which the kernel returns ENOENT.
 */
export const makeFolder = (folder: string, mode = 0o777): void => {
  try {
    fs.mkdirSync(folder, mode)
  } catch (error) {
    if (isFolder(folder)) return
    const parent = path.dirname(folder)
    if (codeOf(error) !== "ENOENT" || parent === folder || isFolder(parent)) throw error
    makeFolder(parent, mode)
    // A second failure is final, unless another process has created the folder in the meantime.
    try {
      fs.mkdirSync(folder, mode)
    } catch (second) {
      if (!isFolder(folder)) throw second
    }
  }
}

/** Returns the name of a user of this machine. Returns undefined if the user has no name, as in containers. */
const nameOf = (uid: number): string | undefined => {
  try {
    return execFileSync("id", ["-nu", String(uid)], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim() ||
      undefined
  } catch {
    return undefined
  }
}

/** Returns an instruction to run the program as this user. */
const becoming = (uid: number): string => {
  const name = nameOf(uid)
  return name === undefined
    ? `run this as the user with the id ${uid} (for example sudo -u '#${uid}' …)`
    : `run this as "${name}" (for example sudo -u ${name} …)`
}

const quoted = (uid: number): string => {
  const name = nameOf(uid)
  return name === undefined ? `the user with the id ${uid}` : `"${name}"`
}

/** Returns the folder, or the nearest folder above it that exists. */
const existing = (folder: string): string =>
  statOf(folder) !== undefined || path.dirname(folder) === folder ? folder : existing(path.dirname(folder))

/** The entries of DATA_DIR that the database and its lock depend on. */
const VITAL = ["database", "lock"]

/**
 * Returns a sentence that says why a user must not write into the DATA_DIR of a server, or undefined if the user may.
 * `self` is the user who owns the files that this process creates there. A server cannot read files that another user,
 * such as root, leaves in its folder. A folder that does not exist yet must not be created directly in the DATA_DIR of
 * another user.
 */
export const foreignTo = (folder: string, self: number): string | undefined => {
  const nearest = existing(folder)
  // A folder with both entries is a DATA_DIR.
  if (nearest !== folder && !VITAL.every((name) => statOf(path.join(nearest, name)) !== undefined)) return undefined
  const owner = statOf(nearest)?.uid
  for (const name of VITAL) {
    const found = statOf(path.join(nearest, name))?.uid
    if (found === undefined || found === self) continue
    const place = nearest === folder ? "it" : nearest
    return found === 0 && owner === self
      ? `${name} in ${place} belongs to ${quoted(0)}, who has run a command there: give it back with chown -R ${
        nameOf(self) ?? self
      } ${nearest}`
      : `${name} in ${place} belongs to ${quoted(found)}, who could not read the files that ${quoted(self)} creates: ${
        becoming(found)
      }`
  }
  // Users other than root may have been given access to a folder without owning it, for example by the group of a
  // Kubernetes volume. Root may create a folder in that of another user, for example in a checkout that a container has
  // mounted.
  return self === 0 && nearest === folder && owner !== undefined && owner !== 0
    ? `it belongs to ${quoted(owner)}, who could not read the files that ${quoted(0)} creates: ${becoming(owner)}`
    : undefined
}

/**
 * Returns an instruction to use another user, if the folder belongs to that user and this process has no access to it.
 * Returns undefined otherwise.
 */
export const closedTo = (folder: string): string | undefined => {
  const owner = statOf(folder)?.uid
  if (owner === undefined || owner === process.geteuid?.()) return undefined
  try {
    fs.accessSync(folder, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK)
    return undefined
  } catch {
    const self = process.geteuid?.() ?? 0
    return owner === 0
      ? `it belongs to ${quoted(0)}, and ${quoted(self)} cannot write there: give it to this user with chown -R ${
        nameOf(self) ?? self
      } ${folder} (for a container, the folder of the machine that is mounted there)`
      : `it belongs to ${quoted(owner)}: ${becoming(owner)}`
  }
}

/** Returns an instruction to run the program as the owner of a file. */
export const ownerInWords = (file: string): string => {
  const owner = statOf(file)?.uid
  return owner === undefined ? "run this as the user of the server" : becoming(owner)
}

const OTHERS = 0o077

/**
 * Removes all permissions of the group and of others from an entry and everything below it. Links below the entry are
 * not followed.
 */
const close = (file: string, stats: fs.Stats): void => {
  if ((stats.mode & OTHERS) !== 0) fs.chmodSync(file, stats.mode & 0o7777 & ~OTHERS)
  if (!stats.isDirectory()) return
  for (const name of fs.readdirSync(file)) {
    const below = path.join(file, name)
    const found = fs.lstatSync(below, { throwIfNoEntry: false })
    if (found !== undefined && !found.isSymbolicLink()) close(below, found)
  }
}

/** Removes the permissions of other users on a folder and everything below it. */
export const closeTree = (folder: string): void => close(folder, fs.statSync(folder))

/**
 * Removes the permissions of other users on these entries of a folder. Returns the entries that were open to other
 * users. An entry that is not open itself is not searched, because other users cannot reach what is below it.
 */
export const closeToOthers = (folder: string, names: ReadonlyArray<string>): ReadonlyArray<string> =>
  names.filter((name) => {
    const entry = path.join(folder, name)
    const found = statOf(entry)
    if (found === undefined || (found.mode & OTHERS) === 0) return false
    close(entry, found)
    return true
  })

/** Whether one of these entries is still open to other users, because the file system does not store modes. */
export const staysOpen = (folder: string, names: ReadonlyArray<string>): boolean =>
  names.some((name) => ((statOf(path.join(folder, name))?.mode ?? 0) & OTHERS) !== 0)
