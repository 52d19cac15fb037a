import { Effect, Exit, type Fiber } from "effect"
import { HttpServerResponse } from "effect/http"
import { Readable } from "node:stream"
import { COMMENT_MS } from "./Exchange.ts"

/** Proxies must not hold back what is sent piece by piece. */
export const eventHeaders = { "cache-control": "no-cache, no-transform", "x-accel-buffering": "no" }

export const eventStream = (stream: Readable) =>
  HttpServerResponse.raw(stream, { contentType: "text/event-stream", headers: eventHeaders })

/**
 * Answers with a message that may come late: as JSON if it comes within COMMENT_MS, else as an event stream with a comment
 * every COMMENT_MS that ends with it (wire.md M). What makes the message runs by `run`, and is interrupted when the request
 * is, or the stream closes.
 */
export const lateAnswer = (
  run: (message: Effect.Effect<object>) => Fiber.Fiber<object>,
  message: Effect.Effect<object>
): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
  Effect.callback((resume) => {
    let stream: Readable | undefined
    const fiber = run(message)
    const timer = setInterval(() => {
      if (stream === undefined) {
        stream = new Readable({ read: () => undefined })
        stream.once("close", end)
        resume(Effect.succeed(eventStream(stream)))
      }
      stream.push(": waiting\n\n")
    }, COMMENT_MS)
    const end = (): void => {
      clearInterval(timer)
      fiber.interruptUnsafe()
    }
    fiber.addObserver((exit) => {
      clearInterval(timer)
      if (stream === undefined) {
        resume(Exit.isSuccess(exit) ? Effect.succeed(HttpServerResponse.jsonUnsafe(exit.value)) : Effect.failCause(exit.cause))
      } else if (Exit.isSuccess(exit)) {
        stream.push(`event: message\ndata: ${JSON.stringify(exit.value)}\n\n`)
        stream.push(null)
      } else {
        stream.destroy()
      }
    })
    return Effect.sync(end)
  })
