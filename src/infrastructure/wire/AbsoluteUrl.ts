import { isStorable } from "./Text.ts"

/**
 * A scheme, `://`, an authority, and the rest. URL parsers are lenient: they drop tabs and line breaks, turn
 * backslashes into slashes, and accept any number of slashes after the colon. Two readers of such a text can find two
 * different hosts in it.
 */
const WRITTEN = /^[a-z][a-z0-9+.-]*:\/\/(?<authority>[^/?#\\\s\p{Cc}]+)(?:[/?#][^\\\s\p{Cc}]*)?$/iu

/**
 * Reads a URL that comes from outside. Returns undefined unless the text is written as `scheme://authority…`, without a
 * user or password, white space, control characters and backslashes. Every such text goes through this function, also
 * those that are only compared.
 */
export const absoluteUrl = (text: string): URL | undefined => {
  const authority = isStorable(text) ? WRITTEN.exec(text)?.groups?.["authority"] : undefined
  if (authority === undefined || authority.includes("@") || !URL.canParse(text)) return undefined
  const url = new URL(text)
  return url.hostname === "" ? undefined : url
}

/** The query of a request's target. The rest of the target is not parsed, because it may be no URL. */
export const queryOf = (target: string): URLSearchParams => {
  const at = target.indexOf("?")
  return new URLSearchParams(at < 0 ? "" : target.slice(at).replace(/#.*$/s, ""))
}
