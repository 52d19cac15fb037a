import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { Deletions } from "#domain/agents/Deletions"
import { Conversations, type Sender } from "#domain/conversations/Conversations"
import { Groups } from "#domain/groups/Groups"
import { Presences } from "#domain/presence/Presences"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Database } from "#infrastructure/database/Sql"
import { isAgentTable } from "#infrastructure/database/Tables"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { assert, it } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { tables } from "../../src/Tables.ts"
import { layerPgliteTest, type TestDatabase } from "../support/Databases.ts"
import { leap } from "../support/Leap.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

type Party = Sender

/**
 * Lets so many statements through and then none, as if the process had died: whatever follows in it comes to nothing.
 */
class Fuse {
  left = Infinity
  get blown(): boolean {
    return this.left < 0
  }
}

/** Everything that a deletion does after its first statement is prepared. */
const doomed = (database: TestDatabase, fuse: Fuse): TestDatabase =>
  Layer.effect(
    Database,
    Effect.map(Database, (database) => {
      const fused =
        <A, E>(run: (params: ReadonlyArray<unknown>) => Effect.Effect<A, E>) => (params: ReadonlyArray<unknown>) =>
          Effect.suspend(() => --fuse.left < 0 ? Effect.die(new Error("this process is no more")) : run(params))
      return Database.of({
        ...database,
        prepared: (name, text) => fused(database.prepared<never>(name, text)),
        raw: (name, text) => fused(database.raw<never>(name, text))
      })
    })
  ).pipe(Layer.provideMerge(database))

/** An account with something of everything that its end has to undo. */
const leaver = Effect.fnUntraced(function*(name: string, friend: Party, third: Party) {
  const sql = yield* SqlClient.SqlClient
  const groups = yield* Groups
  const account = yield* newAgent(name)
  yield* (yield* Conversations).send(friend, { _tag: "Direct", handle: account.handle }, draft(`to ${name}`))
  yield* sql`INSERT INTO contacts (agent_id, contact_id, added_at)
    VALUES (${account.id}, ${friend.id}, 0), (${friend.id}, ${account.id}, 0), (${third.id}, ${account.id}, 0)`
  yield* sql`INSERT INTO mutes (muter_id, kind, target_id, created_at)
    VALUES (${account.id}, 'agent', ${third.id}, 0), (${friend.id}, 'agent', ${account.id}, 0)`
  yield* sql`INSERT INTO reply_leases (agent_id, session_id, ends_at) VALUES (${account.id}, '', 1)`
  yield* sql`INSERT INTO reply_claims (agent_id, message_id, holder, ends_at) VALUES (${account.id}, 'msg_a', 'daemon:1', 1)`
  yield* sql`INSERT INTO presences (agent_id, last_seen) VALUES (${account.id}, 1)`
  yield* sql`INSERT INTO oauth_connections (id, agent_id, key_hash, client_id, redirect_uri, scopes, created_at, used_at, expires_at)
    VALUES (${`con_${name}`}, ${account.id}, '', 'host', 'https://nowhere.example/', 'agent:read', 0, 0, 0)`
  yield* sql`INSERT INTO agent_skills (agent_id, skills) VALUES (${account.id}, '[]')`
  yield* sql`INSERT INTO agent_tags (tag, handle, agent_id) VALUES ('gone', ${account.handle}, ${account.id})`
  yield* sql`INSERT INTO webhooks (id, agent_id, slot, url, events, secret, created_at)
    VALUES (${`whk_${name}`}, ${account.id}, 1, 'https://nowhere.example/', '{contact.blocked}', 'secret', 0)`
  const profile = { name, description: null, avatarUrl: null }
  const own = yield* groups.create(account, { profile, handles: [friend.handle, third.handle] })
  yield* groups.accept(friend, own.add_results[0]?.invite_id ?? "")
  yield* groups.create(friend, { profile, handles: [account.handle] })
  return { ...account, groupId: own.group.id }
})

