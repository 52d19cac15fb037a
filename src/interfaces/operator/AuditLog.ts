import { MASKED } from "#domain/agents/Agent"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"

/** The operator of an action, and the reason for it. */
export interface Because {
  readonly operator: string
  readonly reason: string | null
}

export interface AuditEntry {
  readonly no: number
  readonly at: number
  /**
   * Null for enforcement. `server` for events that no operator causes, such as the beginning and the end of a
   * connection.
   */
  readonly operator: string | null
  readonly action: string
  /** A handle; null if the entry concerns no single agent. */
  readonly agent: string | null
  readonly detail: string | null
}

/**
 * The action of an entry for a token with which `npm run admin` calls a running server for one minute. The action
 * counts as a read, because the calls with the token have their own entries.
 */
export const ASKS = "ask a server"

/** A new entry. The names of actions that only read begin with `show` or `list`, or are `ASKS`. */
export interface AuditNote {
  readonly operator: string
  readonly action: string
  /** A normalised handle, or null. */
  readonly handle: string | null
  /** Pass the URL of a request through `withoutAddresses` first. */
  readonly detail: string | null
}

/** Matches a part of a URL that contains an e-mail address. A handle after an `@` is not an address. */
const ADDRESS = /^.+(?:@|%40)/i

/**
 * The URL of an operator's request, as the audit log stores it. E-mail addresses are masked, and also the beginnings of
 * addresses for which an operator has searched. An address in the log would remain after the erasure of its agent.
 */
export const withoutAddresses = (url: string): string =>
  url.replace(/[^/?&=]+/g, (part) => ADDRESS.test(part) ? MASKED : part).replace(/([?&]email=)[^&]*/g, `$1${MASKED}`)

/**
 * Logs a note that could not be written into the audit log. Operators must be able to find out why a database accepts no
 * writes, and what they do must be recorded somewhere.
 */
export const loggedInstead = (note: AuditNote) => (error: unknown): Effect.Effect<void> =>
  Effect.logWarning("An action of an operator could not be written into the audit log", error).pipe(
    Effect.annotateLogs({ ...note })
  )

/**
 * The audit log (wire.md O.1). Rows are only added. The row of a change is written in the change's transaction, by the
 * statement of the change itself (for suspensions, in `EnforcementRepo`) or by `note`. `ConsoleAuthorization` writes
 * the rows of reads. An erasure masks the agent's address in rows that contain it
 * (src/domain/accounts/ErasuresRepo.ts).
 */
export class AuditLog extends Context.Service<AuditLog, {
  readonly note: (note: AuditNote) => Effect.Effect<void, Unavailable>
  /**
   * Entries with a number below `before`, the newest first. Null selects the entries about all agents, or by all
   * operators. `looks` includes actions that only read.
   */
  readonly list: (query: {
    readonly handle: string | null
    readonly operator: string | null
    readonly looks: boolean
    readonly before: number | null
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<AuditEntry>, Unavailable>
}>()("parley/operator/AuditLog") {
  static readonly layer = Layer.effect(
    AuditLog,
    Effect.map(Effect.all([Database, SqlClient.SqlClient]), ([{ query }, sql]) =>
      AuditLog.of({
        note: Effect.fnUntraced(function*({ action, detail, handle, operator }) {
          const at = yield* Clock.currentTimeMillis
          yield* query`
            INSERT INTO audit_log (at, operator, action, agent_id, reason)
            VALUES (${at}, ${operator}, ${action}, (SELECT id FROM agents WHERE handle = ${handle}), ${detail})`
        }),
        list: ({ before, handle, limit, looks, operator }) =>
          query<AuditEntry>`
            SELECT l.no, l.at, l.operator, l.action, a.handle AS agent, l.reason AS detail
            FROM audit_log l LEFT JOIN agents a ON a.id = l.agent_id
            WHERE ${before === null ? sql`true` : sql`l.no < ${before}`}
              AND ${handle === null ? sql`true` : sql`l.agent_id = (SELECT id FROM agents WHERE handle = ${handle})`}
              AND ${
            operator === null
              ? sql`true`
              : sql`l.operator IN (${operator}, ${operator}::text || ' (viewer)', ${operator}::text || ' (moderator)')`
          }
              AND ${
            looks ? sql`true` : sql`l.action NOT LIKE 'show%' AND l.action NOT LIKE 'list%' AND l.action <> ${ASKS}`
          }
            ORDER BY l.no DESC LIMIT ${limit}`
      }))
  )
}
