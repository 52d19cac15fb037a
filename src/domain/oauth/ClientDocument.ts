import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { parseMediaType } from "#infrastructure/wire/MediaType"
import { Option, Schema } from "effect"
import type { Client } from "./AuthorizationRequest.ts"
import { ClientName } from "./ClientMetadata.ts"
import { redirectUriOf } from "./RedirectUri.ts"

/** The largest size of a document, in bytes. */
export const MAX_DOCUMENT_BYTES = 5_120
/** How long a document is cached at least and at most, in milliseconds. */
const [LEAST_AGE_MS, MOST_AGE_MS] = [300_000, 86_400_000]
const MAX_URIS = 50

/**
 * Returns the URL of a client's document (wire.md P, "Client id metadata documents") if the client id is such a URL:
 * https on port 443, with a path, in its normal spelling. A URL that a parser changes, for example one with a dot
 * segment or a default port, is refused.
 */
export const documentUrl = (clientId: string): URL | undefined => {
  const url = clientId.length > 2_048 || !clientId.startsWith("https://") ? undefined : absoluteUrl(clientId)
  if (url === undefined) return undefined
  const isPlain = url.href === clientId && url.pathname !== "/" && url.port === "" && !clientId.includes("#") &&
    !/%2e/i.test(url.pathname)
  return isPlain ? url : undefined
}

/** Whether the `Content-Type` of a response says that it is JSON. */
export const isJsonType = (contentType: string | undefined): boolean =>
  /^application\/(?:.+\+)?json$/.test(parseMediaType(contentType ?? "")?.type ?? "")

const Document = Schema.fromJsonString(Schema.Struct({
  client_id: Schema.String,
  client_name: Schema.optionalKey(Schema.NullOr(ClientName)),
  redirect_uris: Schema.Array(Schema.String).check(Schema.isMinLength(1), Schema.isMaxLength(MAX_URIS)),
  token_endpoint_auth_method: Schema.optionalKey(Schema.NullOr(Schema.String)),
  token_endpoint_auth_methods_supported: Schema.optionalKey(Schema.NullOr(Schema.Array(Schema.String)))
}))
const decode = Schema.decodeUnknownOption(Document)

/**
 * Whether the client can authenticate without a secret. A client with a document must, because the document is public
 * and cannot contain a secret. ChatGPT's document prefers another method and lists `none` as an alternative.
 */
const isPublic = (
  { token_endpoint_auth_method: method, token_endpoint_auth_methods_supported: methods }: typeof Document.Type
): boolean => method === undefined || method === null || method === "none" || methods?.includes("none") === true

/**
 * Reads a client's document. Returns `undefined` if the text is not a usable document of this client: it has another
 * `client_id`, no redirect URI that this server accepts, or no method `none`.
 */
export const readDocument = (clientId: string, text: string, schemes: ReadonlyArray<string>): Client | undefined => {
  const document = Option.getOrUndefined(decode(text))
  if (document?.client_id !== clientId || !isPublic(document)) return undefined
  const redirectUris = document.redirect_uris.filter((uri) => redirectUriOf(uri, schemes) !== undefined)
  return redirectUris.length === 0
    ? undefined
    : { id: clientId, source: "document", redirectUris, name: document.client_name ?? null }
}

/** How long a document may be cached according to its `Cache-Control`, in milliseconds. */
export const cacheMs = (cacheControl: string | undefined): number => {
  const directives = cacheControl?.toLowerCase() ?? ""
  if (/\b(?:no-store|no-cache)\b/.test(directives)) return LEAST_AGE_MS
  const seconds = Number(/\bmax-age="?(\d{1,10})/.exec(directives)?.[1] ?? 0)
  return Math.min(MOST_AGE_MS, Math.max(LEAST_AGE_MS, seconds * 1_000))
}
