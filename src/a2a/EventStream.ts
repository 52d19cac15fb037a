import { Effect, Exit, Fiber, Scope } from "effect"
import { HttpServerResponse } from "effect/http"
import { EventStream } from "../http/LateResponse.ts"
import type { Failure } from "./Failure.ts"
import type { Call, Operations, Streamed } from "./Operations.ts"
import { isFinal } from "./Task.ts"
import { TaskWatches } from "./TaskWatches.ts"

/** How often an event stream carries a comment: proxies end silent ones (wire.md N). */
const COMMENT_MS = 20_000

const headers = { "cache-control": "no-cache, no-transform", "x-accel-buffering": "no" }

/**
 * Answers with server-sent events: the task as it is, then each of its changes, until it ends, its caller hangs up, the
 * caller's key dies or this node stops. What was committed after the first event is in the stream, or in the first event of
 * the next one.
 */
export const makeEventStream = ({ follow, view }: Operations) =>
  Effect.gen(function*() {
    const watches = yield* TaskWatches
    const run = Effect.runForkWith(yield* Effect.context<never>())

    return Effect.fnUntraced(function*(
      { caller, key }: Call,
      { first, side, task }: Streamed,
      /** Fails if there is no place for one more stream; else such a stream has only its first event. */
      strict: boolean,
      encode: (event: object) => object
    ): Effect.fn.Return<HttpServerResponse.HttpServerResponse, Failure> {
      const scope = yield* Scope.make()
      const opened = yield* Effect.result(Effect.provideService(watches.open(caller.id, key, task), Scope.Scope, scope))
      if (opened._tag === "Failure" && strict) return yield* Effect.fail(opened.failure)
      const stream = new EventStream()
      const push = (event: object): void => void stream.push(`data: ${JSON.stringify(encode(event))}\n\n`)
      push(first)
      if (opened._tag === "Failure" || isFinal(task.state)) {
        stream.push(null)
        yield* Scope.close(scope, Exit.void)
      } else {
        let told = task.changes
        const events = follow(side, opened.success, (now) =>
          Effect.gen(function*() {
            if (now.changes > told) {
              const changes = yield* Effect.result(view.events(now, told))
              if (changes._tag === "Failure") {
                opened.success.seen = ""
                return false
              }
              told = now.changes
              changes.success.forEach(push)
            }
            return isFinal(now.state)
          }))
        const comments = Effect.forever(Effect.andThen(Effect.sleep(COMMENT_MS), Effect.sync(() => stream.push(": waiting\n\n"))))
        const fiber = run(
          Effect.raceFirst(events, comments).pipe(
            Effect.catchCause((cause) => Effect.logError("A stream of a task failed", cause)),
            Effect.ensuring(Effect.andThen(Effect.sync(() => stream.push(null)), Scope.close(scope, Exit.void)))
          )
        )
        stream.once("close", () => void run(Fiber.interrupt(fiber)))
      }
      return HttpServerResponse.raw(stream, { contentType: "text/event-stream", headers })
    })
  })
