import { Clock, Context, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import type { AgentStatus, Policy } from "../agents/Agent.ts"
import { MadeWithin } from "../database/DatabaseClock.ts"
import { requestId } from "../platform/RequestId.ts"
import { Database } from "../database/Sql.ts"
import { intoOutbox, mayHook } from "../messages/Outbox.ts"
import type { DirectState } from "./Conversation.ts"
import type { BlockCommand, BlockOutcome, UnblockCommand, UnblockOutcome } from "./ConversationEntity.ts"
import { type MessageRow, type MessageType, type Progress, type StoredMessage, storedMessage } from "../messages/Message.ts"

/** A direct conversation as committed, with the epoch and version that fence decisions on it. */
export interface LoadedDirect {
  readonly epoch: number
  readonly version: number
  readonly state: DirectState
}

/** The facts behind a refusal or a first message, from one indexed read. */
export interface OutreachFacts {
  /** The id of the message that this sender has stored under this client_msg_id. */
  readonly replayOf: string | null
  /** Whether the conversation has its first message. */
  readonly opened: boolean
  /** Whether the other side has answered. */
  readonly established: boolean
  readonly senderStatus: AgentStatus | null
  readonly recipientDeleted: boolean
  readonly recipientSuspended: boolean
  readonly inboxMode: Policy
  /** Whether the recipient holds the sender as a contact. */
  readonly isContact: boolean
  readonly blocked: boolean
  readonly undelivered: number
}

/** A message with the progress that its reader may see; `inboxNo` is the number of the reader's own envelope. */
export interface HistoryRow {
  readonly message: StoredMessage
  readonly progress: Progress
  readonly inboxNo: number | null
}

/** A range of seqs, both bounds exclusive; a null bound is open. */
export interface HistoryRange {
  readonly before: number | null
  readonly after: number | null
  readonly limit: number
}

/** A participant's own view of a conversation. */
export interface Participation {
  readonly conversationId: string
  readonly counterpartyId: string | null
  readonly hiddenThrough: number
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
  /** Whether the conversation, or the other side of a direct one, was muted when this was read. */
  readonly muted: boolean
  /** The newest message visible to the caller. */
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

const LOAD = `
SELECT c.epoch, c.version, c.initiator_id, c.created_at, c.established_at IS NOT NULL AS established,
  EXISTS (
    SELECT FROM blocks WHERE (agent_id = $2 AND blocked_id = $3) OR (agent_id = $3 AND blocked_id = $2)
  ) AS blocked
FROM (SELECT 1) one LEFT JOIN conversations c ON c.id = $1`

const OUTREACH = `
SELECT
  (SELECT message_id FROM message_keys WHERE sender_id = $1 AND client_msg_id = $3) AS replay_of,
  EXISTS (SELECT FROM conversations WHERE id = $4 AND initiator_id IS NOT NULL) AS opened,
  EXISTS (SELECT FROM conversations WHERE id = $4 AND established_at IS NOT NULL) AS established,
  (
    SELECT CASE
      WHEN deleted_at IS NOT NULL THEN NULL
      WHEN status = 'active' AND restricted_until > $5::bigint THEN 'restricted'
      ELSE status
    END FROM agents WHERE id = $1
  ) AS sender_status,
  b.deleted_at IS NOT NULL AS recipient_deleted,
  b.status = 'suspended' AS recipient_suspended,
  b.inbox_mode,
  EXISTS (SELECT FROM contacts WHERE agent_id = $2 AND contact_id = $1) AS is_contact,
  EXISTS (
    SELECT FROM blocks WHERE (agent_id = $1 AND blocked_id = $2) OR (agent_id = $2 AND blocked_id = $1)
  ) AS blocked,
  COALESCE((SELECT undelivered FROM inboxes WHERE agent_id = $2), 0) AS undelivered
FROM agents b WHERE b.id = $2`

/** No row for a suspended sender: even its replays are refused (wire.md C.6). */
const KEY = `
SELECT k.message_id FROM message_keys k
WHERE k.sender_id = $1 AND k.client_msg_id = $2
  AND (SELECT status FROM agents WHERE id = $1) IS DISTINCT FROM 'suspended'`

const PARTICIPATION = `
SELECT conversation_id, counterparty_id, hidden_through FROM participants WHERE agent_id = $1 AND conversation_id = $2`

/**
 * Messages of a direct conversation as one side sees them: the progress comes from the envelope of the
 * message's recipient, `no` only from the reader's own.
 */
const history = (bound: string, order: string) => `
SELECT m.*, e.delivered_at, e.read_at, CASE WHEN e.recipient_id = $2 THEN e.no END AS no
FROM messages m
LEFT JOIN LATERAL (
  SELECT * FROM envelopes
  WHERE recipient_id = CASE WHEN m.sender_id = $2 THEN $3 ELSE $2 END
    AND conversation_id = m.conversation_id AND seq = m.seq
  OFFSET 0
) e ON true
WHERE m.conversation_id = $1 AND m.seq > $4 AND ${bound}
  AND NOT EXISTS (
    SELECT FROM hidden_messages h
    WHERE h.agent_id = $2 AND h.conversation_id = m.conversation_id AND h.seq = m.seq
  )
ORDER BY m.seq ${order} LIMIT $6`

/**
 * Messages of a group as one member sees them: the progress of its own messages is complete once all that
 * ever got them have got that far; the progress of others' messages comes from the member's own envelope.
 */
const groupHistory = (bound: string, order: string) => `
SELECT m.*, COALESCE(w.delivered_at, e.delivered_at) AS delivered_at, COALESCE(w.read_at, e.read_at) AS read_at, e.no
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

/** Newest activity first; the id breaks ties, so that the order is total. */
const LIST = `
SELECT l.id, l.kind, l.counterparty_id, l.created_at, l.last_message_at, l.activity_at,
  u.unread, u.oldest, u.newest, m.sender_id AS last_sender, m.type AS last_type, m.content AS last_content,
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
 * Locks the inbox first, as every statement does. The last update reads `held` too, so that the lock is
 * taken before anything else is evaluated: a statement cannot lock a row that it has already changed. The
 * agent's undelivered envelope of the hidden message becomes delivered (wire.md F).
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

/**
 * A block locks its pair's conversation row and raises its version, so that a send is either committed
 * before the block or finds the new version. If there is no row yet, the block inserts an empty one: a
 * first message would insert the same row, and only one of the two can. `ON CONFLICT` updates the row as
 * it is, not as the statement's snapshot saw it.
 */
const RAISE = `
  ON CONFLICT (id) DO UPDATE SET version = conversations.version + 1
  RETURNING epoch, version, initiator_id`

/**
 * Blocks against the agent that began the conversation count towards its standing, and make a recount due
 * (wire.md G.8).
 */
const NEW_BLOCK = `
  INSERT INTO blocks (agent_id, blocked_id, created_at, counts)
  SELECT $2, $3, $4, COALESCE(initiator_id = $3, false) FROM held
  ON CONFLICT DO NOTHING
  RETURNING agent_id, counts`

/** Writes `contact.blocked` to the outbox for the blocked agent, if it has a webhook for it. */
const blockedPosted = (request: string): string => intoOutbox(
  "contact.blocked",
  `SELECT a.id AS agent_id, $4::bigint AS at, json_build_object('by', $2::text, 'at', $4::bigint)::text AS subject,
    ${request}::text AS request
  FROM blocked JOIN agents a ON a.id = $3 AND ${mayHook("a", "contact.blocked")}`
)

/**
 * A block that was under way for too long is not made: somebody else may have made and removed it since,
 * and a block made now would look like any other. Tested when the statement has arrived, on the
 * database's clock, which all nodes follow.
 */
const inTime = (until: string): string => `(${until}::bigint IS NULL OR extract(epoch FROM clock_timestamp()) * 1000 < ${until}::bigint)`

/** How far a node's time may be from the database's, which it follows, in milliseconds. */
const CLOCKS_DIFFER_MS = 1_000

/** Returns no row if it is too late. */
const BLOCK = `
WITH held AS (
  INSERT INTO conversations (id, kind, version, created_at) SELECT $1, 'direct', 1, $4 WHERE ${inTime("$6")} ${RAISE}
), blocked AS (${NEW_BLOCK}
), due AS (
  INSERT INTO recounts (agent_id) SELECT $3 FROM blocked WHERE counts
), posted AS (${blockedPosted("$5")})
SELECT epoch, version, EXISTS (SELECT FROM blocked) AS created FROM held`

/** Returns no row if it is too late or there is a report already; nothing is changed then. */
const REPORT = `
WITH reported AS (
  INSERT INTO reports (agent_id, reported_id, created_at, id, reason, conversation_id)
  SELECT $2, $3, $4, $5, $6, $1 WHERE ${inTime("$8")}
  ON CONFLICT (agent_id, reported_id) DO NOTHING
  RETURNING agent_id
), held AS (
  INSERT INTO conversations (id, kind, version, created_at) SELECT $1, 'direct', 1, $4 FROM reported ${RAISE}
), blocked AS (${NEW_BLOCK}
), due AS (
  INSERT INTO recounts (agent_id) SELECT $3 FROM held
), posted AS (${blockedPosted("$7")})
SELECT epoch, version, EXISTS (SELECT FROM blocked) AS created FROM held`

/**
 * With the last block of its pair an empty row is deleted, so that a first message finds none. Every
 * block raises the version: while the row has the version that the snapshot saw, the pair's blocks are
 * unchanged too. `was` without `done`: the row has changed since the snapshot, and the caller tries
 * again.
 */
const UNBLOCK = `
WITH seen AS MATERIALIZED (
  SELECT c.id, c.version,
    c.last_seq = 0 AND NOT EXISTS (SELECT FROM blocks WHERE agent_id = $3 AND blocked_id = $2) AS ends
  FROM conversations c
  WHERE c.id = $1 AND EXISTS (SELECT FROM blocks WHERE agent_id = $2 AND blocked_id = $3 AND created_at = $4)
), gone AS (
  DELETE FROM conversations c USING seen s WHERE s.ends AND c.id = s.id AND c.version = s.version AND c.last_seq = 0
  RETURNING c.id
), raised AS (
  UPDATE conversations c SET version = c.version + 1 FROM seen s
  WHERE NOT s.ends AND c.id = s.id AND c.version = s.version
  RETURNING c.id
), freed AS (
  DELETE FROM blocks b USING (SELECT id FROM gone UNION ALL SELECT id FROM raised) held
  WHERE b.agent_id = $2 AND b.blocked_id = $3 AND b.created_at = $4
  RETURNING b.agent_id, b.counts
), due AS (
  INSERT INTO recounts (agent_id) SELECT $3 FROM freed WHERE counts
)
SELECT
  EXISTS (SELECT FROM freed) AS done,
  EXISTS (SELECT FROM blocks WHERE agent_id = $2 AND blocked_id = $3 AND created_at = $4) AS was`

const BLOCKED_SINCE = `SELECT created_at FROM blocks WHERE agent_id = $1 AND blocked_id = $2`

interface UnreadColumns {
  readonly unread: number
  readonly oldest: number | null
  readonly newest: number | null
}

/** A block as committed, and the pair's fence after it. */
export interface BlockChange {
  readonly outcome: BlockOutcome
  /** Null: nothing was changed. */
  readonly fence: { readonly epoch: number; readonly version: number } | null
}

/** All SQL of conversations and their messages, the batch statement (Append.ts) apart. */
export class ConversationsRepo extends Context.Service<ConversationsRepo, {
  readonly load: (conversationId: string, one: string, other: string) => Effect.Effect<LoadedDirect, SqlError.SqlError>
  readonly outreach: (
    senderId: string,
    recipientId: string,
    clientMsgId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<OutreachFacts | undefined, SqlError.SqlError>
  /** The message that a sender has stored under this id. */
  readonly byKey: (senderId: string, clientMsgId: string) => Effect.Effect<string | undefined, SqlError.SqlError>
  readonly participation: (
    agentId: string,
    conversationId: string
  ) => Effect.Effect<Participation | undefined, SqlError.SqlError>
  /** Newest first; with `after`, oldest first. */
  readonly history: (
    agentId: string,
    participation: Participation,
    range: HistoryRange
  ) => Effect.Effect<ReadonlyArray<HistoryRow>, SqlError.SqlError>
  /** The seq of a message, if it is visible to the agent in this conversation. */
  readonly anchor: (
    agentId: string,
    participation: Participation,
    messageId: string
  ) => Effect.Effect<number | undefined, SqlError.SqlError>
  readonly list: (
    agentId: string,
    before: { readonly activityAt: number; readonly id: string } | null,
    offset: number,
    limit: number,
    at: number
  ) => Effect.Effect<ReadonlyArray<ListedConversation>, SqlError.SqlError>
  readonly count: (agentId: string) => Effect.Effect<number, SqlError.SqlError>
  readonly context: (
    agentId: string,
    conversationId: string
  ) => Effect.Effect<ContextFacts | undefined, SqlError.SqlError>
  readonly block: (conversationId: string, command: BlockCommand) => Effect.Effect<BlockChange | "TooLate", SqlError.SqlError>
  /** When the block was made, in milliseconds; undefined: there is none. */
  readonly blockedSince: (agentId: string, blockedId: string) => Effect.Effect<number | undefined, SqlError.SqlError>
  /** Undefined: the pair's blocks changed meanwhile, nothing was done, and the caller tries again. */
  readonly unblock: (
    conversationId: string,
    command: UnblockCommand
  ) => Effect.Effect<UnblockOutcome | undefined, SqlError.SqlError>
  readonly hideMessage: (
    agentId: string,
    conversationId: string,
    seq: number,
    at: number
  ) => Effect.Effect<void, SqlError.SqlError>
  readonly hideConversation: (
    agentId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<void, SqlError.SqlError>
}>()("parley/conversations/ConversationsRepo") {
  static readonly layer = Layer.effect(
    ConversationsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const load = database.prepared<{
        epoch: number | null
        version: number | null
        initiator_id: string | null
        created_at: number | null
        established: boolean
        blocked: boolean
      }>("load_direct", LOAD)
      const outreach = database.prepared<{
        replay_of: string | null
        opened: boolean
        established: boolean
        sender_status: AgentStatus | null
        recipient_deleted: boolean
        recipient_suspended: boolean
        inbox_mode: Policy
        is_contact: boolean
        blocked: boolean
        undelivered: number
      }>("outreach_facts", OUTREACH)
      const key = database.prepared<{ message_id: string }>("message_by_key", KEY)
      const participation = database.prepared<
        { conversation_id: string; counterparty_id: string | null; hidden_through: number }
      >("participation", PARTICIPATION)
      type HistoryColumns = MessageRow & {
        readonly delivered_at: number | null
        readonly read_at: number | null
        readonly no: number | null
      }
      const newestFirst = database.prepared<HistoryColumns>("history_before", history("m.seq < $5", "DESC"))
      const oldestFirst = database.prepared<HistoryColumns>("history_after", history("m.seq > $5", "ASC"))
      const groupNewestFirst = database.prepared<HistoryColumns>("group_history_before", groupHistory("m.seq < $4", "DESC"))
      const groupOldestFirst = database.prepared<HistoryColumns>("group_history_after", groupHistory("m.seq > $4", "ASC"))
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
      type BlockColumns = { readonly epoch: number; readonly version: number; readonly created: boolean }
      const madeWithin = yield* MadeWithin
      const block = database.prepared<BlockColumns>("block", BLOCK)
      const report = database.prepared<BlockColumns>("report", REPORT)
      const blockedSince = database.prepared<{ created_at: number }>("blocked_since", BLOCKED_SINCE)
      const unblock = database.prepared<{ done: boolean; was: boolean }>("unblock", UNBLOCK)
      const hideMessage = database.prepared("hide_message", HIDE_MESSAGE)
      const hideConversation = database.prepared("hide_conversation", HIDE_CONVERSATION)

      return ConversationsRepo.of({
        load: (conversationId, one, other) =>
          Effect.map(load([conversationId, one, other]), ([row]) => ({
            epoch: row?.epoch ?? 0,
            version: row?.version ?? 0,
            state: {
              initiatorId: row?.initiator_id ?? null,
              createdAt: row?.created_at ?? null,
              established: row?.established ?? false,
              blocked: row?.blocked ?? false
            }
          })),
        outreach: (senderId, recipientId, clientMsgId, conversationId, at) =>
          Effect.map(outreach([senderId, recipientId, clientMsgId, conversationId, at]), ([row]) =>
            row === undefined ? undefined : {
              replayOf: row.replay_of,
              opened: row.opened,
              established: row.established,
              senderStatus: row.sender_status,
              recipientDeleted: row.recipient_deleted,
              recipientSuspended: row.recipient_suspended,
              inboxMode: row.inbox_mode,
              isContact: row.is_contact,
              blocked: row.blocked,
              undelivered: row.undelivered
            }),
        byKey: (senderId, clientMsgId) => Effect.map(key([senderId, clientMsgId]), (rows) => rows[0]?.message_id),
        participation: (agentId, conversationId) =>
          Effect.map(participation([agentId, conversationId]), ([row]) =>
            row === undefined ? undefined : {
              conversationId: row.conversation_id,
              counterpartyId: row.counterparty_id,
              hiddenThrough: row.hidden_through
            }),
        history: (agentId, { conversationId, counterpartyId, hiddenThrough }, { after, before, limit }) =>
          Effect.map(
            counterpartyId === null
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
            (rows) =>
              rows.map((row) => ({
                message: storedMessage(row),
                progress: { deliveredAt: row.delivered_at, readAt: row.read_at },
                inboxNo: row.no
              }))
          ),
        anchor: (agentId, { conversationId, hiddenThrough }, messageId) =>
          Effect.map(anchor([conversationId, agentId, messageId, hiddenThrough]), (rows) => rows[0]?.seq),
        list: (agentId, before, offset, limit, at) =>
          Effect.map(
            list([agentId, before?.activityAt ?? null, before?.id ?? null, offset, limit, at]),
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
        block: Effect.fnUntraced(function*(conversationId, { agentId, at, blockedId, report: reported }) {
          const request = yield* requestId
          const until = madeWithin === null ? null : at + madeWithin
          const [row] = yield* reported === null
            ? block([conversationId, agentId, blockedId, at, request, until])
            : report([conversationId, agentId, blockedId, at, reported.id, reported.reason, request, until])
          if (row !== undefined) {
            return { outcome: row.created ? "Blocked" : "AlreadyBlocked", fence: { epoch: row.epoch, version: row.version } }
          }
          const late = until !== null && (yield* Clock.currentTimeMillis) > until - CLOCKS_DIFFER_MS
          return reported === null || late ? "TooLate" : { outcome: "AlreadyReported", fence: null }
        }),
        blockedSince: (agentId, blockedId) => Effect.map(blockedSince([agentId, blockedId]), ([row]) => row?.created_at),
        unblock: (conversationId, { agentId, blockedId, since }) =>
          Effect.map(unblock([conversationId, agentId, blockedId, since]), ([row]) =>
            row?.was !== true ? "NotBlocked" : row.done ? "Unblocked" : undefined),
        hideMessage: (agentId, conversationId, seq, at) =>
          Effect.asVoid(hideMessage([agentId, conversationId, seq, at])),
        hideConversation: (agentId, conversationId, at) =>
          Effect.asVoid(hideConversation([agentId, conversationId, at]))
      })
    })
  )
}
