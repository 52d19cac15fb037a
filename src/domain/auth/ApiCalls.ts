import { BufferedRequest } from "#infrastructure/http/BufferedRequest"
import { isRoutable } from "#infrastructure/http/RequestPath"
import type { ServerRequest } from "#infrastructure/http/ServerRequest"
import { InternalError, NotFound, type WireFailure } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { Headers, type HttpRouter, HttpServerError, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { Counted } from "./Budgets.ts"
import { CurrentPrincipal, type Principal } from "./Principal.ts"

/** A refusal by the API, with the code, message and details of its body. */
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
 * Calls this server's own HTTP API inside the process, for one request of another protocol. The handlers, checks,
 * limits and errors are the same as for calls over the network. These calls do not count against the general budget of
 * requests.
 */
export interface ApiCalls {
  /**
   * `A` is the type of the response in the description of the API, which the contract tests check. Callers build the
   * path with `path` and the query with `query`.
   */
  readonly call: <A = unknown>(method: Method, path: string, body?: unknown) => Effect.Effect<ApiAnswer<A>, Refusal>
}

/**
 * Literal segments of the API's paths. An id that equals such a segment gets an @ in front, so that the call does not
 * go to another route (wire.md C.0).
 */
const LITERALS = new Set(["me", "recover", "sync", "invites", "blocks", "batch"])

/** Builds a path that contains ids. The result is safe for any text that a caller gives as an id. */
export const path = (strings: TemplateStringsArray, ...ids: ReadonlyArray<string>): string =>
  String.raw({ raw: strings }, ...ids.map((id) => encodeURIComponent(LITERALS.has(id.toLowerCase()) ? `@${id}` : id)))

/** Builds the query string of the parameters that are not undefined. */
export const query = (given: Readonly<Record<string, string | number | undefined>>): string => {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(given)) if (value !== undefined) params.set(name, String(value))
  return params.size === 0 ? "" : `?${params}`
}

const nothingFound = Effect.fail<Refusal>(new NotFound({ message: "Nothing with this id is visible to you." }))

const textOf = ({ body }: HttpServerResponse.HttpServerResponse): string =>
  body._tag === "Uint8Array" ? body.text ?? Buffer.from(body.body).toString("utf8") : ""

const refusalOf = (response: HttpServerResponse.HttpServerResponse): Refusal => {
  const { code, details, message } = JSON.parse(textOf(response)) as Refusal
  const after = Number(response.headers["retry-after"])
  const exact = details?.["retry_after_ms"]
  const retryAfterMs = typeof exact === "number" ? exact : Number.isNaN(after) ? undefined : after * 1_000
  return { code, message, status: response.status, ...(details === undefined ? {} : { details }), retryAfterMs }
}

/** Makes the API for the principal of a request, or for an anonymous caller if `principal` is undefined. */
export const makeApiCalls = (
  app: ReturnType<HttpRouter.HttpRouter["asHttpEffect"]>,
  request: HttpServerRequest.HttpServerRequest,
  principal: Principal | undefined
): ApiCalls => {
  const headers = Headers.fromInput({
    "content-type": "application/json",
    "x-forwarded-for": request.headers["x-forwarded-for"],
    "x-request-id": request.headers["x-request-id"]
  })
  return {
    call: <A>(method: Method, url: string, body?: unknown) => {
      if (!isRoutable(url)) return nothingFound
      // Only the fields given here differ from the outer request. The address and the headers of the response are those
      // of the outer request.
      const inner = new BufferedRequest(request.source as ServerRequest, {
        method,
        url,
        headers,
        body: body === undefined ? "" : JSON.stringify(body)
      })
      return app.pipe(
        Effect.scoped,
        Effect.provideService(HttpServerRequest.HttpServerRequest, inner),
        Effect.provideService(Counted, true),
        Effect.provideService(CurrentPrincipal, principal),
        Effect.catch((error) =>
          HttpServerError.isHttpServerError(error) && error.reason._tag === "RouteNotFound"
            ? nothingFound
            : Effect.andThen(
              Effect.logError("A call of the API failed", error),
              Effect.fail<Refusal>(new InternalError())
            )
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
