import { Agents } from "#domain/agents/Agents"
import { Conversations } from "#domain/conversations/Conversations"
import { Groups } from "#domain/groups/Groups"
import { PgliteSession } from "#infrastructure/database/PgliteSession"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { vi } from "vitest"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, layerModules } from "../support/Modules.ts"

const agent = (i: number) => ({ id: `agt_${i}`, handle: `member-${i}` })
const everybody = Array.from({ length: 256 }, (_, i) => agent(i))
const [creator, first, second] = [agent(0), agent(1), agent(2)]
const profile = { name: "Band", description: null, avatarUrl: null }

/** Every statement that an effect has run, prepared or not, when no account is in the cache. */
const statementsOf = Effect.fnUntraced(function*<A, E, R>(effect: Effect.Effect<A, E, R>) {
  const agents = yield* Agents
  for (const { id } of everybody) agents.forget(id)
  const texts: Array<string> = []
  const query = vi.spyOn(PgliteSession.prototype, "query")
  const prepared = vi.spyOn(PgliteSession.prototype, "prepared")
  const made = yield* effect
  for (const [text] of query.mock.calls) texts.push(text)
  for (const [, text] of prepared.mock.calls) texts.push(text)
  query.mockRestore()
  prepared.mockRestore()
  return {
    made,
    all: texts.length,
    writing: texts.filter((text) => /\b(INSERT INTO|UPDATE|DELETE FROM|BEGIN)\b/.test(text)).length
  }
})

layer(layerModules(layerPgliteTest))((it) => {
  it.effect("a group with 255 handles takes as many statements as one with a single one, and one of them writes", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const groups = yield* Groups
      yield* sql`
        WITH made AS (
          INSERT INTO agents (id, handle, email, created_at, updated_at)
          SELECT 'agt_' || i, 'member-' || i, i || '@example.com', 0, 0 FROM generate_series(0, 255) i
          RETURNING id
        ) INSERT INTO inboxes (agent_id) SELECT id FROM made`
      const create = (handles: ReadonlyArray<string>) => statementsOf(groups.create(creator, { profile, handles }))
      const small = yield* create([first.handle])
      const large = yield* create(everybody.slice(1).map(({ handle }) => handle))
      assert.deepStrictEqual([small.made.add_results.length, large.made.add_results.length], [1, 255])
      assert.deepStrictEqual([large.all, large.writing], [small.all, 1])
      assert.isAtMost(large.all, 7)
    }))

  it.effect("a change of members, roles or profile is one statement, with its invite and what is said of it", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const groups = yield* Groups
      const { group } = yield* groups.create(creator, { profile, handles: [] })
      const rows = Effect.map(
        sql<Record<string, number>>`
          SELECT
            (SELECT count(*) FROM group_members WHERE group_id = ${group.id} AND left_at IS NULL) AS members,
            (SELECT count(*) FROM group_invites WHERE group_id = ${group.id}) AS invites,
            (SELECT count(*) FROM messages WHERE conversation_id = ${group.id}) AS messages,
            (SELECT count(*) FROM envelopes WHERE conversation_id = ${group.id}) AS envelopes`,
        ([row]) => Object.values(row ?? {})
      )
      const changes = Effect.fnUntraced(function*<A, E, R>(
        change: Effect.Effect<A, E, R>,
        to: readonly [members: number, invites: number, messages: number, envelopes: number]
      ) {
        const { made, writing } = yield* statementsOf(change)
        assert.strictEqual(writing, 1)
        assert.deepStrictEqual(yield* rows, [...to])
        return made
      })
      const one = yield* changes(groups.add(creator, group.id, first.handle), [1, 1, 0, 0])
      yield* changes(groups.accept(first, one.invite_id ?? ""), [2, 0, 1, 1])
      const two = yield* changes(groups.add(creator, group.id, second.handle), [2, 1, 1, 1])
      yield* changes(groups.accept(second, two.invite_id ?? ""), [3, 0, 2, 3])
      yield* changes(groups.promote(creator.id, group.id, first.handle), [3, 0, 3, 5])
      yield* changes(groups.demote(creator.id, group.id, first.handle), [3, 0, 4, 7])
      yield* changes(groups.update(creator.id, group.id, { name: "New", description: "told" }), [3, 0, 6, 11])
      yield* changes(groups.removeMember(creator.id, group.id, second.handle), [2, 0, 7, 13])
      // Two messages: who left, and who leads now.
      yield* changes(groups.leave(creator.id, group.id), [1, 0, 9, 15])
      yield* changes(groups.add(first, group.id, second.handle), [1, 1, 9, 15])
      yield* changes(groups.remove(first.id, group.id), [0, 0, 10, 15])
    }))

  it.effect("a member's send is one statement once the group is in memory", () =>
    Effect.gen(function*() {
      const groups = yield* Groups
      const conversations = yield* Conversations
      const { group } = yield* groups.create(creator, { profile, handles: [] })
      const send = (key: string) =>
        conversations.send({ ...creator, displayName: null }, { _tag: "Conversation", id: group.id }, draft(key))
      yield* send("first")
      assert.strictEqual((yield* statementsOf(send("second"))).all, 1)
    }))
})
