import { Redacted, Result } from "effect"
import { isIP } from "node:net"

/** A setting: how its text is parsed, its default, and its description in docs/configuration.md. */
export interface Setting<A> {
  readonly parse: (text: string) => Result.Result<A, string>
  readonly fallback: A
  /** The default in a form that people read. */
  readonly shown: string
  readonly about: string
  readonly secret: boolean
}

/** A setting with a default. */
export const make = <A>(
  parse: Setting<A>["parse"],
  fallback: A,
  about: string,
  options?: { readonly shown?: string; readonly secret?: boolean }
): Setting<A> => ({
  parse,
  fallback,
  shown: options?.shown ?? String(fallback),
  about,
  secret: options?.secret ?? false
})

/** Parses a whole number from `min` to `max`. */
export const wholeNumber = (min: number, max: number): Setting<number>["parse"] => (text) =>
  /^-?\d+$/.test(text) && Number(text) >= min && Number(text) <= max
    ? Result.succeed(Number(text))
    : Result.fail(`expected a whole number from ${min} to ${max}`)

/** A setting that is a whole number. */
export const int = (fallback: number, about: string, min = 0, max = Number.MAX_SAFE_INTEGER) =>
  make(wholeNumber(min, max), fallback, about)

/** A setting that can be unset. `shown` describes the default in a form that people read. */
export const maybe = <A>(parse: Setting<A>["parse"], about: string, shown = "none", secret = false) =>
  make<A | undefined>(parse, undefined, about, { shown, secret })

/** Parses a list of times in seconds. */
export const seconds: Setting<ReadonlyArray<number>>["parse"] = (text) => {
  const parts = text.split(",").map((part) => part.trim())
  return parts.length <= 32 && parts.every((part) => /^\d{1,7}$/.test(part) && Number(part) >= 1)
    ? Result.succeed(parts.map(Number))
    : Result.fail("expected up to 32 whole numbers of seconds with commas between them")
}

/** Accepts any text. */
export const anyText: Setting<string>["parse"] = (text) => Result.succeed(text)

/** Accepts a folder, or `s3://BUCKET/PREFIX`. */
export const backupPlace: Setting<string>["parse"] = (text) =>
  !/^[a-z0-9+.-]+:\/\//i.test(text) || /^s3:\/\/[a-z0-9][a-z0-9.-]+(\/|$)/.test(text)
    ? Result.succeed(text)
    : Result.fail("expected a folder, or s3://BUCKET/PREFIX")

/** Accepts one of these texts. */
export const oneOf = <const L extends ReadonlyArray<string>>(...options: L): Setting<L[number]>["parse"] => (text) => {
  const found = options.find((option) => option === text)
  return found === undefined ? Result.fail(`expected one of ${options.join(", ")}`) : Result.succeed(found)
}

/** Parses a URL with one of these protocols, and removes slashes at its end. */
export const url = (...protocols: ReadonlyArray<string>): Setting<string>["parse"] => (text) =>
  URL.canParse(text) && protocols.includes(new URL(text).protocol)
    ? Result.succeed(text.replace(/\/+$/, ""))
    : Result.fail(`expected a URL beginning with ${protocols.map((p) => `${p}//`).join(" or ")}`)

/** Parses a URL that may contain a password. */
export const secretUrl = (...protocols: ReadonlyArray<string>): Setting<Redacted.Redacted<string>>["parse"] => (text) =>
  Result.map(url(...protocols)(text), (value) => Redacted.make(value))

/** Parses URL schemes such as `vscode`, separated by commas, or `none`. Returns them in lower case. */
export const schemes: Setting<ReadonlyArray<string>>["parse"] = (text) => {
  const parts = text === "none" ? [] : text.toLowerCase().split(",").map((part) => part.trim())
  return parts.every((part) =>
      /^[a-z][a-z0-9+.-]*$/.test(part) &&
      !["http", "https", "javascript", "data", "file", "blob", "about"].includes(part)
    )
    ? Result.succeed(parts)
    : Result.fail("expected schemes such as vscode with commas between them, or none")
}

/** Parses domain names, separated by commas, or `none`. Returns them in lower case. */
export const domains: Setting<ReadonlyArray<string>>["parse"] = (text) => {
  const parts = text === "none" ? [] : text.toLowerCase().split(",").map((part) => part.trim())
  return parts.every((part) => /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}$/.test(part))
    ? Result.succeed(parts)
    : Result.fail("expected domain names such as example.com with commas between them, or none")
}

