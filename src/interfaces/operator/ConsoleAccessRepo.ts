import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Role } from "./Role.ts"

/** The hash of one token for each role. */
export type Hashes = Readonly<Record<Role, Buffer>>

export interface AccessRow {
  readonly id: string
  readonly kind: "link" | "session" | "token"
  readonly operator: string
  readonly role: Role
  readonly name: string | null
  readonly createdAt: number
  readonly lastUsedAt: number | null
  readonly expiresAt: number
}

/**
 * How long the token with which `npm run admin` calls a running server is valid. A program token is valid for at least
 * a day.
 */
export const COMMAND_TOKEN_MS = 60_000
/** How many milliseconds `last_used_at` may be behind the last use. */
const USED_MS = 60_000
/** How long expired rows are kept for readers of the audit log, in milliseconds. */
const KEPT_MS = 30 * 86_400_000

/** How the audit log names the holder (`namedOf`), as SQL on a row of `console_access`. */
const NAMED = `operator || CASE WHEN role = 'operator' THEN '' ELSE ' (' || role || ')' END`

/** All SQL on `console_access`. The statement that creates, redeems or ends a row also writes its audit row. */
export class ConsoleAccessRepo extends Context.Service<ConsoleAccessRepo, {
  readonly insert: (row: {
    readonly id: string
    readonly kind: "link" | "session" | "token"
    readonly hash: Buffer
    readonly operator: string
    readonly role: Role
    readonly name: string | null
    readonly at: number
    readonly expiresAt: number
    readonly action: string
    /** The operator whom the audit row names. */
    readonly maker: string
    readonly detail: string | null
  }) => Effect.Effect<void, Unavailable>
  /**
   * Uses up a link and creates its session; undefined if there is no such valid link. Of two concurrent calls, only one
   * gets the session.
   */
  readonly redeem: (given: {
    readonly links: Hashes
    readonly id: string
    readonly hashes: Hashes
    readonly at: number
    readonly expiresAt: number
  }) => Effect.Effect<AccessRow | undefined, Unavailable>
  readonly find: (
    kind: "session" | "token",
    hashes: Hashes,
    at: number
  ) => Effect.Effect<AccessRow | undefined, Unavailable>
  /** The sessions and program tokens that are valid at this time. Tokens of `npm run admin` are not included. */
  readonly living: (at: number) => Effect.Effect<ReadonlyArray<AccessRow>, Unavailable>
  readonly end: (id: string, operator: string, at: number) => Effect.Effect<boolean, Unavailable>
}>()("parley/operator/ConsoleAccessRepo") {
  static readonly layer = Layer.effect(
    ConsoleAccessRepo,
    Effect.map(Effect.all([Database, SqlClient.SqlClient]), ([{ query }, sql]) => {
      const columns = sql.literal(
        `id, kind, operator, role, name, created_at AS "createdAt", last_used_at AS "lastUsedAt", expires_at AS "expiresAt"`
      )
      /** Selects the row of a token with one of the roles. */
      const matches = ({ moderator, operator, viewer }: Hashes) =>
        sql`(token_hash, role) IN ((${operator}::bytea, 'operator'), (${moderator}::bytea, 'moderator'), (${viewer}::bytea, 'viewer'))`
      return ConsoleAccessRepo.of({
        insert: ({ action, at, detail, expiresAt, hash, id, kind, maker, name, operator, role }) =>
          Effect.asVoid(query`
            WITH gone AS (DELETE FROM console_access WHERE expires_at < ${at - KEPT_MS}),
            made AS (
              INSERT INTO console_access (id, kind, token_hash, operator, role, name, created_at, expires_at)
              VALUES (${id}, ${kind}, ${hash}, ${operator}, ${role}, ${name}, ${at}, ${expiresAt})
            )
            INSERT INTO audit_log (at, operator, action, reason) VALUES (${at}, ${maker}, ${action}, ${detail})`),
        redeem: ({ at, expiresAt, hashes, id, links }) =>
          Effect.map(
            query<AccessRow>`
              WITH used AS (
                UPDATE console_access SET ended_at = ${at}, last_used_at = ${at}
                WHERE ${matches(links)} AND kind = 'link' AND ended_at IS NULL AND expires_at > ${at}
                RETURNING operator, role
              ), noted AS (
                INSERT INTO audit_log (at, operator, action) SELECT ${at}::bigint, ${
              sql.literal(NAMED)
            }, 'open console session' FROM used
              )
              INSERT INTO console_access (id, kind, token_hash, operator, role, created_at, last_used_at, expires_at)
              SELECT ${id}, 'session',
                CASE role WHEN 'viewer' THEN ${hashes.viewer}::bytea WHEN 'moderator' THEN ${hashes.moderator}::bytea ELSE ${hashes.operator}::bytea END,
                operator, role, ${at}::bigint, ${at}::bigint, ${expiresAt}::bigint FROM used
              RETURNING ${columns}`,
            (rows) => rows[0]
          ),
        find: (kind, hashes, at) =>
          Effect.gen(function*() {
            const [row] = yield* query<AccessRow>`
              SELECT ${columns} FROM console_access
              WHERE ${matches(hashes)} AND kind = ${kind} AND ended_at IS NULL AND expires_at > ${at}`
            if (row !== undefined && at - (row.lastUsedAt ?? 0) > USED_MS) {
              yield* query`UPDATE console_access SET last_used_at = ${at} WHERE id = ${row.id}`
            }
            return row
          }),
        living: (at) =>
          query<AccessRow>`
            SELECT ${columns} FROM console_access
            WHERE (kind = 'session' OR (kind = 'token' AND expires_at - created_at > ${COMMAND_TOKEN_MS}))
              AND ended_at IS NULL AND expires_at > ${at}
            ORDER BY created_at DESC, id`,
        end: (id, operator, at) =>
          Effect.map(
            query`
              WITH done AS (
                UPDATE console_access SET ended_at = ${at}
                WHERE id = ${id} AND kind <> 'link' AND ended_at IS NULL AND expires_at > ${at} RETURNING id
              ), noted AS (
                INSERT INTO audit_log (at, operator, action, reason) SELECT ${at}::bigint, ${operator}, 'end console access', id FROM done
              )
              SELECT id FROM done`,
            (rows) => rows.length > 0
          )
      })
    })
  )
}
