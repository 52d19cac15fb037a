import type { AgentStatus, Policy } from "#domain/agents/Agent"
import { intoOutbox, mayHook } from "#domain/messages/Outbox"
import { MadeWithin } from "#infrastructure/database/DatabaseClock"
import { Database } from "#infrastructure/database/Sql"
import { requestId } from "#infrastructure/platform/RequestId"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import type { DirectState } from "./DirectConversation.ts"
import type { BlockCommand, BlockOutcome, UnblockCommand, UnblockOutcome } from "./DirectEntity.ts"

/** A direct conversation as committed, with the epoch and the version that a write based on this state must contain. */
export interface LoadedDirect {
  readonly epoch: number
  readonly version: number
  readonly state: DirectState
}

/** The facts on which a refusal or a first message is decided, from one indexed read. */
export interface OutreachFacts {
  /** The id of the message that this sender has stored with this client_msg_id; `null` if there is none. */
  readonly replayOf: string | null
  /** Whether the first message of the conversation is stored. */
  readonly opened: boolean
  /** Whether the other agent has replied. */
  readonly established: boolean
  readonly senderStatus: AgentStatus | null
  readonly recipientDeleted: boolean
  readonly recipientSuspended: boolean
  readonly inboxMode: Policy
  /** Whether the sender is a contact of the recipient. */
  readonly isContact: boolean
  readonly blocked: boolean
  readonly undelivered: number
}

const LOAD = `
SELECT c.epoch, c.version, c.initiator_id, c.created_at, c.established_at IS NOT NULL AS established,
  EXISTS (
    SELECT FROM blocks WHERE (agent_id = $2 AND blocked_id = $3) OR (agent_id = $3 AND blocked_id = $2)
  ) AS blocked
FROM (SELECT 1) one LEFT JOIN conversations c ON c.id = $1`

