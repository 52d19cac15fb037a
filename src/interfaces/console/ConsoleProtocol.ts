import type { Protocol } from "#infrastructure/http/Protocol"
import { decodedPath } from "#infrastructure/http/RequestPath"

/**
 * Matches the paths of the operators' API in every spelling that the router accepts: in upper or lower case, with
 * escapes, or after a host.
 */
const CONSOLE_API = /^(?:https?:\/[^/]*)?\/console\/api(?:\/|$)/i

/**
 * Recognizes requests to the operators' API before its routes run. Callers who are not operators get the same response
 * from all of its paths (wire.md O.1).
 */
export const consoleProtocol: Protocol = {
  includes: (path) => CONSOLE_API.test(decodedPath(path) ?? path),
  hiddenAs: "/console/api/"
}
