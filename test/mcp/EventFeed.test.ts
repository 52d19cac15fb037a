import { Agents } from "#domain/agents/Agents"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDeliveryIds } from "#domain/deliveries/Delivery"
import { ActiveMutes } from "#domain/push/ActiveMutes"
import { Replies } from "#domain/replies/Replies"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import { Config } from "#infrastructure/platform/Config"
import { Callbacks } from "#interfaces/mcp/events/Callbacks"
import type { Position } from "#interfaces/mcp/events/EventCursor"
import { EventFeed, type Look } from "#interfaces/mcp/events/EventFeed"
import { makeEventMethods } from "#interfaces/mcp/events/EventMethods"
import { EventSubscriptions } from "#interfaces/mcp/events/EventSubscriptions"
import { type EventType, eventTypeOf } from "#interfaces/mcp/events/EventTypes"
import { Waiters } from "#interfaces/realtime/Waiters"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { breath } from "../support/Eventually.ts"

const owner = { id: "agt_owner", handle: "owner" }
const SENDERS = ["agt_a", "agt_b", "agt_c"]

/** Texts that one statement reads here. */
const TEXTS = 4

interface Row {
  readonly no: number
  readonly senderId: string
  readonly text: string
  delivered: boolean
}

const messageOf = ({ no, senderId, text }: Row) => ({
  id: `msg_${no}`,
  conversationId: `conv_${senderId}`,
  seq: no,
  senderId,
  clientMsgId: `${no}`,
  type: "text" as const,
  content: JSON.stringify({ text }),
  metadata: "{}",
  createdAt: no
})

/** An inbox in memory, with the mutes and the leases of its agent. */
class World {
  readonly inbox: Array<Row> = []
  readonly muted = new Set<string>()
  leased = false
  /** The numbers whose texts were asked for, by statement. */
  readonly textReads: Array<ReadonlyArray<number>> = []

  readonly waits = ({ delivered, senderId }: Row): boolean => !delivered && !this.muted.has(senderId)

  receive(senderId: string, text = ""): void {
    this.inbox.push({ no: this.inbox.length + 1, senderId, text, delivered: false })
  }

  acknowledge(no: number): void {
    const row = this.inbox[no]
    if (row !== undefined) row.delivered = true
  }

  /** Mutes a sender, or ends the mute. */
  toggle(senderId: string): void {
    if (!this.muted.delete(senderId)) this.muted.add(senderId)
  }

  readonly layer = EventFeed.layer.pipe(Layer.provide(Layer.mergeAll(
    Layer.mock(ActiveMutes)({
      all: () => Effect.sync(() => [...this.muted].map((target_id) => ({ target_id, muted_until: null })))
    }),
    Layer.mock(Agents)({
      forget: () => {},
      avatarUrl: () => null,
      byIds: (ids) => Effect.succeed(new Map(ids.map((id) => [id, { id, handle: id.slice(4) } as never])))
    }),
    Layer.mock(Replies)({
      leases: () => Effect.sync(() => ({ sessions: this.leased ? 1 : 0, expiresIn: this.leased ? 60 : 0 }))
    }),
    Layer.mock(Deliveries)({
      acknowledge: () => {},
      ids: makeDeliveryIds(Buffer.from("a key")),
      heads: () => Effect.sync(() => new Map([[owner.id, this.inbox.length]])),
      has: (_, no) => Effect.sync(() => no <= this.inbox.length),
      waiting: (_, after, limit) =>
        Effect.sync(() => {
          const all = this.inbox.filter(({ delivered, no }) => no > after && !delivered)
          const rows = all.slice(0, limit).map((row) => ({ inboxNo: row.no, message: messageOf(row) }))
          return { lastInboxNo: this.inbox.length, rows, isLast: rows.length < limit }
        }),
      chosen: (_, numbers) =>
        Effect.sync(() => {
          this.textReads.push(numbers)
          const all = this.inbox.filter(({ delivered, no }) => numbers.includes(no) && !delivered)
          const rows = all.slice(0, TEXTS).map((row) => ({ inboxNo: row.no, message: messageOf(row) }))
          return { rows, isLast: rows.length === all.length }
        })
    })
  )))
}

const numbersOf = ({ reported }: Look): ReadonlyArray<number> =>
  reported.map(({ occurrence }) => Number(String(occurrence.data["message_id"]).slice(4)))

const typeOf = (name: string, given: object = {}): EventType => eventTypeOf(name, given) as EventType

const command = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("receive" as const), sender: fc.constantFrom(...SENDERS) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("acknowledge" as const), no: fc.nat(30) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("mute" as const), sender: fc.constantFrom(...SENDERS) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("lease" as const) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("look" as const), limit: fc.integer({ min: 1, max: 25 }) }) }
)

