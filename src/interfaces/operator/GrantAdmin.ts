import { Grants } from "#domain/oauth/Grants"
import type { StoredGrant } from "#domain/oauth/GrantsRepo"
import { concerns, type RefusedClient } from "#domain/oauth/Refusals"
import { Database } from "#infrastructure/database/Sql"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import type { AgentAccount } from "./AgentAdmin.ts"
import { AuditLog, type Because, withoutAddresses } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/** A client, or the host of redirects, that an operator has refused; the time is in milliseconds. */
export interface Refusal extends RefusedClient {
  readonly operator: string
  readonly at: number
  readonly reason: string | null
}

const MAX_REFUSALS = 1_000
/** The longest part of a client's id in the audit log, in UTF-16 units. */
const DETAIL_LENGTH = 300

const nameOf = (kind: RefusedClient["kind"]): string => kind === "client" ? "client" : "redirect host"
const detailOf = (value: string, reason: string | null): string => {
  const shown = withoutAddresses(value).slice(0, DETAIL_LENGTH)
  return reason === null ? shown : `${shown}: ${reason}`
}

/**
 * What operators see of the connections by OAuth, and what they do to them. Every action has a row of its own in the
 * audit log, and every connection that ends has another row. The rows of refusals are written in the commit of the
 * change, the others before the action.
 */
export class GrantAdmin extends Context.Service<GrantAdmin, {
  /** The number of live connections of all agents. */
  readonly count: Effect.Effect<number, Unavailable>
  /** The live connections of an agent, the newest first. */
  readonly list: (agentId: string) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /** Ends all connections of an agent, and returns how many. */
  readonly endOf: (agent: AgentAccount, because: Because) => Effect.Effect<number, Unavailable>
  /** Ends all connections of the server, and returns how many. */
  readonly endAll: (because: Because) => Effect.Effect<number, Unavailable>
  /** The newest first. */
  readonly refusals: Effect.Effect<ReadonlyArray<Refusal>, Unavailable>
  /** Refuses a client or a host of redirects from now on, ends its connections, and returns how many. */
  readonly refuse: (refused: RefusedClient, because: Because) => Effect.Effect<number, Conflict | Unavailable>
  /** Ends a refusal. Connections that ended because of it do not come back. */
  readonly allow: (refused: RefusedClient, because: Because) => Effect.Effect<void, NotFound | Unavailable>
}>()("parley/operator/GrantAdmin") {
  static readonly layer = Layer.effect(
    GrantAdmin,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const connections = yield* Grants
      const { query } = yield* Database

      const refusals = query<Refusal>`
        SELECT kind, value, operator, refused_at AS at, reason FROM oauth_refusals ORDER BY refused_at DESC, kind, value LIMIT ${MAX_REFUSALS}`

      return GrantAdmin.of({
        count: Effect.map(
          query<{ readonly n: number }>`
            SELECT count(*) AS n FROM oauth_connections c JOIN agents a ON a.id = c.agent_id AND a.key_hash = c.key_hash`,
          ([row]) => row?.n ?? 0
        ),
        list: connections.list,
        endOf: Effect.fn("GrantAdmin.endOf")(function*(agent, { operator, reason }) {
          yield* audit.note({ operator, action: "end connections", handle: agent.handle, detail: reason })
          return yield* connections.endAllOf(agent.id, operator)
        }),
        endAll: Effect.fn("GrantAdmin.endAll")(function*({ operator, reason }) {
          yield* audit.note({ operator, action: "end all connections", handle: null, detail: reason })
          return yield* connections.endWhere(() => true, operator)
        }),
        refusals,
        refuse: Effect.fn("GrantAdmin.refuse")(function*(refused, { operator, reason }) {
          const at = yield* Clock.currentTimeMillis
          const { kind, value } = refused
          const rows = yield* query`
            WITH done AS (
              INSERT INTO oauth_refusals (kind, value, operator, refused_at, reason)
              SELECT ${kind}::text, ${value}::text, ${operator}::text, ${at}::bigint, ${reason}::text
              WHERE (SELECT count(*) FROM oauth_refusals) < ${MAX_REFUSALS}
              ON CONFLICT (kind, value) DO NOTHING
              RETURNING kind
            ), noted AS (
              INSERT INTO audit_log (at, operator, action, reason)
              SELECT ${at}::bigint, ${operator}::text, ${`refuse ${nameOf(kind)}`}::text, ${
            detailOf(value, reason)
          }::text FROM done
            )
            SELECT kind FROM done`
          // A client that was refused before may have connections left, if a server stopped before it had ended them
          // all.
          const ended = yield* connections.endWhere(
            ({ clientId, redirectUri }) => concerns(refused, clientId, redirectUri),
            operator
          )
          if (rows.length > 0) return ended
          const isKnown = (yield* refusals).some((one) => one.kind === kind && one.value === value)
          return yield* new Conflict({
            message: isKnown
              ? `This ${nameOf(kind)} is refused already.`
              : "Too many clients and hosts are refused: allow some of them first."
          })
        }),
        allow: Effect.fn("GrantAdmin.allow")(function*({ kind, value }, { operator, reason }) {
          const at = yield* Clock.currentTimeMillis
          const rows = yield* query`
            WITH done AS (
              DELETE FROM oauth_refusals WHERE kind = ${kind} AND value = ${value} RETURNING kind
            ), noted AS (
              INSERT INTO audit_log (at, operator, action, reason)
              SELECT ${at}::bigint, ${operator}::text, ${`allow ${nameOf(kind)}`}::text, ${
            detailOf(value, reason)
          }::text FROM done
            )
            SELECT kind FROM done`
          if (rows.length === 0) return yield* new NotFound({ message: `This ${nameOf(kind)} is not refused.` })
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
