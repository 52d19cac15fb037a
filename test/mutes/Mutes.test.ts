import { Accounts } from "#domain/agents/Accounts"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Mutes } from "#domain/mutes/Mutes"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { iso, parseInstant } from "#infrastructure/wire/Text"
import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { eachDatabase } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>

/** Two agents that have each written once, and their conversation. */
const newPair = Effect.fnUntraced(function*(name: string) {
  const conversations = yield* Conversations
  const [a, b] = [yield* newAgent(`${name}-a`), yield* newAgent(`${name}-b`)]
  const sent = yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, draft(`${name}-1`))
  yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, draft(`${name}-2`))
  return { a, b, conversation: String(parse(sent.body)["conversation_id"]) }
})

/** A socket that writes down what it is told, its mutes read as the gateway does. */
const attach = Effect.fnUntraced(function*(agentId: string) {
  const liveAgents = yield* LiveAgents
  const shown: Array<unknown> = []
  const session: LiveSession = {
    hint: (inboxNo, _messageId, _rendered, muted) => shown.push(muted ? `muted ${inboxNo}` : inboxNo),
    echo: () => shown.push("echo"),
    event: (frame) => shown.push(parse(frame)["type"]),
    close: (reason) => shown.push(reason.code)
  }
  yield* liveAgents.loadMutes(liveAgents.attach(agentId, session))
  return { shown, session }
})

