import { makeDirectAppend } from "#domain/direct/DirectAppend"
import type { DirectAppend } from "#domain/direct/DirectConversation"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { draft, newAgents, type Party } from "../support/Modules.ts"

const conversation = (id: string, initiator: Party) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    sql`
      INSERT INTO conversations (id, kind, epoch, last_seq, last_message_at, created_at, initiator_id)
      VALUES (${id}, 'direct', 1, 0, 0, 0, ${initiator.id})`)

const from = (conversationId: string, sender: Party, recipient: Party, key: string, nextEpoch = 1): DirectAppend => ({
  conversationId,
  epoch: 1,
  nextEpoch,
  version: 0,
  opens: false,
  establishes: false,
  senderId: sender.id,
  recipientId: recipient.id,
  messageId: `msg_${conversationId}_${key}`,
  at: 0,
  draft: draft(key),
  requestId: null
})

/** Completes once so many sessions wait for a lock. */
const untilWaiting = (sessions: number) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      sql`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`.pipe(
        Effect.filterOrFail((rows) => rows.length >= sessions),
        Effect.retry(Schedule.spaced("5 millis")),
        Effect.timeout("1 minute")
      )
  )

describe("a batch that waited for its conversation knows what was committed there meanwhile", () => {
  const batches: ReadonlyArray<readonly [string, (a: Party, b: Party, c: Party) => ReadonlyArray<DirectAppend>]> = [
    ["the first of a new owner", (a, b) => [from("conv_ab", a, b, "own", 2)]],
    // Whose commit before was lost with its connection, and came through all the same.
    ["one send of the same owner", (a, b) => [from("conv_ab", a, b, "own")]],
    ["several of the same owner", (a, b, c) => [from("conv_ab", a, b, "own"), from("conv_bc", b, c, "other")]]
  ]
  for (const [what, batchOf] of batches) {
    it.live(what, () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const append = yield* makeDirectAppend(1_000, () => {})
        const [a, b, c] = (yield* newAgents(3)) as [Party, Party, Party]
        yield* conversation("conv_ab", a)
        yield* conversation("conv_bc", b)
        const written = yield* Deferred.make<void>()
        const end = yield* Deferred.make<void>()
        const before = yield* Effect.forkChild(sql.withTransaction(
          append([from("conv_ab", b, a, "before")], 60_000).pipe(
            Effect.tap(() => Deferred.succeed(written, undefined)),
            Effect.tap(() => Deferred.await(end))
          )
        ))
        yield* Deferred.await(written)
        const after = yield* Effect.forkChild(append(batchOf(a, b, c), 60_000))
        yield* untilWaiting(1)
        yield* Deferred.succeed(end, undefined)
        const [[first], [second]] = [yield* Fiber.join(before), yield* Fiber.join(after)]
        assert.deepInclude(first, { _tag: "Stored", seq: 1, inboxNo: 1 })
        // The inbox of `a` has the message that comes before its own.
        assert.deepInclude(second, { _tag: "Stored", seq: 2, senderLastInboxNo: 1 })
      }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 4 }))))
  }
})

it.effect("a batch stores no more than the recipient's backlog has room for (wire.md G.4)", () =>
  Effect.gen(function*() {
    const append = yield* makeDirectAppend(3, () => {})
    const [a, b, c] = (yield* newAgents(3)) as [Party, Party, Party]
    yield* conversation("conv_ab", a)
    yield* conversation("conv_bc", b)
    const batch = (...keys: ReadonlyArray<string>) =>
      append([...keys.map((key) => from("conv_ab", a, b, key)), from("conv_bc", b, c, `beside ${keys[0]}`)], 60_000)
    assert.deepStrictEqual((yield* batch("k1")).map(({ _tag }) => _tag), ["Stored", "Stored"])
    const answers = yield* batch("k2", "k3", "k4", "k5")
    assert.deepStrictEqual(answers.map((one) => one._tag === "Backlogged" ? one.undelivered : one._tag), [
      "Stored",
      "Stored",
      3,
      3,
      "Stored"
    ])
  }).pipe(Effect.provide(layerPgliteTest)))

it.live("batches with the same keys in other orders wait for each other one way only", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const append = yield* makeDirectAppend(1_000, () => {})
    const [sender, ...others] = (yield* newAgents(6)) as [Party, Party, Party, Party, Party, Party]
    for (const [i] of others.entries()) yield* conversation(`conv_${i}`, sender)
    const to = (i: number, key: string) => from(`conv_${i}`, sender, others[i]!, key)
    const written = yield* Deferred.make<void>()
    const end = yield* Deferred.make<void>()
    const held = yield* Effect.forkChild(Effect.exit(sql.withTransaction(
      append([to(0, "k2")], 60_000).pipe(
        Effect.tap(() => Deferred.succeed(written, undefined)),
        Effect.tap(() => Deferred.await(end)),
        Effect.andThen(Effect.interrupt)
      )
    )))
    yield* Deferred.await(written)
    // Has the first key, and waits for the second.
    const one = yield* Effect.forkChild(append([to(1, "k1"), to(2, "k2"), to(2, "k3")], 60_000))
    yield* untilWaiting(1)
    const other = yield* Effect.forkChild(Effect.exit(append([to(3, "k3"), to(4, "k1")], 60_000)))
    yield* untilWaiting(2)
    yield* Deferred.succeed(end, undefined)
    yield* Fiber.await(held)
    assert.deepStrictEqual((yield* Fiber.join(one)).map(({ _tag }) => _tag), ["Stored", "Stored", "Stored"])
    const refused = yield* Fiber.join(other)
    assert.isTrue(Exit.isFailure(refused))
    assert.include(String(Exit.isFailure(refused) ? refused.cause : ""), "UniqueViolation")
  }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 6 }))))
