/** A right that an access token gives (P, "Scopes"). */
export type OAuthScope = "agent:read" | "agent:act"

/** All scopes, in the order in which they are written. */
export const SCOPES: ReadonlyArray<OAuthScope> = ["agent:read", "agent:act"]

/** A scope as the metadata and the challenge write it. */
export const scopeText = (scopes: ReadonlyArray<OAuthScope>): string =>
  SCOPES.filter((scope) => scopes.includes(scope)).join(" ")

/**
 * The scopes that a client asks for. Unknown words are ignored. If no known scope is left, the client asks for all of
 * them, because hosts omit the parameter, or send only scopes of OpenID.
 */
export const scopesOf = (asked: string | undefined): ReadonlyArray<OAuthScope> => {
  const words = new Set(asked?.split(" "))
  const known = SCOPES.filter((scope) => words.has(scope))
  return known.length === 0 ? SCOPES : known
}

/** Whether these scopes give a right. `agent:act` gives every right of `agent:read` too. */
export const permits = (granted: ReadonlyArray<OAuthScope>, needed: OAuthScope): boolean =>
  granted.includes("agent:act") || granted.includes(needed)
