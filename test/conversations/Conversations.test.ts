import { Conversations } from "#domain/conversations/Conversations"
import { HistoryRepo } from "#domain/conversations/HistoryRepo"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { eachDatabase } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

const parse = (text: string): Record<string, unknown> => JSON.parse(text) as Record<string, unknown>

eachDatabase((database) => {
  layer(layerModules(database))((it) => {
    it.effect("a thread has answers whose old metadata PostgreSQL cannot read", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const [a, b] = [yield* newAgent("thread-a"), yield* newAgent("thread-b")]
        const root = parse((yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, draft("root"))).body)
        const answer = yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, draft("answer"))
        const sql = yield* SqlClient.SqlClient
        for (const old of ["\\u0000", "\\ud800"]) {
          yield* sql`
            UPDATE messages SET metadata = ${`{"reply_to":"${String(root["id"])}","old":"${old}"}`}
            WHERE id = ${String(parse(answer.body)["id"])}`
          const page = { limit: 50, before: null, after: null, around: null, thread: String(root["id"]) }
          const thread = yield* conversations.history(a.id, String(root["conversation_id"]), page)
          assert.lengthOf(thread, 2, old)
        }
      }))

    it.effect("a first message opens a cold conversation, a reply establishes it", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const deliveries = yield* Deliveries
        const a = yield* newAgent("first-a")
        const b = yield* newAgent("first-b")
        const sent = yield* conversations.send(a, { _tag: "Direct", handle: "first-b" }, draft("m1"))
        assert.isTrue(sent.created)
        const message = parse(sent.body)
        assert.strictEqual(message["seq"], 1)
        const conversationId = String(message["conversation_id"])
        assert.strictEqual((yield* conversations.context(a.id, conversationId)).direct_state?.state, "cold")
        const refused = yield* Effect.flip(conversations.send(a, { _tag: "Direct", handle: "first-b" }, draft("m2")))
        assert.strictEqual(refused._tag, "AwaitingReply")
        const again = yield* conversations.send(a, { _tag: "Direct", handle: "first-b" }, draft("m1"))
        assert.isFalse(again.created)
        assert.strictEqual(parse(again.body)["id"], message["id"])
        const rows = yield* deliveries.sync(b.id, undefined, 10)
        assert.strictEqual(rows.length, 1)
        yield* conversations.send(b, { _tag: "Direct", handle: "first-a" }, draft("m1"))
        const context = yield* conversations.context(a.id, conversationId)
        assert.strictEqual(context.direct_state?.state, "established")
        assert.isTrue(context.relationship?.is_contact)
        yield* conversations.send(a, { _tag: "Direct", handle: "first-b" }, draft("m3"))
        const history = yield* conversations.history(a.id, conversationId, {
          limit: 50,
          before: null,
          after: null,
          around: null
        })
        assert.deepStrictEqual(history.map((row) => parse(row)["seq"]), [3, 2, 1])
        assert.strictEqual((yield* conversations.list(b.id, {})).items[0]?.unread_count, 2)
        const last = parse((yield* deliveries.sync(b.id, undefined, 10)).at(-1) ?? "")
        assert.strictEqual(yield* deliveries.acknowledgeThrough(b.id, String(last["delivery_id"])), 2)
        yield* deliveries.read(b.id, "first-b", String(last["id"]))
        yield* conversations.hideMessage(b.id, String(last["id"]))
        yield* conversations.hide(b.id, conversationId)
        assert.strictEqual((yield* conversations.list(b.id, {})).items.length, 0)
      }))

    it.effect("a list reads the last message of a conversation only if the list shows its text", () =>
      Effect.gen(function*() {
        const conversations = yield* Conversations
        const [a, b] = [yield* newAgent("preview-a"), yield* newAgent("preview-b")]
        yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, draft("a text"))
        const page = { after: null, offset: 0, limit: 1 }
        const listed = Effect.flatMap(HistoryRepo, (repo) => repo.list(b.id, page, 0))
        assert.deepInclude((yield* listed)[0]?.last, { type: "text", content: '{"text":"a text"}' })
        yield* conversations.send(b, { _tag: "Direct", handle: a.handle }, {
          ...draft("structured"),
          type: "structured",
          content: JSON.stringify({ data: { long: "x".repeat(30_000) } })
        })
        assert.deepInclude((yield* listed)[0]?.last, { type: "structured", content: "{}" })
        assert.strictEqual((yield* conversations.list(b.id, {})).items[0]?.last_message_preview, "Structured message")
      }))

    it.effect("a suspended sender gets no replay, whatever refuses the send (wire.md C.6)", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const conversations = yield* Conversations
        const [a, b] = [yield* newAgent("replay-a"), yield* newAgent("replay-b")]
        const sent = yield* conversations.send(a, { _tag: "Direct", handle: b.handle }, draft("m1"))
        const direct = (handle: string) => ({ _tag: "Direct", handle }) as const
        const conversation = (id: string) => ({ _tag: "Conversation", id }) as const
        const targets = {
          "the recipient": direct(b.handle),
          "a handle that nobody has": direct("replay-nobody"),
          "itself": direct(a.handle),
          "a group that does not exist": conversation("grp_AAAAAAAAAAAAAAAA"),
          "a direct conversation by its id": conversation(String(parse(sent.body)["conversation_id"]))
        }
        const replayed = Effect.filter(
          Object.keys(targets) as ReadonlyArray<keyof typeof targets>,
          (name) =>
            Effect.match(conversations.send(a, targets[name], draft("m1")), {
              onSuccess: ({ created }) => !created,
              onFailure: () => false
            })
        )
        assert.deepStrictEqual(yield* replayed, Object.keys(targets), "while it is active")
        yield* sql`UPDATE agents SET status = 'suspended' WHERE id = ${a.id}`
        assert.deepStrictEqual(yield* replayed, [], "once it is suspended")
      }))
  })
}, { oldest: true })