it("the messages reported, in order, are exactly those that wait and are unmuted at that time, and none is passed over", () =>
  fc.assert(
    fc.asyncProperty(fc.array(command, { maxLength: 60 }), (commands) => {
      const world = new World()
      const type = typeOf("message.received")
      return Effect.runPromise(Effect.provide(
        Effect.gen(function*() {
          const feed = yield* EventFeed
          let position: Position = { no: 0, reportedAt: null }
          const all: Array<number> = []
          for (
            const given of [
              ...commands,
              { kind: "free" as const },
              ...Array.from({ length: 5 }, () => ({ kind: "look" as const, limit: 100 }))
            ]
          ) {
            if (given.kind === "receive") world.receive(given.sender)
            else if (given.kind === "acknowledge") world.acknowledge(given.no)
            else if (given.kind === "mute") world.toggle(given.sender)
            else if (given.kind === "lease") world.leased = !world.leased
            else if (given.kind === "free") world.leased = false
            else {
              const look = yield* feed.look(owner, type, "s", position, given.limit)
              const due = world.inbox.filter((row) => row.no > position.no && world.waits(row)).map(({ no }) => no)
              if (world.leased && due.length > 0) {
                assert.deepStrictEqual([look.reported, look.position, look.heldMs], [[], position, 15_000])
                continue
              }
              const told = numbersOf(look)
              // A look ends early, and says so, when it has read as many texts as it may.
              assert.deepStrictEqual(
                told,
                due.slice(0, Math.min(given.limit, told.length === 4 * TEXTS ? told.length : due.length))
              )
              for (const row of world.inbox) {
                if (row.no > position.no && row.no <= look.position.no)
                  assert.isTrue(told.includes(row.no) || !world.waits(row))
              }
              if (!look.more) assert.strictEqual(look.position.no, world.inbox.length)
              for (const { after, occurrence } of look.reported) {
                assert.strictEqual(occurrence.data["message_id"], `msg_${after.no}`)
              }
              all.push(...told)
              position = look.position
            }
          }
          assert.deepStrictEqual(all, [...new Set(all)].toSorted((a, b) => a - b))
        }),
        world.layer
      ))
    }),
    { numRuns: 300 }
  ))

it.effect("a reported message is read again before it is posted, and posted only if it still waits", () => {
  const world = new World()
  return Effect.provide(
    Effect.gen(function*() {
      const feed = yield* EventFeed
      for (let i = 0; i < 30; i++) world.receive(SENDERS[i % 3]!)
      const edge = typeOf("inbox.waiting", { defer_if_active: true })
      const { position, reported: [first] } = yield* feed.look(owner, edge, "s", { no: 5, reportedAt: null }, 1)
      assert.deepStrictEqual([first!.occurrence.data["waiting"], position.no], [25, 30])
      for (let no = 0; no < 29; no++) world.acknowledge(no)
      world.receive("agt_a")
      const again = yield* feed.again(owner, edge, "s", 5, 30)
      assert.isTrue(again !== undefined && "data" in again && again.data["waiting"] === 1)
      world.leased = true
      assert.deepStrictEqual(yield* feed.again(owner, edge, "s", 5, 30), { heldMs: 15_000 })
      world.muted.add("agt_c")
      assert.isUndefined(yield* feed.again(owner, edge, "s", 5, 30))
      assert.isUndefined(yield* feed.again(owner, typeOf("message.received"), "s", 29, 30))
    }),
    world.layer
  )
})

it.effect("a poll reads the texts of the messages that it reports, and no others", () => {
  const world = new World()
  return Effect.provide(
    Effect.gen(function*() {
      const feed = yield* EventFeed
      for (let i = 0; i < 400; i++) world.receive(SENDERS[i % 3]!)
      const look = (name: string, given: object, limit = 100) =>
        feed.look(owner, typeOf(name, given), "s", { no: 0, reportedAt: null }, limit)
      const none = yield* look("message.received", { from: "nobody" })
      assert.deepStrictEqual([none.reported, none.position.no, none.more], [[], 400, false])
      const { reported: [edge] } = yield* look("inbox.waiting", { from: "a" })
      assert.strictEqual(edge!.occurrence.data["waiting"], 134)
      assert.deepStrictEqual(world.textReads, [])
      assert.deepStrictEqual(numbersOf(yield* look("message.received", { from: "b" }, 3)), [2, 5, 8])
      assert.deepStrictEqual(world.textReads, [[2, 5, 8]])
    }),
    world.layer
  )
})

