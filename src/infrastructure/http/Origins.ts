import type { Settings } from "#infrastructure/platform/Config"
import { listeningUrl, publicUrl } from "#infrastructure/platform/PublicUrl"

/** The origins that ALLOWED_ORIGINS lists. */
export const listedOrigins = (config: Settings): ReadonlySet<string> =>
  new Set(config.ALLOWED_ORIGINS.split(",").map((origin) => origin.trim()))

/**
 * Returns the value of Access-Control-Allow-Origin according to ALLOWED_ORIGINS. The value is empty for an origin whose
 * pages may not call the API.
 */
export const apiOrigins = (config: Settings): (origin: string | undefined) => string => {
  const origins = listedOrigins(config)
  return (origin) => origins.has("*") ? "*" : origin !== undefined && origins.has(origin) ? origin : ""
}

/**
 * Whether an origin is this server's own origin, according to the address in `host` or to PUBLIC_URL. The server's own
 * pages may open sockets whatever ALLOWED_ORIGINS lists.
 */
export const isOwnOrigin = (config: Settings, origin: string, host: string | undefined): boolean =>
  URL.canParse(origin) && (new URL(origin).host === host || origin === new URL(publicUrl(config)).origin)

/** The origin of this server's own pages, for a request with this `Host`. */
export const ownOrigin = (config: Settings, host: string | undefined): string =>
  config.PUBLIC_URL === undefined ? `http://${host ?? ""}` : new URL(config.PUBLIC_URL).origin

/** Whether a host name is a loopback name or address of this machine. */
export const isLoopback = (hostname: string): boolean =>
  hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" ||
  /^127(?:\.\d{1,3}){3}$/.test(hostname)

const hostnameOf = (authority: string): string => {
  const url = `http://${authority}`
  return URL.canParse(url) ? new URL(url).hostname : ""
}

/**
 * Whether a request with this `Host` header is meant for this server. Only a server with a loopback address checks the
 * header, because a page of another origin could reach such a server under the page's own host name (DNS rebinding).
 */
export const hostIsOwn = (config: Settings, host: string | undefined): boolean =>
  !isLoopback(new URL(config.PUBLIC_URL ?? listeningUrl(config)).hostname) || isLoopback(hostnameOf(host ?? ""))
