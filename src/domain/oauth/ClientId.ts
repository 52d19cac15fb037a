import { plainName } from "#infrastructure/wire/Name"
import { Schema } from "effect"
import { createHmac, timingSafeEqual } from "node:crypto"

/** How a client authenticates at `/token`. With `none`, PKCE is the only proof. */
export const AuthMethod = Schema.Literals(["none", "client_secret_post", "client_secret_basic"])
export type AuthMethod = typeof AuthMethod.Type

/** The metadata that a client registers about itself. It is not verified. */
export interface Registered {
  readonly redirectUris: ReadonlyArray<string>
  readonly name: string | null
  readonly method: AuthMethod
}

const MAX_NAME = 60

/**
 * The first 60 characters of a client's name, without the characters that are not allowed in names. `null` if nothing
 * is left.
 */
export const shownName = (name: string): string | null => {
  // Cutting can leave a blank or a joiner at the end, so `plainName` is applied again.
  const shown = plainName(Array.from(plainName(name)).slice(0, MAX_NAME).join(""))
  return shown === "" ? null : shown
}

const Stored = Schema.fromJsonString(
  Schema.Tuple([Schema.Array(Schema.String), Schema.NullOr(Schema.String), AuthMethod])
)
const encode = Schema.encodeSync(Stored)
const decode = Schema.decodeUnknownOption(Stored)

/** Random bytes that make two registrations of equal metadata different clients. */
export const SALT_BYTES = 16
const MAC_BYTES = 32
const CLIENT_ID = /^occ_[A-Za-z0-9_-]{64,4096}$/

const mac = (key: Buffer, purpose: string, data: string | Buffer): Buffer =>
  createHmac("sha256", key).update(purpose).update("\0").update(data).digest()

/**
 * Makes the id of a registered client. The id contains the metadata, so that the server stores nothing. Hosts keep
 * unused ids for ever, and an endpoint that is open to everybody must not fill the database. `salt` contains
 * `SALT_BYTES` random bytes.
 */
export const clientIdOf = (key: Buffer, { method, name, redirectUris }: Registered, salt: Buffer): string => {
  const data = Buffer.concat([salt, Buffer.from(encode([redirectUris, name, method]))])
  return `occ_${Buffer.concat([mac(key, "client", data), data]).toString("base64url")}`
}

/** A registered client whose id was made with one of the server's keys. */
export interface KnownClient extends Registered {
  /** The key with which the id was made. The client's secret is made with the same key. */
  readonly key: Buffer
}

/**
 * Reads an id that this server has made with its current key or an earlier one. Returns `undefined` for any other text.
 */
export const registeredOf = (keys: ReadonlyArray<Buffer>, clientId: string): KnownClient | undefined => {
  if (!CLIENT_ID.test(clientId)) return undefined
  const bytes = Buffer.from(clientId.slice(4), "base64url")
  const [given, data] = [bytes.subarray(0, MAC_BYTES), bytes.subarray(MAC_BYTES)]
  const key = keys.find((key) => timingSafeEqual(mac(key, "client", data), given))
  if (key === undefined) return undefined
  const stored = decode(data.subarray(SALT_BYTES).toString())
  if (stored._tag === "None") return undefined
  const [redirectUris, name, method] = stored.value
  // An id from an earlier release may contain any name.
  return { redirectUris, name: name === null ? null : shownName(name), method, key }
}

/**
 * The secret of a client that authenticates with one: `ocs_` and 43 url-safe base64 characters. The secret is derived
 * from the id.
 */
export const secretOf = (key: Buffer, clientId: string): string =>
  `ocs_${mac(key, "secret", clientId).toString("base64url")}`

/** Whether `given` is the client's secret. Compares in constant time. */
export const isSecretOf = (key: Buffer, clientId: string, given: string): boolean => {
  const [wanted, found] = [Buffer.from(secretOf(key, clientId)), Buffer.from(given)]
  return wanted.length === found.length && timingSafeEqual(wanted, found)
}
