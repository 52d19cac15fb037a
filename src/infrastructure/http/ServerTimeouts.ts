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
  readonly keepAlive: number
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
    check: 500,
    linger,
    drain: 10_000 - linger
  }
}
