import { BodyLimit, smallBody } from "#infrastructure/http/EndpointOptions"
import type { Protocol } from "#infrastructure/http/Protocol"
import type { WireFailure } from "#infrastructure/wire/WireError"
import { Context } from "effect"

/** The protocol's paths at the root. One MCP host assumes these paths without reading the metadata. */
export const AUTHORIZE = "/authorize"
export const TOKEN = "/token"
export const REGISTER = "/register"
export const REVOKE = "/revoke"
/** The path of the page on which a person signs in, and the prefix of the paths that this page calls. */
export const SIGN_IN = "/oauth/sign-in"
export const REQUESTS = "/oauth/requests/"
export const WELL_KNOWN = "/.well-known/oauth-"

/** The OAuth error code for an error of this server that defines none. */
const errorOf = ({ status }: WireFailure): string =>
  status === 429 || status === 503 ? "temporarily_unavailable" : status < 500 ? "invalid_request" : "server_error"

const oauthBody = (failure: WireFailure) => ({ error: errorOf(failure), error_description: failure.message })

/** The paths that programs call, even from web pages of any origin: metadata, registration, tokens and revocation. */
const programs: Protocol = {
  includes: (path) => path === TOKEN || path === REGISTER || path === REVOKE || path.startsWith(WELL_KNOWN),
  refusalBodyOf: () => oauthBody,
  annotations: Context.make(BodyLimit, smallBody),
  cors: { allowOrigin: () => "*", requestHeaders: "Authorization, Content-Type, Accept, MCP-Protocol-Version" }
}

/** The paths that the sign-in page calls. Pages of other origins may not call them. */
const page: Protocol = {
  includes: (path) => path === AUTHORIZE || path.startsWith(REQUESTS),
  annotations: Context.make(BodyLimit, smallBody)
}

/** Recognizes OAuth requests before their routes run (wire.md P). */
export const oauthProtocols: ReadonlyArray<Protocol> = [programs, page]
