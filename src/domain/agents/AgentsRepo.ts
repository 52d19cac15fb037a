import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type Agent, type AgentId, NO_MAILBOX, type Policy, statusAt, SYSTEM } from "./Agent.ts"

/** An account with the hash of its key. The hash is null after the account was deleted. */
export interface StoredAgent extends Agent {
  readonly keyHash: Buffer | null
}

export interface NewAgent {
  readonly id: AgentId
  readonly handle: string
  readonly email: string
  readonly displayName: string | null
  readonly description: string | null
  readonly keyHash: Buffer
}

interface Row extends Omit<StoredAgent, "status" | "budget"> {
  readonly status: "active" | "suspended"
  readonly restrictedUntil: number | null
  readonly conversationBudget: number | null
  readonly dayBudget: number | null
}

/** The fields of a profile to change. Absent fields keep their values. */
export interface ProfileChange {
  readonly displayName?: string | null
  readonly description?: string | null
  readonly inboxMode?: Policy
  readonly groupInvitePolicy?: Policy
  readonly conversationBudget?: number | null
  readonly dayBudget?: number | null
}

/** The reasons why an account with this handle and this address cannot be created. */
export interface Obstacles {
  readonly handleTaken: boolean
  readonly emailTaken: boolean
  /** How many accounts have ever been created with the address. */
  readonly lifetime: number
}

/** The ids, handles and hashes of keys to search for. */
export interface Sought {
  readonly ids: Array<AgentId>
  readonly handles: Array<string>
  readonly keyHashes: Array<Buffer>
}

