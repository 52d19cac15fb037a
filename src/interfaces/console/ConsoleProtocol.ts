import type { Protocol } from "#infrastructure/http/Protocol"
import { decodedPath } from "#infrastructure/http/RequestPath"

/** The paths of the operators' API as the router accepts them: in upper or lower case, with escapes, behind a host. */
const CONSOLE_API = /^(?:https?:\/[^/]*)?\/console\/api(?:\/|$)/i

/** The operators' API, before its routes run. Outsiders get the same answer from all of its paths (wire.md O.1). */
export const consoleProtocol: Protocol = {
  includes: (path) => CONSOLE_API.test(decodedPath(path) ?? path),
  hiddenAs: "/console/api/"
}
