import { HttpServerResponse } from "effect/http"
import type { Readable } from "node:stream"
import type { Answer } from "../http/Answer.ts"
import { LateResponse } from "../http/LateResponse.ts"
import { InternalError } from "../wire/WireError.ts"
import { COMMENT_MS } from "./Exchange.ts"

const EVENT_STREAM = "text/event-stream"
/** Proxies must not hold back what is sent piece by piece. */
const eventHeaders = { "cache-control": "no-cache, no-transform", "x-accel-buffering": "no" }

export const eventStream = (stream: Readable) =>
  HttpServerResponse.raw(stream, { contentType: EVENT_STREAM, headers: eventHeaders })

/**
 * What makes the message: calls `settled` once with it, or with undefined if it cannot be made, unless the function that it
 * returns is called before.
 */
export type Making = (settled: (message: object | undefined) => void) => () => void

/**
 * Answers with a message that may come late: as JSON if it comes within COMMENT_MS, else as an event stream with a comment
 * every COMMENT_MS that ends with it (wire.md M).
 */
export class LateAnswer extends LateResponse {
  private readonly make: Making
  private response: Answer | undefined
  private timer: NodeJS.Timeout | undefined
  private giveUp: (() => void) | undefined

  constructor(make: Making) {
    super()
    this.make = make
  }

  override begin(response: Answer): void {
    this.response = response
    response.worker = this
    response.req.release()
    response.receives(0)
    this.timer = setInterval(comment, COMMENT_MS, response)
    this.giveUp = this.make((message) => this.end(message))
  }

  override interruptUnsafe(): void {
    clearInterval(this.timer)
    this.giveUp?.()
  }

  private end(message: object | undefined): void {
    clearInterval(this.timer)
    const { response } = this
    if (response === undefined || response.destroyed || response.writableEnded) return
    if (message === undefined) return response.fail(new InternalError())
    if (response.headersSent) response.end(`event: message\ndata: ${JSON.stringify(message)}\n\n`)
    else response.whole(HttpServerResponse.jsonUnsafe(message))
  }
}

const comment = (response: Answer): void => {
  if (!response.headersSent) response.writeHead(200, { "content-type": EVENT_STREAM, ...eventHeaders })
  response.write(": waiting\n\n")
}
