import { Agents } from "#domain/agents/Agents"
import { DirectFeed } from "#domain/direct/DirectFeed"
import { Config } from "#infrastructure/platform/Config"
import { sha256 } from "#infrastructure/platform/Ids"
import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { RateLimited } from "#infrastructure/wire/WireError"
import { Waiters } from "#interfaces/realtime/Waiters"
import { Context, Effect, Latch, Layer, Random, type Scope } from "effect"
import { type Task, waitsFor } from "./Task.ts"
import type { Side, Tasks } from "./Tasks.ts"
import { TasksRepo } from "./TasksRepo.ts"

/** How often this node compares the conversations of all its watched tasks with storage. */
const TICK_INTERVAL = "200 millis"
/** How many ticks pass between two checks of the callers' keys. */
const TICKS_PER_KEY_CHECK = 5
/** Over how many ticks a stopping server spreads the ends of its watches. */
const SPREAD = 10

/**
 * Why a watch ended: `moved` if the node stops, `dead` if the caller's key is no longer valid or its account is
 * suspended.
 */
export type Ended = "moved" | "dead"

/** Watches one task for its caller. */
export class TaskWatch {
  readonly agentId: string
  readonly keyHash: string
  readonly news = Latch.makeUnsafe(false)
  task: Task
  ended: Ended | undefined
  /** The state of the conversation at the last comparison with storage. */
  seen = ""
  /** How many ticks remain until the watch ends. Set when the node begins to stop. */
  leavesIn: number | undefined

  constructor(agentId: string, keyHash: string, task: Task) {
    this.agentId = agentId
    this.keyHash = keyHash
    this.task = task
  }

  /** Completes when the task may have changed or the watch has ended. */
  readonly wait: Effect.Effect<void> = Effect.suspend(() =>
    Effect.andThen(this.news.await, Effect.sync(() => this.news.closeUnsafe()))
  )

  end(reason: Ended): void {
    this.ended = reason
    this.news.openUnsafe()
  }
}

/**
 * Reads the task each time that the task may have changed, until `each` returns true or the watch ends. Retries a read
 * that fails.
 */
export const follow = <E>(
  tasks: Tasks["Service"],
  side: Side,
  watch: TaskWatch,
  each: (task: Task) => Effect.Effect<boolean, E>
): Effect.Effect<void, E> =>
  Effect.gen(function*() {
    while (true) {
      yield* watch.wait
      if (watch.ended !== undefined) return
      const read = yield* Effect.result(tasks.find(side, watch.task.id))
      if (read._tag === "Failure") {
        watch.seen = ""
        continue
      }
      if (read.success === undefined) return
      watch.task = read.success
      if (yield* each(read.success)) return
    }
  })

/**
 * When a task may have changed, wakes the callers that wait for the task or have opened a stream of it. While there are
 * watches, the node polls storage five times a second for all watches together, so that no change is missed. Nothing is
 * kept for a caller that has disconnected. A watch does not count as a socket for presence.
 */
export class TaskWatches extends Context.Service<TaskWatches, {
  /**
   * Watches a task until the scope closes. Fails if the caller already has as many watches on this node as it may have
   * sockets.
   */
  readonly open: (agentId: string, key: string, task: Task) => Effect.Effect<TaskWatch, RateLimited, Scope.Scope>
}>()("parley/a2a/TaskWatches") {
  static readonly layer = Layer.effect(
    TaskWatches,
    Effect.gen(function*() {
      const agents = yield* Agents
      const feed = yield* DirectFeed
      const limit = (yield* Config).LIMITS_SOCKETS_PER_AGENT
      const repo = yield* TasksRepo
      const waiters = yield* Waiters
      const failures = new LogThrottle()
      const watches = new Set<TaskWatch>()
      const counts = new Map<string, number>()
      const some = Latch.makeUnsafe(false)

      const compare = Effect.gen(function*() {
        const open = [...watches]
        const places = open.map(({ task }) => ({
          conversationId: task.conversationId,
          recipientId: task.recipientId,
          seq: waitsFor(task) ?? null
        }))
        const progress = yield* feed.progress(places)
        const heads = yield* repo.heads([...new Set(places.map(({ conversationId }) => conversationId))])
        for (const [i, watch] of open.entries()) {
          const { deliveredAt, lastSeq } = progress[i]!
          const seen = `${lastSeq} ${heads.get(watch.task.conversationId)?.version ?? ""} ${deliveredAt !== null}`
          if (seen !== watch.seen) {
            watch.seen = seen
            watch.news.openUnsafe()
          }
        }
      })

      const checkKeys = Effect.gen(function*() {
        const open = [...watches]
        const ids = [...new Set(open.map(({ agentId }) => agentId))]
        const hashes = yield* agents.keyHashes(ids)
        const known = yield* agents.byIds(ids)
        for (const watch of open) {
          if (hashes.get(watch.agentId) !== watch.keyHash || known.get(watch.agentId)?.status === "suspended")
            watch.end("dead")
        }
      })

      const leave = Effect.gen(function*() {
        for (const watch of watches) {
          watch.leavesIn ??= yield* Random.nextIntBetween(0, SPREAD)
          if (watch.leavesIn-- <= 0) watch.end("moved")
        }
      })

      let ticks = 0
      const tick = Effect.gen(function*() {
        yield* some.await
        if (waiters.isLeaving()) yield* leave
        yield* compare
        if (ticks++ % TICKS_PER_KEY_CHECK === 0) yield* checkKeys
      })
      yield* tick.pipe(
        Effect.catchCause((cause) =>
          failures.log(Effect.logWarning("Could not check for changes of watched tasks", cause))
        ),
        Effect.andThen(Effect.sleep(TICK_INTERVAL)),
        Effect.forever,
        Effect.forkScoped
      )

      return TaskWatches.of({
        open: (agentId, key, task) =>
          Effect.acquireRelease(
            Effect.suspend(() => {
              const held = counts.get(agentId) ?? 0
              if (held >= limit) {
                return Effect.fail(
                  new RateLimited({
                    message:
                      `You already wait for ${limit} tasks on this node, the most that an agent may: end a stream first.`,
                    details: { limit, window: "at once", retry_after_ms: 1_000 }
                  })
                )
              }
              counts.set(agentId, held + 1)
              const watch = new TaskWatch(agentId, sha256(key).toString("hex"), task)
              watches.add(watch)
              some.openUnsafe()
              return Effect.succeed(watch)
            }),
            (watch) =>
              Effect.sync(() => {
                watches.delete(watch)
                const left = (counts.get(agentId) ?? 1) - 1
                if (left === 0) counts.delete(agentId)
                else counts.set(agentId, left)
                if (watches.size === 0) some.closeUnsafe()
              })
          )
      })
    })
  )
}
