import { Agents } from "#domain/agents/Agents"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { toOutcomeChange } from "#domain/deliveries/OutcomeChange"
import { Outcomes } from "#domain/deliveries/Outcomes"
import { toReadReceipt } from "#domain/deliveries/ReadReceipt"
import { toGroupInvite } from "#domain/groups/Invite"
import { toGroupDeletion } from "#domain/memberships/GroupDeletion"
import { GroupReads } from "#domain/memberships/GroupReads"
import { messageJson } from "#domain/messages/Message"
import type { WebhookEvent } from "#domain/messages/Outbox"
import { OutcomeState } from "#domain/messages/Outcome"
import type { ReactionEvent } from "#domain/messages/Reaction"
import { iso } from "#infrastructure/wire/Text"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Schema } from "effect"

/** The subjects of events, as the outbox stores them. `reader` and `by` are agent ids. Times are in milliseconds. */
const ReadSubject = Schema.fromJsonString(Schema.Struct({
  message_id: Schema.String,
  conversation_id: Schema.String,
  seq: Schema.Int,
  reader: Schema.String,
  at: Schema.Int,
  through_seq: Schema.Int
}))
const OutcomeSubject = Schema.fromJsonString(Schema.Struct({
  message_id: Schema.String,
  conversation_id: Schema.String,
  seq: Schema.Int,
  by: Schema.String,
  state: OutcomeState,
  at: Schema.Int
}))
const BlockedSubject = Schema.fromJsonString(Schema.Struct({ by: Schema.String, at: Schema.Int }))

const InviteSubject = Schema.fromJsonString(
  Schema.Struct({ id: Schema.String, group: Schema.String, by: Schema.String, at: Schema.Int })
)
const ReactionSubject = Schema.fromJsonString(Schema.Struct({
  message_id: Schema.String,
  conversation_id: Schema.String,
  by: Schema.String,
  emoji: Schema.String,
  added: Schema.Boolean
}))
const DeletedSubject = Schema.fromJsonString(Schema.Struct({ group: Schema.String, by: Schema.String, at: Schema.Int }))

/** The data to post for an event. */
export interface Rendered {
  /** The data as JSON text. */
  readonly data: string
  readonly envelope: number | null
}

/**
 * Turns an outbox row into the data to post. The data equals the payload that sockets get for the event (wire.md E.5),
 * because the same function in the event's module builds both.
 */
export class EventData extends Context.Service<EventData, {
  /** Returns undefined if there is nothing left to post, for example because the group was deleted. */
  readonly render: (
    agentId: string,
    event: WebhookEvent,
    subject: string
  ) => Effect.Effect<Rendered | undefined, Unavailable>
}>()("parley/webhooks/EventData") {
  static readonly layer = Layer.effect(
    EventData,
    Effect.gen(function*() {
      const agents = yield* Agents
      const deliveries = yield* Deliveries
      const outcomes = yield* Outcomes
      const groupReads = yield* GroupReads
      const handleOf = (id: string) => Effect.map(agents.byIds([id]), (found) => found.get(id)?.handle ?? "")

      const message = Effect.fnUntraced(function*(agentId: string, messageId: string) {
        const found = yield* deliveries.find(agentId, messageId)
        if (found === undefined || found.inboxNo === null) return undefined
        const [row] = yield* deliveries.render({ rows: [{ inboxNo: found.inboxNo, message: found.message }] })
        if (row === undefined) return undefined
        return { data: messageJson(row.rendered, deliveries.ids.encode(agentId, row.inboxNo)), envelope: row.inboxNo }
      })

      const read = Effect.fnUntraced(function*(subject: string) {
        const { at, conversation_id, message_id, reader, seq, through_seq } = Schema.decodeUnknownSync(ReadSubject)(
          subject
        )
        return toReadReceipt(
          { messageId: message_id, conversationId: conversation_id, seq, throughSeq: through_seq, at },
          yield* handleOf(reader)
        )
      })

      /** The reason is read from the stored outcome. If the outcome is in another state by now, the event has no reason. */
      const outcome = Effect.fnUntraced(function*(subject: string) {
        const { at, by, conversation_id, message_id, seq, state } = Schema.decodeUnknownSync(OutcomeSubject)(subject)
        const stored = yield* outcomes.find(by, { conversationId: conversation_id, seq })
        if (stored === undefined) return undefined
        const reason = stored.state === state ? stored.reason : null
        return toOutcomeChange(
          { messageId: message_id, conversationId: conversation_id, outcome: { state, reason, at } },
          yield* handleOf(by)
        )
      })

      const blocked = Effect.fnUntraced(function*(subject: string) {
        const { at, by } = Schema.decodeUnknownSync(BlockedSubject)(subject)
        return { blocked_by: yield* handleOf(by), blocked_at: iso(at) }
      })

      const invited = Effect.fnUntraced(function*(subject: string) {
        const { at, by, group, id } = Schema.decodeUnknownSync(InviteSubject)(subject)
        const card = (yield* groupReads.cards([group])).get(group)
        return card && toGroupInvite({ id, groupId: group, createdAt: at }, card, yield* handleOf(by))
      })

      const deleted = Effect.fnUntraced(function*(subject: string) {
        const { at, by, group } = Schema.decodeUnknownSync(DeletedSubject)(subject)
        return toGroupDeletion(group, yield* handleOf(by), at)
      })

      const reaction = Effect.fnUntraced(function*(subject: string) {
        const { by, ...event } = Schema.decodeUnknownSync(ReactionSubject)(subject)
        return { ...event, handle: yield* handleOf(by) } satisfies typeof ReactionEvent.Type
      })

      const dataOf = (
        event: Exclude<WebhookEvent, "message.new" | "presence.update">,
        subject: string
      ): Effect.Effect<object | undefined, Unavailable> => {
        switch (event) {
          case "message.read":
            return read(subject)
          case "message.reaction":
            return reaction(subject)
          case "message.outcome":
            return outcome(subject)
          case "contact.blocked":
            return blocked(subject)
          case "group.invite.received":
            return invited(subject)
          case "group.deleted":
            return deleted(subject)
        }
      }

      return EventData.of({
        render: (agentId, event, subject) => {
          if (event === "message.new") return message(agentId, subject)
          // Presence is not in the outbox. PresencePosts passes complete data.
          if (event === "presence.update") return Effect.succeed({ data: subject, envelope: null })
          return Effect.map(
            dataOf(event, subject),
            (data) => data === undefined ? undefined : { data: JSON.stringify(data), envelope: null }
          )
        }
      })
    })
  )
}
