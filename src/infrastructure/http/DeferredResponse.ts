import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { Readable } from "node:stream"
import { ServerResponse } from "./ServerResponse.ts"

/** How many unread bytes end an event stream. Its client opens a new stream. */
const MAX_UNREAD = 1_048_576

/** A stream of server-sent events. The stream ends when more than `MAX_UNREAD` bytes of events are unread. */
export class EventStream extends Readable {
  constructor() {
    super({ read: () => undefined })
  }

  override push(chunk: unknown, encoding?: BufferEncoding): boolean {
    // A destroyed stream must not end normally, because its response would then look complete.
    if (this.destroyed) return false
    const goesOn = super.push(chunk, encoding)
    if (this.readableLength > MAX_UNREAD) this.destroy()
    return goesOn
  }
}

/**
 * A response that is written after its route has ended. Until then only the connection and this object of the request
 * stay in memory, without a fiber or a scope. A route returns `deferred(response)`.
 */
export abstract class DeferredResponse {
  /** Called once, after the route has ended. An implementation sets itself as the `worker` of `response`. */
  abstract begin(response: ServerResponse): void
  /** Called when the client disconnects before the response has ended. */
  abstract interruptUnsafe(): void
}

/** Returns the value that a route must return so that `response` is written after the route has ended. */
export const deferred = (response: DeferredResponse): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.raw(response)

/** The deferred response that a route has returned; `undefined` if it has returned any other response. */
export const deferredResponseOf = ({ body }: HttpServerResponse.HttpServerResponse): DeferredResponse | undefined =>
  body._tag === "Raw" && body.body instanceof DeferredResponse ? body.body : undefined

/**
 * For requests that come through the router. If the route returned a deferred response, completes when this response
 * has ended, with nothing left to send.
 */
export const untilEnded = (answered: HttpServerResponse.HttpServerResponse) => {
  const waiting = deferredResponseOf(answered)
  if (waiting === undefined) {
    const { body } = answered
    return body._tag !== "Raw" || !(body.body instanceof Readable)
      ? Effect.succeed(answered)
      : Effect.map(HttpServerRequest.HttpServerRequest, (request) => {
        const response = NodeHttpServerRequest.toServerResponse(request)
        if (response instanceof ServerResponse) response.source = body.body as Readable
        return answered
      })
  }
  return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
    // The router runs its routes uninterruptibly, but a shutdown has to interrupt deferred responses that have not
    // ended in time.
    Effect.interruptible(Effect.callback<HttpServerResponse.HttpServerResponse>((resume) => {
      const response = NodeHttpServerRequest.toServerResponse(request)
      if (!(response instanceof ServerResponse))
        throw new Error("A deferred response answers a request over the network.")
      response.once("close", () => resume(Effect.succeed(HttpServerResponse.empty({ status: response.statusCode }))))
      waiting.begin(response)
      return Effect.sync(() => waiting.interruptUnsafe())
    })))
}
