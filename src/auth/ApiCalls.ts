import { Effect } from "effect"
import { Headers, type HttpRouter, HttpServerError, HttpServerRequest, type HttpServerResponse } from "effect/http"
import type { Asked } from "../http/Asked.ts"
import { DirectRequest } from "../http/DirectRequest.ts"
import { Counted } from "./Budgets.ts"
import { InternalError, NotFound, type WireFailure } from "../wire/WireError.ts"

/** A refusal by the API, exactly as its body has it. */
export interface Refusal extends Pick<WireFailure, "code" | "message" | "details"> {
  readonly status?: number
  /** Milliseconds until a repeat can succeed. */
  readonly retryAfterMs?: number | undefined
}

export interface ApiAnswer<A = unknown> {
  readonly headers: Readonly<Record<string, string | undefined>>
  readonly body: A
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE"

/**
 * Calls this server's own HTTP API for one request of another protocol: the same handlers with the same checks, limits and errors as over
 * the network, without the network. None of these calls counts against the general budget of requests.
 */
export interface ApiCalls {
  /**
   * `A` is what the API's description says of the answer; the tests of the contract hold the API to it. A path is made with
   * `path`, a query with `query`.
   */
  readonly call: <A = unknown>(method: Method, path: string, body?: unknown) => Effect.Effect<ApiAnswer<A>, Refusal>
}

/** Segments of the API's own paths, which are nobody's id (wire.md C.0, Routing). */
const LITERALS = new Set(["me", "recover", "sync", "invites", "blocks", "batch"])

/** A path with ids in it; an id can be anything that a caller gives. */
export const path = (strings: TemplateStringsArray, ...ids: ReadonlyArray<string>): string =>
  String.raw({ raw: strings }, ...ids.map((id) => encodeURIComponent(LITERALS.has(id.toLowerCase()) ? `@${id}` : id)))

/** A query of the parameters that are given. */
export const query = (given: Readonly<Record<string, string | number | undefined>>): string => {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(given)) if (value !== undefined) params.set(name, String(value))
  return params.size === 0 ? "" : `?${params}`
}

const textOf = ({ body }: HttpServerResponse.HttpServerResponse): string =>
  body._tag === "Uint8Array" ? body.text ?? Buffer.from(body.body).toString("utf8") : ""

const refusalOf = (response: HttpServerResponse.HttpServerResponse): Refusal => {
  const { code, details, message } = JSON.parse(textOf(response)) as Refusal
  const after = Number(response.headers["retry-after"])
  const exact = details?.["retry_after_ms"]
  const retryAfterMs = typeof exact === "number" ? exact : Number.isNaN(after) ? undefined : after * 1_000
  return { code, message, status: response.status, ...(details === undefined ? {} : { details }), retryAfterMs }
}

export const makeApiCalls = (
  app: ReturnType<HttpRouter.HttpRouter["asHttpEffect"]>,
  request: HttpServerRequest.HttpServerRequest
): ApiCalls => {
  const headers = Headers.fromInput({
    authorization: request.headers["authorization"],
    "content-type": "application/json",
    "x-forwarded-for": request.headers["x-forwarded-for"],
    "x-request-id": request.headers["x-request-id"]
  })
  return {
    call: <A>(method: Method, url: string, body?: unknown) => {
      // It stands for the request it belongs to (address, headers of the answer), but for what is overridden here.
      const inner = new DirectRequest(request.source as Asked, {
        method,
        url,
        headers,
        body: body === undefined ? "" : JSON.stringify(body)
      })
      return app.pipe(
        Effect.scoped,
        Effect.provideService(HttpServerRequest.HttpServerRequest, inner),
        Effect.provideService(Counted, true),
        Effect.catch((error) =>
          HttpServerError.isHttpServerError(error) && error.reason._tag === "RouteNotFound"
            ? Effect.fail<Refusal>(new NotFound({ message: "There is no such thing for you." }))
            : Effect.andThen(Effect.logError("A call of the API failed", error), Effect.fail<Refusal>(new InternalError()))
        ),
        Effect.flatMap((response) =>
          response.status >= 400
            ? Effect.fail(refusalOf(response))
            : Effect.sync((): ApiAnswer<A> => {
              const text = textOf(response)
              return { headers: response.headers, body: (text === "" ? undefined : JSON.parse(text)) as A }
            })
        )
      )
    }
  }
}
