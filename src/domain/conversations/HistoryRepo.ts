import type { Participation } from "#domain/memberships/Participations"
import {
  type MessageRow,
  type MessageType,
  type Progress,
  type StoredMessage,
  storedMessage
} from "#domain/messages/Message"
import { joinOutcome, type OutcomeColumns, outcomeColumns, storedOutcome } from "#domain/messages/OutcomeColumns"
import { reactionsOf } from "#domain/reactions/ReactionsRepo"
import { Database } from "#infrastructure/database/Sql"
import type { PageRange } from "#infrastructure/wire/Page"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A message with the progress that its reader may see. `inboxNo` is the number of the reader's own envelope. */
export interface HistoryRow {
  readonly message: StoredMessage
  readonly progress: Progress
  readonly inboxNo: number | null
  /** The reactions to the message as JSON text, or null if there are none. */
  readonly reactions: string | null
}

/** A range of seqs. Both bounds are exclusive. A null bound is open. */
export interface HistoryRange {
  readonly before: number | null
  readonly after: number | null
  /** The seq of a message. The range then has only this message and the messages that answer it, directly or not. */
  readonly thread?: number
  readonly limit: number
}

export interface ListedConversation {
  readonly id: string
  readonly kind: "direct" | "group"
  readonly counterpartyId: string | null
  readonly createdAt: number
  readonly lastMessageAt: number | null
  readonly activityAt: number
  readonly unreadCount: number
  readonly oldestUnread: number | null
  readonly newestUnread: number | null
  /** Whether the conversation, or the other agent of a direct conversation, was muted at the time of the read. */
  readonly muted: boolean
  /** The newest message that the caller may see. */
  readonly last: { readonly senderId: string; readonly type: MessageType; readonly content: string } | null
}

export interface ContextFacts {
  readonly counterpartyId: string | null
  readonly initiatorId: string | null
  readonly establishedAt: number | null
  readonly lastMessageAt: number | null
  readonly isContact: boolean
  readonly contactSince: number | null
  readonly note: string | null
  readonly unreadCount: number
  readonly oldestUnread: number | null
  readonly newestUnread: number | null
}

/**
 * Selects messages of a direct conversation as one of its agents sees them. The progress and the outcome are those of
 * the message's recipient. `no` is set only for the reader's own envelopes.
 */
const history = (bound: string, order: string) => `
SELECT m.*, e.delivered_at, e.read_at, CASE WHEN e.recipient_id = $2 THEN e.no END AS no, ${
  reactionsOf("$2")
} AS reactions, ${outcomeColumns}
FROM messages m
LEFT JOIN LATERAL (
  SELECT * FROM envelopes
  WHERE recipient_id = CASE WHEN m.sender_id = $2 THEN $3 ELSE $2 END
    AND conversation_id = m.conversation_id AND seq = m.seq
  OFFSET 0
) e ON true
${joinOutcome("e")}
WHERE m.conversation_id = $1 AND m.seq > $4 AND ${bound}
  AND NOT EXISTS (
    SELECT FROM hidden_messages h
    WHERE h.agent_id = $2 AND h.conversation_id = m.conversation_id AND h.seq = m.seq
  )
ORDER BY m.seq ${order} LIMIT $6`

/**
 * Selects messages of a group as one member sees them. The member's own message counts as delivered when it was
 * delivered to all its recipients, and as read when all of them have read it. The progress and the outcome of other
 * messages are the member's own.
 */
