import { MAX_RPC_ID } from "#infrastructure/wire/RpcId"
import {
  CLIENT_CAPABILITIES_META_KEY,
  CLIENT_INFO_META_KEY,
  LOG_LEVEL_META_KEY,
  PROTOCOL_VERSION_META_KEY
} from "@modelcontextprotocol/server"
import { Predicate } from "effect"

/** A JSON object. */
type Json = Readonly<Record<string, unknown>>

/** How one parameter is checked and read. */
interface Field {
  readonly isRequired: boolean
  /** Returns the value that the method receives. Throws InvalidParams if the parameter is invalid. */
  readonly read: (given: unknown, at: string) => unknown
}

type Fields = Readonly<Record<string, Field>>

/** Parameters are invalid. `message` says why, in a sentence. */
export class InvalidParams {
  readonly _tag = "InvalidParams"
  readonly message: string

  constructor(message: string) {
    this.message = message
  }
}

const field = (is: (given: unknown) => boolean, must: string): Field => ({
  isRequired: false,
  read: (given, at) => {
    if (!is(given)) throw new InvalidParams(`${at} ${must}.`)
    return given
  }
})

const objectOf = (given: unknown, at: string): Json => {
  if (!Predicate.isObject(given)) throw new InvalidParams(`${at} must be an object.`)
  return given as Json
}

/** Reads the fields of an object that a method knows. A null counts as an absent field. */
const readFields = (fields: Fields, given: Json, prefix: string): Json => {
  const read: Record<string, unknown> = {}
  for (const [name, one] of Object.entries(fields)) {
    const value = given[name] ?? undefined
    if (value !== undefined) read[name] = one.read(value, prefix + name)
    else if (one.isRequired) throw new InvalidParams(`${prefix}${name} is missing.`)
  }
  return read
}

const struct = (fields: Fields): Field => ({
  isRequired: false,
  read: (given, at) => readFields(fields, objectOf(given, at), `${at}.`)
})

const required = (one: Field): Field => ({ ...one, isRequired: true })

const isText = (given: unknown): boolean => typeof given === "string"
const text = field(isText, "must be a text")
const flag = field((given) => typeof given === "boolean", "must be true or false")
const anyObject: Field = { isRequired: false, read: objectOf }

/** An object whose values are texts. A null counts as an absent field. */
const objectOfTexts: Field = {
  isRequired: false,
  read: (given, at) =>
    Object.fromEntries(
      Object.entries(objectOf(given, at)).flatMap(([name, value]) => {
        if (value === null) return []
        if (!isText(value)) throw new InvalidParams(`${at}.${name.slice(0, 40)} must be a text.`)
        return [[name, value]]
      })
    )
}

/** The parameters of a list. All lists have one page, so no cursor except the empty text is valid. */
const list: Fields = { cursor: field((given) => given === "", "is not a cursor of this list, which has one page") }

/** The parameters of each method. The library receives only these parameters, because the server needs no others. */
const METHODS: ReadonlyMap<unknown, Fields> = new Map(Object.entries(
  {
    "initialize": {
      protocolVersion: required(text),
      // The server keeps no state between requests, so it uses no capability of the client.
      capabilities: required({ isRequired: true, read: (given, at) => objectOf(given, at) && {} }),
      clientInfo: required(struct({ name: required(text), version: required(text) }))
    },
    "ping": {},
    "server/discover": {},
    "tools/list": list,
    "tools/call": { name: required(text), arguments: anyObject },
    "resources/list": list,
    "resources/templates/list": list,
    "resources/read": { uri: required(text) },
    "prompts/list": list,
    "prompts/get": { name: required(text), arguments: objectOfTexts },
    "subscriptions/listen": {
      notifications: required(struct({
        toolsListChanged: flag,
        promptsListChanged: flag,
        resourcesListChanged: flag,
        resourceSubscriptions: field((given) => Array.isArray(given) && given.every(isText), "must be a list of texts")
      }))
    }
  } satisfies Record<string, Fields>
))

const isToken = (given: unknown): boolean =>
  typeof given === "string" ? given.length <= MAX_RPC_ID : Number.isSafeInteger(given)

const META: Fields = {
  progressToken: field(isToken, `must be a text of at most ${MAX_RPC_ID} characters or a whole number`),
  // The library checks these fields itself, and its errors for them are readable sentences.
  ...Object.fromEntries(
    [PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY].map((
      key
    ) => [key, field(() => true, "")])
  )
}

const readParams = (method: unknown, given: Json): Json => {
  const fields = METHODS.get(method)
  const { _meta: meta = null, ...others } = given
  const read = fields === undefined ? others : readFields(fields, given, "")
  return meta === null ? read : { ...read, _meta: readFields(META, objectOf(meta, "_meta"), "_meta.") }
}

/**
 * Returns the request with only those parameters that its method knows, or the reason why they are refused. They are
 * checked here because the library would refuse them with the raw output of its validator. A null counts as absent. The
 * methods of MCP Events check their parameters themselves.
 */
export const withReadParams = <M extends { readonly method?: unknown; readonly params?: unknown }>(
  request: M
): M | InvalidParams => {
  const { params: given = null, ...rest } = request
  try {
    const params = readParams(request.method, given === null ? {} : objectOf(given, "params"))
    return { ...rest, ...(Object.keys(params).length === 0 ? {} : { params }) } as M
  } catch (error) {
    if (error instanceof InvalidParams) return error
    throw error
  }
}
