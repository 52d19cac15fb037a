import { mentionsIn } from "#domain/messages/Mentions"
import { directContext, type Progress, type ShownContext, type StoredMessage } from "#domain/messages/Message"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Schema } from "effect"
import { GroupNotFound } from "./GroupDeletion.ts"
import { GroupDeleted, toGroupDeletion } from "./GroupDeletion.ts"
import { groupPictures } from "./GroupPictures.ts"

/** A member's role in its group. An admin may change the group (wire.md G.6). */
export type Role = "admin" | "member"

export const RoleSchema = Schema.Literals(["admin", "member"])

export const isGroupId = (conversationId: string): boolean => conversationId.startsWith("grp_")

/** The part of a group that other modules show. */
export interface GroupCard {
  readonly name: string
  readonly description: string | null
  readonly avatarUrl: string | null
  readonly memberCount: number
}

type Shown = Pick<StoredMessage, "content" | "conversationId">

interface Sender {
  readonly handle: string
  readonly displayName: string | null
  readonly deletedAt: number | null
}

const CARDS =
  `SELECT id, name, description, avatar_url, avatar_key, member_count FROM groups WHERE id = ANY ($1::text[])`

const ROLE = `SELECT role FROM group_members WHERE group_id = $1 AND agent_id = $2 AND left_at IS NULL`

/** Selects whether an agent is or was a member, and when and by whom the group was deleted. */
const PART = `
SELECT m.left_at, g.deleted_at, a.handle FROM group_members m
JOIN groups g ON g.id = m.group_id
LEFT JOIN LATERAL (SELECT * FROM agents WHERE id = g.deleted_by OFFSET 0) a ON true
WHERE m.group_id = $1 AND m.agent_id = $2`

/** Selects those of these handles that belong to active members of these groups. */
const MENTIONED = `
SELECT m.group_id, a.handle FROM group_members m
JOIN agents a ON a.id = m.agent_id
WHERE m.group_id = ANY ($1::text[]) AND m.left_at IS NULL AND a.handle = ANY ($2::text[])`

/** The active members, in the order in which they joined. */
const MEMBERS = `SELECT agent_id FROM group_members WHERE group_id = $1 AND left_at IS NULL ORDER BY joined_seq`

/**
 * Selects when the message was delivered to the last of its recipients, and when the last recipient read it. A time is
 * `null` until all recipients have got that far (wire.md F).
 */
const PROGRESS = `
SELECT
  CASE WHEN count(*) = count(e.delivered_at) THEN max(e.delivered_at) END AS delivered_at,
  CASE WHEN count(*) = count(e.read_at) THEN max(e.read_at) END AS read_at
FROM group_members g
CROSS JOIN LATERAL (
  SELECT * FROM envelopes WHERE recipient_id = g.agent_id AND conversation_id = g.group_id AND seq = $2 OFFSET 0
) e
WHERE g.group_id = $1`

