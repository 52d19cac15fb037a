import { forRequest } from "#infrastructure/platform/RequestId"
import { Unavailable } from "#infrastructure/wire/WireError"
import { answer } from "#infrastructure/wire/WireErrors"
import { Cause, Context, Effect, Exit, Fiber, Scope } from "effect"
import { Cookies, HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { Readable } from "node:stream"
import { BufferedRequest } from "./BufferedRequest.ts"
import { deferredResponseOf } from "./DeferredResponse.ts"
import type { Found } from "./RouteTable.ts"
import type { ServerRequest } from "./ServerRequest.ts"
import type { ServerResponse } from "./ServerResponse.ts"
import { SlotList } from "./SlotList.ts"

type Route = HttpRouter.Route<unknown, unknown>

/** Whether a response consists of a status, headers and bytes in memory only. */
const isPlain = ({ body, cookies }: HttpServerResponse.HttpServerResponse): boolean =>
  (body._tag === "Uint8Array" || body._tag === "Empty") && Cookies.isEmpty(cookies)

const isStreamed = (response: HttpServerResponse.HttpServerResponse): boolean =>
  !isPlain(response) && deferredResponseOf(response) === undefined

/** How many listeners a streamed response may have for an event before Node warns. */
const MAX_LISTENERS = 20

/**
 * Runs routes without Effect's router, for requests whose body has already been read. A route's effect has the same
 * services in its context as with the router. The fast path omits the work of the router, of the request's span and of
 * streamed responses. A deferred response keeps no fiber in memory. `other` sends the responses that are neither plain
 * nor deferred.
 */
export const makeFastPath = (
  scope: Scope.Scope,
  other: (request: ServerRequest, response: ServerResponse, answered: HttpServerResponse.HttpServerResponse) => void
) =>
  Effect.gen(function*() {
    const services = yield* Effect.context<never>()
    const report = Effect.runForkWith(services)
    /** Deferred responses that have not ended. */
    const deferred = new Set<ServerResponse>()
    function ended(this: ServerResponse) {
      deferred.delete(this)
    }
    const underWay = new SlotList<Fiber.Fiber<unknown, unknown>>()
    let isOver = false
    yield* Scope.addFinalizer(
      scope,
      Effect.suspend(() => {
        isOver = true
        for (const response of deferred) {
          if (response.destroyed) continue
          response.worker?.interruptUnsafe()
          response.fail(new Unavailable())
        }
        return Fiber.interruptAll(underWay.all)
      })
    )

    const send = (
      request: ServerRequest,
      response: ServerResponse,
      answered: HttpServerResponse.HttpServerResponse
    ): void => {
      if (response.destroyed || response.writableEnded) return
      const begun = deferredResponseOf(answered)
      if (begun !== undefined) {
        deferred.add(response)
        response.on("close", ended)
        return begun.begin(response)
      }
      if (!isPlain(answered)) {
        if (answered.body._tag === "Raw" && answered.body.body instanceof Readable) response.source = answered.body.body
        return other(request, response, answered)
      }
      try {
        response.whole(answered)
      } catch (defect) {
        // Node has rejected the headers. An uncaught exception would end the process.
        report(forRequest(
          response.requestId,
          Effect.map(answer(Cause.die(defect), response.refusalBody), (instead) => {
            if (response.headersSent) response.destroy()
            else response.whole(instead)
          })
        ))
      }
    }

    const end = (scope: Scope.Closeable, exit: Exit.Exit<unknown, unknown>): void => {
      // An unused scope must not keep the response in memory, because only a full garbage collection may free the
      // scope.
      const closing = Scope.closeUnsafe(scope, scope.state._tag === "Empty" ? Exit.void : exit)
      if (closing !== undefined) report(closing)
    }

    return (route: Route, { params, searchParams }: Found, request: ServerRequest, response: ServerResponse): void => {
      const ending = Scope.makeUnsafe()
      let context = Context.add(
        services,
        HttpServerRequest.HttpServerRequest,
        new BufferedRequest(request)
      ) as Context.Context<unknown>
      context = Context.add(context, HttpServerRequest.ParsedSearchParams, searchParams)
      context = Context.add(context, HttpRouter.RouteContext, { params, route })
      context = Context.add(context, Scope.Scope, ending)
      const fiber = Effect.runForkWith(context)(route.handler)
      const finish = (exit: Exit.Exit<HttpServerResponse.HttpServerResponse, unknown>) => {
        // The fiber keeps its result in memory, so the response, which may stay unread for long, must not keep the
        // fiber.
        response.worker = undefined
        if (Exit.isSuccess(exit)) send(request, response, exit.value)
        // WireErrors turns every failure into a response, so the fiber was interrupted by the shutdown or by a
        // disconnected client.
        else if (!response.destroyed)
          report(Effect.map(answer(exit.cause, response.refusalBody), (answered) => send(request, response, answered)))
        // The stream of a response may belong to the request's scope, so the scope stays open until the response is
        // closed.
        if (Exit.isSuccess(exit) && isStreamed(exit.value) && !response.destroyed) {
          // Node's pipeline adds eight listeners, and Node warns above ten.
          response.setMaxListeners(MAX_LISTENERS)
          response.once("close", () => end(ending, exit))
        } else end(ending, exit)
      }
      const exit = fiber.pollUnsafe()
      if (exit !== undefined) return finish(exit)
      response.worker = fiber
      const place = underWay.add(fiber)
      fiber.addObserver((exit) => {
        underWay.remove(place)
        finish(exit)
      })
      if (isOver) fiber.interruptUnsafe()
    }
  })
