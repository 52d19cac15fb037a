import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { SLICE_ROWS } from "#domain/deliveries/DeliveriesRepo"
import { Groups } from "#domain/groups/Groups"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Database } from "#infrastructure/database/Sql"
import { unavailable } from "#infrastructure/database/SqlUnavailable"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Exit, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { eachDatabase, type TestDatabase } from "../support/Databases.ts"
import { draft, layerModules, newAgent, type Party } from "../support/Modules.ts"

interface Ran {
  readonly name: string
  /** How many turns of the event loop there were before it. */
  readonly turn: number
}

/** The prepared statements that ran, and which of them fails. */
class Statements extends Context.Service<Statements, {
  readonly ran: Array<Ran>
  failAt: { readonly name: string; readonly nth: number } | undefined
}>()("test/Statements") {}

const layerStatements = Layer.effect(
  Statements,
  Effect.sync(() => Statements.of({ ran: [], failAt: undefined }))
)

const watched = (database: TestDatabase) => {
  const watching = Layer.effectContext(Effect.gen(function*() {
    const inner = yield* Database
    const sql = yield* SqlClient.SqlClient
    const statements = yield* Statements
    let turn = 0
    let ticking = true
    const tick = () => {
      turn++
      if (ticking) setImmediate(tick).unref()
    }
    tick()
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        ticking = false
      })
    )
    const watched = <A, E>(
      name: string,
      run: (params: ReadonlyArray<unknown>) => Effect.Effect<A, E>,
      fail: (error: SqlError.SqlError) => Effect.Effect<never, E>
    ) =>
    (params: ReadonlyArray<unknown>): Effect.Effect<A, E> =>
      Effect.suspend(() => {
        statements.ran.push({ name, turn })
        const { failAt } = statements
        return failAt?.name === name && statements.ran.filter((one) => one.name === name).length === failAt.nth
          ? fail(sqlError(new DatabaseFault({ code: "53100", message: "the disk is full" }), name))
          : run(params)
      })
    return Context.make(Database, {
      ...inner,
      prepared: <Row extends object>(name: string, text: string) =>
        watched(name, inner.prepared<Row>(name, text), unavailable),
      raw: <Row extends object>(name: string, text: string) => watched(name, inner.raw<Row>(name, text), Effect.fail)
    }).pipe(Context.add(SqlClient.SqlClient, sql))
  }))
  return Layer.provideMerge(watching, database)
}

/** Runs it, and returns its exit and what statements of this name ran meanwhile. */
const during = Effect.fnUntraced(function*<A, E, R>(name: string, effect: Effect.Effect<A, E, R>, nth?: number) {
  const statements = yield* Statements
  statements.ran.length = 0
  statements.failAt = nth === undefined ? undefined : { name, nth }
  const exit = yield* Effect.exit(effect)
  statements.failAt = undefined
  const all = [...statements.ran]
  return { exit, all, ran: all.filter((one) => one.name === name) }
})

/** What an inbox says, and what is so. */
const look = Effect.fnUntraced(function*(agent: Party) {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ said: number; waiting: number; unread: number; through: number; last: number }>`
    SELECT undelivered AS said, delivered_through AS through, last_no AS last,
      (SELECT count(*) FROM envelopes WHERE recipient_id = agent_id AND delivered_at IS NULL) AS waiting,
      (SELECT count(*) FROM envelopes WHERE recipient_id = agent_id AND read_at IS NULL) AS unread
    FROM inboxes WHERE agent_id = ${agent.id}`
  if (row === undefined) return assert.fail("no inbox")
  assert.strictEqual(row.said, row.waiting)
  return row
})