it.effect("a poll goes through 1,000 messages, and reads texts by 4 statements; the next poll goes on after them", () => {
  const world = new World()
  return Effect.provide(
    Effect.gen(function*() {
      const feed = yield* EventFeed
      for (let i = 0; i < 1_500; i++) world.receive("agt_a", i === 30 || i === 1_499 ? "Hello, @owner" : "")
      const look = (given: object, no: number) =>
        feed.look(owner, typeOf("message.received", given), "s", { no, reportedAt: null }, 100)
      const far = yield* look({ from: "nobody" }, 0)
      assert.deepStrictEqual([far.position.no, far.more], [1_000, true])
      const rest = yield* look({ from: "nobody" }, 1_000)
      assert.deepStrictEqual([rest.position.no, rest.more], [1_500, false])
      const first = yield* look({ mentions_only: true }, 0)
      assert.deepStrictEqual([first.reported, first.position.no, first.more], [[], 4 * TEXTS, true])
      assert.deepStrictEqual(world.textReads.length, 4)
      const told: Array<number> = []
      for (let [no, more, looks] = [0, true, 0]; more; looks++) {
        const one = yield* look({ mentions_only: true }, no)
        told.push(...numbersOf(one))
        assert.isAbove(one.position.no, no)
        assert.isAtMost(looks, 1_500 / TEXTS / 4)
        ;[no, more] = [one.position.no, one.more]
      }
      assert.deepStrictEqual(told, [31, 1_500])
    }),
    world.layer
  )
})

it.effect("a poll waits for a slot of its agent, and is refused if no slot becomes free; polls of other agents go on", () => {
  const world = new World()
  world.receive("agt_a")
  const services = Layer.mergeAll(
    world.layer,
    LargeReads.layer.pipe(Layer.provideMerge(Config.layerTest())),
    Layer.mock(Callbacks)({ isSecure: () => false }),
    Layer.mock(Conversations)({}),
    Layer.mock(EventSubscriptions)({}),
    Layer.mock(Waiters)({
      begin: () => assert.fail("no wait begins"),
      cancel: () => {},
      isLeaving: () => false,
      size: () => 0,
      turnAway: () => {},
      welcomeAgain: () => {}
    })
  )
  return Effect.provide(
    Effect.gen(function*() {
      const { HTTP_LARGE_READS: slots } = yield* Config
      const reads = yield* LargeReads
      const { poll } = yield* makeEventMethods
      const pollOf = (id: string) =>
        poll({
          agent: { id, handle: id.slice(4), displayName: null, status: "active" },
          principal: { agentId: id, check: Effect.never }
        }, { name: "message.received", arguments: { include_waiting: true } })
      const all = Effect.forEach(
        Array.from({ length: slots }),
        () => reads.during(owner.id, { usual: 1, max: 1, bytes: 1 }, Effect.never),
        { concurrency: "unbounded" }
      )
      const taken = yield* Effect.forkChild(all)
      yield* Effect.yieldNow
      const time = yield* Effect.forkChild(
        Effect.forever(Effect.andThen(TestClock.adjust(1_000), Effect.promise(breath)))
      )
      const { code, data } = yield* Effect.flip(pollOf(owner.id))
      assert.deepStrictEqual([code, data], [-32_013, { limit: "large answers under way", max: slots }])
      assert.lengthOf((yield* pollOf("agt_other")).events, 1)
      yield* Fiber.interrupt(time)
      yield* Fiber.interrupt(taken)
      assert.lengthOf((yield* pollOf(owner.id)).events, 1)
    }),
    services
  )
})

it.effect("a cursor from after a restored backup begins again with all that waits, and one before the oldest message is truncated", () => {
  const world = new World()
  return Effect.provide(
    Effect.gen(function*() {
      const feed = yield* EventFeed
      const type = typeOf("message.received")
      for (let i = 0; i < 3; i++) world.receive("agt_a")
      const at = (no: number) => feed.start(owner, type, feed.cursorOf(owner, { no, reportedAt: null }))
      assert.deepStrictEqual(yield* at(2), { position: { no: 2, reportedAt: null }, truncated: false })
      assert.deepStrictEqual(yield* at(3), { position: { no: 3, reportedAt: null }, truncated: false })
      assert.deepStrictEqual(yield* at(9), { position: { no: 0, reportedAt: null }, truncated: true })
      assert.deepStrictEqual(yield* feed.start(owner, type, null), {
        position: { no: 3, reportedAt: null },
        truncated: false
      })
      assert.deepStrictEqual(
        (yield* feed.start(owner, typeOf("message.received", { include_waiting: true }), null))?.position.no,
        0
      )
      assert.isUndefined(yield* feed.start(owner, type, "nonsense"))
    }),
    world.layer
  )
})
