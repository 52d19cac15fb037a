import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { Option, Schema } from "effect"
import type { Client } from "./AuthorizationRequest.ts"
import { ClientName } from "./ClientMetadata.ts"
import { redirectUriOf } from "./RedirectUri.ts"

/** The most bytes of a document. */
export const MAX_DOCUMENT_BYTES = 5_120
/** For how long a document is cached, at least and at most, in milliseconds. */
const [LEAST_AGE_MS, MOST_AGE_MS] = [300_000, 86_400_000]
const MAX_URIS = 50

/**
 * The URL of a client's document (P, "Client id metadata documents"), if the client id is one: https on port 443 with a
 * path, and in exactly one spelling. Anything that URL parsers change, such as a dot segment or a default port, is
 * refused.
 */
export const documentUrl = (clientId: string): URL | undefined => {
  const url = clientId.length > 2_048 || !clientId.startsWith("https://") ? undefined : absoluteUrl(clientId)
  if (url === undefined) return undefined
  const isPlain = url.href === clientId && url.pathname !== "/" && url.port === "" && !clientId.includes("#") &&
    !/%2e/i.test(url.pathname)
  return isPlain ? url : undefined
}

const Document = Schema.fromJsonString(Schema.Struct({
  client_id: Schema.String,
  client_name: Schema.optionalKey(Schema.NullOr(ClientName)),
  redirect_uris: Schema.Array(Schema.String).check(Schema.isMinLength(1), Schema.isMaxLength(MAX_URIS)),
  token_endpoint_auth_method: Schema.optionalKey(Schema.NullOr(Schema.String)),
  token_endpoint_auth_methods_supported: Schema.optionalKey(Schema.NullOr(Schema.Array(Schema.String)))
}))
const decode = Schema.decodeUnknownOption(Document)

/**
 * Whether the client can do without a secret: the document is public, so nobody could keep one. ChatGPT's document
 * prefers another method, and lists `none` beside it.
 */
const isPublic = (
  { token_endpoint_auth_method: method, token_endpoint_auth_methods_supported: methods }: typeof Document.Type
): boolean => method === undefined || method === null || method === "none" || methods?.includes("none") === true

/**
 * Reads a client's document. Returns `undefined` if it is no document of this client: another `client_id`, no redirect
 * URI that this server would use, or no method `none`.
 */
export const readDocument = (clientId: string, text: string, schemes: ReadonlyArray<string>): Client | undefined => {
  const document = Option.getOrUndefined(decode(text))
  if (document?.client_id !== clientId || !isPublic(document)) return undefined
  const redirectUris = document.redirect_uris.filter((uri) => redirectUriOf(uri, schemes) !== undefined)
  return redirectUris.length === 0
    ? undefined
    : { id: clientId, source: "document", redirectUris, name: document.client_name ?? null }
}

/** For how long a document may be cached, by its `Cache-Control`, in milliseconds. */
export const cacheMs = (cacheControl: string | undefined): number => {
  const directives = cacheControl?.toLowerCase() ?? ""
  if (/\b(?:no-store|no-cache)\b/.test(directives)) return LEAST_AGE_MS
  const seconds = Number(/\bmax-age="?(\d{1,10})/.exec(directives)?.[1] ?? 0)
  return Math.min(MOST_AGE_MS, Math.max(LEAST_AGE_MS, seconds * 1_000))
}
