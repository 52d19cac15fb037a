import type { Settings } from "#infrastructure/platform/Config"

/**
 * Time limits of the server, in milliseconds. `firstByte`, `headers`, `request`, `stalled` and `linger` come from
 * settings.
 */
export interface ServerTimeouts {
  readonly firstByte: number
  readonly headers: number
  readonly request: number
  readonly stalled: number
  /** How long a connection may be idle between two requests. Each response announces it in its `Keep-Alive` header. */
  readonly keepAlive: number
  /**
   * How much later than announced an idle connection is closed. A client that runs late may still send a request on
   * the connection in this time. If the connection were closed then, the client could not know whether the request was
   * carried out, and clients repeat no POST.
   */
  readonly keepAliveBuffer: number
  /** How often Node checks connections against `headers` and `request`. Either limit may be exceeded by this time. */
  readonly check: number
  /** How long after the start of the shutdown new requests are still accepted. */
  readonly linger: number
  readonly drain: number
}

export const timeoutsOf = (config: Settings): ServerTimeouts => {
  const linger = (config.DRAIN_SECONDS ?? 0) * 1_000
  return {
    firstByte: config.HTTP_FIRST_BYTE_SECONDS * 1_000,
    headers: config.HTTP_HEADERS_SECONDS * 1_000,
    request: config.HTTP_REQUEST_SECONDS * 1_000,
    stalled: config.HTTP_STALLED_SECONDS * 1_000,
    keepAlive: 75_000,
    keepAliveBuffer: 15_000,
    check: 500,
    linger,
    drain: 10_000 - linger
  }
}
