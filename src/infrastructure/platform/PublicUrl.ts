import type { Settings } from "./Config.ts"

/** The port on which each server listens, by its settings. The port differs from PORT if PORT is 0. */
const given = new WeakMap<Settings, number>()

/** Records the port on which the server listens, for the URLs that the server hands out. */
export const listensOn = (config: Settings, port: number): void => void given.set(config, port)

const urlAt = (config: Settings, host: string): string =>
  `http://${host.includes(":") ? `[${host}]` : host}:${given.get(config) ?? config.PORT}`

/**
 * Returns the URL of this server itself, not of a proxy in front of it. The URL is correct only after the server has
 * begun to listen.
 */
export const listeningUrl = (config: Settings): string => urlAt(config, config.HOST)

/**
 * Returns the URL of this server for a program on another machine. If the server listens on all addresses, the URL
 * contains `host` instead of HOST.
 */
export const reachableUrl = (config: Settings, host: string): string =>
  urlAt(config, config.HOST === "0.0.0.0" || config.HOST === "::" ? host : config.HOST)

/**
 * Returns the base of the absolute URLs that the server hands out, without a trailing slash. If PUBLIC_URL is not set,
 * the base is correct only after the server has begun to listen.
 */
export const publicUrl = (config: Settings): string => config.PUBLIC_URL ?? reachableUrl(config, "localhost")
