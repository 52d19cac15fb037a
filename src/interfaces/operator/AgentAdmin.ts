import { type AgentStatus, displayNameOf, statusAt, SYSTEM } from "#domain/agents/Agent"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { Database } from "#infrastructure/database/Sql"
import { rowsOf } from "#infrastructure/wire/Page"
import { iso, isoOrNull, isStorable } from "#infrastructure/wire/Text"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { type AccountStatus, type AgentAccount, NO_AGENT } from "./AgentAccount.ts"
import type { Because } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/** An account, with the number of messages that wait for it and the time of the oldest of them. */
export interface FoundAgent extends AgentAccount {
  readonly undelivered: number
  readonly waitingSince: number | null
}

export interface Amounts {
  readonly lastNo: number
  readonly undelivered: number
  readonly deliveredThrough: number
  readonly conversations: number
  /**
   * How many open A2A tasks the agent was called for. `tasksCalling` counts the open tasks that the agent has called
   * others for. Both are as of the last update of the cache.
   */
  readonly tasksCalled: number
  readonly tasksCalling: number
  readonly groups: number
  readonly contacts: number
  readonly blocksMade: number
  readonly blocksReceived: number
  readonly mutes: number
  readonly attachmentBytes: number
  readonly newestAt: number | null
}

/** An undelivered envelope. `muted` is true if the agent has muted the sender or the conversation. */
export interface WaitingRow {
  readonly at: number | null
  readonly conversationId: string
  readonly seq: number
  readonly muted: boolean
}

export interface WebhookRow {
  readonly id: string
  readonly url: string
  readonly events: ReadonlyArray<string>
  readonly active: boolean
  readonly pausedUntil: number | null
  readonly waiting: number
  readonly dead: number
  readonly failure: string | null
}

/** How many blocks or reports count against an agent, and the threshold at which they restrict or suspend the agent. */
export interface Count {
  readonly what: "blocks" | "reports"
  readonly counted: number
  readonly threshold: number
  readonly windowMs: number
  readonly effect: "restricted" | "suspended"
}

/** A count as the API and the command line show it. */
export const countShown = ({ counted, effect, threshold, what, windowMs }: Count) => ({
  what,
  counted,
  threshold,
  window_seconds: windowMs / 1_000,
  effect
})

export interface AgentQuery {
  readonly handle: string
  readonly email: string
  readonly status: typeof AccountStatus.Type | null
  /**
   * `waiting` selects only agents with waiting messages, and sorts them by the number of these messages, the highest
   * first. This order reads all inboxes.
   */
  readonly order: "handle" | "waiting"
  /** The handle after which the page begins. */
  readonly after: string
  readonly now: number
  readonly limit: number
}

/** An upper bound of the texts that begin with `prefix`, in byte order. */
const above = (prefix: string): string => `${prefix}\u{10ffff}`

/** The status of an account at the time `now`. */
export const statusOf = (
  agent: Pick<AgentAccount, "status" | "restrictedUntil" | "deletedAt">,
  now: number
): AgentStatus | "deleted" => agent.deletedAt === null ? statusAt(agent.status, agent.restrictedUntil, now) : "deleted"

/** Fails if the account is deleted. An operator cannot suspend, restore or disconnect such an account. */
export const notDeleted = (agent: AgentAccount): Effect.Effect<void, NotFound> =>
  agent.deletedAt === null
    ? Effect.void
    : Effect.fail(new NotFound({ message: `${agent.handle} was deleted at ${iso(agent.deletedAt)}.` }))

/**
 * The data of agents, from all modules, that operators see, and the actions of operators on agents. Enforcement writes
 * the audit row of a suspension or a restoration in the commit of the change. The statements are not prepared, because
 * they run rarely.
 */
