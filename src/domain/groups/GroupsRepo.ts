import { type AgentStatus, type Policy, statusAt } from "#domain/agents/Agent"
import { groupPictures } from "#domain/memberships/GroupPictures"
import type { Role } from "#domain/memberships/GroupReads"
import { hookedAmong, intoOutbox, unmuted } from "#domain/messages/Outbox"
import type { Numbered } from "#domain/messages/Published"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import { requestId } from "#infrastructure/platform/RequestId"
import type { PageRange, TimePosition } from "#infrastructure/wire/Page"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { Candidate, Change, GroupState, Profile } from "./Group.ts"
import { DAY_MS } from "./Group.ts"
import { MAX_INVITES } from "./Invite.ts"

export interface StoredInvite {
  readonly id: string
  readonly groupId: string
  readonly inviteeId: string
  readonly inviterId: string
  readonly createdAt: number
}

export interface NewInvite {
  readonly id: string
  readonly inviteeId: string
}

/** A system message to be committed with a change. */
export interface SystemNotice {
  readonly id: string
  readonly senderId: string
  /** The content as JSON text. */
  readonly content: string
  readonly recipients: ReadonlyArray<string>
}

export interface CommittedChange {
  /** The last seq before the change. The nth message of the change has the seq `base + n`. */
  readonly base: number
  /** The envelopes of each message. */
  readonly envelopes: ReadonlyArray<ReadonlyArray<Numbered>>
  /** The newest inbox numbers of senders and recipients before the change. */
  readonly reached: ReadonlyMap<string, number>
}

export type Invited =
  | { readonly _tag: "Invited"; readonly inviteId: string }
  | { readonly _tag: "Pending"; readonly inviteId: string }
  | { readonly _tag: "Refused"; readonly at: number }
  | { readonly _tag: "OverBudget"; readonly freeAt: number }
  | { readonly _tag: "Fenced" }

const LOAD = `
SELECT c.version, c.last_message_at, g.name, g.description, g.avatar_url, g.avatar_key, g.creator_id, g.created_at,
  g.deleted_at, g.deleted_by, m.agent_id, m.role, m.joined_at, m.joined_seq = 0 AS founder, a.handle, a.status = 'suspended' AS suspended
FROM groups g
JOIN conversations c ON c.id = g.id
LEFT JOIN LATERAL (SELECT * FROM group_members WHERE group_id = $1 AND left_at IS NULL ORDER BY joined_seq OFFSET 0) m ON true
LEFT JOIN LATERAL (SELECT * FROM agents WHERE id = m.agent_id OFFSET 0) a ON true
WHERE g.id = $1
ORDER BY m.joined_seq`

const WAS_MEMBER = `SELECT agent_id FROM group_members WHERE group_id = $1 AND agent_id = $2`

/**
 * Looks up all candidates together, because a group may be created with up to 255 of them. The subquery looks up
 * handles first. Without it, the planner would scan an index of all agents that are not deleted.
 */
const CANDIDATES = `
SELECT a.id, a.handle, a.group_invite_policy AS policy,
  EXISTS (
    SELECT FROM blocks b WHERE (b.agent_id = a.id AND b.blocked_id = $1) OR (b.agent_id = $1 AND b.blocked_id = a.id)
  ) AS blocked,
  EXISTS (SELECT FROM contacts k WHERE k.agent_id = a.id AND k.contact_id = $1) AS holds_inviter,
  EXISTS (SELECT FROM contacts k WHERE k.agent_id = $1 AND k.contact_id = a.id) AS held_by_inviter
FROM (SELECT * FROM agents WHERE handle = ANY ($2::text[]) OFFSET 0) a WHERE a.deleted_at IS NULL`

const STATUS = `SELECT status, restricted_until, deleted_at FROM agents WHERE id = $1`

/**
 * SQL condition: whether a charge at time `t` counts. A charge older than a day does not count. Neither does a charge
 * in the future, because it was written before the clock was set back.
 */
const charged = (at: string): string => `t > ${at}::bigint - ${DAY_MS} AND t <= ${at}::bigint + ${SET_BACK_MS}`

/**
 * Charges `n` invites to an inviter, or does nothing if they exceed the limit. The lock on the row makes the count
 * exact. `source` returns a row if there is anything to charge.
 */
