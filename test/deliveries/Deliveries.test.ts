import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { DeliveriesRepo } from "#domain/deliveries/DeliveriesRepo"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { eachDatabase } from "../support/Databases.ts"
import { whileTimePasses } from "../support/Eventually.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

type Json = Record<string, unknown>
const parse = (text: string): Json => JSON.parse(text) as Json
const direct = (handle: string) => ({ _tag: "Direct", handle }) as const

/** The frames that an agent's sockets are told, messages apart. */
const listen = Effect.fnUntraced(function*(agentId: string) {
  const frames: Array<Json> = []
  const session: LiveSession = {
    hint: () => undefined,
    echo: () => undefined,
    event: (frame) => frames.push(parse(frame)),
    close: () => undefined
  }
  ;(yield* LiveAgents).attach(agentId, session)
  return frames
})

/** Two agents that know each other, and n messages from the second to the first: seqs 3 to n + 2. */
const pair = Effect.fnUntraced(function*(name: string, n: number) {
  const conversations = yield* Conversations
  const reader = yield* newAgent(`${name}-reader`)
  const writer = yield* newAgent(`${name}-writer`)
  yield* conversations.send(writer, direct(reader.handle), draft("m1"))
  yield* conversations.send(reader, direct(writer.handle), draft("m1"))
  const sent: Array<string> = []
  let id = ""
  for (let i = 0; i < n; i++) {
    const message = parse((yield* conversations.send(writer, direct(reader.handle), draft(`m${i + 3}`))).body)
    sent.push(String(message["id"]))
    id = String(message["conversation_id"])
  }
  return { reader, writer, sent, id }
})

const counters = (agentId: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql<{ undelivered: number; counted: number }>`
        SELECT undelivered, (SELECT count(*) FROM envelopes WHERE recipient_id = agent_id AND delivered_at IS NULL) AS counted
        FROM inboxes WHERE agent_id = ${agentId}`,
      (rows) => {
        assert.strictEqual(rows[0]?.undelivered, rows[0]?.counted)
        return rows[0]?.undelivered
      }
    ))

