const normal = (text: string): string | undefined => {
  if (!URL.canParse(text)) return undefined
  const url = new URL(text)
  if (url.username !== "" || url.password !== "" || url.hash !== "") return undefined
  return url.origin + url.pathname.replace(/\/$/, "")
}

/**
 * Whether all given `resource` parameters name this server (P, "resource"). Hosts omit the parameter, repeat it, and write the URL
 * as their user typed it: with or without `/mcp`, a trailing slash or the query of a tool set. `base` is PUBLIC_URL.
 */
export const isOwnResource = (base: string, resources: ReadonlyArray<string>): boolean =>
  resources.every((resource) => {
    const named = normal(resource)
    return named !== undefined && (named === normal(base) || named === normal(`${base}/mcp`))
  })
