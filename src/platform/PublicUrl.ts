import type { Settings } from "./Config.ts"

/** The ports that were given for PORT 0, by the settings of who listens there. */
const given = new WeakMap<Settings, number>()

/** Remembers the port that the server got, for the URLs that are handed out from then on. */
export const listensOn = (config: Settings, port: number): void => void given.set(config, port)

const urlAt = (config: Settings, host: string): string =>
  `http://${host.includes(":") ? `[${host}]` : host}:${given.get(config) ?? config.PORT}`

/** Where this server itself listens, whatever stands before it. Known once it does. */
export const listeningUrl = (config: Settings): string => urlAt(config, config.HOST)

/** The base of the absolute URLs that are handed out, without a trailing slash. Known once the server listens. */
export const publicUrl = (config: Settings): string =>
  config.PUBLIC_URL ?? urlAt(config, config.HOST === "0.0.0.0" || config.HOST === "::" ? "localhost" : config.HOST)
