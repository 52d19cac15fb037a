import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A request for authorization that waits for a person's decision. */
export interface StoredRequest {
  readonly id: string
  readonly cookieHash: Buffer
  readonly clientId: string
  readonly clientName: string | null
  /** The host of the client's own document; `null` for a registered client. */
  readonly clientHost: string | null
  readonly redirectUri: string
  readonly challenge: string
  readonly state: string | null
  readonly scopes: string
  /** The agent that has signed in on the page; `null` before that. */
  readonly agentId: string | null
  readonly expiresAt: number
}

const COLUMNS =
  `id, cookie_hash AS "cookieHash", client_id AS "clientId", client_name AS "clientName", client_host AS "clientHost",
  redirect_uri AS "redirectUri", challenge, state, scopes, agent_id AS "agentId", expires_at AS "expiresAt"`

const INSERT = `
INSERT INTO oauth_requests (id, cookie_hash, client_id, client_name, client_host, redirect_uri, challenge, state, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

const FIND = `SELECT ${COLUMNS} FROM oauth_requests WHERE id = $1 AND cookie_hash = $2 AND expires_at > $3`

const SIGN_IN =
  `UPDATE oauth_requests SET agent_id = $3 WHERE id = $1 AND cookie_hash = $2 AND expires_at > $4 RETURNING id`

/** A request can be decided only once. Of two concurrent decisions, only one finds the row. */
const TAKE = `DELETE FROM oauth_requests WHERE id = $1 AND cookie_hash = $2 AND expires_at > $3 RETURNING ${COLUMNS}`

/**
 * All SQL on requests for authorization. `cookie` is the SHA-256 of the browser's cookie, `at` the time in
 * milliseconds.
 */
export class RequestsRepo extends Context.Service<RequestsRepo, {
  readonly insert: (request: Omit<StoredRequest, "agentId">) => Effect.Effect<void, Unavailable>
  readonly find: (id: string, cookie: Buffer, at: number) => Effect.Effect<StoredRequest | undefined, Unavailable>
  /** Records which agent has signed in. Returns `false` if there is no such request. */
  readonly signIn: (id: string, cookie: Buffer, agentId: string, at: number) => Effect.Effect<boolean, Unavailable>
  /** Removes a request that has been decided, and returns it. */
  readonly take: (id: string, cookie: Buffer, at: number) => Effect.Effect<StoredRequest | undefined, Unavailable>
}>()("parley/oauth/RequestsRepo") {
  static readonly layer = Layer.effect(
    RequestsRepo,
    Effect.map(Database, ({ prepared }) => {
      const insert = prepared("insert_oauth_request", INSERT)
      const find = prepared<StoredRequest>("find_oauth_request", FIND)
      const signIn = prepared("sign_in_oauth_request", SIGN_IN)
      const take = prepared<StoredRequest>("take_oauth_request", TAKE)
      return RequestsRepo.of({
        insert: (r) =>
          Effect.asVoid(insert([
            r.id,
            r.cookieHash,
            r.clientId,
            r.clientName,
            r.clientHost,
            r.redirectUri,
            r.challenge,
            r.state,
            r.scopes,
            r.expiresAt
          ])),
        find: (id, cookie, at) => Effect.map(find([id, cookie, at]), ([row]) => row),
        signIn: (id, cookie, agentId, at) => Effect.map(signIn([id, cookie, agentId, at]), (rows) => rows.length > 0),
        take: (id, cookie, at) => Effect.map(take([id, cookie, at]), ([row]) => row)
      })
    })
  )
}
