import { LogVolume } from "#infrastructure/platform/Telemetry"
import { Effect } from "effect"
import { pathOf } from "./RequestPath.ts"
import type { ServerResponse } from "./ServerResponse.ts"

/**
 * The requests in progress. When the response to a request has been sent, or its client has disconnected, the server
 * records the duration of the request, calls `ended` of the protocol, and logs the request at the level `debug`.
 */
export interface RequestsInFlight {
  readonly begin: (response: ServerResponse) => void
  readonly count: () => number
}

export const makeRequestsInFlight: Effect.Effect<RequestsInFlight> = Effect.gen(function*() {
  const volume = yield* LogVolume
  const log = Effect.runForkWith(yield* Effect.context<never>())
  let count = 0

  const logEnded = (response: ServerResponse): void => {
    const { clientKind, req: { method, refused, url, userAgent } } = response
    log(
      Effect.logDebug(refused === undefined ? "Answered" : "Refused").pipe(Effect.annotateLogs({
        request_id: response.requestId,
        method: method ?? "",
        path: pathOf(url ?? ""),
        status: response.statusCode,
        ...refused,
        ...(refused === undefined || clientKind === undefined
          ? {}
          : { host: clientKind, user_agent: userAgent ?? "" })
      }))
    )
  }

  function finished(this: ServerResponse) {
    count--
    this.over()
    const { protocol, route } = this
    route?.observe(this.req.method, performance.now() - this.began)
    if (!this.writableEnded) this.worker?.interruptUnsafe()
    protocol?.ended?.({
      method: this.req.method,
      status: this.headersSent ? this.statusCode : undefined,
      isRefused: this.req.refused !== undefined,
      clientKind: this.clientKind
    })
    if (volume.level === "debug" && route?.probes === undefined) logEnded(this)
  }

  return {
    begin: (response) => {
      count++
      response.on("close", finished)
    },
    count: () => count
  }
})
