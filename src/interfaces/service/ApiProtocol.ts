import { CORS_REQUEST_HEADERS } from "#infrastructure/http/Cors"
import { apiOrigins } from "#infrastructure/http/Origins"
import type { Protocol } from "#infrastructure/http/Protocol"
import type { Settings } from "#infrastructure/platform/Config"

/** Recognizes requests to the API before its routes run (wire.md C.0). */
export const apiProtocol = (config: Settings): Protocol => ({
  includes: (path) => path === "/v1" || path.startsWith("/v1/"),
  cors: { allowOrigin: apiOrigins(config), requestHeaders: CORS_REQUEST_HEADERS }
})
