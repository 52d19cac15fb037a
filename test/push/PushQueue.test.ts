import type { Push } from "#domain/push/LiveAgent"
import { PushQueue, pushTo, readPush, readSockets } from "#domain/push/PushQueue"
import type { SocketPlace } from "#domain/push/SocketPlaces"
import type { Entry, PeerConnection } from "#infrastructure/cluster/PeerConnection"
import { assert, it } from "@effect/vitest"
import { Exit, Schema } from "effect"
import * as fc from "fast-check"

const text = fc.string({ maxLength: 8, unit: "binary" })
const integer = fc.maxSafeInteger()
const rendered = fc.record({ conversationId: text, seq: integer, before: text, after: text })
const pushes: fc.Arbitrary<Push> = fc.oneof(
  fc.record({
    _tag: fc.constant("Hint" as const),
    inboxNo: integer,
    messageId: text,
    senderId: text,
    rendered,
    trace: text
  }, {
    requiredKeys: ["_tag", "inboxNo", "messageId", "senderId", "rendered"]
  }),
  fc.record({
    _tag: fc.constant("Echo" as const),
    after: integer,
    before: fc.option(integer),
    messageId: text,
    rendered
  }),
  fc.record({
    _tag: fc.constant("Event" as const),
    frame: text,
    about: fc.record({ senderId: text, conversationId: text }),
    after: integer
  }, {
    requiredKeys: ["_tag", "frame"]
  })
)

/** A queue, and the entries that it makes, as JSON. */
const queue = () => {
  const entries: Array<Entry> = []
  const line: Pick<PeerConnection, "send" | "drop"> = {
    send: (entry) => entries.push(entry),
    drop: () => assert.fail("nothing is dropped")
  }
  return {
    queue: new PushQueue(line as PeerConnection, 1),
    sent: () =>
      entries.splice(0).map((entry) =>
        JSON.parse(typeof entry === "string" ? entry : entry.encode()) as ReadonlyArray<unknown>
      )
  }
}

/** Without the fields that are undefined. */
const plain = <A>(value: A): A => JSON.parse(JSON.stringify(value)) as A

it("pushes come out as they went in, each to its receivers, in order", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(pushes, fc.array(text, { minLength: 1, maxLength: 3 })), { maxLength: 5 }), (all) => {
      const { queue: made, sent } = queue()
      const went = all.flatMap(([push, agents]) => agents.map((agent) => [agent, push] as const))
      for (const [agent, push] of went) made.push(agent, push)
      assert.strictEqual(made.waiting, went.length)
      const came = sent().flatMap((entry) => {
        const { push, to } = readPush(entry)
        return to.map(([agent, no]) => [agent, plain(pushTo(push, no))] as const)
      })
      assert.deepStrictEqual(came, plain(went))
      assert.strictEqual(made.waiting, 0)
    })
  )
})

it("a push like the one before it goes with it as long as that is not sent, and by itself after that", () => {
  const { queue: made, sent } = queue()
  const push: Push = { _tag: "Event", frame: "{}" }
  for (const agents of [["agt_a", "agt_b"], ["agt_a"]]) {
    for (const agent of agents) made.push(agent, push)
    assert.deepStrictEqual(sent().map((entry) => readPush(entry).to), [agents.map((agent) => [agent, null] as const)])
  }
})

it("the time of a commit goes with a hint of this node", () => {
  const { queue: made, sent } = queue()
  const committedAt = 12_345.25
  made.push("agt_a", {
    _tag: "Hint",
    inboxNo: 1,
    messageId: "msg_1",
    senderId: "agt_s",
    committedAt,
    rendered: { conversationId: "conv_1", seq: 1, before: "", after: "" }
  })
  assert.strictEqual(readPush(sent()[0]!).committedAt, Math.round(performance.timeOrigin + committedAt))
})

