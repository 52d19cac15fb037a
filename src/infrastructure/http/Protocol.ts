import type { Body } from "#infrastructure/wire/WireErrors"
import type { Context } from "effect"

/** What is known of a request when its response has left, or its client has disconnected. */
export interface EndedRequest {
  readonly method: string | undefined
  /** The status of the response; `undefined` if the server has sent none. */
  readonly status: number | undefined
  readonly isRefused: boolean
  readonly clientKind: string | undefined
}

/** A protocol with paths of its own: what the server must know about these paths before a route runs. */
export interface Protocol {
  /** Whether a path, as the router sees it, belongs to the protocol. */
  readonly includes: (path: string) => boolean
  /** The options (EndpointOptions.ts) of every path of the protocol. An endpoint's own options take precedence. */
  readonly annotations?: Context.Context<never>
  /**
   * Returns the function that makes the body of a refusal on a path of the protocol. Without it, refusals have the
   * wire's body.
   */
  readonly refusalBodyOf?: (path: string) => Body
  /**
   * A path of the protocol without an endpoint. If the protocol has it, the server hides which endpoints exist: every
   * request that is refused before its route gets the answer of this path.
   */
  readonly hiddenAs?: string
  /**
   * CORS: the value of Access-Control-Allow-Origin, and the headers that browsers may send. Without it, browsers may
   * not call.
   */
  readonly cors?: {
    readonly allowOrigin: (origin: string | undefined) => string
    readonly requestHeaders: string
    /** Further headers of responses that browsers may read. */
    readonly responseHeaders?: string
  }
  /** The kind of the program that sends a request, by its `User-Agent`. The response keeps it as `clientKind`. */
  readonly clientKindOf?: (userAgent: string | undefined) => string
  readonly ended?: (request: EndedRequest) => void
}
