import type { Ids } from "#infrastructure/platform/Ids"
import { requestIdFrom } from "#infrastructure/platform/RequestId"
import { MethodNotAllowed } from "#infrastructure/wire/WireError"
import { refuse } from "#infrastructure/wire/WireErrors"
import { createServer, type IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { makeClientErrors } from "./ClientErrors.ts"
import type { QueueBehind } from "./Pipelining.ts"
import { ServerRequest } from "./ServerRequest.ts"
import { ServerResponse } from "./ServerResponse.ts"
import type { ServerTimeouts } from "./ServerTimeouts.ts"

/** How many headers of a request are read. Further headers are ignored. */
const MAX_HEADERS = 100

/** The functions to which a server of `node:http` passes its events. */
interface Handlers {
  /** Handles a request. With `expectsContinue`, the client sends the body only after `100 Continue`. */
  readonly onRequest: (request: ServerRequest, response: ServerResponse, expectsContinue?: boolean) => void
  readonly onUpgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void
  /** Whether the server hides what is at the target of a request. */
  readonly isHidden: (request: IncomingMessage) => boolean
  readonly queueBehind: QueueBehind
}

/** Makes a server of `node:http`, which does not listen yet. It refuses requests that Parley does not support. */
export const makeNodeServer = (
  timeouts: ServerTimeouts,
  ids: Ids["Service"],
  { isHidden, onRequest, onUpgrade, queueBehind }: Handlers
) => {
  const idOf = (request: IncomingMessage): string => requestIdFrom(request.headers["x-request-id"], ids)
  const server = createServer({
    IncomingMessage: ServerRequest,
    ServerResponse,
    headersTimeout: timeouts.headers,
    requestTimeout: timeouts.request,
    keepAliveTimeout: timeouts.keepAlive,
    connectionsCheckingInterval: timeouts.check,
    maxHeaderSize: 16_384,
    requireHostHeader: false,
    // An upgrade to any other protocol is ignored: the request is served as plain HTTP/1.1.
    shouldUpgradeCallback: (request: IncomingMessage) => request.headers.upgrade?.toLowerCase() === "websocket"
  }, (request, response) => onRequest(request, response))
  // Without a timeout, a peer that stops reading would keep its connection and the unsent data in memory forever.
  server.timeout = timeouts.stalled
  server.maxHeadersCount = MAX_HEADERS
  server.on("checkContinue", (request, response) => onRequest(request, response, true))
  server.on("checkExpectation", (request, response) => {
    // On a hidden path the expectation is ignored, as HTTP permits. The response is then the same as without an
    // expectation.
    if (isHidden(request)) return onRequest(request, response)
    if (response.socket === null && !queueBehind(response)) return
    response.requestId = idOf(request)
    response.refuse({
      code: "VALIDATION_ERROR",
      message: "The only supported expectation is 100-continue.",
      status: 417
    }, {
      connection: "close"
    })
  })
  server.on("upgrade", onUpgrade)
  server.on("connect", (request, socket) => refuse(socket, new MethodNotAllowed(), idOf(request)))
  server.on("clientError", makeClientErrors(ids))
  return server
}
