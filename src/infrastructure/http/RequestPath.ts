const [HASH, SLASH, SEMICOLON, QUESTION_MARK] = [35, 47, 59, 63]

/**
 * How many characters a path may have, with its escapes, repeated slashes and all. The longest path of a route is that
 * of a file's signed URL.
 */
export const MAX_PATH = 2_048

/** Whether the path of a request target is longer than any route's. The router decodes each `%25` in linear time. */
export const isTooLong = (target: string): boolean =>
  target.length > MAX_PATH && !/[?#;]/.test(target.slice(0, MAX_PATH + 1))

/** The path of a request target as the router sees it: without query, repeated slashes or trailing slash. */
export const pathOf = (target: string): string => {
  let end = target.length
  let slashes = false
  for (let i = 0; i < end; i++) {
    const code = target.charCodeAt(i)
    if (code === QUESTION_MARK || code === HASH || code === SEMICOLON) end = i
    else if (code === SLASH && target.charCodeAt(i + 1) === SLASH) slashes = true
  }
  const given = end === target.length ? target : target.slice(0, end)
  const path = slashes ? given.replace(/\/{2,}/g, "/") : given
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path
}

/**
 * A path with its escapes decoded, except those of separators; `undefined` if the path is not valid percent-encoded
 * UTF-8.
 */
export const decodedPath = (path: string): string | undefined => {
  if (!path.includes("%")) return path
  try {
    return decodeURI(path)
  } catch {
    return undefined
  }
}
