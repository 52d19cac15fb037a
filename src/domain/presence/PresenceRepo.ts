import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** The part of a presence that is stored in the database. */
export interface KeptPresence {
  readonly customMessage: string | null
  readonly lastSeen: number | null
}

/** An agent whose presence the viewer may see. */
export interface VisiblePresence extends KeptPresence {
  readonly agentId: string
  readonly handle: string
}

interface KeptRow {
  readonly custom_message: string | null
  readonly last_seen: number | null
}

/**
 * Selects the agents that a viewer may see: itself, and its contacts without a block in either direction (wire.md G.14,
 * G.9). Each handle is looked up separately. The other conditions are outside the lateral, so that the planner uses
 * only the index of handles.
 */
const VISIBLE = `
SELECT a.id, a.handle, p.custom_message, p.last_seen
FROM unnest($2::text[]) AS asked(handle)
CROSS JOIN LATERAL (SELECT id, handle, deleted_at FROM agents WHERE handle = asked.handle OFFSET 0) a
LEFT JOIN presences p ON p.agent_id = a.id
WHERE a.deleted_at IS NULL AND (
  a.id = $1 OR (
    (SELECT true FROM contacts c WHERE c.agent_id = $1 AND c.contact_id = a.id)
    AND (SELECT true FROM blocks b WHERE b.agent_id = $1 AND b.blocked_id = a.id) IS NULL
    AND (SELECT true FROM blocks b WHERE b.agent_id = a.id AND b.blocked_id = $1) IS NULL
  )
)`

const KEPT = `SELECT custom_message, last_seen FROM presences WHERE agent_id = $1`

/** Writes no row for a deleted account, because the account's sockets may close after the deletion. */
const KEEP = `
INSERT INTO presences (agent_id, custom_message, last_seen)
SELECT id, message, seen FROM json_to_recordset($1::json) AS x(id text, message text, seen bigint)
WHERE (SELECT deleted_at FROM agents WHERE agents.id = x.id) IS NULL
ORDER BY id
ON CONFLICT (agent_id) DO UPDATE SET custom_message = EXCLUDED.custom_message, last_seen = EXCLUDED.last_seen`

/**
 * Selects the next slice of the agents that have this agent as a contact. Blocked pairs are included and marked, so
 * that only the last slice is short.
 */
const HOLDERS = `
SELECT h.agent_id AS holder,
  COALESCE(
    (SELECT true FROM blocks b WHERE b.agent_id = h.agent_id AND b.blocked_id = $1),
    (SELECT true FROM blocks b WHERE b.agent_id = $1 AND b.blocked_id = h.agent_id),
    false
  ) AS blocked,
  COALESCE(
    (
      SELECT true FROM webhooks w
      WHERE w.agent_id = h.agent_id AND w.slot IS NOT NULL AND w.active AND 'presence.update' = ANY (w.events) LIMIT 1
    ),
    false
  ) AS hooked
FROM (
  SELECT agent_id FROM contacts WHERE contact_id = $1 AND agent_id > $2 ORDER BY agent_id LIMIT $3
) h
ORDER BY h.agent_id`

/** All SQL on presence. */
export class PresenceRepo extends Context.Service<PresenceRepo, {
  /** Returns the agents with these handles that the viewer may see, in any order. */
  readonly visible: (
    viewerId: string,
    handles: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<VisiblePresence>, Unavailable>
  readonly kept: (agentId: string) => Effect.Effect<KeptPresence | undefined, Unavailable>
  readonly keep: (
    presences: ReadonlyArray<KeptPresence & { readonly agentId: string }>
  ) => Effect.Effect<void, Unavailable>
  readonly remove: (agentId: string) => Effect.Effect<void, Unavailable>
  /**
   * Returns agents with ids above `above` that have this agent as a contact, in the order of ids. `hooked` is whether
   * such a holder has a webhook for presence.
   */
  readonly holders: (
    agentId: string,
    above: string,
    limit: number
  ) => Effect.Effect<
    ReadonlyArray<{ readonly holder: string; readonly blocked: boolean; readonly hooked: boolean }>,
    Unavailable
  >
}>()("parley/presence/PresenceRepo") {
  static readonly layer = Layer.effect(
    PresenceRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const visible = database.prepared<KeptRow & { id: string; handle: string }>("visible_presences", VISIBLE)
      const kept = database.prepared<KeptRow>("kept_presence", KEPT)
      const keep = database.prepared("keep_presences", KEEP)
      const remove = database.prepared("remove_presence", "DELETE FROM presences WHERE agent_id = $1")
      const holders = database.prepared<{ holder: string; blocked: boolean; hooked: boolean }>(
        "contact_holders",
        HOLDERS
      )
      return PresenceRepo.of({
        visible: (viewerId, handles) =>
          Effect.map(visible([viewerId, handles]), (rows) =>
            rows.map((row) => ({
              agentId: row.id,
              handle: row.handle,
              customMessage: row.custom_message,
              lastSeen: row.last_seen
            }))),
        kept: (agentId) =>
          Effect.map(
            kept([agentId]),
            ([row]) => row === undefined ? undefined : { customMessage: row.custom_message, lastSeen: row.last_seen }
          ),
        keep: (presences) =>
          Effect.asVoid(keep([
            JSON.stringify(presences.map(({ agentId, customMessage, lastSeen }) => ({
              id: agentId,
              message: customMessage,
              seen: lastSeen
            })))
          ])),
        remove: (agentId) => Effect.asVoid(remove([agentId])),
        holders: (agentId, above, limit) => holders([agentId, above, limit])
      })
    })
  )
}