/** What of wire.md G.12 does not hold for an account, by name. */
const remains = Effect.fnUntraced(function*({ groupId, id }: Party & { readonly groupId: string }, friend: Party) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<Record<string, boolean>>`
    SELECT
      EXISTS (SELECT FROM agents WHERE id = ${id} AND (deleted_at IS NULL OR key_hash IS NOT NULL)) AS alive,
      EXISTS (SELECT FROM contacts WHERE ${id} IN (agent_id, contact_id)) AS contacts,
      EXISTS (SELECT FROM mutes WHERE ${id} IN (muter_id, target_id)) AS mutes,
      EXISTS (SELECT FROM reply_leases WHERE agent_id = ${id}) AS leases,
      EXISTS (SELECT FROM reply_claims WHERE agent_id = ${id}) AS claims,
      EXISTS (SELECT FROM presences WHERE agent_id = ${id}) AS presence,
      EXISTS (SELECT FROM agent_skills WHERE agent_id = ${id}) AS skills,
      EXISTS (SELECT FROM agent_tags WHERE agent_id = ${id}) AS tags,
      EXISTS (SELECT FROM webhooks WHERE agent_id = ${id} AND (slot IS NOT NULL OR active OR secret <> '')) AS webhooks,
      EXISTS (SELECT FROM group_invites WHERE ${id} IN (invitee_id, inviter_id)) AS invites,
      EXISTS (SELECT FROM group_members WHERE agent_id = ${id} AND left_at IS NULL) AS member,
      EXISTS (SELECT FROM participants p JOIN groups g ON g.id = p.conversation_id WHERE p.agent_id = ${id}) AS participant,
      (SELECT member_count <> 1 OR deleted_at IS NOT NULL FROM groups WHERE id = ${groupId}) AS "memberCount",
      NOT EXISTS (SELECT FROM group_members WHERE group_id = ${groupId} AND agent_id = ${friend.id} AND role = 'admin') AS "noAdmin",
      EXISTS (
        SELECT FROM envelopes e JOIN agents a ON a.id = e.recipient_id
        WHERE a.id = ${id} AND e.delivered_at IS DISTINCT FROM a.deleted_at
      ) AS "notClosedAtDeletion",
      EXISTS (
        SELECT FROM inboxes n WHERE n.undelivered <>
          (SELECT count(*) FROM envelopes WHERE recipient_id = n.agent_id AND delivered_at IS NULL)
      ) AS "counters",
      EXISTS (SELECT FROM deletions WHERE agent_id = ${id}) AS remembered`
  return Object.entries(row ?? {}).flatMap(([name, holds]) => holds ? [name] : [])
})

/**
 * Ends accounts in a process that dies before its first statement, its second, …, and lets another finish; returns how
 * many there were.
 */
const dyingEverywhere = (
  end: (accounts: Accounts["Service"], id: string) => Effect.Effect<void, Unavailable>,
  prepare: (account: Party) => Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>,
  left: (
    account: Party & { readonly groupId: string },
    friend: Party
  ) => Effect.Effect<ReadonlyArray<string>, SqlError.SqlError, SqlClient.SqlClient>
) =>
  Effect.gen(function*() {
    const database = Layer.succeedContext(yield* Effect.context<SqlClient.SqlClient | Database>())
    const deletions = yield* Deletions
    const [friend, third] = [yield* newAgent("friend"), yield* newAgent("third")]
    const fuse = new Fuse()
    // Built once: what it remembers of one death does not help the other process, which never hears of it.
    const accounts = Context.get(yield* Layer.build(Layer.fresh(layerModules(doomed(database, fuse)))), Accounts)
    let statements = 0
    for (;; statements++) {
      const account = yield* leaver(`leaver-${statements}`, friend, third)
      yield* prepare(account)
      fuse.left = statements
      yield* end(accounts, account.id)
      const { blown } = fuse
      // The dead does nothing more, not even with its jobs.
      fuse.left = -1
      ;(yield* Agents).forget(account.id)
      assert.isUndefined(yield* (yield* Agents).byHandle(account.handle))
      const before = yield* left(account, friend)
      assert.include(before, "remembered")
      if (!blown) assert.deepStrictEqual(before, ["remembered"])
      assert.notInclude(before, "alive")
      const refused = yield* Effect.flip(
        (yield* Conversations).send(friend, { _tag: "Direct", handle: account.handle }, draft(`late ${statements}`))
      )
      assert.strictEqual(refused._tag, "AgentNotFound")
      yield* leap("61 seconds")
      yield* deletions.sweep
      assert.deepStrictEqual(yield* left(account, friend), [], `after ${statements} statements`)
      if (!blown) break
    }
    return statements
  }).pipe(
    Effect.scoped,
    Effect.provide(
      layerModules(layerPgliteTest, { LIMITS_COLD_CONVERSATIONS: 1_000, LIMITS_GROUP_INVITES_PER_DAY: 1_000 })
    )
  )

