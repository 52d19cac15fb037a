import { Clock, Context, Effect, Layer } from "effect"
import { unavailableOnSqlError } from "../platform/UnavailableOnSqlError.ts"
import type { Unavailable } from "../wire/WireError.ts"
import { WebhooksRepo } from "./WebhooksRepo.ts"

/** What agents have asked to be told, for the room that ends accounts. */
export class Subscriptions extends Context.Service<Subscriptions, {
  /** Drops the webhooks of an agent (wire.md G.12); idempotent. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/webhooks/Subscriptions") {
  static readonly layer = Layer.effect(
    Subscriptions,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const repo = yield* WebhooksRepo
      return Subscriptions.of({
        removeAgent: (id) => unavailableOnSqlError(Effect.suspend(() => repo.removeAll(id, clock.currentTimeMillisUnsafe())))
      })
    })
  )
}
