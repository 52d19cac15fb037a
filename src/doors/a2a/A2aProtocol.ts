import type { Protocol } from "#ground/http/Protocol"
import { a2aRestBody, a2aRpcBody } from "./A2aErrors.ts"

const A2A = "/a2a/"

/** A2A, before its routes run (wire.md N). JSON-RPC is at `/a2a/{handle}`, and HTTP+JSON below it. */
export const a2aProtocol: Protocol = {
  includes: (path) => path.startsWith(A2A),
  refusalBodyOf: (path) => path.includes("/", A2A.length) ? a2aRestBody : (failure) => a2aRpcBody(failure),
  // A body may hold a file in base64.
  bodyFactor: 1.5
}
