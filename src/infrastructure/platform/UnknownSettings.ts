import { Context, TextDiff } from "effect"

/** The environment variables of this process. */
export class Environment extends Context.Reference<Readonly<Record<string, string | undefined>>>(
  "parley/platform/UnknownSetting/Environment",
  { defaultValue: () => process.env }
) {}

/** An environment variable that looks like a misspelled setting, and the most similar setting. */
export interface UnknownSetting {
  readonly name: string
  readonly nearest: string
}

/**
 * Returns how many letters must be removed or added to turn one name into the other. A changed letter counts as two,
 * and so do two swapped letters.
 */
const distance = (a: string, b: string): number =>
  TextDiff.codePoints(a, b).reduce((letters, { _tag, items }) => _tag === "Equal" ? letters : letters + items.length, 0)

/** How many letters two names do not have in common, in any order. It is never more than their distance. */
const lettersApart = (a: string, b: string): number => {
  let rest = b
  let apart = 0
  for (const letter of a) {
    const at = rest.indexOf(letter)
    if (at === -1) apart++
    else rest = rest.slice(0, at) + rest.slice(at + 1)
  }
  return apart + rest.length
}

/** Whether the distance is at most `most`. Most pairs differ in so many letters that it need not be computed. */
const isWithin = (a: string, b: string, most: number): boolean => lettersApart(a, b) <= most && distance(a, b) <= most

/**
 * Whether `name` is `right` with some words left out or shortened. A shortened word consists of its first three or more
 * letters.
 */
const abbreviates = (name: string, right: string): boolean => {
  let rest = right.split("_")
  for (const word of name.split("_")) {
    const at = rest.findIndex((one) => one === word || (word.length >= 3 && one.startsWith(word)))
    if (at === -1) return false
    rest = rest.slice(at + 1)
  }
  return true
}

const firstWord = (name: string): string => name.split("_", 1)[0] ?? ""

/**
 * First words of setting names that no other software uses. A variable that begins with one of them is meant for
 * Parley.
 */
const OWN: ReadonlySet<string> = new Set([
  "LIMITS",
  "SOCKETS",
  "PRESENCE",
  "RETENTION",
  "IDEMPOTENCY",
  "UPLOADS",
  "DOWNLOADS"
])

/**
 * Variables of other software. Kubernetes and Docker set such variables for linked services, and other programs use
 * them for databases and mail servers.
 */
const FOREIGN = [
  /_PORT$/,
  /_PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?$/,
  /_SERVICE_HOST$/,
  /_SERVICE_PORT(_[A-Z0-9_]+)?$/,
  /^(DATABASE|REDIS|S3|SMTP|MAIL|HTTP)_(HOST|USER|USERNAME|PASSWORD|NAME|DB|ENV_\w+)$/,
  // Set by the CI runners of GitHub and GitLab.
  /^RUNNER_(OS|ARCH|NAME|TEMP|TOOL_CACHE|DEBUG|ENVIRONMENT|TRACKING_ID|WORKSPACE|PERFLOG|ALLOW_RUNASROOT|TOKEN|EXECUTOR)$/
]

/**
 * Whether `name` is similar enough to `right` to be a misspelling. If their first words differ, at most one letter may
 * be wrong, missing, added or in another place.
 */
const isNear = (name: string, right: string): boolean => {
  if (firstWord(name) === firstWord(right) && name.includes("_")) {
    return abbreviates(name, right) || isWithin(name, right, 2 * Math.min(3, Math.floor(name.length / 5)))
  }
  return name.length >= 7 && Math.abs(name.length - right.length) <= 1 && isWithin(name, right, 2)
}

const nearestOf = (name: string, rights: ReadonlyArray<string>): string => {
  let nearest = ""
  let least = Infinity
  for (const right of rights) {
    // An abbreviation always counts as nearer than a name that is only similar.
    const far = distance(name, right) - (abbreviates(name, right) ? 1_000 : 0)
    if (far < least) {
      nearest = right
      least = far
    }
  }
  return nearest
}

/**
 * Returns the most similar of these names: the same name, a name that `name` abbreviates, or a name of which at most
 * one letter in four is wrong. In a short name, one letter may be missing or added. Returns undefined if no name is
 * similar enough.
 */
export const similar = (name: string, rights: ReadonlyArray<string>): string | undefined => {
  const nearest = nearestOf(name, rights)
  if (nearest === "") return undefined
  const near = abbreviates(name, nearest) || distance(name, nearest) <= Math.max(1, 2 * Math.floor(name.length / 4))
  return near ? nearest : undefined
}

/** Returns the variables that look like misspelled settings. Empty variables count as not set. */
export const unknownSettings = (
  environment: Readonly<Record<string, string | undefined>>,
  rights: ReadonlyArray<string>
): ReadonlyArray<UnknownSetting> => {
  const known = new Set(rights)
  return Object.entries(environment).flatMap(([name, value]) => {
    if (known.has(name) || value === undefined || value.trim() === "" || FOREIGN.some((pattern) => pattern.test(name)))
      return []
    const meant = (OWN.has(firstWord(name)) && name.includes("_")) || rights.some((right) => isNear(name, right))
    return meant ? [{ name, nearest: nearestOf(name, rights) }] : []
  })
}