it.effect("a deletion that dies before any of its statements is finished by another process", () =>
  Effect.gen(function*() {
    assert.isAbove(yield* dyingEverywhere((accounts, id) => accounts.remove(id), () => Effect.void, remains), 15)
  }))

/**
 * How long after its announcement an upload may come to its end: the default of UPLOADS_URL_SECONDS, and five minutes.
 */
const UPLOAD_MS = 900_000 + 300_000

/** What agents and operators have said of an account in other rows than its own. */
const nameOf = (handle: string): string => `Known As ${handle}`

/** Something of everything that only an erasure removes. */
const known = Effect.fnUntraced(function*({ handle, id }: Party) {
  const sql = yield* SqlClient.SqlClient
  const contact = { handle, display_name: nameOf(handle), description: null, notes: nameOf(handle) }
  yield* sql`
    INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at, status, headers, body)
    VALUES ('agt_other', ${handle}, ${Buffer.from("f")}, ${Buffer.from("n")}, 1, 0, 201, '{}', ${
    Buffer.from(JSON.stringify(contact))
  })`
  yield* sql`
    INSERT INTO audit_log (at, operator, action, reason)
    VALUES (0, 'ops', 'show agents', ${`?email=${handle}%40exam&limit=5`}), (0, 'ops', 'erase', ${`asked by ${handle}@Example.com`})`
  yield* sql`
    INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at)
    VALUES (${id}, 'k', ${Buffer.from("f")}, ${Buffer.from("n")}, 0, 0)`
  yield* sql`INSERT INTO hidden_messages (agent_id, conversation_id, seq) VALUES (${id}, 'dir_1', 1)`
  yield* sql`
    INSERT INTO reactions (conversation_id, seq, agent_id, emoji, created_at) VALUES ('dir_1', 1, ${id}, 'seen', 0)`
  yield* sql`INSERT INTO outcomes (conversation_id, seq, recipient_id, state, reason, at) VALUES ('dir_1', 1, ${id}, 'done', 'words', 0)`
  yield* sql`UPDATE participants SET hidden_through = 7 WHERE agent_id = ${id} AND counterparty_id IS NOT NULL`
  yield* sql`INSERT INTO limit_changes (name, agent_id, value, operator, changed_at) VALUES ('LIMITS_CARDS_PER_MINUTE', ${id}, 1, 'ops', 0)`
  yield* sql`INSERT INTO invite_budgets (agent_id, spent) VALUES (${id}, '{1}') ON CONFLICT DO NOTHING`
  yield* sql`INSERT INTO codes (id, purpose, email, expires_at) VALUES (${`code_${handle}`}, 'recover', ${`${handle}@example.com`}, 1)`
  yield* sql`
    INSERT INTO code_addresses (email, purpose, code_id, last_sent_at, sent_at) VALUES (${`${handle}@example.com`}, 'recover', 'c', 1, '{1}')`
  yield* sql`
    INSERT INTO attachments (id, uploader_id, recipient_id, filename, content_type, size, sha256, created_at, used_at, look_at)
    VALUES (${`att_unused_${handle}`}, ${id}, 'agt_other', 'a', 'text/plain', 1, 'x', ${yield* Clock
    .currentTimeMillis}, NULL, 9),
      (${`att_used_${handle}`}, ${id}, 'agt_other', 'a', 'text/plain', 1, 'x', 0, 1, 9)`
})

