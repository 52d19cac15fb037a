import type { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDeliveryIds } from "#domain/deliveries/Delivery"
import { type Rendered, renderMessage, sentMessage } from "#domain/messages/Message"
import { LiveAgent } from "#domain/push/LiveAgent"
import { MuteSet } from "#domain/push/MuteSet"
import { boundless } from "#infrastructure/http/BufferedBytes"
import { Unavailable } from "#infrastructure/wire/WireError"
import { makeComparison } from "#interfaces/realtime/Cursors"
import { SocketSession } from "#interfaces/realtime/SocketSession"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { eventually } from "../support/Eventually.ts"
import { FakeSocket } from "../support/FakeSocket.ts"

const rendered = (inboxNo: number): Rendered => ({
  conversationId: "conv_any",
  seq: inboxNo,
  before: `{"inboxNo":${inboxNo},"delivery_id":`,
  after: "}"
})
/** As the service renders it. */
const message = (conversationId: string, seq: number): Rendered =>
  renderMessage(
    sentMessage(
      { clientMsgId: "any", type: "text", content: '{"text":"any"}', metadata: "{}" },
      { id: `msg_${seq}`, conversationId, seq, senderId: "agt_any", createdAt: 0 }
    ),
    { senderHandle: "any", senderDisplayName: null, group: null }
  )
const echo = (name: string) => `{"type":"message.new","payload":{"own":"${name}"}}`
/** The even numbers are from a sender that a test may mute. */
const senderOf = (inboxNo: number): string => inboxNo % 2 === 0 ? "agt_even" : "agt_odd"

/** A session over an inbox that the test fills, and everything that it says and asks. */
const open = Effect.fnUntraced(function*(options: { readonly acknowledges?: boolean; readonly backlog?: number } = {}) {
  const clock = yield* Clock.Clock
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const inbox: Array<number> = Array.from({ length: options.backlog ?? 0 }, (_, i) => i + 1)
  const state = {
    lastInboxNo: inbox.length,
    delivered: new Set<number>(),
    reads: [] as Array<number>,
    acknowledged: [] as Array<number>,
    looked: [] as Array<string>,
    failing: 0,
    gate: undefined as Deferred.Deferred<void> | undefined,
    slot: undefined as Deferred.Deferred<void> | undefined
  }
  const ids = makeDeliveryIds(Buffer.alloc(32, 7))
  // Only what a SocketSession asks of it.
  const deliveries = {
    ids,
    page: (
      _: string,
      after: number,
      limit: number,
      within: <A, E>(query: Effect.Effect<A, E>) => Effect.Effect<A, E>
    ) =>
      within(Effect.gen(function*() {
        state.reads.push(after)
        if (state.failing > 0) {
          state.failing--
          return yield* new Unavailable()
        }
        const rows = Array.from({ length: state.lastInboxNo }, (_, i) => i + 1)
          .filter((inboxNo) => inboxNo > after && !state.delivered.has(inboxNo)).slice(0, limit)
        const page = { lastInboxNo: state.lastInboxNo, undelivered: 0, rows, isLast: rows.length < limit }
        if (state.gate !== undefined) yield* Deferred.await(state.gate)
        return page
      })),
    render: (page: { readonly rows: ReadonlyArray<number> }) =>
      Effect.succeed(page.rows.map((inboxNo) => ({
        inboxNo,
        messageId: `msg_${inboxNo}`,
        senderId: senderOf(inboxNo),
        rendered: rendered(inboxNo)
      }))),
    acknowledge: (_: string, inboxNo: number) => {
      state.acknowledged.push(inboxNo)
    },
    acknowledgeMessage: (_: LiveAgent, messageId: string) => Effect.sync(() => state.looked.push(messageId))
  } as unknown as Deliveries["Service"]
  const socket = new FakeSocket(() => clock.currentTimeMillisUnsafe())
  const agent = new LiveAgent("agt_me")
  const mutes = agent.mutes = new MuteSet(() => clock.currentTimeMillisUnsafe())
  const session = new SocketSession(socket.asWebSocket, agent, "me", options.acknowledges ?? true, {
    deliveries,
    inSlot: (_, query) => state.slot === undefined ? query : Effect.andThen(Deferred.await(state.slot), query),
    backlogBytes: 1_048_576,
    unsentBytes: 4_194_304,
    held: boundless(),
    fork: (effect) => {
      runFork(effect)
    }
  })
  agent.sessions.add(session)
  const hint = (inboxNo: number): void => {
    state.lastInboxNo = Math.max(state.lastInboxNo, inboxNo)
    agent.push({
      _tag: "Hint",
      inboxNo,
      messageId: `msg_${inboxNo}`,
      senderId: senderOf(inboxNo),
      rendered: rendered(inboxNo)
    })
  }
  return {
    session,
    socket,
    agent,
    mutes,
    state,
    hint,
    said: () =>
      socket.sent.map(({ frame }) => {
        const { payload } = JSON.parse(frame) as { payload: { inboxNo?: number; own?: string; delivery_id?: string } }
        if (payload.inboxNo !== undefined)
          assert.strictEqual(payload.delivery_id, ids.encode("agt_me", payload.inboxNo))
        return payload.inboxNo ?? payload.own
      })
  }
})

