import { Context, Effect, type Fiber } from "effect"
import { HttpServerRequest } from "effect/http"
import type { Ids } from "./Ids.ts"

/** The header that carries the request id in requests, responses, calls between nodes and webhook deliveries. */
export const REQUEST_ID = "x-request-id"

/**
 * Returns the client's request id if it is safe to log (1 to 128 printable ASCII characters), and a new one otherwise
 * (wire.md C.0, Request id).
 */
export const requestIdFrom = (given: string | ReadonlyArray<string> | undefined, ids: Ids["Service"]): string =>
  typeof given === "string" && /^[!-~]{1,128}$/.test(given) ? given : ids.make("req")

/**
 * The id of the request that a fiber works for. It is set only where the fiber's context contains no HTTP request: on
 * another node, in a queue, or on a socket.
 */
const RequestId = Context.Reference<string | undefined>("parley/platform/RequestId", { defaultValue: () => undefined })

/**
 * Returns the id of the request that a fiber works for. For an HTTP request, `HttpServer` puts the id into a header.
 */
export const requestIdOf = (fiber: Fiber.Fiber<unknown, unknown>): string | undefined =>
  fiber.getRef(RequestId) ??
    Context.getOrUndefined(fiber.context, HttpServerRequest.HttpServerRequest)?.headers[REQUEST_ID]

/**
 * The id of the request that the current fiber works for, or null if no request caused the work. Commands and rows
 * carry it.
 */
export const requestId: Effect.Effect<string | null> = Effect.withFiberSucceed((fiber) => requestIdOf(fiber) ?? null)

/**
 * Runs an effect for the request with this id. The log lines, remote calls and outbox rows of the effect carry the id.
 */
export const forRequest = <A, E, R>(
  id: string | null | undefined,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> => id === null || id === undefined ? effect : Effect.provideService(effect, RequestId, id)
