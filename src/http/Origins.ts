import type { Settings } from "../platform/Config.ts"
import { listeningUrl, publicUrl } from "../platform/PublicUrl.ts"

const listed = (config: Settings): ReadonlySet<string> =>
  new Set(config.ALLOWED_ORIGINS.split(",").map((origin) => origin.trim()))

/** Which origins' pages may call `/v1/*` from a browser: the value of Access-Control-Allow-Origin, empty for others. */
export const apiOrigins = (config: Settings): (origin: string | undefined) => string => {
  const origins = listed(config)
  return (origin) => origins.has("*") ? "*" : origin !== undefined && origins.has(origin) ? origin : ""
}

/**
 * Whether an origin is this server's own: the page came from here, by the address in `host` or by PUBLIC_URL. Its pages may open
 * sockets whatever ALLOWED_ORIGINS lists.
 */
export const isOwnOrigin = (config: Settings, origin: string, host: string | undefined): boolean =>
  URL.canParse(origin) && (new URL(origin).host === host || origin === new URL(publicUrl(config)).origin)

/**
 * Which origins' pages may call `/mcp`: this server's own, and those that are listed by name. A host on the same machine
 * may send its key on behalf of any page, so `*` lists none (wire.md M).
 */
export const mcpOrigins = (config: Settings): (origin: string | undefined) => string => {
  const origins = listed(config)
  return (origin) =>
    origin !== undefined && origin !== "*" && (origins.has(origin) || origin === new URL(publicUrl(config)).origin) ? origin : ""
}

const isLoopback = (hostname: string): boolean =>
  hostname === "localhost" || hostname.endsWith(".localhost") || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/.test(hostname)

const hostnameOf = (authority: string): string => {
  const url = `http://${authority}`
  return URL.canParse(url) ? new URL(url).hostname : ""
}

/**
 * Whether a request with this Host is meant for this server. Asked only where the server is reached at a loopback address:
 * there a page of elsewhere could reach it under a name of its own (DNS rebinding).
 */
export const hostIsOwn = (config: Settings, host: string | undefined): boolean =>
  !isLoopback(new URL(config.PUBLIC_URL ?? listeningUrl(config)).hostname) || isLoopback(hostnameOf(host ?? ""))
