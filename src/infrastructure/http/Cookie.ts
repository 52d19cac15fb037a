/** Returns the value of the first cookie with this name in a `Cookie` header. */
export const cookieOf = (header: string | undefined, name: string): string | undefined => {
  for (const pair of header?.split(";") ?? []) {
    const at = pair.indexOf("=")
    if (at !== -1 && pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim()
  }
  return undefined
}
