import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"

/** Something may be due: looks at the outbox. Loses nothing when it is lost, because the outbox is swept. */
export const Wake = Rpc.make("Wake")

/**
 * A webhook as an actor: the one place from which its deliveries are posted. Rebuilt from the outbox; idle when
 * nothing is due soon. Safe to retry because a delivery that is posted twice has the same id both times. Landed names:
 * never changed.
 */
export const WebhookEntity = Entity.make("Webhook", [Wake])