eachDatabase((database) => {
  layer(layerModules(database, { LIMITS_SENDS_PER_SECOND: 1_000_000 }))((it) => {
    it.effect("many reads of one message at once notify the sender once", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { reader, sent, writer } = yield* pair("once", 3)
        const frames = yield* listen(writer.id)
        yield* TestClock.adjust(1_000)
        const read = deliveries.read(reader.id, reader.handle, sent[1]!)
        const bodies = yield* Effect.all(Array.from({ length: 20 }, () => read), { concurrency: "unbounded" })
        assert.strictEqual(new Set(bodies).size, 1)
        assert.strictEqual(frames.length, 1)
        const at = parse(bodies[0]!)["read_at"]
        assert.deepStrictEqual(frames[0]!["payload"], {
          message_id: sent[1],
          conversation_id: parse(bodies[0]!)["conversation_id"],
          seq: 4,
          read_by: reader.handle,
          read_at: at,
          reader: reader.handle,
          at,
          // seq 1 is not read
          through_seq: 0
        })
        yield* TestClock.adjust(1_000)
        yield* read
        assert.strictEqual(frames.length, 1)
        assert.strictEqual(parse(yield* read)["read_at"], at)
        // Reading delivers what it reads, and nothing else.
        assert.strictEqual(yield* counters(reader.id), 3)
      }))

    it.effect("marks that overlap in one batch change each message once", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { id, reader, writer } = yield* pair("overlap", 6)
        const frames = yield* listen(writer.id)
        const through = (seq: number) => deliveries.readThrough(reader.id, reader.handle, id, seq)
        yield* Effect.all([through(4), through(6), through(5), through(6), through(0), through(-1)], {
          concurrency: "unbounded"
        })
        const told = frames.map((frame) => frame["payload"] as Json)
        assert.deepStrictEqual(told.map((payload) => payload["seq"]), [
          ...new Set(told.map((payload) => payload["seq"]))
        ])
        assert.strictEqual(told.at(-1)?.["through_seq"], 6)
        assert.strictEqual(told.at(-1)?.["seq"], 6)
        assert.strictEqual(yield* counters(reader.id), 2)
        yield* through(100)
        assert.deepStrictEqual(
          [frames.at(-1)!["payload"]].map((payload) => [(payload as Json)["seq"], (payload as Json)["through_seq"]]),
          [[8, 8]]
        )
      }))

    it.effect("acknowledging is exact under acknowledgements of every kind at once", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const conversations = yield* Conversations
        const { id, reader, sent, writer } = yield* pair("exact", 40)
        const rows = (yield* deliveries.sync(reader.id, undefined, 500)).map(parse)
        assert.strictEqual(rows.length, 41)
        for (let inboxNo = 1; inboxNo <= 41; inboxNo += 3) deliveries.acknowledge(reader.id, inboxNo)
        const cursor = (inboxNo: number) => String(rows[inboxNo - 1]!["delivery_id"])
        const acked = yield* whileTimePasses(Effect.all([
          deliveries.acknowledgeThrough(reader.id, cursor(10)),
          deliveries.acknowledgeThrough(reader.id, cursor(20)),
          deliveries.acknowledgeThrough(reader.id, deliveries.ids.encode(writer.id, 41)),
          deliveries.acknowledgeThrough(reader.id, "del_nonsense"),
          Effect.as(deliveries.readThrough(reader.id, reader.handle, id, 25), 0),
          Effect.as(conversations.hideMessage(reader.id, sent[30]!), 0)
        ], { concurrency: "unbounded" }))
        yield* whileTimePasses(deliveries.settled)
        assert.deepStrictEqual(acked.slice(2), [0, 0, 0, 0])
        const waiting = (yield* deliveries.sync(reader.id, undefined, 500)).map((row) =>
          deliveries.ids.decode(reader.id, String(parse(row)["delivery_id"]))
        )
        // Inbox number n is seq 1 for the first and n + 1 after the reader's own seq 2; sent[30] is number 32.
        assert.deepStrictEqual(
          waiting,
          rows.map((_, i) => i + 1).filter((inboxNo) => inboxNo > 24 && inboxNo !== 32 && inboxNo % 3 !== 1)
        )
        assert.strictEqual(yield* counters(reader.id), waiting.length)
        assert.deepStrictEqual(
          (yield* deliveries.sync(reader.id, cursor(30), 3)).map((row) => parse(row)["delivery_id"]),
          waiting.filter((inboxNo) => inboxNo! > 30).slice(0, 3).map((inboxNo) =>
            deliveries.ids.encode(reader.id, inboxNo!)
          )
        )
        // A cursor of a time that a restored backup does not know hides nothing.
        const beyond = deliveries.ids.encode(reader.id, 42)
        assert.strictEqual((yield* deliveries.sync(reader.id, beyond, 500)).length, waiting.length)
      }))

    it.effect("acknowledging 1 and 3 in one batch leaves 2, which is offered again (wire.md E.2)", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const repo = yield* DeliveriesRepo
        const { reader } = yield* pair("gap", 3)
        yield* repo.acknowledge([1, 3].map((inboxNo) => ({ agentId: reader.id, inboxNo, at: 1 })), 60_000)
        const offered = Effect.map(
          deliveries.sync(reader.id, undefined, 500),
          (rows) => rows.map((row) => deliveries.ids.decode(reader.id, String(parse(row)["delivery_id"])))
        )
        assert.deepStrictEqual(yield* offered, [2, 4])
        assert.deepStrictEqual((yield* deliveries.page(reader.id, 0, 100))?.rows.map(({ inboxNo }) => inboxNo), [2, 4])
        yield* repo.acknowledge([{ agentId: reader.id, inboxNo: 2, at: 2 }], 60_000)
        assert.deepStrictEqual(yield* offered, [4])
        assert.strictEqual(yield* counters(reader.id), 1)
      }))

    it.effect("a message that was just acknowledged is not offered when the agent reads its inbox from the beginning", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { reader } = yield* pair("asks-again", 5)
        const rows = (yield* deliveries.page(reader.id, 0, 100))?.rows ?? []
        assert.strictEqual(rows.length, 6)
        for (const { inboxNo } of rows.slice(0, 4)) deliveries.acknowledge(reader.id, inboxNo)
        assert.strictEqual((yield* deliveries.page(reader.id, 0, 100))?.rows.length, 2)
        for (const { inboxNo } of rows.slice(4)) deliveries.acknowledge(reader.id, inboxNo)
        assert.deepStrictEqual(yield* deliveries.sync(reader.id, undefined, 100), [])
      }))

    it.effect("an agent that waits for its acknowledgements delays no other agent's read of its inbox", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const sql = yield* SqlClient.SqlClient
        const { reader } = yield* pair("waits-outside", 3)
        for (let inboxNo = 1; inboxNo <= 3; inboxNo++) deliveries.acknowledge(reader.id, inboxNo)
        let waiting: number | undefined
        yield* deliveries.page(reader.id, 0, 100, (query) =>
          Effect.andThen(
            Effect.map(
              Effect.provideService(Effect.orDie(counters(reader.id)), SqlClient.SqlClient, sql),
              (count) => {
                waiting = count
              }
            ),
            query
          ))
        assert.strictEqual(waiting, 1, "they were stored before the turn to read was taken")
      }))

    it.effect("hiding a conversation delivers its waiting messages and hides its earlier ones, and no later ones", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const conversations = yield* Conversations
        const { id, reader, writer } = yield* pair("hide", 4)
        yield* conversations.hide(reader.id, id)
        yield* conversations.hide(reader.id, id)
        assert.strictEqual(yield* counters(reader.id), 0)
        const page = { limit: 50, before: null, after: null, around: null }
        assert.deepStrictEqual(yield* conversations.history(reader.id, id, page), [])
        assert.strictEqual((yield* conversations.list(reader.id, {})).total, 0)
        yield* conversations.send(writer, direct(reader.handle), draft("after"))
        assert.deepStrictEqual((yield* conversations.history(reader.id, id, page)).map((row) => parse(row)["seq"]), [7])
        assert.strictEqual((yield* conversations.list(reader.id, {})).items[0]?.unread_count, 1)
        assert.strictEqual(
          (yield* conversations.history(writer.id, id, page)).length,
          7,
          "the other side keeps everything"
        )
        assert.strictEqual((yield* deliveries.sync(reader.id, undefined, 10)).length, 1)
        const stranger = yield* newAgent("hide-stranger")
        assert.strictEqual((yield* Effect.flip(conversations.hide(stranger.id, id)))._tag, "ConversationNotFound")
      }))

    it.effect("typing reaches the other participant only, not across a block, and no outsider may", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const sql = yield* SqlClient.SqlClient
        const { id, reader, writer } = yield* pair("typing", 1)
        const stranger = yield* newAgent("typing-stranger")
        const own = yield* listen(reader.id)
        const other = yield* listen(writer.id)
        const foreign = yield* listen(stranger.id)
        yield* conversations.typing(reader.id, reader.handle, id, "typing.start")
        yield* conversations.typing(reader.id, reader.handle, id, "typing.stop")
        const payload = { conversation_id: id, sender: reader.handle }
        assert.deepStrictEqual(other, [{ type: "typing.start", payload }, { type: "typing.stop", payload }])
        assert.deepStrictEqual([own, foreign], [[], []])
        const refused = yield* Effect.flip(conversations.typing(stranger.id, stranger.handle, id, "typing.start"))
        assert.strictEqual(refused._tag, "ConversationNotFound")
        yield* sql`INSERT INTO blocks (agent_id, blocked_id, created_at) VALUES (${writer.id}, ${reader.id}, 0)`
        yield* TestClock.adjust(1_001)
        yield* conversations.typing(reader.id, reader.handle, id, "typing.start")
        assert.strictEqual(other.length, 2)
      }))

    it.effect("closing an inbox delivers everything in it, once", () =>
      Effect.gen(function*() {
        const deliveries = yield* Deliveries
        const { reader } = yield* pair("close", 3)
        yield* deliveries.closeAll(reader.id, 5)
        yield* deliveries.closeAll(reader.id, 6)
        assert.strictEqual(yield* counters(reader.id), 0)
        assert.deepStrictEqual(yield* deliveries.sync(reader.id, undefined, 10), [])
      }))
  })
}, { oldest: true, pglite: true })
