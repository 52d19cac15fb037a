import type { Settings } from "./Config.ts"

/** The port that each server listens on, by its settings. The port differs from PORT if PORT is 0. */
const given = new WeakMap<Settings, number>()

/** Records the port that the server listens on, for the URLs that it hands out. */
export const listensOn = (config: Settings, port: number): void => void given.set(config, port)

const urlAt = (config: Settings, host: string): string =>
  `http://${host.includes(":") ? `[${host}]` : host}:${given.get(config) ?? config.PORT}`

/** The URL of this server itself, not of a proxy before it. Correct only once the server listens. */
export const listeningUrl = (config: Settings): string => urlAt(config, config.HOST)

/**
 * The URL of this server for a program on another machine. If the server listens on all addresses, `host` replaces
 * HOST.
 */
export const reachableUrl = (config: Settings, host: string): string =>
  urlAt(config, config.HOST === "0.0.0.0" || config.HOST === "::" ? host : config.HOST)

/**
 * The base of the absolute URLs that the server hands out, without a trailing slash. If PUBLIC_URL is not set, the base
 * is correct only once the server listens.
 */
export const publicUrl = (config: Settings): string => config.PUBLIC_URL ?? reachableUrl(config, "localhost")
