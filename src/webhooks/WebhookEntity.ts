import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"

/** Something may be due: looks at the outbox. Loses nothing when it is lost, because the outbox is swept. */
export const Wake = Rpc.make("Wake")

/** A webhook as an actor. Landed names: never changed. */
export const WebhookEntity = Entity.make("Webhook", [Wake])
