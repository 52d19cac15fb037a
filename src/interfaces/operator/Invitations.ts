import { MASKED } from "#domain/agents/Agent"
import { Database } from "#infrastructure/database/Sql"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { AuditLog } from "./AuditLog.ts"

/** An invitation, as operators see it. Times are in milliseconds. */
export interface Invitation {
  readonly id: string
  readonly email: string | null
  readonly note: string | null
  readonly uses: number
  readonly used: number
  readonly createdAt: number
  readonly expiresAt: number
}

/**
 * The invitations with which people register (wire.md T), and the actions of operators on them. The audit row of an
 * action is committed with it.
 */
export class Invitations extends Context.Service<Invitations, {
  /** Makes an invitation. The code is returned only here and never stored. */
  readonly create: (given: {
    readonly uses: number
    readonly lifetimeMs: number
    readonly email: string | null
    readonly note: string | null
    readonly operator: string
  }) => Effect.Effect<{ readonly invitation: Invitation; readonly code: string }, Unavailable>
  /** Invitations made before `before`, the newest first, those that have ended included for a month. */
  readonly list: (
    before: { readonly at: number; readonly id: string } | null,
    limit: number
  ) => Effect.Effect<ReadonlyArray<Invitation>, Unavailable>
  /** Ends an invitation. Codes that it admitted and that were mailed already admit nobody any more. */
  readonly end: (id: string, operator: string) => Effect.Effect<Invitation, NotFound | Unavailable>
}>()("parley/operator/Invitations") {
  static readonly layer = Layer.effect(
    Invitations,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const ids = yield* Ids
      const { query, transaction } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const columns = sql.literal(
        `id, email, note, uses, used, created_at AS "createdAt", expires_at AS "expiresAt"`
      )
      return Invitations.of({
        create: Effect.fn("Invitations.create")(function*({ email, lifetimeMs, note, operator, uses }) {
          const createdAt = yield* Clock.currentTimeMillis
          const invitation = {
            id: ids.make("ivt"),
            email,
            note,
            uses,
            used: 0,
            createdAt,
            expiresAt: createdAt + lifetimeMs
          }
          const code = `inv_${ids.bytes(32).toString("base64url")}`
          const detail = [
            invitation.id,
            uses === 1 ? "1 use" : `${uses} uses`,
            ...email === null ? [] : [`for ${MASKED}`],
            ...note === null ? [] : [note]
          ].join(", ")
          yield* transaction(Effect.andThen(
            query`
              INSERT INTO invitations (id, code_hash, email, note, uses, created_at, expires_at)
              VALUES (${invitation.id}, ${
              sha256(code)
            }, ${email}, ${note}, ${uses}, ${createdAt}, ${invitation.expiresAt})`,
            audit.note({ operator, action: "invite", handle: null, detail })
          ))
          return { invitation, code }
        }),
        list: (before, limit) =>
          query<Invitation>`
            SELECT ${columns} FROM invitations
            WHERE ${before === null ? sql`true` : sql`(created_at, id) < (${before.at}::bigint, ${before.id}::text)`}
            ORDER BY created_at DESC, id DESC LIMIT ${limit}`,
        end: Effect.fn("Invitations.end")(function*(id, operator) {
          const now = yield* Clock.currentTimeMillis
          return yield* transaction(Effect.gen(function*() {
            const [invitation] = yield* query<Invitation>`
              UPDATE invitations SET expires_at = LEAST(expires_at, ${now}) WHERE id = ${id} RETURNING ${columns}`
            if (invitation === undefined) return yield* new NotFound({ message: "No invitation has this id." })
            yield* audit.note({ operator, action: "end invitation", handle: null, detail: id })
            return invitation
          }))
        })
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}
