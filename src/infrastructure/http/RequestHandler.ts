import type { Settings } from "#infrastructure/platform/Config"
import type { Ids } from "#infrastructure/platform/Ids"
import { requestIdFrom } from "#infrastructure/platform/RequestId"
import {
  NotFound,
  PayloadTooLarge,
  Unavailable,
  UnsupportedEncoding,
  ValidationFailed,
  type WireFailure
} from "#infrastructure/wire/WireError"
import { isUtf8 } from "node:buffer"
import { CORS_METHODS } from "./Cors.ts"
import type { QueueBehind } from "./Pipelining.ts"
import { discard, hasBody, hasTooManyValues, isEncoded, MAX_VALUES, readBody } from "./RequestBody.ts"
import { decodedPath, isRoutable, pathOf } from "./RequestPath.ts"
import type { RequestsInFlight } from "./RequestsInFlight.ts"
import type { KnownRoute, RouteTable } from "./RouteTable.ts"
import { NO_PATH } from "./Routing.ts"
import type { ServerRequest } from "./ServerRequest.ts"
import type { ServerResponse, Serving } from "./ServerResponse.ts"

/** The dependencies of the request handler. */
interface Dependencies {
  readonly config: Settings
  readonly ids: Ids["Service"]
  /** Whether the process stalls. Requests with a body are then refused. */
  readonly isStalled: () => boolean
  readonly serving: Serving
  readonly inFlight: RequestsInFlight
  readonly queueBehind: QueueBehind
  readonly table: RouteTable
  /** Runs the route of a request. */
  readonly handle: (request: ServerRequest, response: ServerResponse) => void
}

/** The failure of the checks that need no body, or undefined if the request passes. */
const refusalOfHead = (request: ServerRequest, path: string, route: KnownRoute): WireFailure | undefined => {
  if (request.headers.host === undefined && request.httpVersion === "1.1")
    return new ValidationFailed({ message: "The Host header is missing." })
  // This includes the query, because no text from a client may contain NUL.
  if (request.url?.includes("%00") === true)
    return new ValidationFailed({ message: "The address contains a NUL character." })
  if (decodedPath(path) === undefined)
    return new ValidationFailed({ message: "The path is not valid percent-encoded UTF-8." })
  if (!isRoutable(request.url ?? "/"))
    return new NotFound({ message: NO_PATH })
  if (hasBody(request) && isEncoded(request))
    return new UnsupportedEncoding()
  return route.rawBody === undefined && Number(request.headers["content-length"]) > route.maxBodyBytes
    ? new PayloadTooLarge()
    : undefined
}

/** The failure of the checks of a whole body, or undefined if the body passes. */
const refusalOfBody = (body: Buffer): WireFailure | undefined =>
  !isUtf8(body)
    ? new ValidationFailed({ message: "The body is not valid UTF-8." })
    : hasTooManyValues(body)
    ? new ValidationFailed({ message: `The body contains more than ${MAX_VALUES} values.` })
    : undefined

/**
 * Makes the function that handles the requests of a server. It looks up the route of a request, checks the head, reads
 * the body unless the route reads it, and runs the route.
 */
export const makeRequestHandler = (
  { config, handle, ids, inFlight, isStalled, queueBehind, serving, table }: Dependencies
) => {
  /**
   * Refuses a request before its route runs. In a hidden protocol, every such request gets the response of a path
   * without an endpoint.
   */
  const refuseEarly = (request: ServerRequest, response: ServerResponse, failure: WireFailure): void => {
    const hiddenAs = response.protocol?.hiddenAs
    if (hiddenAs === undefined) return response.refuse(failure)
    request.url = hiddenAs
    request.body = ""
    handle(request, response)
  }

  const answerOptions = (request: ServerRequest, response: ServerResponse): void => {
    request.resume()
    const methods = table.methodsOf(pathOf(request.url ?? "/"))
    const cors = response.protocol?.cors
    response.writeHead(204, {
      "allow": methods.length === 0 ? CORS_METHODS : methods.join(", "),
      ...(cors === undefined ? undefined : {
        "access-control-allow-methods": CORS_METHODS,
        "access-control-allow-headers": cors.requestHeaders,
        "access-control-max-age": "86400"
      })
    })
    response.end()
  }

  /** Runs a route that reads its body itself. */
  const takeRawBody = (request: ServerRequest, response: ServerResponse, route: KnownRoute): void => {
    if (route.rawBody !== "streamed") request.onPiece = (bytes) => response.receives(bytes)
    if (!isStalled()) return handle(request, response)
    discard(request, 0, config.LIMITS_BODY_BYTES)
    response.refuse(new Unavailable())
  }

  /** Reads the body of a request, and then runs the route. */
  const takeBody = (request: ServerRequest, response: ServerResponse, { maxBodyBytes }: KnownRoute): void => {
    request.headers["content-type"] = "application/json"
    readBody(request, maxBodyBytes, (bytes) => response.receives(bytes), (body) => {
      if (body === undefined) return refuseEarly(request, response, new PayloadTooLarge())
      if (isStalled()) return response.refuse(new Unavailable())
      const refused = refusalOfBody(body)
      if (refused !== undefined) return refuseEarly(request, response, refused)
      request.body = body.toString("utf8")
      handle(request, response)
    })
  }

  return (request: ServerRequest, response: ServerResponse, expectsContinue = false): void => {
    if (response.socket === null && !queueBehind(response)) return
    inFlight.begin(response)
    request.waitsToSend = expectsContinue
    const id = requestIdFrom(request.headers["x-request-id"], ids)
    request.headers["x-request-id"] = id
    response.requestId = id
    response.server = serving
    response.began = performance.now()
    const target = request.url ?? "/"
    const path = pathOf(target)
    const found = table.find(request.method, target, path)
    response.setRoute(found, path)
    const { handler: route } = found
    if (request.method === "OPTIONS" && route.protocol?.hiddenAs === undefined)
      return answerOptions(request, response)
    const refused = refusalOfHead(request, path, route)
    if (refused !== undefined) {
      if (expectsContinue) response.shouldKeepAlive = false
      else discard(request, 0, route.maxBodyBytes)
      return refuseEarly(request, response, refused)
    }
    if (expectsContinue) {
      response.writeContinue()
      request.waitsToSend = false
    }
    if (request.method === "GET" || request.method === "HEAD") return handle(request, response)
    if (route.rawBody !== undefined) takeRawBody(request, response, route)
    else takeBody(request, response, route)
  }
}