it("an announcement says which sockets an agent has when it is sent, each agent once", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(text, fc.array(integer, { maxLength: 3 })), { minLength: 1, maxLength: 6 }),
      (all) => {
        const { queue: made, sent } = queue()
        const here = new Map<string, ReadonlyArray<SocketPlace>>()
        for (const [agentId, since] of all) {
          if (since.length > 0) here.set(agentId, since.map((at) => ({ agentId, since: at })))
          else here.delete(agentId)
          made.announce(agentId, here)
        }
        const entries = sent()
        assert.lengthOf(entries, 1)
        assert.deepStrictEqual(new Map(readSockets(entries[0]!)), new Map(all))
        assert.lengthOf(readSockets(entries[0]!), new Set(all.map(([agentId]) => agentId)).size)
        // One that was sent says nothing about what comes after it.
        made.announce("agt_later", here)
        assert.deepStrictEqual(readSockets(sent()[0]!), [["agt_later", []]])
      }
    )
  )
})

const Text = Schema.String
const Rendered = Schema.Tuple([Text, Schema.Int, Text, Text])
const receivers = <No extends Schema.Top>(no: No) => Schema.Array(Schema.Tuple([Text, no]))
const OrNull = Schema.NullOr
const Entries = Schema.Union([
  Schema.Tuple([Schema.Literal("hint"), receivers(Schema.Int), Text, Text, Rendered, OrNull(Schema.Int), OrNull(Text)]),
  Schema.Tuple([Schema.Literal("echo"), receivers(Schema.Int), OrNull(Schema.Int), Text, Rendered]),
  Schema.Tuple([Schema.Literal("event"), receivers(OrNull(Schema.Int)), Text, OrNull(Schema.Tuple([Text, Text]))]),
  Schema.Tuple([Schema.Literal("sockets"), Schema.Array(Schema.Tuple([Text, Schema.Array(Schema.Int)]))])
])
const bySchema = Schema.decodeUnknownExit(Entries)

const few = <A>(item: fc.Arbitrary<A>) => fc.array(item, { maxLength: 3 })
const parts = fc.tuple(text, integer, text, text)
const entries: fc.Arbitrary<ReadonlyArray<unknown>> = fc.oneof(
  fc.tuple(fc.constant("hint"), few(fc.tuple(text, integer)), text, text, parts, fc.option(integer), fc.option(text)),
  fc.tuple(fc.constant("echo"), few(fc.tuple(text, integer)), fc.option(integer), text, parts),
  fc.tuple(fc.constant("event"), few(fc.tuple(text, fc.option(integer))), text, fc.option(fc.tuple(text, text))),
  fc.tuple(fc.constant("sockets"), few(fc.tuple(text, few(integer))))
)

/** Every place in an entry, except its topic: the list that holds it, and its index there. */
const places = (value: ReadonlyArray<unknown>): Array<readonly [holder: Array<unknown>, index: number]> =>
  value.flatMap((inner, i) => [
    [value as Array<unknown>, i] as const,
    ...Array.isArray(inner) ? places(inner as ReadonlyArray<unknown>) : []
  ])

const WRONG = [null, 1, 0.5, 2 ** 60, "x", true, [], {}, ["x", [1]], [["x", 1]], { length: 2, 0: "x", 1: 1 }]
const MISSING = Symbol("missing")

const read = (entry: ReadonlyArray<unknown>): void => {
  if (entry[0] === "sockets") return void readSockets(entry)
  const { push, to } = readPush(entry)
  for (const [, no] of to) pushTo(push, no)
}

it("an entry that lacks a field or has another type in its place is refused, and no other", () => {
  const seen = { taken: 0, refused: 0 }
  fc.assert(
    fc.property(entries, fc.nat(), fc.constantFrom(MISSING, ...WRONG), (entry, pick, wrong) => {
      const spoilt = plain(entry)
      assert.isTrue(Exit.isSuccess(bySchema(spoilt)), JSON.stringify(spoilt))
      const all = places(spoilt).slice(1)
      const [holder, index] = all[pick % all.length]!
      if (wrong === MISSING) holder.splice(index, 1)
      else holder[index] = wrong
      let taken = true
      try {
        read(spoilt)
      } catch {
        taken = false
      }
      seen[taken ? "taken" : "refused"]++
      assert.strictEqual(taken, Exit.isSuccess(bySchema(spoilt)), JSON.stringify(spoilt))
    }),
    { numRuns: 2_000 }
  )
  assert.isAbove(Math.min(seen.taken, seen.refused), 100)
})