const charge = (inviter: string, at: string, n: string, limit: string, source: string) => `
  INSERT INTO invite_budgets (agent_id, spent)
  SELECT ${inviter}, array_fill(${at}::bigint, ARRAY[${n}::integer]) FROM ${source} WHERE ${n}::integer <= ${limit}::integer
  ON CONFLICT (agent_id) DO UPDATE SET
    spent = ARRAY(SELECT t FROM unnest(invite_budgets.spent) t WHERE ${charged(at)} ORDER BY t) || excluded.spent
  WHERE (SELECT count(*) FROM unnest(invite_budgets.spent) t WHERE ${charged(at)}) + ${n}::integer
    <= ${limit}::integer
  RETURNING agent_id`

/** The time of the newest invite that must leave the window so that at most `$3` invites remain in it. */
const IN_THE_WAY = `
SELECT t AS made_at FROM invite_budgets b, unnest(b.spent) t
WHERE b.agent_id = $1 AND ${charged("$2")} ORDER BY t DESC OFFSET $3 LIMIT 1`

/** Writes `group.invite.received` to the outbox for the invitees of new invites that have webhooks for this event. */
const invitesPosted = (invites: string, request: string): string =>
  intoOutbox(
    "group.invite.received",
    `SELECT v.invitee_id AS agent_id, v.created_at AS at,
      json_build_object('id', v.id, 'group', v.group_id, 'by', v.inviter_id, 'at', v.created_at)::text AS subject,
      ${request}::text AS request
    FROM ${invites} v`
  )

/**
 * Creates the group, the creator's membership and the first invites. Creates nothing if the invites exceed the budget.
 */
const create = (invites: boolean) => `
WITH ${invites ? `charged AS (${charge("$2::text", "$3", "$10", "$11", "(SELECT 1) one")})` : `charged AS (SELECT 1)`}
, made AS (
  INSERT INTO conversations (id, kind, created_at) SELECT $1, 'group', $3 FROM charged RETURNING id
), described AS (
  INSERT INTO groups (id, name, description, avatar_url, avatar_key, creator_id, member_count, created_at)
  SELECT id, $4, $5, $6, $8, $2, 1, $3 FROM made
), joined AS (
  INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq) SELECT id, $2, 'admin', $3, 0 FROM made
), admitted AS (
  INSERT INTO participants (agent_id, conversation_id, hidden_through) SELECT $2, id, -1 FROM made
), invited AS (
  INSERT INTO group_invites (id, group_id, invitee_id, inviter_id, created_at)
  SELECT x.id, m.id, x.invitee, $2, $3 FROM made m, json_to_recordset($7::json) AS x(id text, invitee text)
  RETURNING id, group_id, invitee_id, inviter_id, created_at
), posted AS (${invitesPosted("invited", "$9")})
SELECT id FROM made`

/**
 * Creates an invite. Tests and raises the version. The version proves that the invites and members in the snapshot are
 * the current ones.
 */
const INVITE = `
WITH held AS (
  UPDATE conversations SET version = version + 1 WHERE id = $1 AND version = $2 RETURNING id
), found AS MATERIALIZED (
  SELECT v.id FROM group_invites v, held h WHERE v.group_id = h.id AND v.invitee_id = $3
), refused AS MATERIALIZED (
  SELECT r.refused_at FROM group_refusals r, held h
  WHERE r.group_id = h.id AND r.agent_id = $3 AND r.refused_at > $10::bigint AND r.refused_at <= $5::bigint + ${SET_BACK_MS}
), charged AS (
  ${
  charge(
    "$4::text",
    "$5",
    "$8",
    "$7",
    "(SELECT 1 FROM held WHERE NOT EXISTS (SELECT FROM found) AND NOT EXISTS (SELECT FROM refused)) one"
  )
}
), made AS (
  INSERT INTO group_invites (id, group_id, invitee_id, inviter_id, created_at)
  SELECT $6, $1, $3, $4, $5 FROM charged
  RETURNING id, group_id, invitee_id, inviter_id, created_at
), posted AS (${invitesPosted("made", "$9")})
SELECT EXISTS (SELECT FROM held) AS held, (SELECT id FROM found) AS found,
  (SELECT refused_at FROM refused) AS refused_at, (SELECT id FROM made) AS made`