/** Has n more messages in a conversation, from one to the other, as if they had been sent. */
const fill = Effect.fnUntraced(function*(id: string, from: Party, to: Party, n: number) {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    WITH last AS (SELECT max(seq) AS seq FROM messages WHERE conversation_id = ${id}), made AS (
      INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
      SELECT ${id}, l.seq + i, 'msg_' || ${id} || (l.seq + i), ${from.id}, ${id} || (l.seq + i), 'text', '{"text":"x"}', '{}', 0
      FROM last l, generate_series(1, ${n}::integer) i
    ), raised AS (
      UPDATE inboxes SET last_no = last_no + ${n}, undelivered = undelivered + ${n} WHERE agent_id = ${to.id} RETURNING last_no
    ), counted AS (
      UPDATE conversations SET last_seq = last_seq + ${n} WHERE id = ${id}
    ) INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
    SELECT ${to.id}, r.last_no - ${n}::bigint + i, ${id}, l.seq + i FROM last l, raised r, generate_series(1, ${n}::integer) i`
})

/** Two agents with n messages and one from the first to the second, and what the first is told. */
const pair = Effect.fnUntraced(function*(name: string, n: number) {
  const conversations = yield* Conversations
  const [writer, reader] = [yield* newAgent(`${name}-writer`), yield* newAgent(`${name}-reader`)]
  const { body } = yield* conversations.send(writer, { _tag: "Direct", handle: reader.handle }, draft(`${name}-first`))
  const id = String((JSON.parse(body) as { readonly conversation_id: unknown }).conversation_id)
  yield* fill(id, writer, reader, n)
  return { writer, reader, id, told: yield* listen(writer) }
})

/** The seqs of the receipts that an agent is told. */
const listen = Effect.fnUntraced(function*(agent: Party) {
  const told: Array<readonly [seq: number, through: number]> = []
  ;(yield* LiveAgents).attach(agent.id, {
    hint: () => undefined,
    echo: () => undefined,
    event: (frame) => {
      const { payload, type } = JSON.parse(String(frame)) as {
        type: string
        payload: { seq: number; through_seq: number }
      }
      if (type === "message.read") told.push([payload.seq, payload.through_seq])
    },
    close: () => undefined
  })
  return told
})

const MORE = 2 * SLICE_ROWS + 500

const assertTurns = (ran: ReadonlyArray<Ran>) => {
  for (let i = 2; i < ran.length; i++) assert.isAbove(ran[i]!.turn, ran[i - 2]!.turn, "others had a turn in between")
}

/** On PostgreSQL they have connections of their own. */
const assertOthers = (all: ReadonlyArray<Ran>, name: string) => {
  const places = all.flatMap((one, i) => one.name === name ? [i] : [])
  for (let i = 1; i < places.length; i++) {
    assert.isAbove(places[i]! - places[i - 1]!, 1, "another statement ran in between")
  }
}

eachDatabase((database, { version }) => {
  layer(Layer.provideMerge(layerModules(watched(database) as TestDatabase), layerStatements))((it) => {
    it.effect("an acknowledgement of many envelopes is several statements with turns in between, one of few is one", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { reader } = yield* pair("acks", MORE)
        const other = yield* newAgent("acks-other")
        const cursor = deliveries.ids.encode(reader.id, MORE - 9)
        const { all, exit, ran } = yield* during(
          "acknowledge_through",
          Effect.raceFirst(
            deliveries.acknowledgeThrough(reader.id, cursor),
            Effect.forever(deliveries.heads([other.id]))
          )
        )
        assert.deepStrictEqual(exit, Exit.succeed(MORE - 9))
        assert.strictEqual(ran.length, 3)
        assertTurns(ran)
        if (version === undefined) assertOthers(all, "acknowledge_through")
        const { through, waiting } = yield* look(reader)
        assert.deepStrictEqual([waiting, through], [10, MORE - 9])
        const few = yield* during(
          "acknowledge_through",
          deliveries.acknowledgeThrough(reader.id, deliveries.ids.encode(reader.id, MORE))
        )
        assert.deepStrictEqual([few.exit, few.ran.length], [Exit.succeed(9), 1])
      }))

    it.effect("an acknowledgement that fails between two statements leaves what was done, and its repetition does the rest", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { reader } = yield* pair("acks-fail", MORE)
        const acknowledge = deliveries.acknowledgeThrough(reader.id, deliveries.ids.encode(reader.id, MORE + 1))
        const failed = yield* during("acknowledge_through", Effect.flip(acknowledge), 2)
        assert.strictEqual(Exit.isSuccess(failed.exit) && failed.exit.value._tag, "Unavailable")
        assert.strictEqual((yield* look(reader)).waiting, MORE + 1 - SLICE_ROWS)
        assert.strictEqual(yield* acknowledge, MORE + 1 - SLICE_ROWS)
        assert.strictEqual((yield* look(reader)).waiting, 0)
      }))

    it.effect("closing a full inbox is the same statements, past what was delivered out of order", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const sql = yield* SqlClient.SqlClient
        const { reader } = yield* pair("close", MORE)
        yield* sql`
          WITH done AS (UPDATE envelopes SET delivered_at = 1 WHERE recipient_id = ${reader.id} AND no > 1 AND no % 2 = 0 RETURNING no)
          UPDATE inboxes SET undelivered = undelivered - (SELECT count(*) FROM done) WHERE agent_id = ${reader.id}`
        const { ran } = yield* during("acknowledge_through", deliveries.closeAll(reader.id, 5))
        assert.strictEqual(ran.length, 3)
        const { last, through, waiting } = yield* look(reader)
        assert.deepStrictEqual([waiting, through], [0, last])
      }))

    it.effect("a read of many messages is several statements with turns in between, and tells its sender once", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { id, reader, told } = yield* pair("reads", MORE)
        const [other, fresh] = [yield* pair("reads-other", 3), yield* newAgent("reads-fresh")]
        const read = (seq: number) => deliveries.readThrough(reader.id, reader.handle, id, seq)
        const { all, exit, ran } = yield* during(
          "read",
          Effect.raceFirst(read(MORE - 9), Effect.forever(deliveries.heads([fresh.id])))
        )
        assert.isTrue(Exit.isSuccess(exit))
        assert.strictEqual(ran.length, 3)
        assertTurns(ran)
        if (version === undefined) assertOthers(all, "read")
        assert.deepStrictEqual(told, [[MORE - 9, MORE - 9]])
        const { unread, waiting } = yield* look(reader)
        assert.deepStrictEqual([unread, waiting], [10, 10])
        const few = yield* during("read", read(MORE + 1))
        assert.strictEqual(few.ran.length, 1)
        assert.deepStrictEqual(told.slice(1), [[MORE + 1, MORE + 1]])
        // A read of few messages that comes while one of many is under way waits for one statement of it, not for all.
        yield* fill(id, other.writer, reader, MORE)
        const order: Array<string> = []
        yield* Effect.all([
          Effect.tap(read(2 * MORE + 1), () => Effect.sync(() => order.push("many"))),
          Effect.tap(
            deliveries.readThrough(other.reader.id, other.reader.handle, other.id, 4),
            () => Effect.sync(() => order.push("few"))
          )
        ], { concurrency: "unbounded" })
        assert.deepStrictEqual(order, ["few", "many"])
        assert.deepStrictEqual(other.told, [[4, 4], [2 * MORE + 1, 2 * MORE + 1]])
      }))

    it.effect("a read that fails between two statements leaves what was done, and its repetition tells the sender", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { id, reader, told } = yield* pair("reads-fail", MORE)
        const read = deliveries.readThrough(reader.id, reader.handle, id, MORE + 1)
        const failed = yield* during("read", Effect.flip(read), 2)
        assert.strictEqual(Exit.isSuccess(failed.exit) && failed.exit.value._tag, "Unavailable")
        const { unread, waiting } = yield* look(reader)
        assert.deepStrictEqual([unread, waiting, told.length], [MORE + 1 - SLICE_ROWS, MORE + 1 - SLICE_ROWS, 0])
        yield* read
        assert.deepStrictEqual(told, [[MORE + 1, MORE + 1]])
        assert.strictEqual((yield* look(reader)).unread, 0)
      }))

    it.effect("each of the many senders of a group is notified of its newest message", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const groups = yield* Groups
        const [early, late, reader] = [
          yield* newAgent("grp-early"),
          yield* newAgent("grp-late"),
          yield* newAgent("grp-reader")
        ]
        const profile = { name: "Band", description: null, avatarUrl: null }
        const { add_results, group } = yield* groups.create(late, { profile, handles: [reader.handle] })
        yield* groups.accept(reader, add_results[0]?.invite_id ?? "")
        const conversations = yield* Conversations
        yield* conversations.send(late, { _tag: "Conversation", id: group.id }, draft("grp-first"))
        yield* fill(group.id, early, reader, SLICE_ROWS / 2)
        yield* fill(group.id, late, reader, MORE)
        const told = [yield* listen(early), yield* listen(late)]
        const before = yield* look(reader)
        const { ran } = yield* during(
          "read",
          deliveries.readThrough(reader.id, reader.handle, group.id, Number.MAX_SAFE_INTEGER)
        )
        assert.isAtLeast(ran.length, 3)
        assert.deepStrictEqual(told.map(({ length }) => length), [1, 1])
        const [[[newest, through]], [[last, end]]] = told as unknown as [[[number, number]], [[number, number]]]
        assert.isAtLeast(through, newest)
        assert.strictEqual(end, last)
        assert.strictEqual(last - newest, MORE)
        assert.isAbove(before.unread, MORE)
        assert.strictEqual((yield* look(reader)).unread, 0)
        // Marks that share a statement have few rows each, and tell nobody twice all the same.
        for (const [sender, n] of [[early, 1], [late, 400], [early, 1]] as const)
          yield* fill(group.id, sender, reader, n)
        const reads = (id: string) => deliveries.readThrough(reader.id, reader.handle, id, Number.MAX_SAFE_INTEGER)
        const shared = yield* during(
          "read",
          Effect.all([reads(group.id), ...Array.from({ length: 19 }, (_, i) => reads(`conv_none${i}`))], {
            concurrency: "unbounded"
          })
        )
        assert.isAbove(shared.ran.length, 1)
        assert.deepStrictEqual(
          told.map((seqs) => seqs.slice(1)),
          [[[last + 402, last + 402]], [[last + 401, last + 402]]]
        )
      }))
  })
}, { oldest: true, pglite: true })
