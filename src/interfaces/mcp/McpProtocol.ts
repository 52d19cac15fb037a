import { BodyLimit, bodyWithFile, smallBody } from "#infrastructure/http/EndpointOptions"
import { listedOrigins } from "#infrastructure/http/Origins"
import type { Protocol } from "#infrastructure/http/Protocol"
import type { Settings } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { wireBody, type WireFailure } from "#infrastructure/wire/WireError"
import { Context } from "effect"
import { countMcpRequest, hostFamily } from "./HostFamily.ts"

/** The path of the protocol, for agents with a key. */
export const MCP = "/mcp"
/** The path of the protocol for registrations, without a key. */
export const JOIN = "/mcp/join"

/** JSON-RPC's code for a failure that has none of its own. */
const RPC_REFUSED = -32_000

/** Makes the body of a refusal: a JSON-RPC error whose data is the body that the wire defines (wire.md M). */
export const rpcBody = (failure: WireFailure, id: string | number | null = null) => ({
  jsonrpc: "2.0",
  error: { code: RPC_REFUSED, message: failure.message, data: wireBody(failure) },
  id
})

/**
 * Returns a function that gives the value of Access-Control-Allow-Origin for `/mcp`. The allowed origins are this
 * server's own origin and those that ALLOWED_ORIGINS lists by name. `*` allows no origin, because an agent host on the
 * same machine could send its key on behalf of any page (wire.md M).
 */
export const mcpOrigins = (config: Settings): (origin: string | undefined) => string => {
  const origins = listedOrigins(config)
  return (origin) =>
    origin !== undefined && origin !== "*" && (origins.has(origin) || origin === new URL(publicUrl(config)).origin)
      ? origin
      : ""
}

const shared = (config: Settings): Omit<Protocol, "includes"> => ({
  refusalBodyOf: () => (failure) => rpcBody(failure),
  cors: {
    allowOrigin: mcpOrigins(config),
    requestHeaders:
      "Authorization, Content-Type, Accept, Last-Event-ID, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, " +
      "X-MCP-Structured, X-MCP-Toolsets, X-Request-Id",
    responseHeaders: "WWW-Authenticate"
  },
  clientKindOf: hostFamily,
  ended: ({ clientKind, isRefused, method, status }) => {
    if (method === "POST" && clientKind !== undefined && status !== undefined)
      countMcpRequest(clientKind, status, isRefused)
  }
})

/** What the HTTP server does for MCP before the routes run (wire.md M). It loads nothing of the protocol's library. */
export const mcpProtocols = (config: Settings): ReadonlyArray<Protocol> => [
  { ...shared(config), includes: (path) => path === MCP, annotations: Context.make(BodyLimit, bodyWithFile) },
  { ...shared(config), includes: (path) => path === JOIN, annotations: Context.make(BodyLimit, smallBody) }
]
