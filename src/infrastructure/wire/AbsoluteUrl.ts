import { isStorable } from "./Text.ts"

/**
 * Matches a URL that is written as a scheme, `://`, an authority and the rest. URL parsers are lenient: they drop tabs
 * and line breaks, turn backslashes into slashes, and accept any number of slashes after the colon. So two parsers can
 * find different hosts in the same text. This pattern rejects such texts.
 */
const WRITTEN = /^[a-z][a-z0-9+.-]*:\/\/(?<authority>[^/?#\\\s\p{Cc}]+)(?:[/?#][^\\\s\p{Cc}]*)?$/iu

/**
 * Parses a URL that comes from outside. Returns undefined unless the text is written as `scheme://authority…` and
 * contains no user or password, white space, control characters or backslashes. Call this function for every URL from
 * outside, even for one that is only compared.
 */
export const absoluteUrl = (text: string): URL | undefined => {
  const authority = isStorable(text) ? WRITTEN.exec(text)?.groups?.["authority"] : undefined
  if (authority === undefined || authority.includes("@") || !URL.canParse(text)) return undefined
  const url = new URL(text)
  return url.hostname === "" ? undefined : url
}

/** Returns the query of a request target. The rest of the target is not parsed, because it is not always a URL. */
export const queryOf = (target: string): URLSearchParams => {
  const at = target.indexOf("?")
  return new URLSearchParams(at < 0 ? "" : target.slice(at).replace(/#.*$/s, ""))
}