const INVITE_BY_ID = `SELECT * FROM group_invites WHERE id = $1`

/** Finds an earlier change by the ids of its messages or, if it had no messages, by its row in silent_group_changes. */
const EARLIER = `
SELECT conversation_id AS group_id, created_at, content::json #>> '{data,event}' AS event,
  content::json #>> '{data,agent_handle}' AS handle
FROM messages WHERE id = ANY ($1::text[]) AND type = 'system'
UNION ALL
SELECT group_id, changed_at, NULL, NULL FROM silent_group_changes WHERE id = ANY ($1::text[])`

const INVITES_OF = `
SELECT v.*, g.name, g.description, g.avatar_url, g.avatar_key, g.member_count
FROM group_invites v JOIN groups g ON g.id = v.group_id
WHERE v.invitee_id = $1 ORDER BY v.created_at, v.id LIMIT ${MAX_INVITES}`

const PENDING = `
SELECT * FROM group_invites
WHERE group_id = $1 AND ($2::bigint IS NULL OR (created_at, id) > ($2::bigint, $3::text))
ORDER BY created_at, id OFFSET $4 LIMIT $5`

const COUNT_PENDING = `SELECT count(*) AS total FROM group_invites WHERE group_id = $1`

/**
 * Any change of a group with its messages, in one statement. The statement first locks the conversation's row and tests
 * its version. If members leave, the snapshot must contain all their undelivered envelopes. Therefore, if a send was
 * committed while the statement waited for the lock, it changes nothing and the caller decides again. Otherwise the
 * statement locks the inboxes by agent, marks the undelivered envelopes of the leaving members as delivered, and stores
 * the messages.
 */
