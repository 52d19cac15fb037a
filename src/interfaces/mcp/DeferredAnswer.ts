import { DeferredResponse } from "#infrastructure/http/DeferredResponse"
import type { ServerResponse } from "#infrastructure/http/ServerResponse"
import { InternalError } from "#infrastructure/wire/WireError"
import { HttpServerResponse } from "effect/http"
import type { Readable } from "node:stream"

/**
 * The time between two comments in an event stream, in milliseconds. Without comments, proxies close a silent stream
 * (wire.md M).
 */
export const COMMENT_MS = 20_000

/** The comment that is sent in an event stream while there is nothing else to send. */
export const COMMENT = ": waiting\n\n"
const EVENT_STREAM = "text/event-stream"
/** Keep proxies from caching or buffering the events. */
const eventHeaders = { "cache-control": "no-cache, no-transform", "x-accel-buffering": "no" }

/** Encodes a JSON-RPC message as a server-sent event. */
export const eventOf = (message: object): string => `event: message\ndata: ${JSON.stringify(message)}\n\n`

/** Makes the response that sends an event stream. */
export const eventStream = (stream: Readable) =>
  HttpServerResponse.raw(stream, { contentType: EVENT_STREAM, headers: eventHeaders })

/**
 * A function that starts to make a message, and returns a function that cancels this. Unless cancelled, it calls
 * `settled` exactly once: with the message, or with undefined if the message cannot be made.
 */
export type Making = (settled: (message: object | undefined) => void) => () => void

/**
 * A response with a message that may come late. A message that comes within COMMENT_MS is sent as JSON. Otherwise the
 * response is an event stream. It sends a comment every COMMENT_MS and ends with the message (wire.md M).
 */
export class DeferredAnswer extends DeferredResponse {
  private readonly make: Making
  private response: ServerResponse | undefined
  private timer: NodeJS.Timeout | undefined
  private cancel: (() => void) | undefined

  constructor(make: Making) {
    super()
    this.make = make
  }

  override begin(response: ServerResponse): void {
    this.response = response
    response.worker = this
    response.req.release()
    response.receives(0)
    this.timer = setInterval(comment, COMMENT_MS, response)
    this.cancel = this.make((message) => this.end(message))
  }

  override interruptUnsafe(): void {
    clearInterval(this.timer)
    this.cancel?.()
  }

  private end(message: object | undefined): void {
    clearInterval(this.timer)
    const { response } = this
    if (response === undefined || response.destroyed || response.writableEnded) return
    if (message === undefined) return response.fail(new InternalError())
    if (response.headersSent) response.end(eventOf(message))
    else response.whole(HttpServerResponse.jsonUnsafe(message))
  }
}

const comment = (response: ServerResponse): void => {
  if (!response.headersSent) response.writeHead(200, { "content-type": EVENT_STREAM, ...eventHeaders })
  response.write(COMMENT)
}
