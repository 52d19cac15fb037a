import { SharedPoll } from "#infrastructure/database/SharedPoll"
import { Database } from "#infrastructure/database/Sql"
import { type OwnedTable, SELF, SMALL } from "#infrastructure/database/Tables"
import { Config } from "#infrastructure/platform/Config"
import { Limits } from "#infrastructure/rates/Limits"
import type { LimitName } from "#infrastructure/rates/RateRule"
import { NotFound, type Unavailable, type ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { NO_AGENT } from "./AgentAccount.ts"
import { AgentAdmin } from "./AgentAdmin.ts"
import { Conflict } from "./Conflict.ts"
import {
  checkScope,
  checkValue,
  limitNamed,
  limitNames,
  type LimitState,
  limitState,
  type StoredChange
} from "./LimitRules.ts"

/** How long the start of a server waits for the changes if the database does not respond. */
const FIRST_READ_TIMEOUT = "2 seconds"
/** How many changes may be in force. Further changes are refused. */
const MAX_CHANGES = 10_000

const CHANGES = `
SELECT c.name, NULLIF(c.agent_id, '') AS "agentId", a.handle, c.value, c.until, c.operator, c.changed_at AS at, c.reason
FROM limit_changes c LEFT JOIN agents a ON a.id = c.agent_id
WHERE c.until IS NULL OR c.until > $1 ORDER BY c.name, c.changed_at LIMIT ${MAX_CHANGES}`

/** The table of the limits that operators have changed. */
export const limitChangesTables: ReadonlyArray<OwnedTable> = [
  {
    table: "limit_changes",
    retention: { kept: "operators undo a change, or say until when it holds" },
    deletion: "keeps",
    erasure: { removes: ["traces"], keeps: [], few: "limits" },
    exports: [
      {
        name: "limits",
        about: "Limits that operators have changed for it.",
        columns: ["name", "value", "until", "operator", "changed_at", "reason"],
        without: { agent_id: SELF },
        key: [["name", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]

/** A change of a limit for the agent with this handle, or for all agents. An operator makes or resets it. */
export interface Change {
  readonly name: string
  readonly agent: string | null
  readonly operator: string
}

/**
 * The limits that operators have changed. Changes are rows in the database, which every node reads into `Limits` at each
 * poll. So no change is lost, not even in a restart. While the database does not respond, the changes that were
 * read last stay in force.
 */
export class LimitChanges extends Context.Service<LimitChanges, {
  /** The value of every limit that is in force for the agent with this handle, or for all agents. */
  readonly list: (agent: string | null) => Effect.Effect<ReadonlyArray<LimitState>, NotFound | Unavailable>
  /**
   * Stores a change. It replaces an earlier change of the same limit and agent, and is in force on this node at once.
   * `until` is in milliseconds.
   */
  readonly change: (
    change: Change & { readonly value: number; readonly until: number | null; readonly reason: string | null }
  ) => Effect.Effect<LimitState, NotFound | Conflict | ValidationFailed | Unavailable>
  /** Ends a change. Fails if the change does not exist. */
  readonly takeBack: (change: Change) => Effect.Effect<LimitState, NotFound | Unavailable>
}>()("parley/operator/LimitChanges") {
  /** `changeable` are the limits that the server reads at each use. All other limits are read only at startup. */
  static readonly layer = (changeable: ReadonlySet<LimitName>) =>
    Layer.effect(
      LimitChanges,
      Effect.gen(function*() {
        const agents = yield* AgentAdmin
        const config = yield* Config
        const limits = yield* Limits
        const polls = yield* SharedPoll
        const { prepared, query } = yield* Database
        const read = prepared<StoredChange>("limit_changes", CHANGES)
        const params = Effect.map(Clock.currentTimeMillis, (now) => [now])

        const stored = Effect.flatMap(params, read)
        /** Puts the changes into force on this node. */
        const apply = (changes: ReadonlyArray<StoredChange>) => Effect.sync(() => limits.set(changes))
        const look = Effect.tap(stored, apply)
        // Read the changes before any request is served, so that they apply to the first request after a restart.
        yield* Effect.timeoutOption(
          Effect.catchCause(look, (cause) =>
            Effect.logDebug("The limits that operators changed could not be read", cause)),
          FIRST_READ_TIMEOUT
        )
        yield* polls.add({ name: "limits", select: CHANGES, params, handle: apply })

        const idOf = Effect.fnUntraced(function*(handle: string | null) {
          if (handle === null)
            return null
          const agent = yield* agents.find(handle)
          return agent.deletedAt === null ? agent.id : yield* new NotFound({ message: NO_AGENT })
        })

        return LimitChanges.of({
          list: Effect.fnUntraced(function*(agent) {
            const agentId = yield* idOf(agent)
            const changes = yield* stored
            return limitNames.map((name) =>
              limitState(name, config, changeable, changes, agentId)
            )
          }),
          change: Effect.fnUntraced(function*({ agent, operator, reason, until, value, ...change }) {
            const at = yield* Clock.currentTimeMillis
            const name = yield* Effect.fromResult(limitNamed(change.name))
            yield* Effect.fromResult(checkValue(name, value, changeable))
            const agentId = yield* idOf(agent)
            yield* Effect.fromResult(checkScope(name, agentId, until, at))
            const detail = `${name} = ${value}${until === null ? "" : ` until ${new Date(until).toISOString()}`}${
              reason === null ? "" : `: ${reason}`
            }`
            const rows = yield* query`
            WITH gone AS (DELETE FROM limit_changes WHERE until <= ${at}),
            done AS (
              INSERT INTO limit_changes (name, agent_id, value, until, operator, changed_at, reason)
              SELECT ${name}, ${
              agentId ?? ""
            }, ${value}::bigint, ${until}::bigint, ${operator}, ${at}::bigint, ${reason}
              WHERE (SELECT count(*) FROM limit_changes) < ${MAX_CHANGES}
              ON CONFLICT (name, agent_id) DO UPDATE SET value = excluded.value, until = excluded.until,
                operator = excluded.operator, changed_at = excluded.changed_at, reason = excluded.reason
              RETURNING name
            ), noted AS (
              INSERT INTO audit_log (at, operator, action, agent_id, reason)
              SELECT ${at}::bigint, ${operator}, 'change limit', ${agentId}, ${detail} FROM done
            )
            SELECT name FROM done`
            const changes = yield* look
            if (rows.length === 0)
              return yield* new Conflict({ message: "Too many limits are changed: reset some of them first." })
            return limitState(name, config, changeable, changes, agentId)
          }),
          takeBack: Effect.fnUntraced(function*({ agent, operator, ...change }) {
            const at = yield* Clock.currentTimeMillis
            const name = yield* Effect.fromResult(limitNamed(change.name))
            const agentId = yield* idOf(agent)
            const rows = yield* query`
            WITH done AS (
              DELETE FROM limit_changes WHERE name = ${name} AND agent_id = ${agentId ?? ""} RETURNING name
            ), noted AS (
              INSERT INTO audit_log (at, operator, action, agent_id, reason)
              SELECT ${at}::bigint, ${operator}, 'take limit back', ${agentId}, name FROM done
            )
            SELECT name FROM done`
            const changes = yield* look
            if (rows.length === 0) return yield* new NotFound({ message: "This limit has not been changed." })
            return limitState(name, config, changeable, changes, agentId)
          })
        })
      })
    ).pipe(Layer.provide(AgentAdmin.layer))
}
