import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { logDefect } from "../cluster/LogDefect.ts"
import { forRequest, REQUEST_ID } from "../platform/RequestId.ts"
import { AgentActors } from "./AgentActors.ts"
import { AgentEntity } from "./AgentEntity.ts"
import { ColdSlots } from "./ColdSlots.ts"

/**
 * The Agent for callers on other runners: single writer of its cold slots, nothing to
 * rebuild, idle after a minute, safe to retry because a reservation is keyed by
 * conversation.
 */
export const AgentEntityLive = AgentEntity.toLayer(
  Effect.gen(function*() {
    const actors = yield* AgentActors
    const slots = yield* ColdSlots
    const { entityId } = yield* Entity.CurrentAddress
    return AgentEntity.of({
      ReserveOutreach: ({ headers, payload }) =>
        forRequest(
          headers[REQUEST_ID],
          logDefect(actors.local(entityId).reserve(slots.reserve(entityId, payload.conversationId, payload.at)))
        )
    })
  }),
  // A defect is the caller's answer, and no reason to begin again with all that is in flight.
  { disableFatalDefects: true }
)