const CHANGE = `
WITH input AS MATERIALIZED (
  SELECT * FROM json_to_record($1::json) AS x(
    id text, version bigint, at bigint, messages integer, name text, description text, avatar text,
    avatar_key text, member_count integer, deleted_by text, request text, silent_id text
  )
), joining AS MATERIALIZED (
  SELECT * FROM json_to_recordset($2::json) AS x(agent text, role text)
), ranking AS MATERIALIZED (
  SELECT * FROM json_to_recordset($3::json) AS x(agent text, role text)
), said AS MATERIALIZED (
  SELECT * FROM json_to_recordset($4::json) AS x(n integer, id text, sender text, content text)
), told AS MATERIALIZED (
  SELECT * FROM json_to_recordset($5::json) AS x(n integer, recipient text)
), held AS (
  UPDATE conversations c SET
    version = c.version + 1,
    last_seq = c.last_seq + x.messages,
    last_message_at = CASE WHEN x.messages > 0 THEN x.at ELSE c.last_message_at END
  FROM input x
  WHERE c.id = x.id AND c.version = x.version
    AND (cardinality($6::text[]) = 0 OR c.last_seq = (SELECT s.last_seq FROM conversations s WHERE s.id = x.id))
  RETURNING c.id, c.last_seq - x.messages AS base, x.at
), numbers AS MATERIALIZED (
  SELECT n.agent_id, n.last_no, n.delivered_through FROM inboxes n
  WHERE EXISTS (SELECT FROM held)
    AND n.agent_id = ANY (ARRAY(SELECT recipient FROM told UNION SELECT sender FROM said) || $6::text[])
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), waiting AS MATERIALIZED (
  SELECT w.recipient_id, w.no, h.at
  FROM held h CROSS JOIN numbers n
  CROSS JOIN LATERAL (
    SELECT recipient_id, no FROM envelopes
    WHERE recipient_id = n.agent_id AND no > n.delivered_through AND conversation_id = h.id AND delivered_at IS NULL
    OFFSET 0
  ) w
  WHERE n.agent_id = ANY ($6::text[])
), flushed AS (
  UPDATE envelopes e SET delivered_at = w.at
  FROM waiting w
  WHERE e.recipient_id = w.recipient_id AND e.no = w.no AND e.delivered_at IS NULL
  RETURNING e.recipient_id
), numbered AS MATERIALIZED (
  SELECT t.n, t.recipient, i.last_no + row_number() OVER (PARTITION BY t.recipient ORDER BY t.n) AS no
  FROM told t JOIN numbers i ON i.agent_id = t.recipient
), counted AS (
  UPDATE inboxes i SET last_no = i.last_no + w.added, undelivered = i.undelivered + w.added - w.flushed
  FROM (
    SELECT agent, sum(added) AS added, sum(flushed) AS flushed FROM (
      SELECT recipient AS agent, 1 AS added, 0 AS flushed FROM numbered
      UNION ALL
      SELECT recipient_id, 0, 1 FROM flushed
    ) u GROUP BY agent
  ) w
  WHERE i.agent_id = w.agent
), stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT h.id, h.base + s.n, s.id, s.sender, 'sys_' || s.id, 'system', s.content, '{}', h.at FROM said s, held h
), enveloped AS (
  INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
  SELECT v.recipient, v.no, h.id, h.base + v.n FROM numbered v CROSS JOIN held h
), joined AS (
  INSERT INTO group_members (group_id, agent_id, role, joined_at, joined_seq)
  SELECT h.id, j.agent, j.role, h.at, h.base + 1 FROM joining j, held h
  ON CONFLICT (group_id, agent_id) DO UPDATE SET
    role = excluded.role, joined_at = excluded.joined_at, joined_seq = excluded.joined_seq, left_at = NULL
), admitted AS (
  INSERT INTO participants (agent_id, conversation_id, hidden_through) SELECT j.agent, h.id, h.base FROM joining j, held h
), departed AS (
  UPDATE group_members m SET left_at = h.at FROM held h WHERE m.group_id = h.id AND m.agent_id = ANY ($6::text[])
), released AS (
  DELETE FROM participants p USING held h WHERE p.conversation_id = h.id AND p.agent_id = ANY ($6::text[])
), ranked AS (
  UPDATE group_members m SET role = r.role FROM ranking r, held h WHERE m.group_id = h.id AND m.agent_id = r.agent
), described AS (
  UPDATE groups g SET
    name = x.name, description = x.description, avatar_url = x.avatar, member_count = x.member_count,
    avatar_key = CASE WHEN x.deleted_by IS NULL THEN x.avatar_key END,
    deleted_at = CASE WHEN x.deleted_by IS NULL THEN g.deleted_at ELSE x.at END,
    deleted_by = COALESCE(x.deleted_by, g.deleted_by)
  FROM input x, held h WHERE g.id = h.id
), closed AS (
  DELETE FROM group_invites v USING held h, input x
  WHERE v.group_id = h.id AND (x.deleted_by IS NOT NULL OR v.id = ANY ($7::text[]))
), declined AS (
  INSERT INTO group_refusals (group_id, agent_id, refused_at)
  SELECT h.id, r.agent, h.at FROM held h, unnest($8::text[]) AS r(agent)
  ON CONFLICT (group_id, agent_id) DO UPDATE SET refused_at = excluded.refused_at
), traced AS (
  INSERT INTO silent_group_changes (id, group_id, changed_at)
  SELECT x.silent_id, h.id, h.at FROM input x, held h WHERE x.silent_id IS NOT NULL
  ON CONFLICT DO NOTHING
), hooks AS MATERIALIZED (${hookedAmong("message.new", "SELECT agent_id FROM numbers")}
), posted AS (${
  intoOutbox(
    "message.new",
    `SELECT v.recipient AS agent_id, s.id AS subject, h.at, (SELECT request FROM input) AS request
    FROM numbered v JOIN said s ON s.n = v.n CROSS JOIN held h
    WHERE (v.recipient IN (SELECT agent_id FROM hooks)) IS TRUE AND ${
      unmuted("v.recipient", "s.sender", "h.id", "h.at")
    }`
  )
}
), deletion_posted AS (${
  intoOutbox(
    "group.deleted",
    `SELECT DISTINCT v.recipient AS agent_id, h.at,
      json_build_object('group', h.id, 'by', x.deleted_by, 'at', h.at)::text AS subject, x.request
    FROM numbered v, input x, held h WHERE x.deleted_by IS NOT NULL`
  )
}
)
SELECT (SELECT base FROM held) AS base,
  (SELECT json_agg(json_build_array(n, recipient, no)) FROM numbered) AS fan,
  (SELECT json_agg(json_build_array(agent_id, last_no)) FROM numbers) AS reached`

