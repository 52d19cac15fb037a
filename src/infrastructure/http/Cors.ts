/**
 * CORS: the headers and methods that browsers may send to the API, and the headers that they may read (wire.md C.0).
 */
export const CORS_REQUEST_HEADERS =
  "Authorization, Content-Type, Idempotency-Key, X-AgentChat-Client, X-AgentChat-Client-Version, X-Request-Id"
export const CORS_RESPONSE_HEADERS =
  "Retry-After, X-Backlog-Warning, X-Budget-Left, X-Budget-Limit, X-Budget-Scope, X-Client-Msg-Id-Conflict, Idempotent-Replay, X-Request-Id, Location, X-Next-Cursor, X-Total-Count"
export const CORS_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