/** What of that is left, beside what a deletion leaves. */
const notErased = Effect.fnUntraced(function*(account: Party & { readonly groupId: string }, friend: Party) {
  const sql = yield* SqlClient.SqlClient
  const { handle, id } = account
  const [row] = yield* sql<Record<string, boolean>>`
    SELECT
      EXISTS (SELECT FROM agents WHERE id = ${id} AND email !~ '^erased:[0-9a-f]{64}$') AS address,
      EXISTS (SELECT FROM agents WHERE email = ${`${handle}@example.com`}) AS "addressOfAnother",
      EXISTS (SELECT FROM codes WHERE email = ${`${handle}@example.com`}) AS codes,
      EXISTS (SELECT FROM code_addresses WHERE email = ${`${handle}@example.com`}) AS "codeAddresses",
      EXISTS (SELECT FROM idempotency_keys WHERE agent_id = ${id}) AS keys,
      NOT EXISTS (SELECT FROM idempotency_keys WHERE key = ${handle} AND status = 201) AS "keysOfOthers",
      EXISTS (SELECT FROM idempotency_keys WHERE position(${
    Buffer.from(nameOf(handle))
  }::bytea IN body) > 0) AS "answersToOthers",
      EXISTS (SELECT FROM audit_log WHERE reason ~ ${`${handle}(@|%40)`}) AS audit,
      EXISTS (SELECT FROM hidden_messages WHERE agent_id = ${id}) AS hides,
      EXISTS (SELECT FROM reactions WHERE agent_id = ${id}) AS reactions,
      EXISTS (SELECT FROM outcomes WHERE recipient_id = ${id}) AS outcomes,
      EXISTS (SELECT FROM participants WHERE agent_id = ${id} AND counterparty_id IS NOT NULL AND hidden_through > 0) AS "hiddenConversations",
      EXISTS (
        SELECT FROM attachments WHERE uploader_id = ${id} AND used_at IS NULL AND look_at < created_at + ${UPLOAD_MS}::bigint
      ) AS "sweptBeforeLastBytes",
      EXISTS (SELECT FROM limit_changes WHERE agent_id = ${id}) AS limits,
      EXISTS (SELECT FROM invite_budgets WHERE agent_id = ${id}) AS budgets,
      EXISTS (SELECT FROM outreach_turns WHERE agent_id = ${id}) AS turns,
      EXISTS (SELECT FROM cold_slots WHERE agent_id = ${id}) AS slots,
      EXISTS (SELECT FROM attachments WHERE uploader_id = ${id} AND used_at IS NULL AND NOT condemned) AS uploads,
      NOT EXISTS (SELECT FROM attachments WHERE uploader_id = ${id} AND used_at IS NOT NULL AND NOT condemned) AS "usedUploads"`
  const beyond = Object.entries(row ?? {}).flatMap(([name, holds]) => holds ? [name] : [])
  return [...yield* remains(account, friend), ...beyond]
})

it.effect("an erasure that dies before any of its statements is finished by another process", () =>
  Effect.gen(function*() {
    assert.isAbove(yield* dyingEverywhere((accounts, id) => accounts.erase(id, Effect.void), known, notErased), 20)
  }))

it.effect("an account that was deleted can be erased, again and again; its address counts as before, and no living account is touched", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const accounts = yield* Accounts
    const deletions = yield* Deletions
    const email = "mona@example.com"
    const register = (handle: string) => accounts.create({ handle, email, displayName: null, description: null })
    const [first, second] = [yield* register("mona-1"), yield* Effect.andThen(sql`SELECT 1`, register("mona-2"))]
    assert.strictEqual(second, "email_taken")
    if (typeof first === "string") return assert.fail(first)
    yield* accounts.remove(first.agent.id)
    const next = yield* register("mona-2")
    if (typeof next === "string") return assert.fail(next)
    yield* sql`INSERT INTO codes (id, purpose, email, agent_id, expires_at) VALUES ('c', 'recover', ${email}, ${next.agent.id}, 1)`
    yield* sql`
      INSERT INTO codes (id, purpose, email, handle, display_name, expires_at)
      VALUES ('c-1', 'register', ${email}, 'mona-1', 'Mona', 1), ('c-2', 'register', ${email}, 'mona-2', 'Lisa', 1)`
    let noted = 0
    for (let i = 0; i < 2; i++) {
      yield* accounts.erase(first.agent.id, Effect.sync(() => void noted++))
      yield* leap("61 seconds")
      yield* deletions.sweep
    }
    assert.strictEqual(noted, 2)
    const emails = yield* sql<
      { readonly handle: string; readonly email: string }
    >`SELECT handle, email FROM agents ORDER BY handle`
    assert.match(emails[0]?.email ?? "", /^erased:[0-9a-f]{64}$/)
    assert.deepStrictEqual(emails[1], { handle: "mona-2", email })
    assert.deepStrictEqual(yield* sql`SELECT id FROM codes ORDER BY id`, [{ id: "c" }, { id: "c-2" }])
    assert.deepStrictEqual(yield* sql`SELECT agent_id FROM deletions`, [])
    yield* accounts.erase(next.agent.id, Effect.void)
    // Two of three are used up, though neither row has the address any more.
    const last = yield* register("mona-3")
    if (typeof last === "string") return assert.fail(last)
    yield* accounts.remove(last.agent.id)
    assert.strictEqual(yield* register("mona-4"), "email_exhausted")
  }).pipe(Effect.provide(layerModules(layerPgliteTest, { LIMITS_REGISTRATIONS_PER_EMAIL: 3 }))))

