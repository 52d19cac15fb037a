import type { Body } from "#infrastructure/wire/WireErrors"
import type { Context } from "effect"

/** The information about a request after its response has been sent, or its client has disconnected. */
export interface EndedRequest {
  readonly method: string | undefined
  /** The status of the response; `undefined` if the server has sent no response. */
  readonly status: number | undefined
  readonly isRefused: boolean
  readonly clientKind: string | undefined
}

/**
 * A protocol that has its own paths. It contains the information about these paths that the server needs before a route
 * runs.
 */
export interface Protocol {
  /** Whether a path, as the router sees it, belongs to the protocol. */
  readonly includes: (path: string) => boolean
  /** The options (EndpointOptions.ts) of every path of the protocol. An endpoint's own options take precedence. */
  readonly annotations?: Context.Context<never>
  /**
   * Returns the function that makes the body of a refusal on a path of the protocol. If it is omitted, refusals have
   * the wire's body.
   */
  readonly refusalBodyOf?: (path: string) => Body
  /**
   * A path of the protocol that has no endpoint. If it is set, the server hides which endpoints exist. Every request
   * that is refused before its route gets the response of this path.
   */
  readonly hiddenAs?: string
  /**
   * CORS: the value of Access-Control-Allow-Origin, and the headers that browsers may send. If it is omitted, browsers
   * may not send requests to these paths.
   */
  readonly cors?: {
    readonly allowOrigin: (origin: string | undefined) => string
    readonly requestHeaders: string
    /** Additional response headers that browsers may read. */
    readonly responseHeaders?: string
  }
  /**
   * Returns the kind of the program that sends a request, according to its `User-Agent`. The response stores the kind
   * as `clientKind`.
   */
  readonly clientKindOf?: (userAgent: string | undefined) => string
  readonly ended?: (request: EndedRequest) => void
}
