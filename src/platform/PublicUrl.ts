import type { Settings } from "./Config.ts"

/** The base of the absolute URLs that are handed out, without a trailing slash. */
export const publicUrl = (config: Settings): string => {
  if (config.PUBLIC_URL !== undefined) return config.PUBLIC_URL
  const host = config.HOST === "0.0.0.0" || config.HOST === "::" ? "localhost" : config.HOST
  return `http://${host.includes(":") ? `[${host}]` : host}:${config.PORT}`
}
