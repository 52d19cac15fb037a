import type { BlockPair } from "#domain/direct/DirectConversations"
import { DirectRepo } from "#domain/direct/DirectRepo"
import { GroupReads } from "#domain/memberships/GroupReads"
import { LiveAgents } from "#domain/push/LiveAgents"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import type { ConversationNotFound } from "./Conversation.ts"
import type { ConversationQueries } from "./ConversationQueries.ts"

const REMEMBERED_MS = 1_000
const MAX_REMEMBERED = 10_000

export interface Typing {
  /**
   * Relays a typing event to the other participants and stores nothing. In a direct conversation, does nothing if
   * either agent has blocked the other.
   */
  readonly typing: (
    agentId: string,
    handle: string,
    conversationId: string,
    event: "typing.start" | "typing.stop"
  ) => Effect.Effect<void, ConversationNotFound | Unavailable>
  /** Drops the cached receivers of a pair on this node. The caches of other nodes expire after a second. */
  readonly forgetReceivers: (conversationId: string, pair: BlockPair) => void
}

/**
 * Makes the part of `Conversations` that relays typing events. The receivers are cached, because typing events come in
 * bursts.
 */
export const makeTyping = Effect.fnUntraced(function*(participation: ConversationQueries["participation"]) {
  const repo = yield* DirectRepo
  const groupReads = yield* GroupReads
  const liveAgents = yield* LiveAgents
  const monotonic = monotonicMillis(yield* Clock.Clock)
  const receivers = new Map<string, { readonly until: number; readonly to: ReadonlyArray<string> }>()

  const receiversOf = Effect.fnUntraced(function*(agentId: string, conversationId: string) {
    const key = `${agentId} ${conversationId}`
    const known = receivers.get(key)
    if (known !== undefined && known.until > monotonic()) return known.to
    const { counterpartyId } = yield* participation(agentId, conversationId)
    let to: ReadonlyArray<string>
    if (counterpartyId === null) {
      to = (yield* groupReads.members(conversationId)).filter((id) => id !== agentId)
    } else {
      const { state } = yield* repo.load(conversationId, agentId, counterpartyId)
      to = state.blocked ? [] : [counterpartyId]
    }
    if (receivers.size > MAX_REMEMBERED) receivers.clear()
    receivers.set(key, { until: monotonic() + REMEMBERED_MS, to })
    return to
  })

  const made: Typing = {
    typing: Effect.fnUntraced(function*(agentId, handle, conversationId, event) {
      const frame = JSON.stringify({ type: event, payload: { conversation_id: conversationId, sender: handle } })
      for (const to of yield* receiversOf(agentId, conversationId)) {
        liveAgents.push(to, { _tag: "Event", frame, about: { senderId: agentId, conversationId } })
      }
    }),
    forgetReceivers: (conversationId, { agentId, blockedId }) => {
      for (const id of [agentId, blockedId]) receivers.delete(`${id} ${conversationId}`)
    }
  }
  return made
})
