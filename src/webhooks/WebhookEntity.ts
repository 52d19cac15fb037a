import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"

/** Something may be due: read the outbox. A lost call loses no delivery, because the outbox is swept. */
export const Wake = Rpc.make("Wake")

/**
 * A webhook as an actor: the one place from which its deliveries are posted. Rebuilt from the outbox; idle when
 * nothing is due soon. Safe to retry because a delivery that is posted twice has the same id both times. The names of
 * the entity and its calls must never change.
 */
export const WebhookEntity = Entity.make("Webhook", [Wake])
