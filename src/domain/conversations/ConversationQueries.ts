import type { Agent } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Groups } from "#domain/groups/Groups"
import type { GroupDeleted } from "#domain/memberships/GroupDeletion"
import { type GroupCard, GroupReads, isGroupId } from "#domain/memberships/GroupReads"
import type { Participation } from "#domain/memberships/Participations"
import { Participations } from "#domain/memberships/Participations"
import {
  messageJson,
  MessageNotFound,
  type MessagePosition,
  renderMessage,
  type StoredMessage
} from "#domain/messages/Message"
import { type Page, pageOf, type PageQuery } from "#infrastructure/wire/Page"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import type { Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import type { ConversationContext, ConversationListItem, Party } from "./Conversation.ts"
import { ConversationNotFound } from "./Conversation.ts"
import { type HistoryRange, HistoryRepo, type HistoryRow, type ListedConversation } from "./HistoryRepo.ts"
import { Listing } from "./Listing.ts"

export interface HistoryQuery {
  readonly limit: number
  readonly before: number | null
  readonly after: number | null
  readonly around: string | null
  /** The id of a message. The answer then has only this message and those that answer it, directly or not. */
  readonly thread?: string | null
}

/**
 * Reads an agent's conversations and hides parts of them from the agent. Works directly on storage, without the actors.
 */
export interface ConversationQueries {
  /** Returns messages as JSON texts, in the order of the query (wire.md C.6). */
  readonly history: (
    agentId: string,
    conversationId: string,
    query: HistoryQuery
  ) => Effect.Effect<ReadonlyArray<string>, ConversationNotFound | GroupDeleted | MessageNotFound | Unavailable>
  /**
   * Returns the messages at these positions that `history` would show the agent now, as stored and as JSON texts, in
   * any order. Leaves out all other messages.
   */
  readonly visible: (
    agentId: string,
    positions: ReadonlyArray<MessagePosition>
  ) => Effect.Effect<ReadonlyArray<{ readonly message: StoredMessage; readonly json: string }>, Unavailable>
  readonly list: (
    agentId: string,
    query: PageQuery
  ) => Effect.Effect<Page<typeof ConversationListItem.Type>, ValidationFailed | Unavailable>
  readonly context: (
    agentId: string,
    conversationId: string
  ) => Effect.Effect<typeof ConversationContext.Type, ConversationNotFound | Unavailable>
  readonly participants: (
    agentId: string,
    conversationId: string
  ) => Effect.Effect<ReadonlyArray<typeof Party.Type>, ConversationNotFound | Unavailable>
  readonly hide: (agentId: string, conversationId: string) => Effect.Effect<void, ConversationNotFound | Unavailable>
  readonly hideMessage: (agentId: string, messageId: string) => Effect.Effect<void, MessageNotFound | Unavailable>
  readonly participation: (
    agentId: string,
    conversationId: string
  ) => Effect.Effect<Participation, ConversationNotFound | Unavailable>
}

/** The part of `Conversations` that does not change the order of messages. */
export const makeConversationQueries = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const repo = yield* HistoryRepo
  const participations = yield* Participations
  const agents = yield* Agents
  const deliveries = yield* Deliveries
  const groups = yield* Groups
  const groupReads = yield* GroupReads
  const now = () => clock.currentTimeMillisUnsafe()

  const participation = Effect.fnUntraced(function*(agentId: string, conversationId: string) {
    const found = yield* participations.of(agentId, conversationId)
    return found ?? (yield* new ConversationNotFound())
  })

  /** Renders messages as JSON texts for an agent. */
  const jsonOf = Effect.fnUntraced(function*(agentId: string, rows: ReadonlyArray<HistoryRow>) {
    const senders = yield* agents.byIds([...new Set(rows.map(({ message }) => message.senderId))])
    const contextOf = yield* groupReads.contexts(rows.map(({ message }) => message))
    return rows.map(({ inboxNo, message, progress, reactions }) =>
      messageJson(
        renderMessage(message, contextOf(message, senders.get(message.senderId)), progress, reactions),
        inboxNo === null ? null : deliveries.ids.encode(agentId, inboxNo)
      )
    )
  })

  /** Turns ConversationNotFound into GroupDeleted for former members of a deleted group. */
  const toldDeleted = <A, E>(
    effect: Effect.Effect<A, E | ConversationNotFound>,
    agentId: string,
    conversationId: string
  ): Effect.Effect<A, E | ConversationNotFound | GroupDeleted | Unavailable> =>
    Effect.catch(
      effect,
      (error): Effect.Effect<never, E | ConversationNotFound | GroupDeleted | Unavailable> =>
        error instanceof ConversationNotFound && isGroupId(conversationId)
          ? Effect.flatMap(groups.outside(agentId, conversationId), (failure) =>
            Effect.fail(failure._tag === "GroupDeleted" ? failure : error))
          : Effect.fail(error)
    )

  const history = Effect.fn("Conversations.history")(
    function*(agentId: string, conversationId: string, query: HistoryQuery) {
      const own = yield* toldDeleted(participation(agentId, conversationId), agentId, conversationId)
      const { after, before, limit } = query
      const named = query.around ?? query.thread ?? null
      let range: HistoryRange = { before, after, limit }
      if (named !== null) {
        const seq = yield* repo.anchor(agentId, own, named)
        if (seq === undefined) return yield* new MessageNotFound()
        range = query.around === null ? { ...range, thread: seq } : { before: seq + 1, after: null, limit }
      }
      const rows = yield* repo.history(agentId, own, range)
      return yield* jsonOf(agentId, rows)
    }
  )

  const visible = Effect.fn("Conversations.visible")(
    function*(agentId: string, positions: ReadonlyArray<MessagePosition>) {
      const seqs = new Map<string, Array<number>>()
      for (const { conversationId, seq } of positions)
        seqs.set(conversationId, [...seqs.get(conversationId) ?? [], seq])
      const own = yield* participations.among(agentId, [...seqs.keys()])
      const rows = (yield* Effect.forEach(own, (one) => repo.at(agentId, one, seqs.get(one.conversationId) ?? [])))
        .flat()
      const json = yield* jsonOf(agentId, rows)
      return rows.map(({ message }, i) => ({ message, json: json[i]! }))
    }
  )

  const party = (agent: Agent | undefined): typeof Party.Type => ({
    handle: agent?.handle ?? "",
    display_name: agent === undefined || agent.deletedAt !== null ? null : agent.displayName ?? agent.handle,
    avatar_url: agent === undefined || agent.deletedAt !== null ? null : agents.avatarUrl(agent)
  })

  const item = (
    agentId: string,
    row: ListedConversation,
    others: ReadonlyMap<string, Agent>,
    group: GroupCard | undefined
  ): typeof ConversationListItem.Type => ({
    id: row.id,
    type: row.kind,
    participants: row.counterpartyId === null ? [] : [party(others.get(row.counterpartyId))],
    group_name: group?.name ?? null,
    group_avatar_url: group?.avatarUrl ?? null,
    group_member_count: group?.memberCount ?? null,
    last_message_preview: row.last === null ? null : Listing.preview(row.last.type, row.last.content),
    last_message_is_own: row.last?.senderId === agentId,
    last_message_type: row.last?.type ?? null,
    last_message_at: isoOrNull(row.lastMessageAt),
    updated_at: iso(row.activityAt),
    unread_count: row.unreadCount,
    oldest_unread_seq: row.oldestUnread,
    newest_unread_seq: row.newestUnread,
    is_muted: row.muted
  })

  const list = Effect.fn("Conversations.list")((agentId: string, query: PageQuery) =>
    pageOf(query, {
      usual: Listing.LIMIT,
      max: Listing.MAX,
      position: Listing.Position,
      rows: (range) => repo.list(agentId, range, now()),
      total: repo.count(agentId),
      positionOf: ({ activityAt, id }) => ({ activityAt, id }),
      show: Effect.fnUntraced(function*(rows) {
        const others = yield* agents.byIds(rows.flatMap((row) => row.counterpartyId ?? []))
        const cards = yield* groupReads.cards(rows.map((row) => row.id))
        return rows.map((row) => item(agentId, row, others, cards.get(row.id)))
      })
    })
  )

  const context = Effect.fn("Conversations.context")(function*(agentId: string, conversationId: string) {
    const facts = yield* repo.context(agentId, conversationId)
    if (facts === undefined) return yield* new ConversationNotFound()
    const unread = { count: facts.unreadCount, oldest_seq: facts.oldestUnread, newest_seq: facts.newestUnread }
    if (facts.counterpartyId === null) {
      const card = (yield* groupReads.cards([conversationId])).get(conversationId)
      const role = yield* groupReads.role(conversationId, agentId)
      // The agent has left the group in the meantime.
      if (card === undefined || role === undefined) return yield* new ConversationNotFound()
      return {
        conversation_id: conversationId,
        type: "group" as const,
        group: { name: card.name, description: card.description, member_count: card.memberCount, your_role: role },
        counterparty: null,
        relationship: null,
        direct_state: null,
        unread
      }
    }
    const other = (yield* agents.byIds([facts.counterpartyId])).get(facts.counterpartyId)
    return {
      conversation_id: conversationId,
      type: "direct" as const,
      group: null,
      counterparty: party(other),
      relationship: {
        is_contact: facts.isContact,
        added_at: isoOrNull(facts.contactSince),
        note: facts.note
      },
      direct_state: {
        state: facts.establishedAt === null ? "cold" as const : "established" as const,
        initiated_by_self: facts.initiatorId === agentId,
        last_message_at: isoOrNull(facts.lastMessageAt)
      },
      unread
    }
  })

  const participants = Effect.fn("Conversations.participants")(function*(agentId: string, conversationId: string) {
    const { counterpartyId } = yield* participation(agentId, conversationId)
    const ids = counterpartyId === null ? yield* groupReads.members(conversationId) : [counterpartyId]
    const found = yield* agents.byIds(ids)
    return ids.map((id) => party(found.get(id)))
  })

  const reading: ConversationQueries = {
    history,
    visible,
    list,
    context,
    participants,
    participation,
    hide: Effect.fn("Conversations.hide")(function*(agentId, conversationId) {
      yield* participation(agentId, conversationId)
      yield* repo.hideConversation(agentId, conversationId, now())
    }),
    hideMessage: Effect.fn("Conversations.hideMessage")(function*(agentId, messageId) {
      const found = yield* deliveries.find(agentId, messageId)
      if (found === undefined) return yield* new MessageNotFound()
      yield* repo.hideMessage(agentId, found.message.conversationId, found.message.seq, now())
    })
  }
  return reading
})
