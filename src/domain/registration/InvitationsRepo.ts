import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"

/** An invitation that has uses left and has not ended. */
export interface OpenInvitation {
  readonly id: string
  /** The only address that it admits, or null. */
  readonly email: string | null
}

/** The statements on invitations that registrations need. */
export class InvitationsRepo extends Context.Service<InvitationsRepo, {
  /** The open invitation with this hash of its code. */
  readonly byCode: (hash: Buffer, now: number) => Effect.Effect<OpenInvitation | undefined, Unavailable>
  /** The open invitation that names this address; of several, the one that ends first. */
  readonly byEmail: (email: string, now: number) => Effect.Effect<OpenInvitation | undefined, Unavailable>
  /**
   * The invitation, if it is still open. Locks it until the end of the caller's transaction, so that of any number of
   * registrations at once only as many are admitted as it has uses.
   */
  readonly lock: (id: string, now: number) => Effect.Effect<OpenInvitation | undefined, Unavailable>
  /** Counts a use of a locked invitation. */
  readonly use: (id: string) => Effect.Effect<void, Unavailable>
}>()("parley/registration/InvitationsRepo") {
  static readonly layer = Layer.effect(
    InvitationsRepo,
    Effect.map(Effect.all([Database, SqlClient.SqlClient]), ([{ query }, sql]) => {
      const isOpen = (now: number) => sql`used < uses AND expires_at > ${now}`
      const first = (rows: Effect.Effect<ReadonlyArray<OpenInvitation>, Unavailable>) =>
        Effect.map(rows, ([row]) => row)
      return InvitationsRepo.of({
        byCode: (hash, now) =>
          first(query`SELECT id, email FROM invitations WHERE code_hash = ${hash} AND ${isOpen(now)}`),
        byEmail: (email, now) =>
          first(query`
            SELECT id, email FROM invitations WHERE email = ${email} AND ${
            isOpen(now)
          } ORDER BY expires_at, id LIMIT 1`),
        lock: (id, now) =>
          first(query`SELECT id, email FROM invitations WHERE id = ${id} AND ${isOpen(now)} FOR UPDATE`),
        use: (id) => Effect.asVoid(query`UPDATE invitations SET used = used + 1 WHERE id = ${id}`)
      })
    })
  )
}