const groupHistory = (bound: string, order: string) => `
SELECT m.*, COALESCE(w.delivered_at, e.delivered_at) AS delivered_at, COALESCE(w.read_at, e.read_at) AS read_at, e.no,
  ${reactionsOf("$2")} AS reactions, ${outcomeColumns}
FROM (
  SELECT * FROM messages m
  WHERE m.conversation_id = $1 AND m.seq > $3 AND ${bound}
    AND NOT EXISTS (
      SELECT FROM hidden_messages h
      WHERE h.agent_id = $2 AND h.conversation_id = m.conversation_id AND h.seq = m.seq
    )
  ORDER BY m.seq ${order} LIMIT $5
) m
LEFT JOIN LATERAL (
  SELECT * FROM envelopes WHERE recipient_id = $2 AND conversation_id = m.conversation_id AND seq = m.seq OFFSET 0
) e ON true
${joinOutcome("e")}
LEFT JOIN LATERAL (
  SELECT
    CASE WHEN count(*) = count(x.delivered_at) THEN max(x.delivered_at) END AS delivered_at,
    CASE WHEN count(*) = count(x.read_at) THEN max(x.read_at) END AS read_at
  FROM group_members g
  CROSS JOIN LATERAL (
    SELECT * FROM envelopes
    WHERE recipient_id = g.agent_id AND conversation_id = m.conversation_id AND seq = m.seq OFFSET 0
  ) x
  WHERE g.group_id = m.conversation_id AND m.sender_id = $2
) w ON true
ORDER BY m.seq ${order}`

/** How many messages of a thread are read: of a longer one, those that are the fewest answers away from its root. */
const MAX_THREAD = 10_000

/**
 * Whether a message belongs to the thread of the message with the seq in this parameter. The expression and the condition
 * are those of the index `messages_by_answered`. The index has the collation of the database, and ids have "C": without
 * COLLATE, each message of a thread would read the whole conversation. The index also finds keys inside of other metadata,
 * so the key itself is compared too, unless PostgreSQL cannot read the metadata: old rows may have NUL or a lone surrogate.
 * Only later messages count as answers, so the recursion ends.
 */
const inThread = (root: string) => `
m.seq = ANY (ARRAY(
  WITH RECURSIVE thread AS (
    SELECT id, seq FROM messages WHERE conversation_id = $1 AND seq = ${root}
    UNION ALL
    SELECT a.id, a.seq FROM thread t CROSS JOIN LATERAL (
      SELECT id, seq FROM messages
      WHERE conversation_id = $1 AND metadata LIKE '%"reply_to":"msg!_%' ESCAPE '!'
        AND substring(metadata FROM '"reply_to":"(msg_[A-Za-z0-9_-]{1,60})"') = t.id COLLATE "default"
        AND CASE WHEN metadata ~ '\\\\u(0000|d[89a-f])' THEN true ELSE metadata::json ->> 'reply_to' = t.id END
        AND seq > t.seq
      OFFSET 0
    ) a
  )
  SELECT seq FROM thread LIMIT ${MAX_THREAD}
))`

const ANCHOR = `
SELECT m.seq FROM messages m
WHERE m.id = $3 AND m.conversation_id = $1 AND m.seq > $4
  AND NOT EXISTS (
    SELECT FROM hidden_messages h
    WHERE h.agent_id = $2 AND h.conversation_id = m.conversation_id AND h.seq = m.seq
  )`

const UNREAD = `
LEFT JOIN LATERAL (
  SELECT count(*) AS unread, min(e.seq) AS oldest, max(e.seq) AS newest
  FROM envelopes e
  WHERE e.recipient_id = p.agent_id AND e.conversation_id = p.conversation_id AND e.seq > p.hidden_through
    AND e.read_at IS NULL
    AND NOT EXISTS (
      SELECT FROM hidden_messages h
      WHERE h.agent_id = p.agent_id AND h.conversation_id = e.conversation_id AND h.seq = e.seq
    )
) u ON true`

