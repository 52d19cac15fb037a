import type { Deletion } from "#domain/agents/Deletions"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** The rows of unfinished deletions. AgentsRepo writes each row in the statement that ends the account. */
export class DeletionsRepo extends Context.Service<DeletionsRepo, {
  /** Returns the deletions that are due. Those that have been due for the longest time come first. */
  readonly due: (at: number, limit: number) => Effect.Effect<ReadonlyArray<Deletion>, Unavailable>
  readonly postpone: (agentId: string, until: number) => Effect.Effect<void, Unavailable>
  /** Whether the account is also to be erased. */
  readonly isErasure: (agentId: string) => Effect.Effect<boolean, Unavailable>
  /** Deletes the row of a deletion, unless the deletion has become an erasure in the meantime. */
  readonly forget: (agentId: string, erase: boolean) => Effect.Effect<void, Unavailable>
}>()("parley/accounts/DeletionsRepo") {
  static readonly layer = Layer.effect(
    DeletionsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const due = database.prepared<{ agent_id: string; since: number }>(
        "due_deletions",
        "SELECT agent_id, since FROM deletions WHERE due_at <= $1 ORDER BY due_at LIMIT $2"
      )
      const postpone = database.prepared("postpone_deletion", "UPDATE deletions SET due_at = $2 WHERE agent_id = $1")
      const isErasure = database.prepared<{ erase: boolean }>(
        "is_erasure",
        "SELECT erase FROM deletions WHERE agent_id = $1"
      )
      const forget = database.prepared(
        "forget_deletion",
        "DELETE FROM deletions WHERE agent_id = $1 AND erase = $2::boolean"
      )
      return DeletionsRepo.of({
        due: (at, limit) =>
          Effect.map(due([at, limit]), (rows) => rows.map((row) => ({ agentId: row.agent_id, since: row.since }))),
        postpone: (agentId, until) => Effect.asVoid(postpone([agentId, until])),
        isErasure: (agentId) => Effect.map(isErasure([agentId]), ([row]) => row?.erase === true),
        forget: (agentId, erase) => Effect.asVoid(forget([agentId, erase]))
      })
    })
  )
}