describe("parseInstant", () => {
  it("takes ISO 8601 with a zone, and days that exist", () => {
    const at = Date.UTC(2031, 1, 28, 12, 30, 15)
    for (
      const text of [
        "2031-02-28T12:30:15Z",
        "2031-02-28T12:30:15.000Z",
        "2031-02-28T12:30:15.000000+00:00",
        "2031-02-28t14:30:15+02:00",
        "2031-02-28T12:30:15.0009z",
        "2031-02-28T08:00:15-0430",
        "2031-03-01T12:00:15.000000000+23:30"
      ]
    ) assert.strictEqual(parseInstant(text), at, text)
    for (
      const text of [
        "",
        "tomorrow",
        "1",
        "2031",
        "2031-02-28",
        "2031-02-28T12:30:15",
        "2031-02-30T12:30:15Z",
        "2031-13-01T12:30:15Z",
        "2031-02-28T25:00:00Z",
        "Fri, 28 Feb 2031 12:30:15 GMT",
        "Feb 28 2031",
        "Feb 28 2031 12:30:15 Z",
        "5",
        "2031-02-28 12:30:15Z",
        " 2031-02-28T12:30:15Z",
        "2031-02-28T12:30:15Z\n",
        "2031-02-28T24:00:00Z",
        "2031-02-28T12:60:00Z",
        "2031-02-28T12:30:60Z",
        "2031-02-28T12:30:15.Z",
        "2031-02-28T12:30:15+24:00",
        "2031-02-28T12:30:15+02:60",
        "2031-02-28T12:30:15+02",
        "2100-02-29T00:00:00Z",
        "0031-02-29T00:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "9999-12-31T23:59:59.999-00:01",
        "0000-01-01T00:00:00+01:00",
        "0000-01-01T00:00+00:01"
      ]
    ) assert.strictEqual(parseInstant(text), undefined, text)
    assert.strictEqual(parseInstant("0032-02-29T00:00Z"), Date.parse("0032-02-29T00:00:00Z"))
    for (const edge of ["0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
      assert.strictEqual(iso(parseInstant(edge) ?? 0), edge)
    assert.strictEqual(parseInstant("9999-12-31T22:59:59-01:00"), parseInstant("9999-12-31T23:59:59Z"))
    assert.strictEqual(parseInstant("2032-02-29T23:59:59.123456Z"), Date.UTC(2032, 1, 29, 23, 59, 59, 123))
  })
})

eachDatabase((database) => {
  layer(layerModules(database, { LIMITS_MUTES_PER_AGENT: 3 }))((it) => {
    it.effect("a mute ends by the clock, is refreshed by a repetition, and begins anew once it has ended", () =>
      Effect.gen(function*() {
        const mutes = yield* Mutes
        const [a, b] = [yield* newAgent("ends-a"), yield* newAgent("ends-b")]
        const target = { kind: "agent", handle: b.handle } as const
        const began = yield* Clock.currentTimeMillis
        const first = yield* mutes.mute(a.id, target, began + 1_000)
        assert.deepStrictEqual(first, {
          muterId: a.id,
          kind: "agent",
          targetId: b.id,
          targetHandle: b.handle,
          mutedUntil: began + 1_000,
          createdAt: began
        })
        yield* TestClock.adjust(500)
        const again = yield* mutes.mute(a.id, { kind: "agent", id: b.id }, began + 2_000)
        assert.deepStrictEqual(again, { ...first, mutedUntil: began + 2_000 })
        yield* TestClock.adjust(1_499)
        assert.deepStrictEqual(yield* mutes.find(a.id, target), again)
        yield* TestClock.adjust(1)
        assert.strictEqual((yield* Effect.flip(mutes.find(a.id, target)))._tag, "NotFound")
        assert.strictEqual((yield* Effect.flip(mutes.lift(a.id, target)))._tag, "NotFound")
        assert.deepStrictEqual((yield* mutes.list(a.id, undefined, {})).items, [])
        const anew = yield* mutes.mute(a.id, target, null)
        assert.deepStrictEqual(anew, { ...first, mutedUntil: null, createdAt: began + 2_000 })
        yield* mutes.lift(a.id, target)
        assert.strictEqual((yield* Effect.flip(mutes.lift(a.id, target)))._tag, "NotFound")
      }))

    it.effect("only existing agents and conversations can be muted, and no more than the limit", () =>
      Effect.gen(function*() {
        const mutes = yield* Mutes
        const { a, b, conversation } = yield* newPair("limits")
        const outsider = yield* newAgent("limits-c")
        const refusal = (target: Parameters<typeof mutes.mute>[1], by = a) =>
          Effect.map(Effect.flip(mutes.mute(by.id, target, null)), (error) => error._tag)
        assert.strictEqual(yield* refusal({ kind: "agent", handle: a.handle }), "SelfMute")
        assert.strictEqual(yield* refusal({ kind: "agent", id: a.id }), "SelfMute")
        assert.strictEqual(yield* refusal({ kind: "agent", handle: "nobody" }), "AgentNotFound")
        assert.strictEqual(yield* refusal({ kind: "agent", id: conversation }), "AgentNotFound")
        assert.strictEqual(yield* refusal({ kind: "conversation", id: conversation }, outsider), "ConversationNotFound")
        assert.strictEqual(
          yield* refusal({ kind: "conversation", id: "conv_AAAAAAAAAAAAAAAA" }),
          "ConversationNotFound"
        )
        const at = yield* Clock.currentTimeMillis
        yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, at + 1_000)
        yield* mutes.mute(a.id, { kind: "agent", handle: outsider.handle }, null)
        yield* mutes.mute(a.id, { kind: "conversation", id: conversation }, null)
        const other = yield* newAgent("limits-d")
        assert.strictEqual(yield* refusal({ kind: "agent", handle: other.handle }), "TooManyMutes")
        yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, at + 2_000)
        yield* TestClock.adjust(2_000)
        yield* mutes.mute(a.id, { kind: "agent", handle: other.handle }, null)
        assert.strictEqual(yield* refusal({ kind: "agent", handle: b.handle }), "TooManyMutes", "its mute has ended")
        yield* mutes.lift(a.id, { kind: "agent", handle: other.handle })
        yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, null)
      }))

    it.effect("the list is newest first, in pages without gaps while mutes come and are refreshed, of one kind if asked", () =>
      Effect.gen(function*() {
        const mutes = yield* Mutes
        const { a, b, conversation } = yield* newPair("list")
        const c = yield* newAgent("list-c")
        yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, null)
        yield* TestClock.adjust(1)
        yield* mutes.mute(a.id, { kind: "agent", handle: c.handle }, null)
        yield* mutes.mute(a.id, { kind: "conversation", id: conversation }, null)
        const all = yield* mutes.list(a.id, undefined, {})
        assert.deepStrictEqual(all.items.map((mute) => mute.targetId), [conversation, c.id, b.id])
        assert.deepStrictEqual([all.total, all.limit, all.offset, all.nextCursor], [3, 200, 0, null])
        const late = yield* newAgent("list-late")
        const paged: Array<string> = []
        for (let cursor: string | null | undefined; cursor !== null;) {
          const page = yield* mutes.list(a.id, undefined, { limit: 1, ...(cursor === undefined ? {} : { cursor }) })
          paged.push(...page.items.map((mute) => mute.targetId))
          cursor = page.nextCursor
          yield* TestClock.adjust(1)
          if (paged.length === 2) {
            yield* mutes.lift(a.id, { kind: "agent", handle: c.handle })
            yield* mutes.mute(a.id, { kind: "agent", handle: late.handle }, null)
          }
          yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, Number.MAX_SAFE_INTEGER)
        }
        assert.deepStrictEqual(paged, [conversation, c.id, b.id])
        const agents = yield* mutes.list(a.id, "agent", { limit: 1, offset: 1 })
        assert.deepStrictEqual([agents.items.map((mute) => mute.targetHandle), agents.total], [[b.handle], 2])
      }))

    it.effect("a muted message is stored, in sync and unread, and passed over on open sockets", () =>
      Effect.gen(function*() {
        const mutes = yield* Mutes
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const liveAgents = yield* LiveAgents
        const { a, b, conversation } = yield* newPair("push")
        const { session, shown } = yield* attach(b.id)
        let n = 0
        const say = conversations.send.bind(conversations)
        const write = Effect.suspend(() => say(a, { _tag: "Direct", handle: b.handle }, draft(`push-m${n++}`)))
        const type = conversations.typing(a.id, a.handle, conversation, "typing.start")
        const muted = Effect.map(conversations.list(b.id, {}), (page) => page.items[0]?.is_muted)
        yield* write
        const at = yield* Clock.currentTimeMillis
        yield* mutes.mute(b.id, { kind: "agent", handle: a.handle }, at + 1_000)
        yield* write
        yield* type
        assert.isTrue(yield* muted)
        yield* TestClock.adjust(1_000)
        assert.isFalse(yield* muted)
        yield* write
        yield* mutes.mute(b.id, { kind: "conversation", id: conversation }, null)
        yield* write
        yield* type
        assert.isTrue(yield* muted)
        yield* mutes.lift(b.id, { kind: "conversation", id: conversation })
        yield* write
        yield* type
        assert.deepStrictEqual(shown, [2, "muted 3", 4, "muted 5", 6, "typing.start"])
        assert.strictEqual((yield* deliveries.sync(b.id, undefined, 10)).length, 6)
        assert.strictEqual((yield* conversations.list(b.id, {})).items[0]?.unread_count, 6)
        // What a sender is told of reads is not muted, in either direction.
        yield* mutes.mute(b.id, { kind: "agent", handle: a.handle }, null)
        yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, null)
        const told = yield* attach(a.id)
        yield* deliveries.readThrough(b.id, b.handle, conversation, 100)
        assert.deepStrictEqual(told.shown, ["message.read"])
        // Others of the muter are not touched, and a new first socket reads the mutes as they are by then.
        liveAgents.detach(b.id, session)
        const later = yield* attach(b.id)
        yield* write
        assert.deepStrictEqual(later.shown, ["muted 7"])
      }))

    it.effect("a mute that was changed on another node is read again on its notice", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const conversations = yield* Conversations
        const { a, b } = yield* newPair("entity")
        const { shown } = yield* attach(b.id)
        const at = yield* Clock.currentTimeMillis
        yield* sql`INSERT INTO mutes (muter_id, kind, target_id, created_at) VALUES (${b.id}, 'agent', ${a.id}, ${at})`
        yield* (yield* LiveAgents).muteChanged(b.id, "agent", a.id)
        yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, draft("entity-3"))
        assert.deepStrictEqual(shown, ["muted 2"])
      }))

    it.effect("an account that ends takes its mutes and those on it along, on open sockets too", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const mutes = yield* Mutes
        const [a, b, c] = [yield* newAgent("gone-a"), yield* newAgent("gone-b"), yield* newAgent("gone-c")]
        yield* mutes.mute(a.id, { kind: "agent", handle: b.handle }, null)
        yield* mutes.mute(b.id, { kind: "agent", handle: c.handle }, null)
        yield* mutes.mute(a.id, { kind: "agent", handle: c.handle }, null)
        yield* mutes.mute(c.id, { kind: "agent", handle: b.handle }, null)
        yield* attach(a.id)
        yield* attach(c.id)
        yield* (yield* Accounts).remove(b.id)
        const liveAgents = yield* LiveAgents
        const muted = (muter: string) => [b.id, c.id].map((id) => liveAgents.live(muter)?.mutes?.covers(id, "conv_any"))
        assert.deepStrictEqual([muted(a.id), muted(c.id)], [[false, true], [false, false]])
        const left = yield* sql<{ target_id: string }>`
          SELECT target_id FROM mutes WHERE muter_id IN (${a.id}, ${b.id}, ${c.id})`
        assert.deepStrictEqual(left.map((row) => row.target_id), [c.id])
      }))

    it.effect("mutes that have ended are swept", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const [a, b] = [yield* newAgent("swept-a"), yield* newAgent("swept-b")]
        const at = yield* Clock.currentTimeMillis
        yield* (yield* Mutes).mute(a.id, { kind: "agent", handle: b.handle }, at + 1)
        const left = sql`SELECT FROM mutes WHERE muter_id = ${a.id}`
        assert.strictEqual((yield* left).length, 1)
        yield* TestClock.adjust("2 hours")
        for (let i = 0; i < 100 && (yield* left).length > 0; i++) yield* Effect.yieldNow
        assert.strictEqual((yield* left).length, 0)
      }))
  })
})
