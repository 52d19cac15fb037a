import { Ids } from "#infrastructure/platform/Ids"
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { WebhookActors } from "./WebhookActors.ts"
import { WebhooksRepo } from "./WebhooksRepo.ts"

/** How many events may wait to be posted. Further events are dropped. */
const MAX_QUEUED = 10_000
const BATCH_SIZE = 250

/**
 * Posts presence to webhooks, best effort. Events wait in memory for up to a second and are tried once. If an agent's
 * presence changes again while an event waits, only the latest state is posted.
 */
export class PresencePosts extends Context.Service<PresencePosts, {
  /**
   * Queues the presence of `handle` for the webhooks of these agents that subscribe to presence. `data` is JSON text.
   */
  readonly post: (agentIds: ReadonlyArray<string>, handle: string, data: string) => void
}>()("parley/webhooks/PresencePosts") {
  static readonly layer = Layer.effect(
    PresencePosts,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const actors = yield* WebhookActors
      const ids = yield* Ids
      const repo = yield* WebhooksRepo
      let waiting = new Map<string, { readonly agentId: string; readonly data: string }>()

      const post = Effect.gen(function*() {
        const all = [...waiting.values()]
        waiting = new Map()
        for (let from = 0; from < all.length; from += BATCH_SIZE) {
          const slice = all.slice(from, from + BATCH_SIZE)
          const targets = yield* repo.targets(
            [...new Set(slice.map(({ agentId }) => agentId))],
            "presence.update",
            clock.currentTimeMillisUnsafe()
          )
          for (const { agentId, data } of slice) {
            for (const target of targets) {
              if (target.agentId === agentId) actors.postOnce(target, "presence.update", ids.make("whd"), data)
            }
          }
        }
      })
      yield* Effect.catchCause(post, (cause) => Effect.logWarning("Presence was not posted", cause)).pipe(
        Effect.repeat(Schedule.spaced("1 second")),
        Effect.forkScoped
      )

      return PresencePosts.of({
        post: (agentIds, handle, data) => {
          for (const agentId of agentIds) {
            const key = `${agentId} ${handle}`
            if (waiting.size < MAX_QUEUED || waiting.has(key)) waiting.set(key, { agentId, data })
          }
        }
      })
    })
  )
}
