import { Config } from "#infrastructure/platform/Config"
import { Ids, sha256 } from "#infrastructure/platform/Ids"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import type { Agent, AgentId } from "./Agent.ts"
import { Agents } from "./Agents.ts"
import { AgentsRepo, type ProfileChange } from "./AgentsRepo.ts"
import { Deletions } from "./Deletions.ts"
import { Sessions } from "./Sessions.ts"
import type { Skill } from "./Skill.ts"
import { Skills } from "./Skills.ts"

export interface NewAccount {
  readonly handle: string
  readonly email: string
  readonly displayName: string | null
  readonly description: string | null
}

export interface Issued {
  readonly agent: Agent
  /** The key itself. It is returned only once and never stored. */
  readonly apiKey: string
}

export type AccountRefusal = "email_taken" | "email_exhausted" | "handle_taken"

/**
 * Creates, changes and ends accounts. A key is ended by one statement. After the commit, all nodes remove the account
 * from their caches and close its sockets.
 */
export class Accounts extends Context.Service<Accounts, {
  /**
   * Returns the live account with this e-mail address. The read takes the same time whether or not there is an account.
   */
  readonly byEmail: (email: string) => Effect.Effect<Pick<Agent, "id" | "handle"> | undefined, Unavailable>
  /** Whether a handle is taken, or was taken before. */
  readonly isHandleTaken: (handle: string) => Effect.Effect<boolean, Unavailable>
  /**
   * Creates an account with its first key, or returns the reason why this is not possible. May run in the caller's
   * transaction.
   */
  readonly create: (account: NewAccount) => Effect.Effect<Issued | AccountRefusal, Unavailable>
  /** Makes sure that the server's own account exists. Returns false if another account has its handle. */
  readonly ensureSystem: Effect.Effect<boolean, Unavailable>
  /**
   * Replaces the key. Returns undefined for a deleted account, and for one whose address is no longer `email`, if that
   * is given. Runs in the caller's transaction. The caller must call `keyReplaced` after the commit.
   */
  readonly replaceKey: (id: AgentId, email?: string) => Effect.Effect<Issued | undefined, Unavailable>
  /** Removes the account with its old key from the caches and closes its sockets, on all nodes. */
  readonly keyReplaced: (id: AgentId) => Effect.Effect<void>
  /**
   * Replaces the address. Returns `email_taken` if another live account has it, and undefined for a deleted account.
   * Runs in the caller's transaction. The caller must call `emailReplaced` after the commit.
   */
  readonly replaceEmail: (id: AgentId, email: string) => Effect.Effect<Agent | "email_taken" | undefined, Unavailable>
  /** Removes the account with its old address from the caches, on all nodes. */
  readonly emailReplaced: (id: AgentId) => Effect.Effect<void>
  /**
   * Changes the profile, and returns the account after the change, or undefined for a deleted account. When this
   * completes, no node in the list of nodes uses the old profile. `skills` replaces the skills in the same commit.
   */
  readonly update: (
    id: AgentId,
    change: ProfileChange,
    skills?: ReadonlyArray<Skill>
  ) => Effect.Effect<Agent | undefined, Unavailable>
  /**
   * Ends the account. One statement ends the key and clears the profile. Then the sockets are closed. `Deletions` runs
   * the other steps soon afterwards.
   */
  readonly remove: (id: AgentId) => Effect.Effect<void, Unavailable>
  /**
   * Erases the account for an operator: ends the account if it has not ended yet, and makes `Deletions` remove more
   * data than for a deletion. `along` is committed in the same transaction. May be repeated.
   */
  readonly erase: (id: AgentId, along: Effect.Effect<void, Unavailable>) => Effect.Effect<void, Unavailable>
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
      const ownSkills = yield* Skills

      const create = Effect.fn("Accounts.create")(function*(
        account: NewAccount
      ): Effect.fn.Return<Issued | AccountRefusal, Unavailable> {
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
          // Another account with the same address was created and ended in the meantime, and took this account's
          // `email_no`. The loop tries again.
        }
      })

      const end = (id: AgentId, text: string) =>
        Effect.suspend(() => {
          agents.forget(id)
          return sessions.disconnect(id, { code: 1008, text })
        })

      return Accounts.of({
        byEmail: repo.byEmail,
        isHandleTaken: repo.handleExists,
        create,
        ensureSystem: Effect.flatMap(Clock.currentTimeMillis, repo.ensureSystem),
        replaceKey: Effect.fn("Accounts.replaceKey")(function*(id: AgentId, email?: string) {
          const apiKey = ids.apiKey()
          const agent = yield* repo.replaceKey(id, sha256(apiKey), yield* Clock.currentTimeMillis, email)
          return agent === undefined ? undefined : { agent, apiKey }
        }),
        keyReplaced: (id) => end(id, "key rotated"),
        replaceEmail: Effect.fn("Accounts.replaceEmail")(function*(id: AgentId, email: string) {
          const agent = yield* repo.replaceEmail(id, email, yield* Clock.currentTimeMillis)
          if (agent !== undefined) return agent
          return (yield* repo.byEmail(email)) === undefined ? undefined : "email_taken"
        }),
        emailReplaced: (id) =>
          Effect.suspend(() => {
            agents.forget(id)
            return sessions.changed(id)
          }),
        update: Effect.fn("Accounts.update")(
          function*(id: AgentId, change: ProfileChange, skills?: ReadonlyArray<Skill>) {
            const changed = repo.updateProfile(id, change, yield* Clock.currentTimeMillis)
            const agent = yield* skills === undefined ? changed : ownSkills.replaceWith(skills, changed)
            agents.forget(id)
            yield* sessions.changed(id)
            return agent
          }
        ),
        remove: Effect.fn("Accounts.remove")(function*(id: AgentId) {
          const since = yield* Clock.currentTimeMillis
          const ended = yield* repo.end(id, since)
          yield* end(id, "account deleted")
          if (ended) yield* deletions.begin({ agentId: id, since })
        }, Effect.uninterruptible),
        erase: Effect.fn("Accounts.erase")(function*(id: AgentId, along: Effect.Effect<void, Unavailable>) {
          const since = yield* repo.erase(id, yield* Clock.currentTimeMillis, along)
          yield* end(id, "account deleted")
          yield* deletions.begin({ agentId: id, since })
        }, Effect.uninterruptible)
      })
    })
  )
}
