import { Grants } from "#domain/oauth/Grants"
import type { StoredGrant } from "#domain/oauth/GrantsRepo"
import { concerns, type RefusedClient } from "#domain/oauth/Refusals"
import { Database } from "#infrastructure/database/Sql"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import type { AgentAccount } from "./AgentAccount.ts"
import { AuditLog, type Because, withoutAddresses } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/** A client or a redirect host that an operator has refused. The time is in milliseconds. */
export interface Refusal extends RefusedClient {
  readonly operator: string
  readonly at: number
  readonly reason: string | null
}

const MAX_REFUSALS = 1_000
/** How many UTF-16 units of a client's id the audit log stores. */
const DETAIL_LENGTH = 300

const nameOf = (kind: RefusedClient["kind"]): string => kind === "client" ? "client" : "redirect host"
const detailOf = (value: string, reason: string | null): string => {
  const shown = withoutAddresses(value).slice(0, DETAIL_LENGTH)
  return reason === null ? shown : `${shown}: ${reason}`
}

/**
 * The OAuth connections, as operators see them, and the actions of operators on connections. Every action writes an
 * audit row, and every connection that ends writes another. When an operator refuses a client or a redirect host, the
 * audit row is committed together with the refusal. For all other actions, the row is written before the action.
 */
export class GrantAdmin extends Context.Service<GrantAdmin, {
  /** How many live connections all agents have. */
  readonly count: Effect.Effect<number, Unavailable>
  /** The live connections of an agent, the newest first. */
  readonly list: (agentId: string) => Effect.Effect<ReadonlyArray<StoredGrant>, Unavailable>
  /** Ends all connections of an agent, and returns their number. */
  readonly endOf: (agent: AgentAccount, because: Because) => Effect.Effect<number, Unavailable>
  /** Ends the connections of all agents, and returns their number. */
  readonly endAll: (because: Because) => Effect.Effect<number, Unavailable>
  /** All refusals, the newest first. */
  readonly refusals: Effect.Effect<ReadonlyArray<Refusal>, Unavailable>
  /** Refuses a client or a redirect host from now on, ends its connections, and returns their number. */
  readonly refuse: (refused: RefusedClient, because: Because) => Effect.Effect<number, Conflict | Unavailable>
  /** Ends a refusal. Connections that it has ended stay ended. */
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
          // A client that is already refused may still have connections, if a server stopped before it had ended all of
          // them.
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
