import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A grant that a person has allowed, before it is stored. */
export interface NewGrant {
  readonly id: string
  readonly agentId: string
  readonly clientId: string
  readonly clientName: string | null
  /** The host of the client's own document; `null` for a registered client. */
  readonly clientHost: string | null
  readonly redirectUri: string
  readonly scopes: string
}

export interface StoredGrant extends NewGrant {
  /** The hash of the key that the agent had when the grant was created. */
  readonly keyHash: Buffer
  readonly createdAt: number
  /** When a token of the grant was last used; `createdAt` if none was. */
  readonly usedAt: number
}

/** When a token of the grant was last used; `null` if none was. */
export const lastUsedAt = ({ createdAt, usedAt }: Pick<StoredGrant, "createdAt" | "usedAt">): number | null =>
  usedAt > createdAt ? usedAt : null

/** Why a grant ends before it expires, and who ends it, for the audit log. */
export interface Ending {
  /** An operator, or `server` if no operator ends it. */
  readonly operator: string
  readonly why:
    | "revoked by the host"
    | "disconnected by the agent"
    | "ended by an operator"
    | "replaced by newer connections"
    | "a code was used again"
    | "a refresh token was used again"
}

/** A code or a refresh token with its grant. Both rows are locked until the transaction ends. */
export interface Presented extends StoredGrant {
  readonly kind: "code" | "refresh"
  readonly challenge: string | null
  readonly expiresAt: number
  readonly exchanged: boolean
}

/** The columns of an access token and its grant that a request with the token needs. */
export interface Grant {
  readonly connectionId: string
  readonly keyHash: Buffer
  readonly scopes: string
  readonly expiresAt: number
  /** Whether the token has been used before. */
  readonly isUsed: boolean
  readonly usedAt: number
}

const COLUMNS =
  `c.id, c.agent_id AS "agentId", c.key_hash AS "keyHash", c.client_id AS "clientId", c.client_name AS "clientName",
  c.client_host AS "clientHost", c.redirect_uri AS "redirectUri", c.scopes, c.created_at AS "createdAt", c.used_at AS "usedAt"`

/**
 * A grant is live while the agent still has the key that it had when the grant was created. So no grant outlives the
 * account.
 */
const LIVE = `JOIN agents a ON a.id = c.agent_id AND a.key_hash = c.key_hash`

/**
 * The grant stores the key that the agent has when the statement runs, so a rotation that is committed later ends the
 * grant. Returns no row if the account has been deleted.
 */
const INSERT = `
WITH made AS (
  INSERT INTO oauth_connections
    (id, agent_id, key_hash, client_id, client_name, client_host, redirect_uri, scopes, created_at, used_at, expires_at)
  SELECT $1, id, key_hash, $3, $4, $5, $6, $7, $8, $8, $11 FROM agents WHERE id = $2 AND key_hash IS NOT NULL FOR SHARE
  RETURNING id, agent_id
), noted AS (
  INSERT INTO audit_log (at, operator, action, agent_id, reason) SELECT $8::bigint, 'server', 'grant connection', agent_id, $12::text FROM made
)
INSERT INTO oauth_tokens (hash, connection_id, kind, challenge, expires_at)
SELECT $9, id, 'code', $10, $11 FROM made RETURNING connection_id`

const remove = (which: string, further = ""): string => `
WITH gone AS (DELETE FROM oauth_connections c WHERE ${which} RETURNING ${COLUMNS}),
  tokens AS (DELETE FROM oauth_tokens WHERE connection_id IN (SELECT id FROM gone))${further}
SELECT * FROM gone`

/**
 * Removes grants, and writes an audit row for each that was live. $1 is the time, $2 the operator, and $3 the reason.
 */
const end = (which: string): string =>
  remove(
    which,
    `,
  noted AS (
    INSERT INTO audit_log (at, operator, action, agent_id, reason)
    SELECT $1::bigint, $2::text, 'end connection', a.id, c.id || ': ' || $3::text
    FROM gone c JOIN agents a ON a.id = c."agentId" AND a.key_hash = c."keyHash"
  )`
  )

/**
 * Locks the rows first and skips locked ones, so that two concurrent requests that remove some of the same rows cannot
 * deadlock.
 */
const someOf = (which: string): string =>
  `c.id IN (SELECT id FROM oauth_connections WHERE ${which} FOR UPDATE SKIP LOCKED)`

const END = end("c.id = $4 AND c.agent_id = $5")
const END_BEYOND = end(someOf(`id IN (
  SELECT id FROM oauth_connections WHERE agent_id = $4 AND id <> $5 ORDER BY used_at DESC, id OFFSET $6)`))
const END_THESE = end("c.id = ANY($4::text[])")
const REMOVE_ALL = remove(someOf("id IN (SELECT id FROM oauth_connections WHERE agent_id = $1 LIMIT $2)"))