/** Newest activity first. Equal times are ordered by id, so that the order is total. */
const LIST = `
SELECT l.id, l.kind, l.counterparty_id, l.created_at, l.last_message_at, l.activity_at,
  u.unread, u.oldest, u.newest, m.sender_id AS last_sender, m.type AS last_type,
  CASE WHEN m.type IN ('text', 'system') THEN m.content ELSE '{}' END AS last_content,
  COALESCE(
    (
      SELECT true FROM mutes s
      WHERE s.muter_id = l.agent_id AND s.kind = 'conversation' AND s.target_id = l.id
        AND (s.muted_until IS NULL OR s.muted_until > $6::bigint)
    ),
    (
      SELECT true FROM mutes s
      WHERE s.muter_id = l.agent_id AND s.kind = 'agent' AND s.target_id = l.counterparty_id
        AND (s.muted_until IS NULL OR s.muted_until > $6::bigint)
    ),
    false
  ) AS muted
FROM (
  SELECT p.agent_id, p.conversation_id, p.counterparty_id, p.hidden_through,
    c.id, c.kind, c.created_at, c.last_message_at, COALESCE(c.last_message_at, c.created_at) AS activity_at
  FROM participants p JOIN conversations c ON c.id = p.conversation_id
  WHERE p.agent_id = $1 AND c.last_seq > p.hidden_through
    AND ($2::bigint IS NULL OR (COALESCE(c.last_message_at, c.created_at), c.id) < ($2::bigint, $3::text))
  ORDER BY activity_at DESC, c.id DESC
  OFFSET $4 LIMIT $5
) l
JOIN participants p ON p.agent_id = l.agent_id AND p.conversation_id = l.conversation_id
${UNREAD}
LEFT JOIN LATERAL (
  SELECT m.sender_id, m.type, m.content FROM messages m
  WHERE m.conversation_id = l.id AND m.seq > l.hidden_through
    AND NOT EXISTS (
      SELECT FROM hidden_messages h
      WHERE h.agent_id = l.agent_id AND h.conversation_id = m.conversation_id AND h.seq = m.seq
    )
  ORDER BY m.seq DESC LIMIT 1
) m ON true
ORDER BY l.activity_at DESC, l.id DESC`

const COUNT = `
SELECT count(*) AS total FROM participants p JOIN conversations c ON c.id = p.conversation_id
WHERE p.agent_id = $1 AND c.last_seq > p.hidden_through`

const CONTEXT = `
SELECT p.counterparty_id, c.initiator_id, c.established_at, c.last_message_at,
  k.added_at AS contact_since, k.notes, u.unread, u.oldest, u.newest
FROM participants p
JOIN conversations c ON c.id = p.conversation_id
LEFT JOIN contacts k ON k.agent_id = p.agent_id AND k.contact_id = p.counterparty_id
${UNREAD}
WHERE p.agent_id = $1 AND p.conversation_id = $2`

/**
 * Locks the inbox first, as every statement does. The last update also reads `held`, so that the lock is taken first,
 * because a statement cannot lock a row that it has already changed. If the agent's envelope of the hidden message is
 * undelivered, it is marked as delivered (wire.md F).
 */
const HIDE_MESSAGE = `
WITH held AS MATERIALIZED (
  SELECT agent_id FROM inboxes WHERE agent_id = $1 FOR NO KEY UPDATE
), hidden AS (
  INSERT INTO hidden_messages (agent_id, conversation_id, seq) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
), done AS (
  UPDATE envelopes e SET delivered_at = $4 FROM held h
  WHERE h.agent_id = $1 AND e.recipient_id = $1 AND e.conversation_id = $2 AND e.seq = $3 AND e.delivered_at IS NULL
  RETURNING e.no
)
UPDATE inboxes n SET undelivered = n.undelivered - (SELECT count(*) FROM done)
FROM held h WHERE n.agent_id = h.agent_id`

const HIDE_CONVERSATION = `
WITH held AS MATERIALIZED (
  SELECT agent_id FROM inboxes WHERE agent_id = $1 FOR NO KEY UPDATE
), cut AS (
  UPDATE participants p SET hidden_through = GREATEST(p.hidden_through, c.last_seq)
  FROM conversations c, held h
  WHERE p.agent_id = h.agent_id AND p.conversation_id = $2 AND c.id = p.conversation_id
  RETURNING p.hidden_through
), done AS (
  UPDATE envelopes e SET delivered_at = $3 FROM cut
  WHERE e.recipient_id = $1 AND e.conversation_id = $2 AND e.seq <= cut.hidden_through AND e.delivered_at IS NULL
  RETURNING e.no
)
UPDATE inboxes n SET undelivered = n.undelivered - (SELECT count(*) FROM done)
FROM held h WHERE n.agent_id = h.agent_id`

