const [HASH, SLASH, SEMICOLON, QUESTION_MARK] = [35, 47, 59, 63]

/**
 * How many characters a path may have, with its escapes, repeated slashes and all. The longest path of a route is that
 * of a file's signed URL.
 */
const MAX_PATH = 2_048
/** How many times a path may contain `%25`. */
const MAX_PERCENT_SIGNS = 16

/**
 * Whether a route may have a request target. The router must not see other targets, because it copies the whole target
 * for each `%25` in the path. In a target that is a whole URL, the query counts as part of the path.
 */
export const isRoutable = (target: string): boolean => {
  if (target.length <= MAX_PATH && !target.includes("%25")) return true
  const [path = ""] = target.startsWith("/") ? target.split(/[?#;]/, 1) : [target]
  return path.length <= MAX_PATH && path.split("%25").length <= MAX_PERCENT_SIGNS + 1
}

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
