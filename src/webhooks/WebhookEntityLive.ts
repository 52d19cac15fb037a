import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { WebhookEntity } from "./WebhookEntity.ts"
import { WebhookActors } from "./WebhookActors.ts"

/**
 * The Webhook for callers on other runners: the one place from which its deliveries
 * are posted, rebuilt from the outbox, idle when nothing is due soon, safe to retry
 * because a delivery that is posted twice has the same id both times.
 */
export const WebhookEntityLive = WebhookEntity.toLayer(
  Effect.gen(function*() {
    const actors = yield* WebhookActors
    const { entityId } = yield* Entity.CurrentAddress
    return WebhookEntity.of({ Wake: () => Effect.sync(() => actors.wakeHere(entityId)) })
  })
)