interface UnreadColumns {
  readonly unread: number
  readonly oldest: number | null
  readonly newest: number | null
}

/** The SQL for a participant's reads of its conversations, and for hiding parts of them. */
export class HistoryRepo extends Context.Service<HistoryRepo, {
  /** Returns the newest messages first, or the oldest first if `after` or `thread` is set. */
  readonly history: (
    agentId: string,
    participation: Participation,
    range: HistoryRange
  ) => Effect.Effect<ReadonlyArray<HistoryRow>, Unavailable>
  /** Returns the messages at these seqs that the agent may see. */
  readonly at: (
    agentId: string,
    participation: Participation,
    seqs: ReadonlyArray<number>
  ) => Effect.Effect<ReadonlyArray<HistoryRow>, Unavailable>
  /** Returns the seq of a message, if the agent may see the message in this conversation. */
  readonly anchor: (
    agentId: string,
    participation: Participation,
    messageId: string
  ) => Effect.Effect<number | undefined, Unavailable>
  readonly list: (
    agentId: string,
    range: PageRange<{ readonly activityAt: number; readonly id: string }>,
    at: number
  ) => Effect.Effect<ReadonlyArray<ListedConversation>, Unavailable>
  readonly count: (agentId: string) => Effect.Effect<number, Unavailable>
  readonly context: (
    agentId: string,
    conversationId: string
  ) => Effect.Effect<ContextFacts | undefined, Unavailable>
  readonly hideMessage: (
    agentId: string,
    conversationId: string,
    seq: number,
    at: number
  ) => Effect.Effect<void, Unavailable>
  readonly hideConversation: (
    agentId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<void, Unavailable>
}>()("parley/conversations/HistoryRepo") {
  static readonly layer = Layer.effect(
    HistoryRepo,
    Effect.gen(function*() {
      const database = yield* Database
      type HistoryColumns = MessageRow & OutcomeColumns & {
        readonly delivered_at: number | null
        readonly read_at: number | null
        readonly no: number | null
        readonly reactions: string | null
      }
      const newestFirst = database.prepared<HistoryColumns>("history_before", history("m.seq < $5", "DESC"))
      const oldestFirst = database.prepared<HistoryColumns>("history_after", history("m.seq > $5", "ASC"))
      const groupNewestFirst = database.prepared<HistoryColumns>(
        "group_history_before",
        groupHistory("m.seq < $4", "DESC")
      )
      const groupOldestFirst = database.prepared<HistoryColumns>(
        "group_history_after",
        groupHistory("m.seq > $4", "ASC")
      )
      const ofThread = database.prepared<HistoryColumns>(
        "history_thread",
        history(`m.seq > $5 AND ${inThread("$7")}`, "ASC")
      )
      const groupOfThread = database.prepared<HistoryColumns>(
        "group_history_thread",
        groupHistory(`m.seq > $4 AND ${inThread("$6")}`, "ASC")
      )
      const at = database.prepared<HistoryColumns>("history_at", history("m.seq = ANY ($5::bigint[])", "DESC"))
      const groupAt = database.prepared<HistoryColumns>(
        "group_history_at",
        groupHistory("m.seq = ANY ($4::bigint[])", "DESC")
      )
      const toHistoryRow = (row: HistoryColumns): HistoryRow => ({
        message: storedMessage(row),
        progress: { deliveredAt: row.delivered_at, readAt: row.read_at, outcome: storedOutcome(row) },
        inboxNo: row.no,
        reactions: row.reactions
      })
      const anchor = database.prepared<{ seq: number }>("history_anchor", ANCHOR)
      const list = database.prepared<
        UnreadColumns & {
          id: string
          kind: "direct" | "group"
          counterparty_id: string | null
          created_at: number
          last_message_at: number | null
          activity_at: number
          last_sender: string | null
          last_type: MessageType
          last_content: string
          muted: boolean
        }
      >("list_conversations", LIST)
      const count = database.prepared<{ total: number }>("count_conversations", COUNT)
      const context = database.prepared<
        UnreadColumns & {
          counterparty_id: string | null
          initiator_id: string | null
          established_at: number | null
          last_message_at: number | null
          contact_since: number | null
          notes: string | null
        }
      >("conversation_context", CONTEXT)
      const hideMessage = database.prepared("hide_message", HIDE_MESSAGE)
      const hideConversation = database.prepared("hide_conversation", HIDE_CONVERSATION)

      return HistoryRepo.of({
        history: (agentId, { conversationId, counterpartyId, hiddenThrough }, { after, before, limit, thread }) =>
          Effect.map(
            thread !== undefined
              ? counterpartyId === null
                ? groupOfThread([conversationId, agentId, hiddenThrough, after ?? 0, limit, thread])
                : ofThread([conversationId, agentId, counterpartyId, hiddenThrough, after ?? 0, limit, thread])
              : counterpartyId === null
              ? after === null
                ? groupNewestFirst([conversationId, agentId, hiddenThrough, before ?? Number.MAX_SAFE_INTEGER, limit])
                : groupOldestFirst([conversationId, agentId, hiddenThrough, after, limit])
              : after === null
              ? newestFirst([
                conversationId,
                agentId,
                counterpartyId,
                hiddenThrough,
                before ?? Number.MAX_SAFE_INTEGER,
                limit
              ])
              : oldestFirst([conversationId, agentId, counterpartyId, hiddenThrough, after, limit]),
            (rows) => rows.map(toHistoryRow)
          ),
        at: (agentId, { conversationId, counterpartyId, hiddenThrough }, seqs) =>
          Effect.map(
            counterpartyId === null
              ? groupAt([conversationId, agentId, hiddenThrough, seqs, seqs.length])
              : at([conversationId, agentId, counterpartyId, hiddenThrough, seqs, seqs.length]),
            (rows) => rows.map(toHistoryRow)
          ),
        anchor: (agentId, { conversationId, hiddenThrough }, messageId) =>
          Effect.map(anchor([conversationId, agentId, messageId, hiddenThrough]), (rows) => rows[0]?.seq),
        list: (agentId, { after, limit, offset }, at) =>
          Effect.map(
            list([agentId, after?.activityAt ?? null, after?.id ?? null, offset, limit, at]),
            (rows) =>
              rows.map((row) => ({
                id: row.id,
                kind: row.kind,
                counterpartyId: row.counterparty_id,
                createdAt: row.created_at,
                lastMessageAt: row.last_message_at,
                activityAt: row.activity_at,
                unreadCount: row.unread,
                oldestUnread: row.oldest,
                newestUnread: row.newest,
                muted: row.muted,
                last: row.last_sender === null
                  ? null
                  : { senderId: row.last_sender, type: row.last_type, content: row.last_content }
              }))
          ),
        count: (agentId) => Effect.map(count([agentId]), (rows) => rows[0]?.total ?? 0),
        context: (agentId, conversationId) =>
          Effect.map(context([agentId, conversationId]), ([row]) =>
            row === undefined ? undefined : {
              counterpartyId: row.counterparty_id,
              initiatorId: row.initiator_id,
              establishedAt: row.established_at,
              lastMessageAt: row.last_message_at,
              isContact: row.contact_since !== null,
              contactSince: row.contact_since,
              note: row.notes,
              unreadCount: row.unread,
              oldestUnread: row.oldest,
              newestUnread: row.newest
            }),
        hideMessage: (agentId, conversationId, seq, at) =>
          Effect.asVoid(hideMessage([agentId, conversationId, seq, at])),
        hideConversation: (agentId, conversationId, at) =>
          Effect.asVoid(hideConversation([agentId, conversationId, at]))
      })
    })
  )
}
