import { Context, type Fiber } from "effect"
import { HttpServerRequest } from "effect/http"
import type { Ids } from "./Ids.ts"

/** The caller's own id if it cannot harm a log line, else a fresh one (wire.md C.0, Request id). */
export const requestIdFrom = (given: string | ReadonlyArray<string> | undefined, ids: Ids["Service"]): string =>
  typeof given === "string" && /^[!-~]{1,128}$/.test(given) ? given : ids.make("req")

/** The id of the request that this fiber works for: the server wrote it into the request's own header. */
export const requestIdOf = (fiber: Fiber.Fiber<unknown, unknown>): string | undefined =>
  Context.getOrUndefined(fiber.context, HttpServerRequest.HttpServerRequest)?.headers["x-request-id"]
