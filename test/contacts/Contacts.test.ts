import { Accounts } from "#domain/agents/Accounts"
import { Contacts } from "#domain/contacts/Contacts"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDirectIds } from "#domain/direct/DirectConversation"
import { DirectEntity } from "#domain/direct/DirectEntity"
import { DirectRepo } from "#domain/direct/DirectRepo"
import { CurrentAttempt } from "#domain/idempotency/IdempotentIds"
import { Secrets } from "#infrastructure/database/Secrets"
import { assert, layer, vi } from "@effect/vitest"
import { Effect, Latch } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { entityClient } from "../support/AsACaller.ts"
import { eachDatabase } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const direct = (agent: { readonly handle: string }) => ({ _tag: "Direct", handle: agent.handle }) as const
const tagOf = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onSuccess: () => "done", onFailure: ({ _tag }) => _tag })

/** All pages of a list, with something done between two of them. */
const pages = Effect.fnUntraced(function*<A, E, R, R2>(
  read: (
    cursor: { readonly cursor?: string }
  ) => Effect.Effect<{ readonly items: ReadonlyArray<A>; readonly nextCursor: string | null }, E, R>,
  between: (page: number) => Effect.Effect<void, never, R2>
) {
  const seen: Array<A> = []
  let cursor: { readonly cursor?: string } = {}
  for (let page = 0; page < 20; page++) {
    const { items, nextCursor } = yield* read(cursor)
    seen.push(...items)
    if (nextCursor === null) return seen
    cursor = { cursor: nextCursor }
    yield* between(page)
  }
  return assert.fail("the pages do not end")
})

