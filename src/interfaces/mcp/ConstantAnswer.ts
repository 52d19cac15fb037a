import type { InboundClassificationOutcome, JSONRPCRequest } from "@modelcontextprotocol/server"
import { Effect, Predicate } from "effect"
import { type Headers, type HttpBody, HttpServerResponse } from "effect/http"
import { isOlder, isPlainModern, progressTokenIsValid } from "./PlainCall.ts"
import type { Toolset } from "./Toolset.ts"

/**
 * The methods whose result depends only on the revision, the tools, and whether the client asked for structured
 * results.
 */
const METHODS = new Set([
  "tools/list",
  "resources/list",
  "resources/templates/list",
  "prompts/list",
  "events/list",
  "ping"
])

/** A request whose result is the same for all agents. */
export interface ConstantRequest {
  readonly id: string | number
  /** The key of the result among the constants of a toolset. */
  readonly key: string
  /** The message, reduced to what the result depends on. */
  readonly message: JSONRPCRequest
}

/**
 * Returns the request if it is a ping or asks for the first page of a list that never changes, and the library would
 * not refuse it. Returns undefined otherwise. Fields that the library ignores are ignored here too.
 */
export const constantRequestOf = (
  kind: InboundClassificationOutcome,
  headers: Headers.Headers,
  body: { readonly id?: unknown; readonly jsonrpc?: unknown; readonly method?: unknown; readonly params?: unknown },
  structured: boolean
): ConstantRequest | undefined => {
  const { id, jsonrpc, method, params = {} } = body
  if (jsonrpc !== "2.0" || typeof method !== "string" || !METHODS.has(method)) return undefined
  if (typeof id !== "string" && (typeof id !== "number" || !Number.isSafeInteger(id))) return undefined
  if (!Predicate.isObject(params)) return undefined
  const { _meta: meta, cursor } = params
  if ((cursor ?? "") !== "") return undefined
  if (meta !== undefined && (!Predicate.isObject(meta) || !progressTokenIsValid(meta))) return undefined
  if (isOlder(kind, headers)) {
    return { id, key: `older ${method} ${structured}`, message: { jsonrpc: "2.0", id, method } }
  }
  return meta !== undefined && isPlainModern(kind, headers, method)
    ? { id, key: `modern ${method} ${structured}`, message: { jsonrpc: "2.0", id, method, params: { _meta: meta } } }
    : undefined
}

const resultOf = ({ body }: { readonly body: HttpBody.HttpBody }): object | undefined =>
  body._tag === "Uint8Array"
    ? (JSON.parse(Buffer.from(body.body).toString()) as { readonly result?: object }).result
    : undefined

const END = Buffer.from("}")

/**
 * Responds to a request whose result is constant. The first request with a key calls `make`, which lets the library
 * respond. Later requests with the same key get the same result.
 */
export const answerConstant = <E, R>(
  { id, key, message }: ConstantRequest,
  { toolset: { constants } }: { readonly toolset: Pick<Toolset<never>, "constants"> },
  make: (message: JSONRPCRequest) => Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, E, R> => {
  const kept = constants.get(key)
  if (kept !== undefined) {
    const bytes = Buffer.concat([kept, Buffer.from(JSON.stringify(id)), END])
    return Effect.succeed(HttpServerResponse.uint8Array(bytes, { contentType: "application/json" }))
  }
  return Effect.tap(make(message), (response) =>
    Effect.sync(() => {
      const result = response.status === 200 ? resultOf(response) : undefined
      if (result !== undefined)
        constants.set(key, Buffer.from(`{"result":${JSON.stringify(result)},"jsonrpc":"2.0","id":`))
    }))
}