const LIST = `
SELECT ${COLUMNS} FROM oauth_connections c ${LIVE} WHERE c.agent_id = $1 ORDER BY c.created_at DESC, c.id`

/**
 * The live grants of all agents, in the order of ids. With a join instead of the subquery, the planner might read all
 * agents for each page.
 */
const PAGE = `
SELECT ${COLUMNS} FROM oauth_connections c
WHERE c.id > $1 AND (SELECT a.key_hash FROM agents a WHERE a.id = c.agent_id) = c.key_hash ORDER BY c.id LIMIT $2`

const LOCK = `
SELECT ${COLUMNS}, t.kind, t.challenge, t.expires_at AS "expiresAt", t.exchanged
FROM oauth_tokens t JOIN oauth_connections c ON c.id = t.connection_id ${LIVE}
WHERE t.hash = $1 AND t.kind IN ('code', 'refresh') FOR UPDATE OF c, t`

const SUCCESSOR = `SELECT min(used_at) AS "usedAt" FROM oauth_tokens WHERE connection_id = $1 AND parent = $2`

/**
 * If the exchange is repeated, the pair is stored already. The statement then extends its expiry, because the client
 * can use the pair only after a response with it has arrived.
 */
const EXCHANGE = `
WITH exchanged AS (
  UPDATE oauth_tokens SET exchanged = true, used_at = COALESCE(used_at, $6) WHERE hash = $1 RETURNING connection_id, kind
), used AS (
  UPDATE oauth_connections SET expires_at = GREATEST(expires_at, $5),
    used_at = CASE (SELECT kind FROM exchanged) WHEN 'refresh' THEN GREATEST(used_at, $6) ELSE used_at END
  WHERE id = (SELECT connection_id FROM exchanged)
)
INSERT INTO oauth_tokens (hash, connection_id, kind, parent, expires_at)
SELECT pair.hash, exchanged.connection_id, pair.kind, $1, pair.expires_at
FROM exchanged, (VALUES ($2::bytea, 'access', $3::bigint), ($4::bytea, 'refresh', $5::bigint)) AS pair (hash, kind, expires_at)
ON CONFLICT (hash) DO UPDATE SET expires_at = excluded.expires_at`

/**
 * Removes refresh tokens that were exchanged long ago. The newest $2 are enough to detect that two parties use the same
 * token.
 */
const FORGET_OLD = `
DELETE FROM oauth_tokens WHERE hash IN (
  SELECT hash FROM oauth_tokens WHERE connection_id = $1 AND exchanged ORDER BY expires_at DESC OFFSET $2)`

const GRANT = `
SELECT c.id AS "connectionId", c.key_hash AS "keyHash", c.scopes, c.used_at AS "usedAt", t.expires_at AS "expiresAt",
  t.used_at IS NOT NULL AS "isUsed"
FROM oauth_tokens t JOIN oauth_connections c ON c.id = t.connection_id ${LIVE}
WHERE t.hash = $1 AND t.kind = 'access' AND t.expires_at > $2`

const USED = `
WITH token AS (UPDATE oauth_tokens SET used_at = COALESCE(used_at, $2) WHERE hash = $1 RETURNING connection_id)
UPDATE oauth_connections SET used_at = GREATEST(used_at, $2) WHERE id = (SELECT connection_id FROM token)`

const FIND_REVOKED = `
SELECT c.id, c.agent_id AS "agentId", c.client_id AS "clientId" FROM oauth_tokens t JOIN oauth_connections c ON c.id = t.connection_id
WHERE t.hash = $1 AND t.kind IN ('access', 'refresh')`