/** All statements on accounts. Each change is one statement. */
export class AgentsRepo extends Context.Service<AgentsRepo, {
  /**
   * Returns all accounts with one of these ids, handles or keys. An account may appear twice. Deleted accounts have no
   * key.
   */
  readonly find: (sought: Sought) => Effect.Effect<ReadonlyArray<StoredAgent>, Unavailable>
  readonly byIds: (ids: ReadonlyArray<AgentId>) => Effect.Effect<ReadonlyArray<StoredAgent>, Unavailable>
  /**
   * Returns the live account of an address. The statement returns one row of the same form whether or not there is an
   * account.
   */
  readonly byEmail: (email: string) => Effect.Effect<Pick<Agent, "id" | "handle"> | undefined, Unavailable>
  /** Whether a handle is taken, or was taken before. */
  readonly handleExists: (handle: string) => Effect.Effect<boolean, Unavailable>
  /** Inserts the account and its inbox. Returns undefined if the account cannot be created. */
  readonly insert: (
    agent: NewAgent,
    now: number,
    lifetimeLimit: number
  ) => Effect.Effect<StoredAgent | undefined, Unavailable>
  /** Inserts the server's own account if there is none. Returns false if another account has its handle. */
  readonly ensureSystem: (now: number) => Effect.Effect<boolean, Unavailable>
  readonly obstacles: (handle: string, email: string) => Effect.Effect<Obstacles, Unavailable>
  readonly updateProfile: (
    id: AgentId,
    change: ProfileChange,
    now: number
  ) => Effect.Effect<StoredAgent | undefined, Unavailable>
  /**
   * Replaces the address, and signs the account out of the sign-in pages. Returns undefined for a deleted account, and if another live account has the address. A
   * concurrent registration with the address makes it fail.
   */
  readonly replaceEmail: (
    id: AgentId,
    email: string,
    now: number
  ) => Effect.Effect<StoredAgent | undefined, Unavailable>
  /**
   * Replaces the key, and signs the account out of the sign-in pages. Returns undefined for a deleted account, and if
   * `email` is given and the account has another address.
   */
  readonly replaceKey: (
    id: AgentId,
    hash: Buffer,
    now: number,
    email?: string
  ) => Effect.Effect<StoredAgent | undefined, Unavailable>
  /**
   * Ends the account and its key, clears its profile, and makes its deletion due. Returns false if the account had
   * already ended.
   */
  readonly end: (id: AgentId, now: number) => Effect.Effect<boolean, Unavailable>
  /**
   * Ends the account if it has not ended yet, and records that it is to be erased. `along` is committed in the same
   * transaction. Returns the time at which the account ended.
   */
  readonly erase: (
    id: AgentId,
    now: number,
    along: Effect.Effect<void, Unavailable>
  ) => Effect.Effect<number, Unavailable>
}>()("parley/agents/AgentsRepo") {
  static readonly layer = Layer.effect(
    AgentsRepo,
    Effect.gen(function*() {
      const { query, transaction } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const clock = yield* Clock.Clock

      const names = `
        id, handle, email, display_name AS "displayName", description, avatar_key AS "avatarKey", status, restricted_until AS "restrictedUntil",
        inbox_mode AS "inboxMode", group_invite_policy AS "groupInvitePolicy",
        conversation_budget AS "conversationBudget", day_budget AS "dayBudget", key_hash AS "keyHash",
        created_at AS "createdAt", updated_at AS "updatedAt", deleted_at AS "deletedAt"`
      const columns = sql.literal(names)
      const find = (yield* Database).prepared<Row>(
        "find_agents",
        `
        SELECT ${names} FROM agents WHERE id = ANY($1::text[])
        UNION ALL SELECT ${names} FROM agents WHERE handle = ANY($2::text[])
        UNION ALL SELECT ${names} FROM agents WHERE key_hash = ANY($3::bytea[])`
      )

      /** The account with its current status. */
      const present = ({ conversationBudget, dayBudget, restrictedUntil, ...row }: Row): StoredAgent => ({
        ...row,
        budget: conversationBudget === null && dayBudget === null
          ? null
          : { perConversation: conversationBudget, inAll: dayBudget },
        status: statusAt(row.status, restrictedUntil, clock.currentTimeMillisUnsafe())
      })
      const first = (rows: Effect.Effect<ReadonlyArray<Row>, Unavailable>) =>
        Effect.map(rows, ([row]) => row === undefined ? undefined : present(row))

      /** On a sign-in page, a person who had the old key or a code could still allow a program to use the account. */
      const signedOut = (id: AgentId) => query`UPDATE oauth_requests SET agent_id = NULL WHERE agent_id = ${id}`

      const end = (id: AgentId, now: number): Effect.Effect<boolean, Unavailable> =>
        Effect.map(
          query`
            WITH gone AS (
              UPDATE agents SET key_hash = NULL, deleted_at = ${now}, updated_at = ${now},
                display_name = NULL, description = NULL, avatar_key = NULL, conversation_budget = NULL, day_budget = NULL
              WHERE id = ${id} AND deleted_at IS NULL RETURNING id
            ), remembered AS (
              INSERT INTO deletions (agent_id, since, due_at) SELECT id, ${now}, ${now} FROM gone
            )
            SELECT id FROM gone`,
          (rows) => rows.length > 0
        )

      return AgentsRepo.of({
        find: ({ handles, ids, keyHashes }) => Effect.map(find([ids, handles, keyHashes]), (rows) => rows.map(present)),
        byIds: (ids) =>
          Effect.map(
            query<Row>`SELECT ${columns} FROM agents WHERE id = ANY(${ids}::text[])`,
            (rows) => rows.map(present)
          ),
        byEmail: (email) =>
          Effect.map(
            query<{ readonly id: AgentId | null; readonly handle: string }>`
              SELECT max(id) AS id, max(handle) AS handle FROM agents WHERE email = ${email} AND deleted_at IS NULL`,
            ([row]) => row === undefined || row.id === null ? undefined : { id: row.id, handle: row.handle }
          ),
        handleExists: (handle) =>
          Effect.map(query`SELECT 1 FROM agents WHERE handle = ${handle}`, (rows) => rows.length > 0),

        insert: (agent, now, lifetimeLimit) =>
          first(query<Row>`
            WITH made AS (
              INSERT INTO agents (id, handle, email, email_no, display_name, description, key_hash, created_at, updated_at)
              SELECT ${agent.id}::text, ${agent.handle}::text, ${agent.email}::text, COALESCE(max(email_no), 0) + 1,
                ${agent.displayName}::text, ${agent.description}::text, ${agent.keyHash}::bytea,
                ${now}::bigint, ${now}::bigint
              FROM agents WHERE email IN (${agent.email}, erased_address(${agent.email}::text))
              HAVING count(*) < ${lifetimeLimit}::bigint
              ON CONFLICT DO NOTHING
              RETURNING *
            ), inbox AS (
              INSERT INTO inboxes (agent_id) SELECT id FROM made
            )
            SELECT ${columns} FROM made`),

        ensureSystem: Effect.fnUntraced(function*(now) {
          yield* query`
            WITH made AS (
              INSERT INTO agents (id, handle, email, created_at, updated_at, deleted_at)
              VALUES (${SYSTEM.id}, ${SYSTEM.handle}, ${`${SYSTEM.handle}@${NO_MAILBOX}`}, ${now}, ${now}, ${now})
              ON CONFLICT DO NOTHING
              RETURNING id
            )
            INSERT INTO inboxes (agent_id) SELECT id FROM made`
          const rows = yield* query`SELECT FROM agents WHERE id = ${SYSTEM.id}`
          return rows.length > 0
        }),

        obstacles: (handle, email) =>
          Effect.map(
            query<Obstacles>`
              SELECT
                EXISTS (SELECT FROM agents WHERE handle = ${handle}) AS "handleTaken",
                EXISTS (SELECT FROM agents WHERE email = ${email} AND deleted_at IS NULL) AS "emailTaken",
                (SELECT count(*) FROM agents WHERE email IN (${email}, erased_address(${email}::text))) AS lifetime`,
            (rows) => rows[0] ?? { handleTaken: false, emailTaken: false, lifetime: 0 }
          ),

        updateProfile: (id, change, now) => {
          const set = [
            sql`updated_at = ${now}`,
            ...(change.displayName === undefined ? [] : [sql`display_name = ${change.displayName}`]),
            ...(change.description === undefined ? [] : [sql`description = ${change.description}`]),
            ...(change.inboxMode === undefined ? [] : [sql`inbox_mode = ${change.inboxMode}`]),
            ...(change.groupInvitePolicy === undefined ? [] : [sql`group_invite_policy = ${change.groupInvitePolicy}`]),
            ...(change.conversationBudget === undefined
              ? []
              : [sql`conversation_budget = ${change.conversationBudget}`]),
            ...(change.dayBudget === undefined ? [] : [sql`day_budget = ${change.dayBudget}`])
          ]
          return first(query<Row>`
            UPDATE agents SET ${sql.csv(set)} WHERE id = ${id} AND deleted_at IS NULL RETURNING ${columns}`)
        },

        replaceEmail: (id, email, now) =>
          first(query<Row>`
            UPDATE agents SET email = ${email}, updated_at = ${now},
              email_no = (
                SELECT COALESCE(max(o.email_no), 0) + 1 FROM agents o
                WHERE o.email IN (${email}, erased_address(${email}::text)) AND o.id <> ${id}
              )
            WHERE id = ${id} AND deleted_at IS NULL
              AND NOT EXISTS (SELECT FROM agents o WHERE o.email = ${email} AND o.deleted_at IS NULL AND o.id <> ${id})
            RETURNING ${columns}`).pipe(Effect.tap(() => signedOut(id))),

        replaceKey: (id, hash, now, email) =>
          first(query<Row>`
            UPDATE agents SET key_hash = ${hash}, updated_at = ${now}
            WHERE id = ${id} AND deleted_at IS NULL AND email = COALESCE(${email ?? null}::text, email)
            RETURNING ${columns}`).pipe(Effect.tap(() => signedOut(id))),

        end,

        erase: (id, now, along) =>
          transaction(Effect.gen(function*() {
            yield* end(id, now)
            const [row] = yield* query<{ readonly since: number }>`
              INSERT INTO deletions (agent_id, since, due_at, erase)
              SELECT id, COALESCE(deleted_at, ${now}), ${now}, true FROM agents WHERE id = ${id}
              ON CONFLICT (agent_id) DO UPDATE SET erase = true, due_at = LEAST(deletions.due_at, excluded.due_at)
              RETURNING since`
            yield* along
            return row?.since ?? now
          }))
      })
    })
  )
}
