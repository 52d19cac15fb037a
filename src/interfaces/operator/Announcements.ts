import { Accounts } from "#domain/agents/Accounts"
import { SYSTEM } from "#domain/agents/Agent"
import { SystemMessages } from "#domain/direct/SystemMessages"
import type { Batch } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { Ids } from "#infrastructure/platform/Ids"
import type { NotFound, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { AgentAccount } from "./AgentAccount.ts"
import { notDeleted } from "./AgentAdmin.ts"
import { AuditLog } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/**
 * How many agents one transaction of the job tells. Sends to them wait for it.
 */
const BATCH_AGENTS = 50

/**
 * How old an announcement is when the job begins, in milliseconds. By then, every registration that began before it is
 * committed.
 */
const SETTLED_MS = 5_000

/** An announcement to all agents. Times are in milliseconds. */
export interface Announcement {
  readonly id: string
  readonly text: string
  readonly createdAt: number
  /** How many agents were told so far. */
  readonly told: number
  /** When the last agent got the message; null before. */
  readonly finishedAt: number | null
}

/** The refusal if an agent has the reserved handle, from a time before it was reserved. */
export const noSystem = (): Conflict =>
  new Conflict({ message: `An agent has the handle ${SYSTEM.handle}, in whose name agents are told. Delete it first.` })

/** The messages of operators to agents (wire.md T). The audit row of an announcement is committed with it. */
export class Announcements extends Context.Service<Announcements, {
  /** Tells one agent. The message is stored when this completes. */
  readonly tell: (
    agent: AgentAccount,
    text: string,
    operator: string
  ) => Effect.Effect<void, NotFound | Conflict | Unavailable>
  /** Begins to tell all agents that are registered by now. A job tells them. */
  readonly tellAll: (text: string, operator: string) => Effect.Effect<Announcement, Conflict | Unavailable>
  /** The announcements made before `before`, the newest first. */
  readonly list: (
    before: { readonly at: number; readonly id: string } | null,
    limit: number
  ) => Effect.Effect<ReadonlyArray<Announcement>, Unavailable>
  /** Tells the next agents of the oldest announcement that is not finished. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/operator/Announcements") {
  static readonly layer = Layer.effect(
    Announcements,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const audit = yield* AuditLog
      const ids = yield* Ids
      const messages = yield* SystemMessages
      const { query, transaction } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const columns = sql.literal(`id, text, created_at AS "createdAt", told, finished_at AS "finishedAt"`)

      const ensureSystem = Effect.flatMap(
        accounts.ensureSystem,
        (isThere) => isThere ? Effect.void : Effect.fail(noSystem())
      )

      /** The oldest announcement that is not finished. */
      const oldest = Effect.flatMap(
        Clock.currentTimeMillis,
        (now) =>
          query<{ readonly id: string }>`
            SELECT id FROM announcements WHERE finished_at IS NULL AND created_at <= ${now - SETTLED_MS}
            ORDER BY created_at, id LIMIT 1`
      )

      /** One step of the job: the messages that it has stored. */
      const step = Effect.fnUntraced(function*(id: string) {
        const [next] = yield* query<{ id: string; text: string; created_at: number; through: string }>`
          SELECT id, text, created_at, through FROM announcements WHERE id = ${id} AND finished_at IS NULL FOR UPDATE`
        if (next === undefined) return []
        const agents = yield* query<{ readonly id: string }>`
          SELECT id FROM agents WHERE id > ${next.through} AND created_at <= ${next.created_at} AND deleted_at IS NULL
          ORDER BY id LIMIT ${BATCH_AGENTS}`
        const stored = yield* messages.store(next.text, agents.map(({ id }) => id))
        const now = yield* Clock.currentTimeMillis
        yield* query`
          UPDATE announcements SET through = ${agents.at(-1)?.id ?? next.through}, told = told + ${stored.length},
            finished_at = ${agents.length < BATCH_AGENTS ? now : null}::bigint
          WHERE id = ${next.id}`
        return stored
      })

      return Announcements.of({
        tell: Effect.fn("Announcements.tell")(function*(agent, text, operator) {
          yield* notDeleted(agent)
          yield* ensureSystem
          const stored = yield* transaction(Effect.gen(function*() {
            yield* audit.note({ operator, action: "announce", handle: agent.handle, detail: text })
            const stored = yield* messages.store(text, [agent.id])
            return stored.length > 0
              ? stored
              : yield* new Conflict({ message: `${agent.handle} was deleted meanwhile.` })
          }))
          messages.publish(stored)
        }, Effect.uninterruptible),
        tellAll: Effect.fn("Announcements.tellAll")(function*(text, operator) {
          yield* ensureSystem
          const createdAt = yield* Clock.currentTimeMillis
          const id = ids.make("ann")
          yield* transaction(Effect.andThen(
            query`INSERT INTO announcements (id, text, created_at) VALUES (${id}, ${text}, ${createdAt})`,
            audit.note({ operator, action: "announce", handle: null, detail: text })
          ))
          return { id, text, createdAt, told: 0, finishedAt: null }
        }),
        list: (before, limit) =>
          query<Announcement>`
            SELECT ${columns} FROM announcements
            WHERE ${before === null ? sql`true` : sql`(created_at, id) < (${before.at}::bigint, ${before.id}::text)`}
            ORDER BY created_at DESC, id DESC LIMIT ${limit}`,
        sweep: Effect.gen(function*() {
          const [next] = yield* oldest
          if (next === undefined) return { rows: 0, more: false }
          const stored = yield* transaction(step(next.id))
          messages.publish(stored)
          return { rows: stored.length, more: true }
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