export class AgentAdmin extends Context.Service<AgentAdmin, {
  readonly search: (query: AgentQuery) => Effect.Effect<ReadonlyArray<FoundAgent>, Unavailable>
  /** The account with a normalised handle, even if the account is deleted. */
  readonly find: (handle: string) => Effect.Effect<AgentAccount, NotFound | Unavailable>
  /** The counts that can restrict or suspend the agent now. */
  readonly counts: (agent: AgentAccount) => Effect.Effect<ReadonlyArray<Count>, Unavailable>
  readonly suspend: (agent: AgentAccount, because: Because) => Effect.Effect<void, NotFound | Conflict | Unavailable>
  /** Ends a suspension or restriction. Earlier blocks and reports no longer count. */
  readonly restore: (agent: AgentAccount, because: Because) => Effect.Effect<void, NotFound | Conflict | Unavailable>
  readonly amounts: (agentId: string) => Effect.Effect<Amounts, Unavailable>
  /** The undelivered envelopes above the inbox number `through`, the oldest first. */
  readonly waiting: (
    agentId: string,
    through: number,
    now: number,
    limit: number
  ) => Effect.Effect<ReadonlyArray<WaitingRow>, Unavailable>
  readonly webhooks: (agentId: string) => Effect.Effect<ReadonlyArray<WebhookRow>, Unavailable>
}>()("parley/operator/AgentAdmin") {
  static readonly layer = Layer.effect(
    AgentAdmin,
    Effect.gen(function*() {
      const enforcement = yield* Enforcement
      const { query } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const columns = sql.literal(
        `id, handle, email, display_name AS "displayName", status, restricted_until AS "restrictedUntil",
        suspended_at AS "suspendedAt", counted_from AS "countedFrom", inbox_mode AS "inboxMode",
        group_invite_policy AS "groupInvitePolicy", created_at AS "createdAt", deleted_at AS "deletedAt"`
      )
      return AgentAdmin.of({
        search: ({ after, email, handle, limit, now, order, status }) =>
          query<FoundAgent>`
            SELECT ${columns}, undelivered, (
              SELECT m.created_at FROM envelopes e LEFT JOIN messages m ON m.conversation_id = e.conversation_id AND m.seq = e.seq
              WHERE found.undelivered > 0 AND e.recipient_id = found.id AND e.no > found.delivered_through AND e.delivered_at IS NULL ORDER BY e.no LIMIT 1
            ) AS "waitingSince"
            FROM (
              SELECT a.*, COALESCE(i.undelivered, 0) AS undelivered, COALESCE(i.delivered_through, 0) AS delivered_through
              FROM agents a LEFT JOIN inboxes i ON i.agent_id = a.id
              WHERE handle > ${after} AND a.id <> ${SYSTEM.id} AND ${
            order === "handle" ? sql`true` : sql`i.undelivered > 0`
          }
              AND ${handle === "" ? sql`true` : sql`handle >= ${handle} AND handle < ${above(handle)}`}
              AND ${email === "" ? sql`true` : sql`email >= ${email} AND email < ${above(email)}`}
              AND ${
            status === null
              ? sql`true`
              : status === "deleted"
              ? sql`deleted_at IS NOT NULL`
              : status === "suspended"
              ? sql`deleted_at IS NULL AND status = 'suspended'`
              : status === "restricted"
              ? sql`deleted_at IS NULL AND status = 'active' AND restricted_until > ${now}`
              : sql`deleted_at IS NULL AND status = 'active' AND COALESCE(restricted_until, 0) <= ${now}`
          }
              ORDER BY ${order === "handle" ? sql`handle` : sql`i.undelivered DESC, handle`} LIMIT ${limit}
            ) found
            ORDER BY ${order === "handle" ? sql`handle` : sql`undelivered DESC, handle`}`,
        find: Effect.fnUntraced(function*(handle) {
          const [agent] = yield* query<AgentAccount>`
            SELECT ${columns} FROM agents WHERE handle = ${handle} AND id <> ${SYSTEM.id}`
          return agent ?? (yield* new NotFound({ message: NO_AGENT }))
        }),
        counts: Effect.fnUntraced(function*(agent) {
          const tally = yield* enforcement.tally(agent.id, agent.countedFrom)
          const { restrictBlocks, restrictWindowMs, suspendBlocks, suspendReports, suspendWindowMs } =
            enforcement.thresholds
          const counts: ReadonlyArray<Count> = [
            {
              what: "blocks",
              counted: tally.blocksToRestrict,
              threshold: restrictBlocks,
              windowMs: restrictWindowMs,
              effect: "restricted"
            },
            {
              what: "blocks",
              counted: tally.blocksToSuspend,
              threshold: suspendBlocks,
              windowMs: suspendWindowMs,
              effect: "suspended"
            },
            {
              what: "reports",
              counted: tally.reportsToSuspend,
              threshold: suspendReports,
              windowMs: suspendWindowMs,
              effect: "suspended"
            }
          ]
          return counts
        }),
        suspend: Effect.fnUntraced(function*(agent, because) {
          yield* notDeleted(agent)
          const done = yield* enforcement.suspend({ agentId: agent.id, ...because })
          if (!done) return yield* new Conflict({ message: `${agent.handle} is suspended already.` })
        }),
        restore: Effect.fnUntraced(function*(agent, because) {
          yield* notDeleted(agent)
          const done = yield* enforcement.restore({ agentId: agent.id, ...because })
          if (!done) return yield* new Conflict({ message: `${agent.handle} was deleted meanwhile.` })
        }),
        amounts: (agentId) =>
          Effect.map(
            query<Amounts>`
              SELECT COALESCE(i.last_no, 0) AS "lastNo", COALESCE(i.undelivered, 0) AS undelivered,
                COALESCE(i.delivered_through, 0) AS "deliveredThrough",
                (SELECT count(*) FROM participants p WHERE p.agent_id = a.id) AS conversations,
                (
                  SELECT count(*) FROM participants p JOIN a2a_tasks t ON t.conversation_id = p.conversation_id AND t.open
                  WHERE p.agent_id = a.id AND t.recipient_id = a.id
                ) AS "tasksCalled",
                (
                  SELECT count(*) FROM participants p JOIN a2a_tasks t ON t.conversation_id = p.conversation_id AND t.open
                  WHERE p.agent_id = a.id AND t.caller_id = a.id
                ) AS "tasksCalling",
                (SELECT count(*) FROM group_members g WHERE g.agent_id = a.id AND g.left_at IS NULL) AS groups,
                (SELECT count(*) FROM contacts c WHERE c.agent_id = a.id) AS contacts,
                (SELECT count(*) FROM blocks b WHERE b.agent_id = a.id) AS "blocksMade",
                (SELECT count(*) FROM blocks b WHERE b.blocked_id = a.id AND b.counts) AS "blocksReceived",
                (SELECT count(*) FROM mutes m WHERE m.muter_id = a.id) AS mutes,
                COALESCE((SELECT u.bytes FROM attachment_usage u WHERE u.agent_id = a.id), 0) AS "attachmentBytes",
                (
                  SELECT m.created_at FROM envelopes e JOIN messages m ON m.conversation_id = e.conversation_id AND m.seq = e.seq
                  WHERE e.recipient_id = a.id AND e.no = i.last_no
                ) AS "newestAt"
              FROM agents a LEFT JOIN inboxes i ON i.agent_id = a.id WHERE a.id = ${agentId}`,
            (rows) => rows[0]!
          ),
        waiting: (agentId, through, now, limit) =>
          query<WaitingRow>`
            SELECT m.created_at AS at, e.conversation_id AS "conversationId", e.seq, EXISTS (
              SELECT FROM mutes u WHERE u.muter_id = ${agentId} AND u.target_id IN (m.sender_id, e.conversation_id)
                AND (u.muted_until IS NULL OR u.muted_until > ${now})
            ) AS muted
            FROM (
              SELECT * FROM envelopes WHERE recipient_id = ${agentId} AND no > ${through} AND delivered_at IS NULL
              ORDER BY no LIMIT ${limit}
            ) e
            LEFT JOIN messages m ON m.conversation_id = e.conversation_id AND m.seq = e.seq
            ORDER BY e.no`,
        webhooks: (agentId) =>
          query<WebhookRow>`
            SELECT w.id, w.url, w.events, w.active, w.paused_until AS "pausedUntil",
              (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.due_at IS NOT NULL) AS waiting,
              (SELECT count(*) FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.delivered = false) AS dead,
              (
                SELECT d.failure FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.failure IS NOT NULL ORDER BY d.no DESC LIMIT 1
              ) AS failure
            FROM webhooks w WHERE w.agent_id = ${agentId} AND w.slot IS NOT NULL ORDER BY w.created_at`
      })
    })
  )
}

