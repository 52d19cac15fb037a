import { isLoopback } from "#infrastructure/http/Origins"
import type { Settings } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { SCOPES, scopeText } from "./Scopes.ts"

/**
 * Whether this server offers OAuth sign-in (wire.md P). Its PUBLIC_URL must be https, or http on this machine, and have
 * no path. Otherwise the paths of P do not exist, and `/mcp` accepts only keys.
 */
export const offersOAuth = (config: Settings): boolean => {
  const { hash, hostname, pathname, protocol, search } = new URL(config.PUBLIC_URL ?? "http://localhost")
  return config.OAUTH === "on" && pathname === "/" && search === "" && hash === "" &&
    (protocol === "https:" || isLoopback(hostname))
}

/** The path of the metadata document about `/mcp`. */
const RESOURCE_METADATA = "/.well-known/oauth-protected-resource/mcp"
const MAX_QUERY_LENGTH = 256

/**
 * Returns the query of a URL with its question mark, for the metadata's `resource`. Hosts compare this `resource` with
 * the URL that their user typed. Returns an empty text if there is no query or if it is very long.
 */
const queryOf = (url: string): string => {
  const at = url.indexOf("?")
  if (at < 0 || url.length - at > MAX_QUERY_LENGTH) return ""
  return new URL(`http://parley/${url.slice(at)}`).search.replaceAll("\\", "%5C")
}

/** The metadata of the resource `/mcp` (RFC 9728) for a request to `url`. */
export const resourceMetadata = (config: Settings, url: string) => ({
  resource: `${publicUrl(config)}/mcp${queryOf(url)}`,
  authorization_servers: [publicUrl(config)],
  scopes_supported: SCOPES,
  bearer_methods_supported: ["header"],
  resource_name: "Parley"
})

/** The metadata of the authorization server (RFC 8414). */
export const serverMetadata = (config: Settings) => {
  const base = publicUrl(config)
  return {
    issuer: base,
    authorization_endpoint: `${base}/authorize`,
    token_endpoint: `${base}/token`,
    registration_endpoint: `${base}/register`,
    revocation_endpoint: `${base}/revoke`,
    response_types_supported: ["code"],
    response_modes_supported: ["query"],
    grant_types_supported: ["authorization_code", "refresh_token"],
    code_challenge_methods_supported: ["S256"],
    token_endpoint_auth_methods_supported: ["none", "client_secret_post", "client_secret_basic"],
    revocation_endpoint_auth_methods_supported: ["none", "client_secret_post", "client_secret_basic"],
    scopes_supported: [...SCOPES, "offline_access"],
    authorization_response_iss_parameter_supported: true,
    client_id_metadata_document_supported: config.OAUTH_CIMD !== "off"
  }
}

const normal = (text: string): string | undefined => {
  const url = absoluteUrl(text)
  if (url === undefined || url.hash !== "") return undefined
  return url.origin + url.pathname.replace(/\/$/, "")
}

/**
 * Whether all given `resource` parameters name this server (wire.md P, "resource"). Hosts may omit the parameter or
 * repeat it. They write the URL as their user typed it: with or without `/mcp`, a trailing slash or the query of a tool
 * set. `base` is PUBLIC_URL.
 */
export const isOwnResource = (base: string, resources: ReadonlyArray<string>): boolean =>
  resources.every((resource) => {
    const named = normal(resource)
    return named !== undefined && (named === normal(base) || named === normal(`${base}/mcp`))
  })

/**
 * The header `WWW-Authenticate` of a refusal at `/mcp`. It names the metadata document from which a host learns how to
 * sign in. `error` is `invalid_token` if the request had a credential that is not valid, and `insufficient_scope` if
 * the scopes of its token do not permit the request.
 */
export const challenge = (config: Settings, url: string, error?: "invalid_token" | "insufficient_scope"): string =>
  `Bearer ${error === undefined ? "" : `error="${error}", `}resource_metadata="${
    publicUrl(config)
  }${RESOURCE_METADATA}${queryOf(url)}", scope="${scopeText(SCOPES)}"`
