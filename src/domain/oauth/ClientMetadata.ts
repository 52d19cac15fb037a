import { Name } from "#infrastructure/wire/Name"
import { exactSize } from "#infrastructure/wire/Size"
import { Option, Schema, SchemaTransformation } from "effect"
import { AuthMethod, type Registered, shownName } from "./ClientId.ts"
import { redirectUriOf } from "./RedirectUri.ts"

/**
 * The largest size of a registration, and of all its redirect URIs together, in bytes. The sizes are limited because
 * the client id contains the metadata and is sent in URLs.
 */
export const MAX_REGISTRATION_BYTES = 8_192
const MAX_URI_BYTES = 1_200

/**
 * The name that a client gives itself, with the rule for names (wire.md C.2). `null` if the name is empty. A long name
 * is cut and not refused, because Claude Code makes names of any length.
 */
export const ClientName = Name(0, MAX_REGISTRATION_BYTES).pipe(
  Schema.decodeTo(
    Schema.NullOr(Schema.String),
    SchemaTransformation.transform({ decode: shownName, encode: (name) => name ?? "" })
  )
)

const Metadata = Schema.Struct({
  redirect_uris: Schema.Array(Schema.String),
  client_name: Schema.optionalKey(Schema.NullOr(ClientName)),
  token_endpoint_auth_method: Schema.optionalKey(Schema.NullOr(AuthMethod))
})
const decode = Schema.decodeUnknownOption(Metadata)

export type RegistrationError = {
  readonly error: "invalid_redirect_uri" | "invalid_client_metadata"
  readonly message: string
}

/**
 * Reads the metadata of a registration (RFC 7591; wire.md P, `POST /register`). Ignores fields that the server does not
 * use.
 */
export const readRegistration = (body: unknown, schemes: ReadonlyArray<string>): Registered | RegistrationError => {
  const metadata = Option.getOrUndefined(decode(body))
  if (metadata === undefined) {
    return {
      error: "invalid_client_metadata",
      message:
        "Send a JSON object with redirect_uris, a list of texts; client_name is one line of text without control characters; " +
        "token_endpoint_auth_method is none, client_secret_post or client_secret_basic."
    }
  }
  const { client_name: name, redirect_uris: redirectUris } = metadata
  if (redirectUris.length < 1 || redirectUris.length > 10)
    return { error: "invalid_redirect_uri", message: "redirect_uris must have 1 to 10 entries." }
  if (Buffer.byteLength(redirectUris.join("")) > MAX_URI_BYTES) {
    return {
      error: "invalid_redirect_uri",
      message: `redirect_uris must have at most ${exactSize(MAX_URI_BYTES)} together.`
    }
  }
  const bad = redirectUris.find((uri) => redirectUriOf(uri, schemes) === undefined)
  if (bad !== undefined) {
    return {
      error: "invalid_redirect_uri",
      message:
        `${bad} is not permitted. Use https, http on localhost, or a private scheme that has a dot or that this server knows; without a fragment, a user or a wildcard.`
    }
  }
  return { redirectUris, name: name ?? null, method: metadata.token_endpoint_auth_method ?? "none" }
}
