import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { type Append, makeAppend } from "../../src/conversations/Append.ts"
import { layerPostgresTest } from "../support/Databases.ts"
import { draft, newAgents, type Party } from "../support/Rooms.ts"

it.live("a new owner's first batch knows what the owner before committed while it waited", () =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const append = yield* makeAppend(1_000, () => {})
    const [a, b] = (yield* newAgents(2)) as [Party, Party]
    yield* sql`
      INSERT INTO conversations (id, kind, epoch, last_seq, last_message_at, created_at, initiator_id)
      VALUES ('conv_ab', 'direct', 1, 0, 0, 0, ${a.id})`
    const from = (sender: Party, recipient: Party, nextEpoch: number): Append => ({
      conversationId: "conv_ab",
      epoch: 1,
      nextEpoch,
      version: 0,
      opens: false,
      establishes: false,
      senderId: sender.id,
      recipientId: recipient.id,
      messageId: `msg_${sender.handle}`,
      at: 0,
      draft: draft(sender.handle),
      requestId: null
    })
    const written = yield* Deferred.make<void>()
    const end = yield* Deferred.make<void>()
    const before = yield* Effect.forkChild(sql.withTransaction(
      append([from(b, a, 1)], 60_000).pipe(
        Effect.tap(() => Deferred.succeed(written, undefined)),
        Effect.tap(() => Deferred.await(end))
      )
    ))
    yield* Deferred.await(written)
    const after = yield* Effect.forkChild(append([from(a, b, 2)], 60_000))
    yield* sql`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`.pipe(
      Effect.filterOrFail((rows) => rows.length > 0),
      Effect.retry(Schedule.spaced("5 millis")),
      Effect.timeout("1 minute")
    )
    yield* Deferred.succeed(end, undefined)
    const [[first], [second]] = [yield* Fiber.join(before), yield* Fiber.join(after)]
    assert.deepInclude(first, { _tag: "Stored", seq: 1, inboxNo: 1 })
    // The inbox of `a` has the message that comes before its own.
    assert.deepInclude(second, { _tag: "Stored", seq: 2, senderLastInboxNo: 1 })
  }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 4 }))))