/** A person whom a proxy signs in to the console. `name` is what the proxy sends, in lower case. */
export interface ConsolePerson {
  readonly name: string
  readonly person: string
  readonly role: "viewer" | "moderator" | "operator"
}

/** The audit log uses the names `server` and `enforcement` itself. */
const PERSON =
  /^([!-+\--~]{1,254})=(?!(?:server|enforcement):)([a-z0-9][a-z0-9._-]{0,99}):(viewer|moderator|operator)$/i

/** Splits what `consolePeople` accepts. */
export const consolePerson = (entry: string): ConsolePerson | undefined => {
  const [, name, person, role] = PERSON.exec(entry) ?? []
  return name === undefined || person === undefined || role === undefined
    ? undefined
    : { name: name.toLowerCase(), person, role: role.toLowerCase() as ConsolePerson["role"] }
}

/** Parses people whom a proxy signs in: `NAME=PERSON:ROLE`, separated by commas, or `none`. */
export const consolePeople: Setting<ReadonlyArray<string>>["parse"] = (text) => {
  const parts = text === "none" ? [] : text.split(",").map((part) => part.trim())
  const people = parts.map(consolePerson)
  const different = (of: (person: ConsolePerson) => string) =>
    new Set(people.map((one) => one === undefined ? "" : of(one).toLowerCase())).size === people.length
  return people.includes(undefined)
    ? Result.fail(
      "expected two names and a role, such as nina@example.com=nina:operator, with commas between the people, or none"
    )
    : different(({ name }) => name) && different(({ person }) => person)
    ? Result.succeed(parts)
    : Result.fail("expected each person once")
}

/** Accepts a secret of at least 16 characters that a header can carry. */
export const longSecret: Setting<Redacted.Redacted<string>>["parse"] = (text) =>
  /^[!-~]{16,}$/.test(text) && !/change-this/i.test(text)
    ? Result.succeed(Redacted.make(text))
    : Result.fail("expected a secret of your own, at least 16 visible ASCII characters")

/** Parses IP addresses and networks in CIDR notation, separated by commas, or `none`. */
export const networks: Setting<ReadonlyArray<string>>["parse"] = (text) => {
  const parts = text === "none" ? [] : text.split(",").map((part) => part.trim())
  const isNetwork = (part: string): boolean => {
    const [address = "", prefix, ...more] = part.split("/")
    const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1
    return bits > 0 && more.length === 0 &&
      (prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bits))
  }
  return parts.every(isNetwork)
    ? Result.succeed(parts)
    : Result.fail("expected IP addresses and networks such as 10.0.0.0/8 with commas between them, or none")
}

/** Parses a number from 0 to 1. */
export const share: Setting<number>["parse"] = (text) =>
  /^(?:0|1|[01]?\.\d+)$/.test(text) && Number(text) <= 1
    ? Result.succeed(Number(text))
    : Result.fail("expected a number from 0 to 1")

/** Accepts headers as OpenTelemetry writes them: `name=value`, separated by commas, with percent-encoded values. */
export const otlpHeaders: Setting<Redacted.Redacted<string>>["parse"] = (text) => {
  const isPair = (pair: string): boolean => {
    try {
      return /^[!#$%&'*+.^_`|~0-9A-Za-z-]+=[ -~]+$/.test(pair) && !/[\r\n]/.test(decodeURIComponent(pair))
    } catch {
      return false
    }
  }
  return text.split(",").every((pair) => isPair(pair.trim()))
    ? Result.succeed(Redacted.make(text))
    : Result.fail("expected name=value with commas between them, values percent-encoded")
}

/** Accepts a secret that an Authorization header can carry. */
export const secretWord: Setting<Redacted.Redacted<string>>["parse"] = (text) =>
  /^[!-~]+$/.test(text)
    ? Result.succeed(Redacted.make(text))
    : Result.fail("expected one word of visible ASCII characters")

/** Accepts one secret or, during a rotation, two secrets: the new one, then the old one. */
export const secrets: Setting<Redacted.Redacted<string>>["parse"] = (text) => {
  const parts = text.split(",").map((part) => part.trim())
  return parts.length <= 2 && parts.every((part) => part !== "")
    ? Result.succeed(Redacted.make(text))
    : Result.fail("expected one secret, or two with a comma between them: the new one, the old one")
}
