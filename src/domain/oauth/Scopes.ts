/** A right that an access token gives (wire.md P, "Scopes"). */
export type OAuthScope = "agent:read" | "agent:act"

/** All scopes, in the order in which `scopeText` writes them. */
export const SCOPES: ReadonlyArray<OAuthScope> = ["agent:read", "agent:act"]

/** The scopes as one text, as in the metadata and in the challenge. */
export const scopeText = (scopes: ReadonlyArray<OAuthScope>): string =>
  SCOPES.filter((scope) => scopes.includes(scope)).join(" ")

/**
 * The scopes that a client asks for. Unknown words are ignored. If no known scope is left, the result is all scopes,
 * because some hosts omit the parameter or send only scopes of OpenID.
 */
export const scopesOf = (asked: string | undefined): ReadonlyArray<OAuthScope> => {
  const words = new Set(asked?.split(" "))
  const known = SCOPES.filter((scope) => words.has(scope))
  return known.length === 0 ? SCOPES : known
}

/** Whether these scopes include a right. `agent:act` includes `agent:read`. */
export const permits = (granted: ReadonlyArray<OAuthScope>, needed: OAuthScope): boolean =>
  granted.includes("agent:act") || granted.includes(needed)
