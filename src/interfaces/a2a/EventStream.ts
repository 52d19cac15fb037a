import { Attachments } from "#domain/attachments/Attachments"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { EventStream } from "#infrastructure/http/DeferredResponse"
import { Effect, Exit, Fiber, Scope } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Call } from "./Call.ts"
import type { Failure } from "./Failure.ts"
import type { Streamed } from "./Operations.ts"
import { isFinal, LOG } from "./Task.ts"
import { Tasks } from "./Tasks.ts"
import { makeTaskView } from "./TaskView.ts"
import { follow, type TaskWatch, TaskWatches } from "./TaskWatches.ts"

/**
 * How often an event stream gets a comment, in milliseconds. Without comments, proxies close a silent stream (wire.md
 * N).
 */
const COMMENT_MS = 20_000

/** How many messages the events of one read may contain. */
const CHANGES: LargeAnswer = { usual: LOG, max: LOG, bytes: "message" }

const headers = { "cache-control": "no-cache, no-transform", "x-accel-buffering": "no" }

/**
 * Responds with server-sent events: first the current task, then each of its changes. The stream ends when the task
 * ends, the caller disconnects, the caller's key becomes invalid or this node stops. The stream contains all changes
 * that are committed after its first event and before its end. The first event of the caller's next stream includes
 * later changes.
 */
export const makeEventStream = Effect.gen(function*() {
  const tasks = yield* Tasks
  const reads = yield* LargeReads
  const watches = yield* TaskWatches
  const view = makeTaskView(tasks, yield* Attachments)
  const run = Effect.runForkWith(yield* Effect.context<never>())

  /**
   * Pushes an event for each change of a task until the task ends. Retries if the messages of the changes cannot be
   * read.
   */
  const pushChanges = ({ side, task }: Streamed, watch: TaskWatch, push: (event: object) => void) => {
    let pushed = task.changes
    return follow(
      tasks,
      side,
      watch,
      Effect.fnUntraced(function*(now) {
        if (now.changes > pushed) {
          const events = yield* Effect.result(reads.during(watch.agentId, CHANGES, view.events(now, pushed)))
          if (events._tag === "Failure") {
            watch.seen = ""
            return false
          }
          pushed = now.changes
          events.success.forEach(push)
        }
        return isFinal(now.state)
      })
    )
  }

  return Effect.fnUntraced(function*(
    { caller, key }: Call,
    streamed: Streamed,
    /**
     * Whether to fail if the caller has reached its limit of streams. Otherwise a stream beyond the limit ends after
     * its first event.
     */
    strict: boolean,
    encode: (event: object) => object
  ): Effect.fn.Return<HttpServerResponse.HttpServerResponse, Failure> {
    const { first, task } = streamed
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
      const comments = Effect.forever(
        Effect.andThen(Effect.sleep(COMMENT_MS), Effect.sync(() => stream.push(": waiting\n\n")))
      )
      const fiber = run(
        Effect.raceFirst(pushChanges(streamed, opened.success, push), comments).pipe(
          Effect.catchCause((cause) => Effect.logError("A stream of a task failed", cause)),
          Effect.ensuring(Effect.andThen(Effect.sync(() => stream.push(null)), Scope.close(scope, Exit.void)))
        )
      )
      stream.once("close", () => void run(Fiber.interrupt(fiber)))
    }
    return HttpServerResponse.raw(stream, { contentType: "text/event-stream", headers })
  })
})