/** All SQL on grants and their tokens. Tokens are passed as SHA-256 hashes, times in milliseconds. */
export class GrantsRepo extends Context.Service<GrantsRepo, {
  /** Stores a grant and its code, and writes an audit row. Returns `false` if the account has been deleted. */
  readonly insert: (
    connection: NewGrant,
    at: number,
    code: Buffer,
    challenge: string,
    codeExpiresAt: number,
    note: string
  ) => Effect.Effect<boolean, Unavailable>
  /**
   * Keeps this grant and `most` others of the agent, and ends the rest: those that were not used for the longest time.
   * Returns the ended grants.
   */
  readonly endBeyond: (
    agentId: string,
    id: string,
    most: number,
    at: number,
    ending: Ending
  ) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /** The live grants of an agent, the newest first. */
  readonly list: (agentId: string) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /** Up to `most` live grants of all agents with ids after `after`, in the order of ids. */
  readonly page: (after: string, most: number) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /**
   * Locks a code or refresh token of a live grant, and the grant. Run it in the transaction that exchanges the token.
   */
  readonly lock: (hash: Buffer) => Effect.Effect<Presented | undefined, Unavailable>
  /**
   * When one of the tokens for which this token was exchanged was first used; `null` if none was. Run it after `lock`.
   */
  readonly successorUsedAt: (connectionId: string, hash: Buffer) => Effect.Effect<number | null, Unavailable>
  /** Marks a code or refresh token as exchanged, and stores its pair or extends the expiry of the stored pair. */
  readonly exchange: (
    hash: Buffer,
    access: Buffer,
    accessExpiresAt: number,
    refresh: Buffer,
    refreshExpiresAt: number,
    at: number
  ) => Effect.Effect<void, Unavailable>
  /** Removes all but the newest `most` exchanged tokens of a grant. */
  readonly forgetOld: (connectionId: string, most: number) => Effect.Effect<void, Unavailable>
  /** The grant of a live access token. */
  readonly grant: (hash: Buffer, at: number) => Effect.Effect<Grant | undefined, Unavailable>
  /** Records a use of an access token. */
  readonly used: (hash: Buffer, at: number) => Effect.Effect<void, Unavailable>
  /** The grant of an access or refresh token, whether or not the token and the grant are live. */
  readonly ofToken: (
    hash: Buffer
  ) => Effect.Effect<Pick<NewGrant, "id" | "agentId" | "clientId"> | undefined, Unavailable>
  /**
   * Ends a grant of the agent: removes it with its tokens, and returns it. Returns `undefined` if there is no such
   * grant.
   */
  readonly end: (
    id: string,
    agentId: string,
    at: number,
    ending: Ending
  ) => Effect.Effect<StoredGrant | undefined, Unavailable>
  /**
   * Ends the grants with these ids, after exchanges of their tokens that are under way. Returns the grants that
   * existed.
   */
  readonly endThese: (
    ids: ReadonlyArray<string>,
    at: number,
    ending: Ending
  ) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /** Removes up to `most` grants of an agent, and returns them. */
  readonly removeAll: (agentId: string, most: number) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
}>()("parley/oauth/GrantsRepo") {
  static readonly layer = Layer.effect(
    GrantsRepo,
    Effect.gen(function*() {
      const { prepared } = yield* Database
      const insert = prepared("insert_oauth_connection", INSERT)
      const endBeyond = prepared<StoredGrant>("end_oauth_connections_beyond", END_BEYOND)
      const list = prepared<StoredGrant>("list_oauth_connections", LIST)
      const lock = prepared<Presented>("lock_oauth_token", LOCK)
      const successor = prepared<{ readonly usedAt: number | null }>("oauth_successor", SUCCESSOR)
      const exchange = prepared("exchange_oauth_token", EXCHANGE)
      const forgetOld = prepared("forget_oauth_tokens", FORGET_OLD)
      const grant = prepared<Grant>("oauth_grant", GRANT)
      const used = prepared("use_oauth_token", USED)
      const ofToken = prepared<Pick<NewGrant, "id" | "agentId" | "clientId">>("oauth_connection_of_token", FIND_REVOKED)
      const end = prepared<StoredGrant>("end_oauth_connection", END)
      const endThese = prepared<StoredGrant>("end_oauth_connections", END_THESE)
      const page = prepared<StoredGrant>("page_oauth_connections", PAGE)
      const removeAll = prepared<StoredGrant>("remove_oauth_connections_of_agent", REMOVE_ALL)

      return GrantsRepo.of({
        insert: (c, at, code, challenge, codeExpiresAt, note) =>
          Effect.map(
            insert([
              c.id,
              c.agentId,
              c.clientId,
              c.clientName,
              c.clientHost,
              c.redirectUri,
              c.scopes,
              at,
              code,
              challenge,
              codeExpiresAt,
              note
            ]),
            (rows) => rows.length > 0
          ),
        endBeyond: (agentId, id, most, at, { operator, why }) => endBeyond([at, operator, why, agentId, id, most]),
        list: (agentId) => list([agentId]),
        page: (after, most) => page([after, most]),
        lock: (hash) => Effect.map(lock([hash]), ([row]) => row),
        successorUsedAt: (connectionId, hash) => Effect.map(successor([connectionId, hash]), ([row]) => row!.usedAt),
        exchange: (hash, access, accessExpiresAt, refresh, refreshExpiresAt, at) =>
          Effect.asVoid(exchange([hash, access, accessExpiresAt, refresh, refreshExpiresAt, at])),
        forgetOld: (connectionId, most) => Effect.asVoid(forgetOld([connectionId, most])),
        grant: (hash, at) => Effect.map(grant([hash, at]), ([row]) => row),
        used: (hash, at) => Effect.asVoid(used([hash, at])),
        ofToken: (hash) => Effect.map(ofToken([hash]), ([row]) => row),
        end: (id, agentId, at, { operator, why }) => Effect.map(end([at, operator, why, id, agentId]), ([row]) => row),
        endThese: (ids, at, { operator, why }) => endThese([at, operator, why, ids]),
        removeAll: (agentId, most) => removeAll([agentId, most])
      })
    })
  )
}
