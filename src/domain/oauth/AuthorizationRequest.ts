import { isOwnResource } from "./Discovery.ts"
import { redirectTo, type RedirectUri } from "./RedirectUri.ts"
import { type OAuthScope, scopesOf } from "./Scopes.ts"

/** A client of `/authorize`. */
export interface Client {
  readonly id: string
  /**
   * Where the description of the client comes from: a registration at this server, or a document at the client's own
   * URL.
   */
  readonly source: "registered" | "document"
  readonly redirectUris: ReadonlyArray<string>
  readonly name: string | null
}

/** The parameters of a valid request for authorization (wire.md P, `GET /authorize`). */
export interface AuthorizationRequest {
  readonly client: Client
  readonly redirect: RedirectUri
  /** The SHA-256 of the client's verifier, as base64url. */
  readonly challenge: string
  readonly state: string | null
  readonly scopes: ReadonlyArray<OAuthScope>
}

export type AuthorizationError =
  | "invalid_request"
  | "unsupported_response_type"
  | "invalid_target"
  | "login_required"
  | "access_denied"

/**
 * The response of `/authorize`: a page with an error message, a redirect with an error, or the page on which a person
 * signs in.
 */
export type Reading =
  | { readonly _tag: "Page"; readonly message: string }
  | {
    readonly _tag: "Error"
    readonly error: AuthorizationError
    readonly message: string
    readonly redirect: RedirectUri
    readonly state: string | null
  }
  | { readonly _tag: "Request"; readonly request: AuthorizationRequest }

const MAX_STATE = 4_096
const CHALLENGE = /^[A-Za-z0-9_-]{43}$/
const SINGLE = [
  "response_type",
  "client_id",
  "redirect_uri",
  "code_challenge",
  "code_challenge_method",
  "state",
  "scope",
  "prompt"
]

/**
 * Whether an error may be sent to the redirect URI before a person has decided. Anybody can register a client for any
 * site. So with a redirect before a decision, a link to this server could lead to any site. A loopback address is safe,
 * because it leads to the person's own machine.
 */
const mayRedirect = ({ source }: Client, { kind }: RedirectUri): boolean => source === "document" || kind === "loopback"

/**
 * Reads the query of `/authorize`. `client` is the client that `client_id` names, if there is one. `base` is
 * PUBLIC_URL. `schemes` are the permitted private schemes.
 */
export const readAuthorization = (
  query: URLSearchParams,
  client: Client | undefined,
  base: string,
  schemes: ReadonlyArray<string>
): Reading => {
  const page = (message: string): Reading => ({ _tag: "Page", message })
  if (client === undefined)
    return page(
      "This server does not know the program that sent you here. Remove the connection in the program, and add it again."
    )
  const redirects = query.getAll("redirect_uri")
  const redirect = redirects.length === 1 ? redirectTo(redirects[0]!, client.redirectUris, schemes) : undefined
  if (redirect === undefined) {
    return page(
      "The program that sent you here asks for an answer at an address that it has not registered. Nothing was sent to this address."
    )
  }
  const given = query.get("state")
  const state = given !== null && given.length <= MAX_STATE ? given : null
  const refuse = (error: AuthorizationError, message: string): Reading =>
    mayRedirect(client, redirect)
      ? { _tag: "Error", error, message, redirect, state }
      : page(`The program that sent you here made an invalid request: ${message}`)

  const repeated = SINGLE.find((name) => query.getAll(name).length > 1)
  if (repeated !== undefined) return refuse("invalid_request", `${repeated} is given more than once.`)
  if (given !== state) return refuse("invalid_request", `state has more than ${MAX_STATE} characters.`)
  const type = query.get("response_type")
  if (type === null) return refuse("invalid_request", "response_type is missing.")
  if (type !== "code") return refuse("unsupported_response_type", "response_type must be code.")
  const challenge = query.get("code_challenge") ?? ""
  // If the method is missing, the specification assumes `plain`: the challenge is the verifier itself.
  if (query.get("code_challenge_method") !== "S256" || !CHALLENGE.test(challenge)) {
    return refuse("invalid_request", "code_challenge must have 43 characters, and code_challenge_method must be S256.")
  }
  if (!isOwnResource(base, query.getAll("resource"))) return refuse("invalid_target", `resource must be ${base}/mcp.`)
  if (query.get("prompt")?.split(" ").includes("none") === true) {
    return refuse("login_required", "A person must decide at each sign-in, so prompt=none is not possible.")
  }
  return {
    _tag: "Request",
    request: { client, redirect, challenge, state, scopes: scopesOf(query.get("scope") ?? undefined) }
  }
}

/** The URL of the redirect that ends a request: the redirect URI with its own parameters and those of the response. */
export const responseUrl = (
  base: string,
  redirect: RedirectUri,
  state: string | null,
  parameters: Readonly<Record<string, string>>
): string => {
  const added = new URLSearchParams({ ...parameters, ...(state === null ? {} : { state }), iss: base })
  return `${redirect.uri}${redirect.uri.includes("?") ? "&" : "?"}${added}`
}
