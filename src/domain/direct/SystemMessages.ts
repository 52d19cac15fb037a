import { SYSTEM } from "#domain/agents/Agent"
import { renderMessage, sentMessage } from "#domain/messages/Message"
import { intoOutbox, unmuted } from "#domain/messages/Outbox"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { makePublish } from "#domain/push/MessagePublisher"
import { storing } from "#domain/sending/BatchStatement"
import { Database } from "#infrastructure/database/Sql"
import { Ids } from "#infrastructure/platform/Ids"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { DirectConversations } from "./DirectConversations.ts"

/** A message to one agent that is stored, but not pushed yet. */
export interface StoredNotice {
  readonly id: string
  readonly conversationId: string
  readonly seq: number
  readonly recipientId: string
  readonly inboxNo: number
  readonly at: number
  /** The content as JSON text. */
  readonly content: string
}

/**
 * Stores a message to each agent of `$1`, in the conversation that the agent has with the server's own account. Nobody
 * else writes there, so the conversations need no owner. Takes locks in the order of a send: conversations, then
 * inboxes. No limit applies, and no cold slot is used.
 */
const STORE = `
WITH input AS MATERIALIZED (
  SELECT x.* FROM json_to_recordset($1::json) AS x(conv text, recipient text, id text)
  JOIN LATERAL (SELECT id FROM agents WHERE id = x.recipient AND deleted_at IS NULL OFFSET 0) a ON true
), opened AS (
  INSERT INTO conversations (id, kind, last_seq, last_message_at, created_at, initiator_id, established_at)
  SELECT conv, 'direct', 1, $2, $2, $3, $2 FROM input ORDER BY conv
  ON CONFLICT (id) DO UPDATE SET last_seq = conversations.last_seq + 1, last_message_at = excluded.last_message_at
  RETURNING id, last_seq
), joined AS (
  INSERT INTO participants (agent_id, conversation_id, counterparty_id) SELECT recipient, conv, $3 FROM input
  ON CONFLICT DO NOTHING
), numbers AS MATERIALIZED (
  SELECT n.agent_id, n.last_no FROM inboxes n
  WHERE (SELECT count(*) FROM opened) > 0 AND n.agent_id = ANY (ARRAY(SELECT recipient FROM input))
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), fresh AS MATERIALIZED (
  SELECT x.conv, x.recipient, x.id, o.last_seq AS seq, n.last_no + 1 AS no, $3::text AS sender, 'sys_' || x.id AS key,
    'system'::text AS type, $4::text AS content, '{}'::text AS metadata, $2::bigint AS at
  FROM input x
  JOIN opened o ON o.id = x.conv
  JOIN numbers n ON n.agent_id = x.recipient
), ${storing("fresh")}, posted AS (${
  intoOutbox(
    "message.new",
    `SELECT f.recipient AS agent_id, f.id AS subject, f.at, NULL::text AS request FROM fresh f WHERE ${
      unmuted("f.recipient", "f.sender", "f.conv", "f.at")
    }`
  )
}
)
SELECT id, conv AS "conversationId", seq, recipient AS "recipientId", no AS "inboxNo" FROM fresh`

/** Messages of the server's own account to agents (wire.md T). */
export class SystemMessages extends Context.Service<SystemMessages, {
  /**
   * Stores a text for each of these agents that is not deleted. The server's own account must exist. Runs in the
   * caller's transaction.
   */
  readonly store: (
    text: string,
    recipientIds: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<StoredNotice>, Unavailable>
  /** Pushes messages to sockets, and wakes webhooks. Call it after the commit. If it is not called, they come later. */
  readonly publish: (stored: ReadonlyArray<StoredNotice>) => void
}>()("parley/direct/SystemMessages") {
  static readonly layer = Layer.effect(
    SystemMessages,
    Effect.gen(function*() {
      const direct = yield* DirectConversations
      const ids = yield* Ids
      const publish = yield* makePublish
      const signals = yield* WebhookSignals
      const store = (yield* Database).prepared<Omit<StoredNotice, "at" | "content">>("store_system_messages", STORE)
      return SystemMessages.of({
        store: Effect.fnUntraced(function*(text, recipientIds) {
          if (recipientIds.length === 0) return []
          const at = yield* Clock.currentTimeMillis
          const content = JSON.stringify({ text, data: { schema_version: 1, event: "announcement" } })
          const input = recipientIds.map((recipient) => ({
            conv: direct.idOf(SYSTEM.id, recipient),
            recipient,
            id: ids.make("msg")
          }))
          const rows = yield* store([JSON.stringify(input), at, SYSTEM.id, content])
          return rows.map((row) => ({ ...row, at, content }))
        }),
        publish: (stored) => {
          for (const { at, content, conversationId, id, inboxNo, recipientId, seq } of stored) {
            const message = sentMessage(
              { clientMsgId: `sys_${id}`, type: "system", content, metadata: "{}" },
              { id, conversationId, seq, senderId: SYSTEM.id, createdAt: at }
            )
            publish({
              message,
              rendered: renderMessage(message, {
                senderHandle: SYSTEM.handle,
                senderDisplayName: null,
                group: null
              }),
              envelopes: [{ recipientId, inboxNo }],
              senderLastInboxNo: null,
              senderNextInboxNo: null,
              committedAt: undefined,
              trace: undefined
            })
            signals.raise(recipientId)
          }
        }
      })
    })
  )
}