const AfterHandle = Schema.String.check(Schema.makeFilter((text) => isStorable(text) && text.length <= 100))

/** An account, as a row of a list shows it. */
export const accountShown = (agent: AgentAccount, now: number) => ({
  handle: agent.handle,
  id: agent.id,
  email: agent.email,
  display_name: displayNameOf(agent),
  status: statusOf(agent, now),
  created_at: iso(agent.createdAt),
  deleted_at: isoOrNull(agent.deletedAt)
})

/** How many rows a page of the operators' API may contain (wire.md O.1). */
export const MAX_ROWS = 1_000

/** A page of accounts. The order `waiting` returns only one page and no cursor. */
export const agentPage = Effect.fnUntraced(function*(
  agents: AgentAdmin["Service"],
  { cursor, limit, order, ...query }: Pick<AgentQuery, "handle" | "email" | "status" | "order"> & {
    readonly cursor?: string
    readonly limit?: number
  }
) {
  const now = yield* Clock.currentTimeMillis
  const given = {
    ...limit === undefined ? {} : { limit },
    ...order === "waiting" || cursor === undefined ? {} : { cursor }
  }
  const { nextCursor, rows } = yield* rowsOf(given, {
    max: MAX_ROWS,
    position: AfterHandle,
    rows: (after, limit) => agents.search({ ...query, order, after: after ?? "", now, limit }),
    positionOf: ({ handle }) => handle
  })
  return {
    agents: rows.map((row) => ({
      ...accountShown(row, now),
      undelivered: row.undelivered,
      waiting_since: isoOrNull(row.waitingSince)
    })),
    next_cursor: order === "waiting" ? null : nextCursor
  }
})