const OUTREACH = `
SELECT
  (SELECT id FROM messages WHERE sender_id = $1 AND client_msg_id = $3 AND type <> 'system') AS replay_of,
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

/** Returns no row for a suspended sender, because even its replays are refused (wire.md C.6). */
const KEY = `
SELECT m.id FROM messages m
WHERE m.sender_id = $1 AND m.client_msg_id = $2 AND m.type <> 'system'
  AND (SELECT status FROM agents WHERE id = $1) IS DISTINCT FROM 'suspended'`

/**
 * A block locks the row of the pair's conversation and raises the row's version, so that a send is either committed
 * before the block or finds the new version. If there is no row yet, the block inserts an empty one. A first message
 * would insert the same row, so only one of the two succeeds. `ON CONFLICT` updates the newest version of the row, even
 * if the statement's snapshot contains an older one.
 */
const RAISE = `
  ON CONFLICT (id) DO UPDATE SET version = conversations.version + 1
  RETURNING epoch, version, initiator_id`

/**
 * A block against the agent that began the conversation counts towards that agent's restriction and suspension, and
 * schedules a recount (wire.md G.8).
 */
const NEW_BLOCK = `
  INSERT INTO blocks (agent_id, blocked_id, created_at, counts)
  SELECT $2, $3, $4, COALESCE(initiator_id = $3, false) FROM held
  ON CONFLICT DO NOTHING
  RETURNING agent_id, counts`

/** Writes `contact.blocked` to the outbox for the blocked agent, if the agent has a webhook for this event. */
const blockedPosted = (request: string): string =>
  intoOutbox(
    "contact.blocked",
    `SELECT a.id AS agent_id, $4::bigint AS at, json_build_object('by', $2::text, 'at', $4::bigint)::text AS subject,
    ${request}::text AS request
  FROM blocked JOIN agents a ON a.id = $3 AND ${mayHook("a", "contact.blocked")}`
  )

/**
 * A block that arrives too late has no effect. The agent may have made and removed the same block in the meantime, and
 * the late statement would restore the block. The time is compared with the database's clock, which all nodes follow.
 */
const inTime = (until: string): string =>
  `(${until}::bigint IS NULL OR extract(epoch FROM clock_timestamp()) * 1000 < ${until}::bigint)`

/** How far a node's clock may differ from the database's clock, which the node follows, in milliseconds. */
const CLOCKS_DIFFER_MS = 1_000

/** Returns no row if the block is too late. */
const BLOCK = `
WITH held AS (
  INSERT INTO conversations (id, kind, version, created_at) SELECT $1, 'direct', 1, $4 WHERE ${inTime("$6")} ${RAISE}
), blocked AS (${NEW_BLOCK}
), due AS (
  INSERT INTO recounts (agent_id) SELECT $3 FROM blocked WHERE counts
), posted AS (${blockedPosted("$5")})
SELECT epoch, version, EXISTS (SELECT FROM blocked) AS created FROM held`

/** Changes nothing and returns no row if the report is too late or exists already. */
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
 * Removes a block. If this was the pair's last block and the conversation has no messages, also deletes the
 * conversation's row, so that a first message finds none. Every block raises the version, so the pair's blocks are
 * unchanged as long as the row has the version of the snapshot. If `was` is true and `done` is false, the row has
 * changed since the snapshot, and the caller retries.
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

/** The outcome of a block, and the epoch and version of the conversation's row after it. */
export interface BlockChange {
  readonly outcome: BlockOutcome
  /** `null` if nothing was changed. */
  readonly fence: { readonly epoch: number; readonly version: number } | null
}

/**
 * The SQL that decides sends, and that decides and commits blocks. The batch statement of sends is in DirectAppend.ts,
 * and the SQL of reads in HistoryRepo.ts.
 */
export class DirectRepo extends Context.Service<DirectRepo, {
  readonly load: (conversationId: string, one: string, other: string) => Effect.Effect<LoadedDirect, Unavailable>
  readonly outreach: (
    senderId: string,
    recipientId: string,
    clientMsgId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<OutreachFacts | undefined, Unavailable>
  /** Returns the id of the message that a sender has stored with this client_msg_id. */
  readonly byKey: (senderId: string, clientMsgId: string) => Effect.Effect<string | undefined, Unavailable>
  readonly block: (conversationId: string, command: BlockCommand) => Effect.Effect<BlockChange | "TooLate", Unavailable>
  /** Returns when the block was made, in milliseconds, or undefined if there is none. */
  readonly blockedSince: (agentId: string, blockedId: string) => Effect.Effect<number | undefined, Unavailable>
  /**
   * Changes nothing and returns undefined if the pair's blocks have changed in the meantime. The caller then retries.
   */
  readonly unblock: (
    conversationId: string,
    command: UnblockCommand
  ) => Effect.Effect<UnblockOutcome | undefined, Unavailable>
}>()("parley/direct/DirectRepo") {
  static readonly layer = Layer.effect(
    DirectRepo,
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
      const key = database.prepared<{ id: string }>("message_by_key", KEY)
      type BlockColumns = { readonly epoch: number; readonly version: number; readonly created: boolean }
      const madeWithin = yield* MadeWithin
      const block = database.prepared<BlockColumns>("block", BLOCK)
      const report = database.prepared<BlockColumns>("report", REPORT)
      const blockedSince = database.prepared<{ created_at: number }>("blocked_since", BLOCKED_SINCE)
      const unblock = database.prepared<{ done: boolean; was: boolean }>("unblock", UNBLOCK)

      return DirectRepo.of({
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
          Effect.map(
            outreach([senderId, recipientId, clientMsgId, conversationId, at]),
            ([row]) =>
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
              }
          ),
        byKey: (senderId, clientMsgId) => Effect.map(key([senderId, clientMsgId]), (rows) => rows[0]?.id),
        block: Effect.fnUntraced(function*(conversationId, { agentId, at, blockedId, report: reported }) {
          const request = yield* requestId
          const until = madeWithin === null ? null : at + madeWithin
          const [row] = yield* reported === null
            ? block([conversationId, agentId, blockedId, at, request, until])
            : report([conversationId, agentId, blockedId, at, reported.id, reported.reason, request, until])
          if (row !== undefined) {
            return {
              outcome: row.created ? "Blocked" : "AlreadyBlocked",
              fence: { epoch: row.epoch, version: row.version }
            }
          }
          const late = until !== null && (yield* Clock.currentTimeMillis) > until - CLOCKS_DIFFER_MS
          return reported === null || late ? "TooLate" : { outcome: "AlreadyReported", fence: null }
        }),
        blockedSince: (agentId, blockedId) =>
          Effect.map(blockedSince([agentId, blockedId]), ([row]) => row?.created_at),
        unblock: (conversationId, { agentId, blockedId, since }) =>
          Effect.map(
            unblock([conversationId, agentId, blockedId, since]),
            ([row]) => row?.was !== true ? "NotBlocked" : row.done ? "Unblocked" : undefined
          )
      })
    })
  )
}
