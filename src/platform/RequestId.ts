import { Context, Effect, type Fiber } from "effect"
import { HttpServerRequest } from "effect/http"
import type { Ids } from "./Ids.ts"

/** The header of requests, answers, calls between nodes and webhook deliveries. */
export const REQUEST_ID = "x-request-id"

/** The caller's own id if it cannot harm a log line, else a fresh one (wire.md C.0, Request id). */
export const requestIdFrom = (given: string | ReadonlyArray<string> | undefined, ids: Ids["Service"]): string =>
  typeof given === "string" && /^[!-~]{1,128}$/.test(given) ? given : ids.make("req")

/** The request that a fiber works for where there is no HTTP request: on another node, in a queue, on a socket. */
const RequestId = Context.Reference<string | undefined>("parley/platform/RequestId", { defaultValue: () => undefined })

/** The id of the request that this fiber works for; to an HTTP request's own header the server wrote it. */
export const requestIdOf = (fiber: Fiber.Fiber<unknown, unknown>): string | undefined =>
  fiber.getRef(RequestId) ??
    Context.getOrUndefined(fiber.context, HttpServerRequest.HttpServerRequest)?.headers[REQUEST_ID]

/** The same as an effect, as commands and rows have it; null: no request caused this. */
export const requestId: Effect.Effect<string | null> = Effect.withFiberSucceed((fiber) => requestIdOf(fiber) ?? null)

/** Does something for the request with this id: what it logs, calls and writes to the outbox says so. */
export const forRequest = <A, E, R>(id: string | null | undefined, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  id === null || id === undefined ? effect : Effect.provideService(effect, RequestId, id)