/** Reads groups for the modules that show messages and conversations. Caches nothing. */
export class GroupReads extends Context.Service<GroupReads, {
  /** Returns the groups among these conversations, by id. Takes at most one query. */
  readonly cards: (conversationIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, GroupCard>, Unavailable>
  /** Returns the function that gives the context with which a message is shown. Takes at most two queries. */
  readonly contexts: (
    messages: ReadonlyArray<Shown>
  ) => Effect.Effect<(message: Shown, sender: Sender | undefined) => ShownContext, Unavailable>
  /** Returns undefined if the agent is not an active member. */
  readonly role: (groupId: string, agentId: string) => Effect.Effect<Role | undefined, Unavailable>
  /**
   * Succeeds for active members. Fails with GroupDeleted for former members of a deleted group, and with GroupNotFound
   * for all other agents.
   */
  readonly admit: (groupId: string, agentId: string) => Effect.Effect<void, GroupNotFound | GroupDeleted | Unavailable>
  readonly members: (groupId: string) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /** The progress of a group message, as shown to its sender. */
  readonly progress: (groupId: string, seq: number) => Effect.Effect<Progress, Unavailable>
}>()("parley/memberships/GroupReads") {
  static readonly layer = Layer.effect(
    GroupReads,
    Effect.gen(function*() {
      const database = yield* Database
      const pictures = groupPictures(yield* Config)
      const cards = database.prepared<{
        id: string
        name: string
        description: string | null
        avatar_url: string | null
        avatar_key: string | null
        member_count: number
      }>("group_cards", CARDS)
      const role = database.prepared<{ role: Role }>("group_role", ROLE)
      const part = database.prepared<{ left_at: number | null; deleted_at: number | null; handle: string | null }>(
        "group_part",
        PART
      )
      const mentioned = database.prepared<{ group_id: string; handle: string }>("group_mentioned", MENTIONED)
      const members = database.prepared<{ agent_id: string }>("group_members", MEMBERS)
      const progress = database.prepared<{ delivered_at: number | null; read_at: number | null }>(
        "group_progress",
        PROGRESS
      )

      const cardsOf = (
        conversationIds: ReadonlyArray<string>
      ): Effect.Effect<ReadonlyMap<string, GroupCard>, Unavailable> => {
        const ids = [...new Set(conversationIds.filter(isGroupId))]
        if (ids.length === 0) return Effect.succeed(NONE)
        return Effect.map(cards([ids]), (rows) =>
          new Map(rows.map((row) => [row.id, {
            name: row.name,
            description: row.description,
            avatarUrl: pictures.shown(row),
            memberCount: row.member_count
          }])))
      }

      /** Returns the mentioned members for each of these messages that is in a group and contains a mention. */
      const mentionsOfMembers = (
        messages: ReadonlyArray<Shown>
      ): Effect.Effect<ReadonlyMap<Shown, ReadonlyArray<string>>, Unavailable> => {
        const all = new Map<Shown, ReadonlyArray<string>>()
        for (const message of messages) {
          if (!isGroupId(message.conversationId)) continue
          const handles = mentionsIn(message.content)
          if (handles.length > 0) all.set(message, handles)
        }
        if (all.size === 0) return Effect.succeed(all)
        const groups = new Set([...all.keys()].map(({ conversationId }) => conversationId))
        return Effect.map(mentioned([[...groups], [...new Set([...all.values()].flat())]]), (rows) => {
          const members = new Set(rows.map((row) => `${row.group_id} ${row.handle}`))
          return new Map(
            Array.from(all, ([message, handles]) => [
              message,
              handles.filter((handle) => members.has(`${message.conversationId} ${handle}`))
            ])
          )
        })
      }

      return GroupReads.of({
        cards: cardsOf,
        contexts: (messages) =>
          Effect.zipWith(
            cardsOf(messages.map(({ conversationId }) => conversationId)),
            mentionsOfMembers(messages),
            (found, mentions) => (message: Shown, sender: Sender | undefined): ShownContext => {
              const card = found.get(message.conversationId)
              const context = directContext(sender)
              return card === undefined ? context : {
                ...context,
                group: { name: card.name, memberCount: card.memberCount },
                mentions: mentions.get(message) ?? []
              }
            }
          ),
        role: (groupId, agentId) => Effect.map(role([groupId, agentId]), (rows) => rows[0]?.role),
        admit: (groupId, agentId) =>
          Effect.flatMap(part([groupId, agentId]), ([row]): Effect.Effect<void, GroupNotFound | GroupDeleted> => {
            if (row === undefined || (row.deleted_at === null && row.left_at !== null))
              return Effect.fail(new GroupNotFound())
            if (row.deleted_at === null) return Effect.void
            return Effect.fail(
              new GroupDeleted({ details: toGroupDeletion(groupId, row.handle ?? "", row.deleted_at) })
            )
          }),
        members: (groupId) => Effect.map(members([groupId]), (rows) => rows.map((row) => row.agent_id)),
        progress: (groupId, seq) =>
          Effect.map(progress([groupId, seq]), ([row]) => ({
            deliveredAt: row?.delivered_at ?? null,
            readAt: row?.read_at ?? null
          }))
      })
    })
  )
}

const NONE: ReadonlyMap<string, GroupCard> = new Map()
