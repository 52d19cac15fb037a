import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"

/** Where an authorization response is sent, and so who may receive it. */
export type RedirectKind =
  /** A website. Its host is shown to the person. */
  | "https"
  /** A program on the person's machine: any program there may listen on the port. */
  | "loopback"
  /**
   * An application that has registered the scheme with the operating system. Another application can register the same
   * one.
   */
  | "private"

/** A URI that a client may be redirected to. */
export interface RedirectUri {
  readonly uri: string
  readonly kind: RedirectKind
  /** The host of a website, or the scheme of an application, for people to read. */
  readonly shown: string
}

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"])
/**
 * Printable ASCII without space, quotes, angle brackets, backslash, `^`, a backtick, braces, `|` and `*`, the wildcard.
 */
const CHARACTERS = /^[!#$%&'()+,\-./0-9:;=?@A-Z[\]_a-z~]+$/
const SCHEME = /^([a-z][a-z0-9+.-]*):/i

/**
 * Reads a redirect URI (P, "Redirect URIs"). Returns `undefined` if the server does not redirect to it. `schemes` are
 * the private schemes without a dot that are permitted, in lower case.
 */
export const redirectUriOf = (uri: string, schemes: ReadonlyArray<string>): RedirectUri | undefined => {
  const scheme = SCHEME.exec(uri)?.[1]?.toLowerCase()
  if (scheme === undefined || !CHARACTERS.test(uri) || !URL.canParse(uri)) return undefined
  // An empty fragment leaves no trace in the parsed URL.
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
  // The URL standard gives the other special schemes a meaning in browsers. None of them has a dot.
  return scheme.includes(".") || schemes.includes(scheme) ? { uri, kind: "private", shown } : undefined
}

/** The host of a website, or the scheme of an application, of a redirect URI that this server has accepted. */
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
 * The URI to redirect to, if a client with these registered URIs asks for `asked`; otherwise `undefined`. URIs are
 * compared character by character. Of a loopback http URI the port may differ, because a program takes a free port for
 * each sign-in.
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
