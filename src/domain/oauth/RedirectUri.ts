import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"

/** The kind of address to which an authorization response is sent. The kind decides who might receive the response. */
export type RedirectKind =
  /** A website. Its host is shown to the person. */
  | "https"
  /** A program on the person's machine. Any program on that machine could listen on the port. */
  | "loopback"
  /**
   * An application that has registered the scheme with the operating system. Another application can register the same
   * scheme.
   */
  | "private"

/** A URI to which the server may redirect. */
export interface RedirectUri {
  readonly uri: string
  readonly kind: RedirectKind
  /** The host of a website, or the scheme of an application, as it is shown to people. */
  readonly shown: string
}

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"])
/**
 * Printable ASCII without space, quotes, angle brackets, backslash, caret, backtick, braces, vertical bar and asterisk.
 */
const CHARACTERS = /^[!#$%&'()+,\-./0-9:;=?@A-Z[\]_a-z~]+$/
const SCHEME = /^([a-z][a-z0-9+.-]*):/i

/**
 * Reads a redirect URI (wire.md P, "Redirect URIs"). Returns `undefined` if the server does not redirect to it.
 * `schemes` are the permitted private schemes without a dot, in lower case.
 */
export const redirectUriOf = (uri: string, schemes: ReadonlyArray<string>): RedirectUri | undefined => {
  const scheme = SCHEME.exec(uri)?.[1]?.toLowerCase()
  if (scheme === undefined || !CHARACTERS.test(uri) || !URL.canParse(uri)) return undefined
  // The parsed URL does not show an empty fragment.
  if (uri.includes("#")) return undefined
  const shown = shownOf(uri)
  if (scheme === "https" || scheme === "http") {
    const url = absoluteUrl(uri)
    if (url === undefined) return undefined
    if (scheme === "https") return { uri, kind: "https", shown }
    return LOOPBACK.has(url.hostname) ? { uri, kind: "loopback", shown } : undefined
  }
  // A private scheme may have one slash and no authority (RFC 8252, 7.1).
  const { password, username } = new URL(uri)
  if (username !== "" || password !== "") return undefined
  // The remaining special schemes of the URL standard, such as `file` and `ws`, have a meaning in browsers. None of
  // them contains a dot.
  return scheme.includes(".") || schemes.includes(scheme) ? { uri, kind: "private", shown } : undefined
}

/**
 * Returns the host of a website, or the scheme of an application, from a redirect URI that this server has accepted.
 */
export const shownOf = (uri: string): string => {
  const { host, hostname, protocol } = new URL(uri)
  return protocol === "https:" ? host : protocol === "http:" ? hostname : protocol
}

/** The URI without its port, if it is a loopback http URI; otherwise the URI itself. */
const withoutPort = ({ kind, uri }: RedirectUri): string => {
  if (kind !== "loopback") return uri
  const [, before = "", after = ""] = /^(https?:\/\/(?:\[[^\]]*\]|[^/:?]*))(?::\d*)?(.*)$/i.exec(uri) ?? []
  return before + after
}

/**
 * Returns the URI to redirect to if a client with these registered URIs may ask for `asked`, otherwise `undefined`.
 * URIs are compared character by character. The ports of loopback http URIs may differ, because a program takes a free
 * port for each sign-in.
 */
export const redirectTo = (
  asked: string,
  registered: ReadonlyArray<string>,
  schemes: ReadonlyArray<string>
): RedirectUri | undefined => {
  const found = redirectUriOf(asked, schemes)
  if (found === undefined) return undefined
  const matches = registered.some((uri) => {
    const known = redirectUriOf(uri, schemes)
    return known !== undefined && withoutPort(known) === withoutPort(found)
  })
  return matches ? found : undefined
}