it.effect("an erasure removes the address from earlier accounts too, which are deleted; they count as before", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const accounts = yield* Accounts
    const email = "lisa@example.com"
    const register = (handle: string) => accounts.create({ handle, email, displayName: null, description: null })
    for (const end of [accounts.remove, (id: string) => accounts.erase(id, Effect.void)]) {
      const made = yield* register(`lisa-${end === accounts.remove ? 1 : 2}`)
      if (typeof made === "string") return assert.fail(made)
      yield* end(made.agent.id)
    }
    const emails = yield* sql<{ readonly email: string }>`SELECT email FROM agents`
    assert.strictEqual(emails.length, 2)
    for (const one of emails) assert.match(one.email, /^erased:[0-9a-f]{64}$/)
    assert.isObject(yield* register("lisa-3"))
    const [last] = yield* sql<{ readonly id: string }>`SELECT id FROM agents WHERE handle = 'lisa-3'`
    yield* accounts.remove(last?.id ?? "")
    assert.strictEqual(yield* register("lisa-4"), "email_exhausted")
  }).pipe(Effect.provide(layerModules(layerPgliteTest, { LIMITS_REGISTRATIONS_PER_EMAIL: 3 }))))

/** A row in each table in which `leaver` and `known` leave none. */
const besides = Effect.fnUntraced(
  function*({ groupId, handle, id }: Party & { readonly groupId: string }, third: Party) {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${id}, 'agt_other', 0)`
    yield* sql`INSERT INTO reports (agent_id, reported_id, id, created_at) VALUES (${id}, 'agt_other', ${`rep_${handle}`}, 0)`
    yield* sql`INSERT INTO group_refusals (group_id, agent_id, refused_at) VALUES ('grp_other', ${id}, 0)`
    yield* sql`INSERT INTO attachment_usage (agent_id, bytes) VALUES (${id}, 1)`
    yield* sql`
    INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, finished_at, delivered)
    VALUES (${`whk_${handle}`}, 'contact.blocked', '{}', 0, 0, true)`
    yield* sql`INSERT INTO recounts (agent_id) VALUES ('agt_other')`
    yield* sql`INSERT INTO handovers (agent_id, since) VALUES ('agt_other', 0)`
    yield* sql`
    INSERT INTO a2a_tasks (id, conversation_id, seq, caller_id, recipient_id, state, open, updated_at, changes, log)
    VALUES (${`task_${handle}`}, ${groupId}, 1, ${id}, 'agt_other', 'submitted', true, 0, 0, '[]')`
    yield* sql`INSERT INTO a2a_push_configs (webhook_id, task_id, name, created_at) VALUES (${`whk_${handle}`}, ${`task_${handle}`}, 'c', 0)`
    yield* sql`
    INSERT INTO event_subscriptions (webhook_id, id, agent_id, name, arguments, key_hash, verified_at, created_at)
    VALUES (${`whk_${handle}`}, ${`sub_${handle}`}, ${id}, 'inbox.waiting', '{}', '', 0, 0)`
    yield* (yield* Conversations).send(
      { id, handle, displayName: null },
      { _tag: "Direct", handle: third.handle },
      draft("first")
    )
  }
)

it.effect("a deletion deletes and changes rows of the tables that say so, and of no others", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const [friend, third] = [yield* newAgent("friend"), yield* newAgent("third")]
    const account = yield* leaver("leaver", friend, third)
    yield* known(account)
    yield* besides(account, third)
    const empty = yield* Effect.filter(
      tables.filter(isAgentTable),
      ({ table }) => Effect.map(sql.unsafe(`SELECT FROM ${table} LIMIT 1`), (rows) => rows.length === 0)
    )
    assert.deepStrictEqual(empty.map(({ table }) => table), ["deletions"])

    yield* sql`CREATE TABLE touched (name text, what text)`
    yield* sql`
      CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN INSERT INTO touched VALUES (TG_TABLE_NAME, TG_OP); RETURN NULL; END $$`
    for (const { table } of tables) {
      yield* sql.unsafe(
        `CREATE TRIGGER touched AFTER UPDATE OR DELETE ON ${table} FOR EACH ROW EXECUTE FUNCTION touch()`
      )
    }
    yield* (yield* Accounts).remove(account.id)
    // As if the minute for late writes had passed; no other job runs meanwhile.
    yield* sql`UPDATE deletions SET since = since - 60000, due_at = 0`
    yield* (yield* Deletions).sweep
    const touched = yield* sql<
      { readonly name: string; readonly what: string }
    >`SELECT DISTINCT name, what FROM touched`
    const done = (table: string) =>
      touched.some(({ name, what }) => name === table && what === "DELETE")
        ? "deletes"
        : touched.some(({ name }) => name === table)
        ? "changes"
        : "keeps"
    assert.deepStrictEqual(
      tables.map(({ table }) => [table, done(table)]),
      tables.map((one) => [one.table, isAgentTable(one) ? one.deletion : "keeps"])
    )
  }).pipe(Effect.provide(layerModules(layerPgliteTest))))

it.effect("holders of a deleted account see it go offline once; what was on its way is undone a minute later", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const liveAgents = yield* LiveAgents
    const presences = yield* Presences
    const deletions = yield* Deletions
    const [friend, third] = [yield* newAgent("friend"), yield* newAgent("third")]
    const account = yield* leaver("leaver", friend, third)
    const heard: Array<unknown> = []
    const closed: Array<unknown> = []
    const session = (event: (frame: string) => void): LiveSession => ({
      hint: () => undefined,
      echo: () => undefined,
      event,
      close: (reason) => closed.push(reason)
    })
    liveAgents.attach(friend.id, session((frame) => heard.push(JSON.parse(frame))))
    liveAgents.attach(account.id, session(() => undefined))
    yield* presences.put(account, { status: "busy" })
    yield* presences.told
    heard.length = 0
    yield* (yield* Accounts).remove(account.id)
    assert.deepStrictEqual(heard.map((frame) => (frame as { payload: { status: string } }).payload.status), ["offline"])
    assert.deepStrictEqual(closed[0], { code: 1008, text: "account deleted" })
    assert.deepStrictEqual(yield* remains(account, friend), ["remembered"])
    // As a statement that began before, or a cache that did not know, would write.
    yield* sql`INSERT INTO contacts (agent_id, contact_id, added_at) VALUES (${friend.id}, ${account.id}, 0)`
    yield* sql`INSERT INTO mutes (muter_id, kind, target_id, created_at) VALUES (${friend.id}, 'agent', ${account.id}, 0)`
    yield* sql`UPDATE inboxes SET last_no = last_no + 1, undelivered = undelivered + 1 WHERE agent_id = ${account.id}`
    yield* sql`
      INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
      SELECT agent_id, last_no, 'dir_late', 1 FROM inboxes WHERE agent_id = ${account.id}`
    yield* deletions.sweep
    assert.include(yield* remains(account, friend), "contacts", "a minute must have passed")
    yield* leap("61 seconds")
    yield* deletions.sweep
    assert.deepStrictEqual(yield* remains(account, friend), [])
    // Its row does not come back with what its sockets leave behind.
    yield* presences.sockets(account.id)
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(yield* remains(account, friend), [])
  }).pipe(Effect.provide(layerModules(layerPgliteTest))))
