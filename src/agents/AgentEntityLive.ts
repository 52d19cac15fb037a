import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { AgentActors } from "./AgentActors.ts"
import { AgentEntity } from "./AgentEntity.ts"
import { ColdSlots } from "./ColdSlots.ts"

/**
 * The Agent for callers on other runners: single writer of its live sessions and
 * cold slots, nothing to rebuild, idle after a minute, safe to retry because a
 * push is a hint, a disconnect idempotent, a reservation keyed by conversation and
 * a changed mute read from storage.
 */
export const AgentEntityLive = AgentEntity.toLayer(
  Effect.gen(function*() {
    const actors = yield* AgentActors
    const slots = yield* ColdSlots
    const { entityId } = yield* Entity.CurrentAddress
    return AgentEntity.of({
      Tell: ({ payload }) =>
        Effect.sync(() => {
          const actor = actors.local(entityId)
          for (const push of payload.pushes) actor.tell(push)
        }),
      Disconnect: ({ payload }) => Effect.sync(() => actors.local(entityId).disconnect(payload)),
      MuteChanged: ({ payload }) => actors.muteChangedHere(entityId, payload.kind, payload.targetId),
      ReserveOutreach: ({ payload }) =>
        actors.local(entityId).reserve(slots.reserve(entityId, payload.conversationId, payload.at))
    })
  })
)
