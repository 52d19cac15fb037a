import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"

/**
 * Makes a webhook read the outbox, because a delivery may be due. If the call is lost, the sweep finds the delivery.
 */
export const Wake = Rpc.make("Wake")

/**
 * A webhook as an actor: the single poster of its deliveries. Rebuilt from the outbox. Idle when no delivery is due
 * soon. Safe to retry because a delivery that is posted twice has the same id both times. The names of the entity and
 * its calls must never change.
 */
export const WebhookEntity = Entity.make("Webhook", [Wake])
