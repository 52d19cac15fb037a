import { Clock, Context, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { Config } from "../platform/Config.ts"
import { Ids, sha256 } from "../platform/Ids.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import type { Unavailable } from "../wire/WireError.ts"
import { Sessions } from "./Sessions.ts"
import type { Agent, AgentId } from "./Agent.ts"
import { Agents } from "./Agents.ts"
import { AgentsRepo, type ProfileChange } from "./AgentsRepo.ts"
import { Deletions } from "./Deletions.ts"

export interface NewAccount {
  readonly handle: string
  readonly email: string
  readonly displayName: string | null
  readonly description: string | null
}

export interface Issued {
  readonly agent: Agent
  /** Told once, kept nowhere. */
  readonly apiKey: string
}

export type Refused = "email_taken" | "email_exhausted" | "handle_taken"

/**
 * The making, changing and ending of accounts. What ends a key is one statement;
 * after its commit the caches of this node forget the account and its sockets are
 * closed.
 */
export class Accounts extends Context.Service<Accounts, {
  /** The live account of an address, as it is now. */
  readonly byEmail: (email: string) => Effect.Effect<Agent | undefined, Unavailable>
  /** Whether a handle is, or ever was, somebody's. */
  readonly isHandleTaken: (handle: string) => Effect.Effect<boolean, Unavailable>
  /** Makes an account with its first key, or says what stands in the way. May run in the caller's transaction. */
  readonly create: (account: NewAccount) => Effect.Effect<Issued | Refused, SqlError.SqlError>
  /**
   * Puts a new key in the place of the old one; undefined for a deleted account. May
   * run in the caller's transaction, who calls `keyReplaced` after its commit.
   */
  readonly replaceKey: (id: AgentId) => Effect.Effect<Issued | undefined, SqlError.SqlError>
  /** Ends what the old key could still do: cached on this node, and on sockets everywhere. */
  readonly keyReplaced: (id: AgentId) => Effect.Effect<void>
  /** The profile after the change; undefined for a deleted account. Once this completes, no listed node reads it as it was before. */
  readonly update: (id: AgentId, change: ProfileChange) => Effect.Effect<Agent | undefined, Unavailable>
  /** Ends the account: dead from one statement on, its sockets closed; the rest is done soon, if not at once (Deletions). */
  readonly remove: (id: AgentId) => Effect.Effect<void, Unavailable>
}>()("parley/agents/Accounts") {
  static readonly layer = Layer.effect(
    Accounts,
    Effect.gen(function*() {
      const agents = yield* Agents
      const config = yield* Config
      const ids = yield* Ids
      const deletions = yield* Deletions
      const repo = yield* AgentsRepo
      const sessions = yield* Sessions

      const create = Effect.fn("Accounts.create")(function*(
        account: NewAccount
      ): Effect.fn.Return<Issued | Refused, SqlError.SqlError> {
        for (;;) {
          const apiKey = ids.apiKey()
          const agent = yield* repo.insert(
            { ...account, id: ids.make("agt"), keyHash: sha256(apiKey) },
            yield* Clock.currentTimeMillis,
            config.LIMITS_REGISTRATIONS_PER_EMAIL
          )
          if (agent !== undefined) return { agent, apiKey }
          const obstacles = yield* repo.obstacles(account.handle, account.email)
          if (obstacles.emailTaken) return "email_taken"
          if (obstacles.lifetime >= config.LIMITS_REGISTRATIONS_PER_EMAIL) return "email_exhausted"
          if (obstacles.handleTaken) return "handle_taken"
          // Another account of the address was made and ended in between: its number is known now.
        }
      })

      const end = (id: AgentId, text: string) =>
        Effect.suspend(() => {
          agents.forget(id)
          return sessions.disconnect(id, { code: 1008, text })
        })

      return Accounts.of({
        byEmail: (email) => unavailableOnSqlError(repo.byEmail(email)),
        isHandleTaken: (handle) => unavailableOnSqlError(repo.handleExists(handle)),
        create,
        replaceKey: Effect.fn("Accounts.replaceKey")(function*(id: AgentId) {
          const apiKey = ids.apiKey()
          const agent = yield* repo.replaceKey(id, sha256(apiKey), yield* Clock.currentTimeMillis)
          return agent === undefined ? undefined : { agent, apiKey }
        }),
        keyReplaced: (id) => end(id, "key rotated"),
        update: Effect.fn("Accounts.update")(function*(id: AgentId, change: ProfileChange) {
          const agent = yield* repo.updateProfile(id, change, yield* Clock.currentTimeMillis)
          agents.forget(id)
          yield* sessions.changed(id)
          return agent
        }, unavailableOnSqlError),
        remove: Effect.fn("Accounts.remove")(function*(id: AgentId) {
          const since = yield* Clock.currentTimeMillis
          const ended = yield* repo.end(id, since)
          yield* end(id, "account deleted")
          if (ended) yield* deletions.begin({ agentId: id, since })
        }, unavailableOnSqlError, Effect.uninterruptible)
      })
    })
  )
}