const upTo = (n: number) => Array.from({ length: n }, (_, i) => i + 1)

describe("SocketSession", () => {
  it.effect("shows the backlog page by page, then what comes, each number once", () =>
    Effect.gen(function*() {
      const { hint, said, session, state } = yield* open({ backlog: 250 })
      session.start()
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(state.reads, [0, 100, 200])
      hint(251)
      hint(251)
      hint(250)
      hint(252)
      assert.deepStrictEqual(said(), upTo(252))
      assert.deepStrictEqual(state.acknowledged, [])
    }))

  it.effect("reads no page if the socket closed while it waited for a slot", () =>
    Effect.gen(function*() {
      const { session, socket, state } = yield* open({ backlog: 3 })
      const slot = state.slot = yield* Deferred.make<void>()
      session.start()
      yield* TestClock.adjust(1)
      session.close({ code: 1001, text: "gone" })
      session.ended()
      yield* Deferred.succeed(slot, undefined)
      yield* TestClock.adjust(1)
      assert.deepStrictEqual([state.reads, socket.sent], [[], []])
    }))

  it.effect("passes over messages that were delivered elsewhere", () =>
    Effect.gen(function*() {
      const { hint, said, session, state } = yield* open({ backlog: 6 })
      for (const inboxNo of [1, 3, 6]) state.delivered.add(inboxNo)
      session.start()
      yield* TestClock.adjust(1)
      hint(7)
      assert.deepStrictEqual(said(), [2, 4, 5, 7])
    }))

  it.effect("a live message does not overtake the backlog", () =>
    Effect.gen(function*() {
      const { hint, said, session, state } = yield* open({ backlog: 3 })
      const gate = state.gate = yield* Deferred.make<void>()
      session.start()
      yield* TestClock.adjust(1)
      // Committed after the page was read.
      hint(4)
      hint(5)
      assert.deepStrictEqual(said(), [])
      state.gate = undefined
      yield* Deferred.succeed(gate, undefined)
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(said(), upTo(5))
    }))

  it.effect("a hole among the hints waits a moment for its own hint, without asking storage", () =>
    Effect.gen(function*() {
      const { hint, said, session, state } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      hint(1)
      hint(4)
      hint(3)
      yield* TestClock.adjust(9)
      assert.deepStrictEqual(said(), [1])
      hint(2)
      assert.deepStrictEqual(said(), [1, 2, 3, 4])
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(state.reads, [0])
    }))

  it.effect("a hole that stays is read from storage", () =>
    Effect.gen(function*() {
      const { hint, said, session, state } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      hint(2)
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(said(), [1, 2])
      hint(3)
      assert.deepStrictEqual(said(), [1, 2, 3])
      assert.deepStrictEqual(state.reads, [0, 0])
    }))

  it.effect("holds a bounded number of hints behind a hole", () =>
    Effect.gen(function*() {
      const { hint, said, session } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      for (let inboxNo = 2; inboxNo <= 400; inboxNo++) hint(inboxNo)
      // The test's clock does not move; the pages come in turns of the event loop.
      yield* Effect.promise(() => eventually("all of them", () => said().length === 400 || undefined))
      assert.deepStrictEqual(said(), upTo(400))
    }))

  it.effect("a hint that was lost shows when the cursor is twice behind the same number", () =>
    Effect.gen(function*() {
      const { said, session, state } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      state.lastInboxNo = 2
      session.check(2)
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(said(), [], "it may be on its way")
      session.check(2)
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(said(), [1, 2])
      session.check(2)
      session.check(2)
      yield* TestClock.adjust(1)
      assert.strictEqual(state.reads.length, 2)
    }))

  it.effect("a cursor that storage never came to, as after a backup was restored, sends the client to connect again", () =>
    Effect.gen(function*() {
      const { hint, said, session, socket } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      for (const inboxNo of [1, 2, 3]) hint(inboxNo)
      // Read before the last came.
      session.check(2)
      session.check(3)
      hint(4)
      session.check(3)
      session.check(4)
      assert.deepStrictEqual([said(), socket.closedWith], [[1, 2, 3, 4], undefined])
      session.check(2)
      session.check(2)
      assert.strictEqual(socket.closedWith, 1011)
    }))

  it.effect("a comparison that finds a number beyond the page that is being read makes it read on", () =>
    Effect.gen(function*() {
      const { said, session, state } = yield* open({ backlog: 1 })
      const gate = state.gate = yield* Deferred.make<void>()
      session.start()
      yield* Effect.promise(() => eventually("the query", () => state.reads.length === 1 || undefined))
      // Committed after the query, and its hint is lost.
      state.lastInboxNo = 2
      session.check(2)
      session.check(2)
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.promise(() => eventually("both", () => said().length === 2 || undefined))
      assert.deepStrictEqual(said(), [1, 2])
      assert.isFalse(session.isCatchingUp)
    }))

  it.effect("a message that comes while storage is asked twice at once is not taken for lost there", () =>
    Effect.gen(function*() {
      const { agent, hint, said, session, socket, state } = yield* open({ backlog: 2 })
      session.start()
      yield* TestClock.adjust(1)
      const gate = yield* Deferred.make<void>()
      const compare = makeComparison([{ session }], () => {
        const found = new Map([[agent.id, state.lastInboxNo]])
        return Effect.as(Deferred.await(gate), found)
      })
      const periodic = yield* Effect.forkChild(compare, { startImmediately: true })
      const missed = yield* Effect.forkChild(compare, { startImmediately: true })
      hint(3)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(periodic)
      yield* Fiber.join(missed)
      assert.deepStrictEqual([said(), socket.closedWith], [[1, 2, 3], undefined])
    }))

  it.effect("an own message waits for what its inbox held, and passes nothing that waits before it", () =>
    Effect.gen(function*() {
      const { hint, said, session } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      session.echo(0, null, echo("a"))
      session.echo(2, null, echo("b"))
      session.echo(0, null, echo("c"))
      assert.deepStrictEqual(said(), ["a"])
      hint(1)
      assert.deepStrictEqual(said(), ["a", 1])
      hint(2)
      assert.deepStrictEqual(said(), ["a", 1, 2, "b", "c"])
      session.echo(2, null, echo("d"))
      hint(3)
      assert.deepStrictEqual(said().slice(5), ["d", 3])
    }))

  it.effect("an own message comes between the backlog before it and what came after it", () =>
    Effect.gen(function*() {
      const { said, session, state } = yield* open({ backlog: 150 })
      const gate = state.gate = yield* Deferred.make<void>()
      session.start()
      yield* TestClock.adjust(1)
      session.echo(120, null, echo("own"))
      state.gate = undefined
      yield* Deferred.succeed(gate, undefined)
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(said(), [...upTo(120), "own", ...upTo(150).slice(120)])
    }))

  it.effect("an own message is left out once the backlog has shown what comes after it in its conversation", () =>
    Effect.gen(function*() {
      const { hint, said, session } = yield* open({ backlog: 5 })
      session.echo(2, 4, echo("waits for 2, before 4"))
      session.start()
      yield* TestClock.adjust(1)
      session.echo(2, 4, echo("too late"))
      hint(6)
      assert.deepStrictEqual(said(), [1, 2, "waits for 2, before 4", 3, 4, 5, 6])
    }))

  it.effect("an own message that comes late is left out if what comes after it in its conversation was shown, and only then", () =>
    Effect.gen(function*() {
      const { agent, session, socket } = yield* open()
      session.start()
      yield* TestClock.adjust(1)
      const hint = (inboxNo: number, conversationId: string, seq: number) =>
        session.hint(inboxNo, `msg_${inboxNo}`, message(conversationId, seq))
      const own = (after: number, conversationId: string, seq: number) =>
        agent.push({
          _tag: "Echo",
          after,
          before: null,
          messageId: `msg_${seq}`,
          rendered: message(conversationId, seq)
        })
      const shown = () =>
        socket.sent.splice(0).map(({ frame }) => {
          const { payload } = JSON.parse(frame) as { payload: { conversation_id: string; seq: number } }
          return `${payload.conversation_id} ${payload.seq}`
        })
      hint(1, "conv_a", 2)
      hint(2, "conv_b", 7)
      own(0, "conv_a", 1)
      own(0, "conv_b", 6)
      own(1, "conv_a", 3)
      own(0, "conv_c", 1)
      own(1, "conv_b", 9)
      own(1, "conv_b", 8)
      assert.deepStrictEqual(shown(), ["conv_a 2", "conv_b 7", "conv_a 3", "conv_c 1", "conv_b 9"])

      for (let inboxNo = 3; inboxNo < 90; inboxNo++) hint(inboxNo, `conv_${inboxNo}`, 1)
      shown()
      own(0, "conv_a", 1)
      own(89, "conv_a", 4)
      assert.deepStrictEqual(shown(), ["conv_a 4"], "of what was forgotten only what is new for certain")
    }))

  it.effect("an own message for an inbox whose last envelopes were delivered elsewhere is not held for ever", () =>
    Effect.gen(function*() {
      const { said, session, state } = yield* open({ backlog: 5 })
      for (const inboxNo of upTo(5)) state.delivered.add(inboxNo)
      session.echo(5, null, echo("own"))
      session.start()
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(said(), ["own"])
    }))

  it.effect("a client without acknowledgements has received what its socket took", () =>
    Effect.gen(function*() {
      const { hint, session, socket, state } = yield* open({ acknowledges: false, backlog: 2 })
      session.start()
      yield* TestClock.adjust(1)
      hint(3)
      assert.deepStrictEqual(state.acknowledged, [1, 2, 3])
      socket.readyState = 2
      hint(4)
      assert.deepStrictEqual(state.acknowledged, [1, 2, 3])
    }))

  it.effect("an acknowledgement finds its number; an own message's means nothing, any other is looked up", () =>
    Effect.gen(function*() {
      const { agent, session, state } = yield* open({ backlog: 3 })
      session.start()
      yield* TestClock.adjust(1)
      assert.isUndefined(session.acknowledge("msg_2"))
      yield* session.acknowledge("msg_2") ?? Effect.die("a repetition is looked up")
      agent.push({ _tag: "Echo", after: 3, before: null, messageId: "msg_own", rendered: rendered(0) })
      assert.isUndefined(session.acknowledge("msg_own"))
      yield* session.acknowledge("msg_unknown") ?? Effect.die("what is unknown is looked up")
      assert.deepStrictEqual(state.acknowledged, [2])
      assert.deepStrictEqual(state.looked, ["msg_2", "msg_unknown"])
    }))

  it.effect("the backlog waits above 1 MiB unsent, and goes on below", () =>
    Effect.gen(function*() {
      const { said, session, socket } = yield* open({ backlog: 250 })
      socket.bufferedAmount = 1_048_577
      session.start()
      yield* TestClock.adjust(1_000)
      assert.strictEqual(said().length, 100)
      socket.bufferedAmount = 1_048_576
      yield* TestClock.adjust(20)
      assert.deepStrictEqual(said(), upTo(250))
    }))

  it.effect("a socket with more than 4 MiB unsent is closed, and gets nothing more", () =>
    Effect.gen(function*() {
      const { hint, said, session, socket, state } = yield* open({ acknowledges: false })
      session.start()
      yield* TestClock.adjust(1)
      socket.bufferedAmount = 4_194_304
      hint(1)
      socket.bufferedAmount = 4_194_305
      hint(2)
      socket.bufferedAmount = 0
      hint(3)
      assert.deepStrictEqual(said(), [1])
      assert.strictEqual(socket.closedWith, 1013)
      assert.deepStrictEqual(state.acknowledged, [1], "what was not taken stays stored")
    }))

  it.effect("a failed read of storage is retried, and then the socket is closed for the client to come back", () =>
    Effect.gen(function*() {
      const once = yield* open({ backlog: 2 })
      once.state.failing = 3
      once.session.start()
      yield* TestClock.adjust(10_000)
      assert.deepStrictEqual(once.said(), [1, 2])
      const always = yield* open({ backlog: 2 })
      always.state.failing = 100
      always.session.start()
      yield* TestClock.adjust(10_000)
      assert.strictEqual(always.socket.closedWith, 1011)
      assert.deepStrictEqual(always.said(), [])
    }))

  it.effect("nothing is read or sent once the socket is gone", () =>
    Effect.gen(function*() {
      const { hint, said, session, state } = yield* open({ backlog: 250 })
      const gate = state.gate = yield* Deferred.make<void>()
      session.start()
      yield* TestClock.adjust(1)
      session.ended()
      state.gate = undefined
      yield* Deferred.succeed(gate, undefined)
      yield* TestClock.adjust(1)
      hint(251)
      session.echo(0, null, echo("own"))
      assert.deepStrictEqual(said(), [])
      assert.strictEqual(state.reads.length, 1)
    }))

  describe("of an agent that mutes a sender", () => {
    const openMuting = Effect.fnUntraced(function*(backlog: number) {
      const opened = yield* open({ acknowledges: false, backlog })
      opened.mutes.add("agt_even", 60_000)
      opened.session.start()
      yield* TestClock.adjust(1)
      return opened
    })
    const oddUpTo = (n: number) => upTo(n).filter((inboxNo) => inboxNo % 2 === 1)

    it.effect("passes over the sender's messages in the backlog and after it, and leaves them undelivered", () =>
      Effect.gen(function*() {
        const { hint, said, state } = yield* openMuting(205)
        assert.deepStrictEqual(said(), oddUpTo(205))
        hint(206)
        hint(207)
        assert.deepStrictEqual(said(), oddUpTo(207))
        assert.deepStrictEqual(state.acknowledged, oddUpTo(207))
      }))

    it.effect("passes over a muted hint that comes before its turn when its turn comes", () =>
      Effect.gen(function*() {
        const { hint, said } = yield* openMuting(0)
        for (const inboxNo of [2, 4, 3]) hint(inboxNo)
        assert.deepStrictEqual(said(), [])
        hint(1)
        hint(5)
        assert.deepStrictEqual(said(), [1, 3, 5])
      }))

    it.effect("shows an own message that waits for a muted one once it has passed over that one", () =>
      Effect.gen(function*() {
        const { hint, said, session } = yield* openMuting(0)
        session.echo(2, null, echo("own"))
        hint(1)
        assert.deepStrictEqual(said(), [1])
        hint(2)
        assert.deepStrictEqual(said(), [1, "own"])
      }))

    it.effect("shows what comes after the end of a mute, and not what came before it", () =>
      Effect.gen(function*() {
        const { hint, mutes, said } = yield* openMuting(0)
        hint(1)
        hint(2)
        yield* TestClock.adjust(60_000)
        hint(3)
        hint(4)
        assert.deepStrictEqual(said(), [1, 3, 4])
        mutes.add("conv_any", null)
        hint(5)
        mutes.remove("conv_any")
        hint(6)
        assert.deepStrictEqual(said(), [1, 3, 4, 6])
      }))
  })
})