eachDatabase((database) => {
  layer(layerModules(database, { LIMITS_COLD_CONVERSATIONS: 2 }))((it) => {
    it.effect("a contact is added once and stays as it is", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const [a, b] = [yield* newAgent("add-a"), yield* newAgent("add-b")]
        const first = yield* contacts.add(a.id, b.handle, "met somewhere")
        assert.deepInclude(first, { created: true })
        assert.deepInclude(first.contact, {
          handle: "add-b",
          display_name: "add-b",
          notes: "met somewhere",
          status: "active"
        })
        yield* TestClock.adjust(1_000)
        assert.deepStrictEqual(yield* contacts.add(a.id, b.handle, "other"), { ...first, created: false })
        const many = yield* Effect.all(
          Array.from({ length: 20 }, () => contacts.add(b.id, a.handle, null)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(many.filter(({ created }) => created).length, 1)
        assert.strictEqual((yield* contacts.list(b.id, {})).total, 1)
        assert.strictEqual(yield* tagOf(contacts.add(a.id, a.handle, null)), "ValidationFailed")
        assert.strictEqual(yield* tagOf(contacts.add(a.id, "add-nobody", null)), "AgentNotFound")
        yield* contacts.annotate(a.id, b.handle, null)
        assert.deepInclude(yield* contacts.check(a.id, b.handle), { is_contact: true, notes: null })
        assert.deepStrictEqual(yield* contacts.check(a.id, "add-nobody"), {
          handle: "add-nobody",
          is_contact: false,
          added_at: null,
          notes: null
        })
        yield* contacts.remove(a.id, b.handle)
        assert.strictEqual(yield* tagOf(contacts.remove(a.id, b.handle)), "NotFound")
        assert.strictEqual(yield* tagOf(contacts.annotate(a.id, b.handle, "x")), "NotFound")
      }))

    it.effect("pages by handle have no gap and no repeat while contacts come and go", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const me = yield* newAgent("pages-me")
        const stay = ["b", "d", "f", "h", "j", "l", "n"].map((letter) => `pages-${letter}`)
        // Added in another order than their handles'.
        for (const handle of stay.toReversed()) {
          yield* newAgent(handle)
          yield* contacts.add(me.id, handle, null)
        }
        // One before everything, one in the middle of what is read, one behind it; and the one a cursor stands on goes.
        const coming = ["pages-a", "pages-e", "pages-z"]
        for (const handle of coming) yield* newAgent(handle)
        yield* newAgent("pages-bb")
        const found = yield* pages(
          (cursor) => contacts.list(me.id, { limit: 2, ...cursor }),
          (page) =>
            Effect.ignore(Effect.gen(function*() {
              const next = coming[page]
              if (next !== undefined) yield* contacts.add(me.id, next, null)
              if (page === 1) yield* contacts.remove(me.id, "pages-h")
            }))
        )
        const handles = found.map(({ handle }) => handle)
        assert.deepStrictEqual(handles.filter((handle) => stay.includes(handle)), stay)
        assert.deepStrictEqual(handles, [...new Set(handles)].sort(), "in order and none twice")
        assert.deepStrictEqual(
          (yield* contacts.list(me.id, { limit: 3, offset: 2 })).items.map(({ handle }) => handle),
          ["pages-d", "pages-e", "pages-f"]
        )
      }))

    it.effect("pages of blocks, newest first, have no gap and no repeat while blocks come", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const me = yield* newAgent("blocks-me")
        const before: Array<string> = []
        for (let i = 0; i < 7; i++) {
          const other = yield* newAgent(`blocks-${i}`)
          yield* contacts.block(me.id, other.handle)
          before.unshift(other.handle)
          // Some are of the same millisecond.
          if (i % 3 === 0) yield* TestClock.adjust(1)
        }
        for (let i = 10; i < 13; i++) yield* newAgent(`blocks-${i}`)
        yield* TestClock.adjust(1)
        const found = yield* pages(
          (cursor) => contacts.blocks(me.id, { limit: 2, ...cursor }),
          (page) => Effect.ignore(contacts.block(me.id, `blocks-${10 + page}`))
        )
        assert.sameMembers(found.map(({ handle }) => handle), before)
        assert.strictEqual(found.length, before.length)
        const times = found.map(({ blocked_at }) => blocked_at)
        assert.deepStrictEqual(times, times.toSorted().toReversed())
        const { items, total } = yield* contacts.blocks(me.id, {})
        assert.strictEqual(total, 10)
        assert.sameMembers(items.slice(0, 3).map(({ handle }) => handle), ["blocks-10", "blocks-11", "blocks-12"])
      }))

    it.effect("a block stops both directions; contacts, history and what is stored stay; an unblock ends it", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const [a, b] = [yield* newAgent("both-a"), yield* newAgent("both-b")]
        const first = JSON.parse((yield* conversations.send(a, direct(b), draft("m1"))).body) as {
          conversation_id: string
        }
        yield* conversations.send(b, direct(a), draft("m1"))
        yield* contacts.block(b.id, a.handle)
        yield* contacts.block(b.id, a.handle)
        const since = (yield* contacts.blocks(b.id, {})).items.map(({ blocked_at }) => blocked_at)
        assert.strictEqual(yield* tagOf(conversations.send(a, direct(b), draft("m2"))), "Blocked")
        assert.strictEqual(yield* tagOf(conversations.send(b, direct(a), draft("m2"))), "Blocked")
        // A replay is never refused.
        assert.isFalse((yield* conversations.send(a, direct(b), draft("m1"))).created)
        assert.isTrue((yield* contacts.check(a.id, b.handle)).is_contact)
        assert.isTrue((yield* contacts.check(b.id, a.handle)).is_contact)
        const range = { limit: 10, before: null, after: null, around: null }
        assert.strictEqual((yield* conversations.history(a.id, first.conversation_id, range)).length, 2)
        assert.strictEqual((yield* deliveries.sync(b.id, undefined, 10)).length, 1)

        yield* contacts.block(a.id, b.handle)
        yield* contacts.unblock(b.id, a.handle)
        assert.strictEqual(yield* tagOf(contacts.unblock(b.id, a.handle)), "NotFound")
        assert.strictEqual(
          yield* tagOf(conversations.send(b, direct(a), draft("m3"))),
          "Blocked",
          "the other block stands"
        )
        yield* contacts.unblock(a.id, b.handle)
        const seqs = yield* Effect.forEach(
          [[a, b, "m4"], [b, a, "m4"]] as const,
          ([from, to, key]) =>
            Effect.map(
              conversations.send(from, direct(to), draft(key)),
              ({ body }) => (JSON.parse(body) as { seq: number }).seq
            )
        )
        assert.deepStrictEqual(seqs, [3, 4])
        yield* TestClock.adjust(5)
        yield* contacts.block(b.id, a.handle)
        assert.notDeepEqual((yield* contacts.blocks(b.id, {})).items.map(({ blocked_at }) => blocked_at), since)
      }))

    it.effect("a block before anybody wrote shows no conversation, and after the unblock a first message opens one", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const conversations = yield* Conversations
        const sql = yield* SqlClient.SqlClient
        const [a, b] = [yield* newAgent("early-a"), yield* newAgent("early-b")]
        const id = makeDirectIds((yield* Secrets).conversationIds)(a.id, b.id)
        yield* contacts.block(b.id, a.handle)
        yield* contacts.block(a.id, b.handle)
        for (const [from, to] of [[a, b], [b, a]] as const) {
          assert.strictEqual(yield* tagOf(conversations.send(from, direct(to), draft("m1"))), "Blocked")
          assert.strictEqual((yield* conversations.list(from.id, {})).total, 0)
          assert.strictEqual(yield* tagOf(conversations.context(from.id, id)), "ConversationNotFound")
          yield* contacts.unblock(from.id, to.handle)
        }
        assert.deepStrictEqual(yield* sql`SELECT FROM conversations WHERE id = ${id}`, [])
        const sent = JSON.parse((yield* conversations.send(a, direct(b), draft("m2"))).body) as { seq: number }
        assert.strictEqual(sent.seq, 1)
        assert.strictEqual((yield* conversations.context(a.id, id)).direct_state?.state, "cold")
        assert.deepStrictEqual(
          yield* sql`SELECT count(*) AS n FROM cold_slots WHERE agent_id = ${a.id} AND claimed_at IS NOT NULL`,
          [{ n: 1 }]
        )
      }))

    it.effect("a report blocks, is one for ever, and both come through the entity alike", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const conversations = yield* Conversations
        const sql = yield* SqlClient.SqlClient
        const [a, b, c] = [yield* newAgent("report-a"), yield* newAgent("report-b"), yield* newAgent("report-c")]
        const outcomes = yield* Effect.all(
          Array.from({ length: 10 }, () => tagOf(contacts.report(a.id, b.handle, "spam"))),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(outcomes.toSorted(), [...Array<string>(9).fill("AlreadyReported"), "done"])
        assert.strictEqual(yield* tagOf(conversations.send(b, direct(a), draft("m1"))), "Blocked")
        yield* contacts.unblock(a.id, b.handle)
        assert.strictEqual(yield* tagOf(contacts.report(a.id, b.handle, null)), "AlreadyReported")
        assert.strictEqual(
          yield* tagOf(conversations.send(b, direct(a), draft("m2"))),
          "done",
          "and blocks no second time"
        )
        assert.strictEqual(yield* tagOf(contacts.report(a.id, a.handle, null)), "ValidationFailed")
        assert.deepStrictEqual(yield* sql`SELECT reason FROM reports WHERE agent_id = ${a.id}`, [{ reason: "spam" }])

        const client = yield* entityClient(DirectEntity)
        const pair = client(makeDirectIds((yield* Secrets).conversationIds)(a.id, c.id))
        const block = { agentId: a.id, blockedId: c.id, at: 7, report: null }
        assert.strictEqual(yield* pair.Block({ command: block }), "Blocked")
        assert.strictEqual(yield* pair.Block({ command: block }), "AlreadyBlocked")
        assert.strictEqual(yield* tagOf(conversations.send(c, direct(a), draft("m1"))), "Blocked")
        const report = { ...block, report: { id: "rpt_0000000000000000", reason: null } }
        assert.strictEqual(yield* pair.Block({ command: report }), "AlreadyBlocked")
        assert.strictEqual(yield* pair.Block({ command: report }), "AlreadyReported")
        const unblock = { agentId: a.id, blockedId: c.id, since: 7 }
        assert.strictEqual(yield* pair.Unblock({ command: unblock }), "Unblocked")
        assert.strictEqual(yield* pair.Unblock({ command: unblock }), "NotBlocked")
        assert.strictEqual(yield* pair.Block({ command: { ...block, at: 8 } }), "Blocked")
        assert.strictEqual(yield* pair.Unblock({ command: unblock }), "NotBlocked", "though it comes again, and late")
        assert.strictEqual(yield* tagOf(conversations.send(c, direct(a), draft("m2"))), "Blocked")
        // Both calls find the block before either ends it. One of them may be the repetition of the other after a lost
        // answer.
        const repo = yield* DirectRepo
        const { blockedSince } = repo
        const bothHaveRead = yield* Latch.make()
        let reads = 0
        const spy = vi.spyOn(repo, "blockedSince").mockImplementation((...pair) =>
          Effect.tap(blockedSince(...pair), () => ++reads === 2 ? bothHaveRead.open : bothHaveRead.await)
        )
        const ends = Effect.all([1, 2].map(() => tagOf(contacts.unblock(a.id, c.handle))), { concurrency: "unbounded" })
        assert.deepStrictEqual(yield* ends, ["done", "done"])
        spy.mockRestore()
        assert.strictEqual(yield* tagOf(contacts.unblock(a.id, c.handle)), "NotFound")
        assert.strictEqual(yield* tagOf(conversations.send(c, direct(a), draft("m3"))), "done")
      }))

    it.effect("a report whose answer was lost is not refused to a caller that repeats its key", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const [a, b] = [yield* newAgent("again-a"), yield* newAgent("again-b")]
        const report = (key: string) =>
          Effect.provideService(tagOf(contacts.report(a.id, b.handle, null)), CurrentAttempt, {
            agentId: a.id,
            key,
            createdAt: 1_000
          })
        assert.deepStrictEqual([yield* report("one"), yield* report("one"), yield* report("other")], [
          "done",
          "done",
          "AlreadyReported"
        ])
        const sql = yield* SqlClient.SqlClient
        assert.strictEqual((yield* sql`SELECT FROM reports WHERE agent_id = ${a.id}`).length, 1)
      }))

    it.effect("a deleted account is in no list and is no contact of any agent", () =>
      Effect.gen(function*() {
        const contacts = yield* Contacts
        const sql = yield* SqlClient.SqlClient
        const [a, b] = [yield* newAgent("gone-a"), yield* newAgent("gone-b")]
        yield* contacts.add(a.id, b.handle, null)
        yield* contacts.add(b.id, a.handle, "a note")
        yield* contacts.block(a.id, b.handle)
        yield* (yield* Accounts).remove(b.id)
        assert.deepInclude(yield* contacts.list(a.id, {}), { items: [], total: 0 })
        assert.deepInclude(yield* contacts.blocks(a.id, {}), { items: [], total: 0 })
        assert.isFalse((yield* contacts.check(a.id, b.handle)).is_contact)
        assert.strictEqual(yield* tagOf(contacts.annotate(a.id, b.handle, "x")), "AgentNotFound")
        assert.strictEqual(yield* tagOf(contacts.block(a.id, b.handle)), "AgentNotFound")
        assert.deepStrictEqual(yield* sql`SELECT FROM contacts WHERE agent_id = ${b.id} OR contact_id = ${b.id}`, [])
        // It counts against whom it is about (wire.md G.8).
        assert.strictEqual((yield* sql`SELECT FROM blocks WHERE blocked_id = ${b.id}`).length, 1)
      }))
  })
})
