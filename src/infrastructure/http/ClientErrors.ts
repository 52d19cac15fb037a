import type { Ids } from "#infrastructure/platform/Ids"
import { countRequest } from "#infrastructure/platform/Metrics"
import { requestIdFrom } from "#infrastructure/platform/RequestId"
import { refuse } from "#infrastructure/wire/WireErrors"
import type { ServerResponse as NodeResponse } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { ServerResponse } from "./ServerResponse.ts"

const statusOf = ({ code }: NodeJS.ErrnoException) =>
  code === "HPE_HEADER_OVERFLOW"
    ? [431, "The request line and headers are larger than 16 KiB."] as const
    : code === "ERR_HTTP_REQUEST_TIMEOUT"
    ? [408, "The request took too long to arrive."] as const
    : code === "HPE_CHUNK_EXTENSIONS_OVERFLOW"
    ? [413, "The chunk extensions are too large."] as const
    : [400, "This is not a valid HTTP request."] as const

/** Responds to bytes that are not an HTTP request, and to requests that do not arrive in time. */
export const makeClientErrors = (ids: Ids["Service"]) => (error: NodeJS.ErrnoException, socket: Duplex): void => {
  // Node times out a connection without a byte after `headers` milliseconds.
  if (socket instanceof Socket && socket.bytesRead === 0) return void socket.destroy()
  // The unfinished response of this connection, which Node keeps on the socket.
  const current = (socket as Duplex & { readonly _httpMessage?: NodeResponse | null })._httpMessage
  if (error.code === "ECONNRESET" || !socket.writable || current?.headersSent === true) {
    socket.destroy()
    return
  }
  const [status, message] = statusOf(error)
  countRequest(undefined, status)
  refuse(
    socket,
    { code: status === 413 ? "PAYLOAD_TOO_LARGE" : "VALIDATION_ERROR", message, status },
    current instanceof ServerResponse ? current.requestId : requestIdFrom(undefined, ids),
    undefined,
    current instanceof ServerResponse ? current.refusalBody : undefined
  )
}