const MEMBERSHIPS = `SELECT group_id FROM group_members WHERE agent_id = $1 AND left_at IS NULL LIMIT $2`

const INVITES_ABOUT = `
SELECT id, group_id FROM group_invites WHERE invitee_id = $1
UNION ALL
SELECT id, group_id FROM group_invites WHERE inviter_id = $1
LIMIT $2`

interface InviteColumns {
  readonly id: string
  readonly group_id: string
  readonly invitee_id: string
  readonly inviter_id: string
  readonly created_at: number
}

const invite = (row: InviteColumns): StoredInvite => ({
  id: row.id,
  groupId: row.group_id,
  inviteeId: row.invitee_id,
  inviterId: row.inviter_id,
  createdAt: row.created_at
})

/** The SQL of groups, except the batch statement (GroupAppend.ts) and the reads of other modules (GroupReads.ts). */
export class GroupsRepo extends Context.Service<GroupsRepo, {
  readonly load: (groupId: string) => Effect.Effect<GroupState | undefined, Unavailable>
  readonly wasMember: (groupId: string, agentId: string) => Effect.Effect<boolean, Unavailable>
  /** The agents with these handles that are not deleted. */
  readonly candidates: (
    inviterId: string,
    handles: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<Candidate>, Unavailable>
  readonly status: (agentId: string, at: number) => Effect.Effect<AgentStatus | undefined, Unavailable>
  /** Creates nothing and returns false if the invites exceed the inviter's budget. */
  readonly create: (group: {
    readonly id: string
    readonly creatorId: string
    readonly profile: Profile
    readonly invites: ReadonlyArray<NewInvite>
    readonly at: number
    readonly limit: number
  }) => Effect.Effect<boolean, Unavailable>
  readonly invite: (options: {
    readonly state: GroupState
    readonly inviterId: string
    readonly invite: NewInvite
    readonly at: number
    readonly limit: number
    /** The time before which rejected invites no longer count, in milliseconds. */
    readonly refusedAfter: number
  }) => Effect.Effect<Invited, Unavailable>
  /** When the inviter's budget will have room for `n` more invites, in milliseconds. */
  readonly roomAt: (inviterId: string, n: number, at: number, limit: number) => Effect.Effect<number, Unavailable>
  readonly inviteById: (inviteId: string) => Effect.Effect<StoredInvite | undefined, Unavailable>
  /**
   * Returns the group and the time of the change with these message ids, and the handle of the member that became admin
   * because the last admin left.
   */
  readonly earlier: (messageIds: ReadonlyArray<string>) => Effect.Effect<
    { readonly groupId: string; readonly at: number; readonly promotedHandle: string | null } | undefined,
    Unavailable
  >
  readonly invitesOf: (
    agentId: string
  ) => Effect.Effect<
    ReadonlyArray<StoredInvite & { readonly profile: Profile; readonly memberCount: number }>,
    Unavailable
  >
  /** The pending invites of a group, oldest first. */
  readonly pending: (
    groupId: string,
    range: PageRange<TimePosition>
  ) => Effect.Effect<ReadonlyArray<StoredInvite>, Unavailable>
  readonly countPending: (groupId: string) => Effect.Effect<number, Unavailable>
  /**
   * Commits a change. Changes nothing and returns undefined if the group has changed since `state` was read. A repeat
   * finds a change without notices by its `silentId`, unless this is `null`.
   */
  readonly change: (
    state: GroupState,
    change: Change,
    notices: ReadonlyArray<SystemNotice>,
    at: number,
    silentId: string | null
  ) => Effect.Effect<CommittedChange | undefined, Unavailable>
  readonly memberships: (agentId: string, limit: number) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /** Pending invites that an agent has received or made. */
  readonly invitesAbout: (
    agentId: string,
    limit: number
  ) => Effect.Effect<ReadonlyArray<{ readonly id: string; readonly groupId: string }>, Unavailable>
}>()("parley/groups/GroupsRepo") {
  static readonly layer = Layer.effect(
    GroupsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const pictures = groupPictures(yield* Config)
      const load = database.prepared<{
        version: number
        last_message_at: number | null
        name: string
        description: string | null
        avatar_url: string | null
        avatar_key: string | null
        creator_id: string
        created_at: number
        deleted_at: number | null
        deleted_by: string | null
        agent_id: string | null
        role: Role
        joined_at: number
        founder: boolean | null
        handle: string | null
        suspended: boolean | null
      }>("load_group", LOAD)
      const wasMember = database.prepared("was_member", WAS_MEMBER)
      const candidates = database.prepared<{
        id: string
        handle: string
        policy: Policy
        blocked: boolean
        holds_inviter: boolean
        held_by_inviter: boolean
      }>("group_candidates", CANDIDATES)
      const status = database.prepared<
        { status: "active" | "suspended"; restricted_until: number | null; deleted_at: number | null }
      >("inviter_status", STATUS)
      const createAlone = database.prepared("create_group", create(false))
      const createInviting = database.prepared("create_group_inviting", create(true))
      const inviteOne = database.prepared<{
        held: boolean
        found: string | null
        refused_at: number | null
        made: string | null
      }>("invite_to_group", INVITE)
      const inTheWay = database.prepared<{ made_at: number }>("invite_in_the_way", IN_THE_WAY)
      const inviteById = database.prepared<InviteColumns>("group_invite", INVITE_BY_ID)
      const earlier = database.prepared<
        { group_id: string; created_at: number; event: string | null; handle: string | null }
      >("earlier_group_change", EARLIER)
      const invitesOf = database.prepared<
        InviteColumns & {
          name: string
          description: string | null
          avatar_url: string | null
          avatar_key: string | null
          member_count: number
        }
      >("group_invites_of", INVITES_OF)
      const pending = database.prepared<InviteColumns>("group_invites_pending", PENDING)
      const countPending = database.prepared<{ total: number }>("count_group_invites", COUNT_PENDING)
      const change = database.prepared<{
        base: number | null
        fan: ReadonlyArray<readonly [number, string, number]> | null
        reached: ReadonlyArray<readonly [string, number]> | null
      }>("change_group", CHANGE)
      const memberships = database.prepared<{ group_id: string }>("group_memberships", MEMBERSHIPS)
      const invitesAbout = database.prepared<{ id: string; group_id: string }>("group_invites_about", INVITES_ABOUT)

      const roomAt = (inviterId: string, n: number, at: number, limit: number) =>
        Effect.map(inTheWay([inviterId, at, Math.max(0, limit - n)]), (rows) => (rows[0]?.made_at ?? at) + DAY_MS)

      return GroupsRepo.of({
        load: (groupId) =>
          Effect.map(load([groupId]), (rows) => {
            const [row] = rows
            if (row === undefined) return undefined
            return {
              id: groupId,
              version: row.version,
              profile: { name: row.name, description: row.description, avatarUrl: pictures.shown(row) },
              creatorId: row.creator_id,
              createdAt: row.created_at,
              lastMessageAt: row.last_message_at,
              deleted: row.deleted_at === null ? null : { at: row.deleted_at, by: row.deleted_by ?? row.creator_id },
              members: rows.flatMap((member) =>
                member.agent_id === null ? [] : {
                  agentId: member.agent_id,
                  handle: member.handle ?? "",
                  role: member.role,
                  joinedAt: member.joined_at,
                  founder: member.founder === true,
                  suspended: member.suspended === true
                }
              )
            }
          }),
        wasMember: (groupId, agentId) => Effect.map(wasMember([groupId, agentId]), (rows) => rows.length > 0),
        candidates: (inviterId, handles) =>
          Effect.map(candidates([inviterId, handles]), (rows) =>
            rows.map((row) => ({
              id: row.id,
              handle: row.handle,
              policy: row.policy,
              blocked: row.blocked,
              holdsInviter: row.holds_inviter,
              heldByInviter: row.held_by_inviter
            }))),
        status: (agentId, at) =>
          Effect.map(
            status([agentId]),
            ([row]) => row?.deleted_at === null ? statusAt(row.status, row.restricted_until, at) : undefined
          ),
        create: Effect.fnUntraced(function*({ at, creatorId, id, invites, limit, profile }) {
          const { avatar_key, avatar_url } = pictures.stored(profile.avatarUrl)
          const params = [
            id,
            creatorId,
            at,
            profile.name,
            profile.description,
            avatar_url,
            JSON.stringify(invites.map((one) => ({ id: one.id, invitee: one.inviteeId }))),
            avatar_key,
            yield* requestId
          ]
          const rows = yield* invites.length === 0
            ? createAlone(params)
            : createInviting([...params, invites.length, limit])
          return rows.length > 0
        }),
        invite: Effect.fnUntraced(function*({ at, invite: made, inviterId, limit, refusedAfter, state }) {
          const values = [
            state.id,
            state.version,
            made.inviteeId,
            inviterId,
            at,
            made.id,
            limit,
            1,
            yield* requestId,
            refusedAfter
          ]
          const [row] = yield* inviteOne(values)
          if (row === undefined || !row.held) return { _tag: "Fenced" as const }
          if (row.found !== null) return { _tag: "Pending" as const, inviteId: row.found }
          if (row.refused_at !== null) return { _tag: "Refused" as const, at: row.refused_at }
          if (row.made !== null) return { _tag: "Invited" as const, inviteId: row.made }
          return { _tag: "OverBudget" as const, freeAt: yield* roomAt(inviterId, 1, at, limit) }
        }),
        roomAt,
        inviteById: (inviteId) =>
          Effect.map(inviteById([inviteId]), ([row]) => row === undefined ? undefined : invite(row)),
        earlier: (messageIds) =>
          Effect.map(earlier([messageIds]), (rows) =>
            rows[0] === undefined ? undefined : {
              groupId: rows[0].group_id,
              at: rows[0].created_at,
              promotedHandle: rows.length > 1
                ? rows.find(({ event }) => event === "admin_promoted")?.handle ?? null
                : null
            }),
        invitesOf: (agentId) =>
          Effect.map(invitesOf([agentId]), (rows) =>
            rows.map((row) => ({
              ...invite(row),
              profile: { name: row.name, description: row.description, avatarUrl: pictures.shown(row) },
              memberCount: row.member_count
            }))),
        pending: (groupId, { after, limit, offset }) =>
          Effect.map(
            pending([groupId, after?.createdAt ?? null, after?.id ?? null, offset, limit]),
            (rows) => rows.map(invite)
          ),
        countPending: (groupId) => Effect.map(countPending([groupId]), (rows) => rows[0]?.total ?? 0),
        change: Effect.fnUntraced(function*(state, made, notices, at, silentId) {
          const count = made.deletedBy === null
            ? state.members.length + made.joins.length - made.leaves.length
            : 0
          const { avatar_key, avatar_url } = pictures.stored(made.profile.avatarUrl)
          const [row] = yield* change([
            JSON.stringify({
              id: state.id,
              version: state.version,
              at,
              messages: notices.length,
              name: made.profile.name,
              description: made.profile.description,
              avatar: avatar_url,
              avatar_key,
              member_count: count,
              deleted_by: made.deletedBy,
              request: yield* requestId,
              silent_id: silentId
            }),
            JSON.stringify(made.joins.map(({ agentId, role }) => ({ agent: agentId, role }))),
            JSON.stringify(made.roles.map(({ agentId, role }) => ({ agent: agentId, role }))),
            JSON.stringify(
              notices.map(({ content, id, senderId }, i) => ({ n: i + 1, id, sender: senderId, content }))
            ),
            JSON.stringify(
              notices.flatMap(({ recipients }, i) => recipients.map((recipient) => ({ n: i + 1, recipient })))
            ),
            made.leaves,
            made.closes,
            made.refuses
          ])
          if (row === undefined || row.base === null) return undefined
          const envelopes = notices.map((): Array<Numbered> => [])
          for (const [n, recipientId, inboxNo] of row.fan ?? []) envelopes[n - 1]!.push({ recipientId, inboxNo })
          return { base: row.base, envelopes, reached: new Map(row.reached ?? []) }
        }),
        memberships: (agentId, limit) =>
          Effect.map(memberships([agentId, limit]), (rows) => rows.map((row) => row.group_id)),
        invitesAbout: (agentId, limit) =>
          Effect.map(
            invitesAbout([agentId, limit]),
            (rows) => rows.map((row) => ({ id: row.id, groupId: row.group_id }))
          )
      })
    })
  )
}
