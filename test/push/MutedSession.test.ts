import { boundless } from "#ground/http/HeldBytes"
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Semaphore } from "effect"
import { TestClock } from "effect/testing"
import { LiveAgent } from "#domain/push/LiveAgent"
import type { Deliveries } from "#domain/deliveries/Deliveries"
import { makeDeliveryIds } from "#domain/deliveries/Delivery"
import { MuteSet } from "#domain/push/MuteSet"
import { SocketSession } from "#doors/realtime/SocketSession"
import { FakeSocket } from "../support/FakeSocket.ts"

const rendered = (inboxNo: number) => ({
  conversationId: "conv_1",
  seq: inboxNo,
  before: `{"inboxNo":${inboxNo},"delivery_id":`,
  after: "}"
})

/** A session without acknowledgements whose inbox holds the numbers up to `backlog`, the even ones from a muted sender. */
const open = Effect.fnUntraced(function*(backlog: number) {
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const acknowledged: Array<number> = []
  const senderOf = (inboxNo: number) => inboxNo % 2 === 0 ? "agt_muted" : "agt_heard"
  const state = { lastInboxNo: backlog }
  // Only what a SocketSession asks of it.
  const deliveries = {
    ids: makeDeliveryIds(Buffer.alloc(32, 7)),
    page: (_: string, after: number, limit: number) =>
      Effect.sync(() => ({
        lastInboxNo: state.lastInboxNo,
        undelivered: 0,
        isLast: state.lastInboxNo - after < limit,
        rows: Array.from({ length: state.lastInboxNo }, (__, i) => i + 1).filter((inboxNo) => inboxNo > after).slice(0, limit)
      })),
    render: ({ rows }: { readonly rows: ReadonlyArray<number> }) =>
      Effect.succeed(rows.map((inboxNo) => ({
        inboxNo,
        messageId: `msg_${inboxNo}`,
        senderId: senderOf(inboxNo),
        rendered: rendered(inboxNo)
      }))),
    acknowledge: (_: string, inboxNo: number) => {
      acknowledged.push(inboxNo)
    }
  } as unknown as Deliveries["Service"]
  const socket = new FakeSocket(now)
  const agent = new LiveAgent("agt_me")
  const mutes = agent.mutes = new MuteSet(now)
  mutes.add("agt_muted", 60_000)
  const session = new SocketSession(socket.asWebSocket, agent, "me", false, {
    deliveries,
    readers: Semaphore.makeUnsafe(1),
    backlogBytes: 1_048_576,
    unsentBytes: 4_194_304,
    held: boundless(),
    fork: (effect) => {
      runFork(effect)
    }
  })
  agent.sessions.add(session)
  session.start()
  yield* TestClock.adjust(1)
  return {
    agent,
    mutes,
    acknowledged,
    said: () =>
      socket.sent.map(({ frame }) => {
        const { payload } = JSON.parse(frame) as { payload: { inboxNo?: number; own?: string } }
        return payload.inboxNo ?? payload.own
      }),
    hint: (inboxNo: number) => {
      state.lastInboxNo = Math.max(state.lastInboxNo, inboxNo)
      agent.tell({
        _tag: "Hint",
        inboxNo,
        messageId: `msg_${inboxNo}`,
        senderId: senderOf(inboxNo),
        rendered: rendered(inboxNo)
      })
    },
    echo: (after: number, own: string) =>
      agent.tell({
        _tag: "Echo",
        after,
        before: null,
        messageId: `msg_${own}`,
        rendered: { conversationId: "conv_own", seq: 1, before: `{"own":"${own}","delivery_id":`, after: "}" }
      })
  }
})

it.effect("the backlog and what comes pass over what is muted, which stays undelivered", () =>
  Effect.gen(function*() {
    const { acknowledged, hint, said } = yield* open(205)
    const odd = (n: number) => Array.from({ length: n }, (_, i) => i + 1).filter((inboxNo) => inboxNo % 2 === 1)
    assert.deepStrictEqual(said(), odd(205))
    hint(206)
    hint(207)
    assert.deepStrictEqual(said(), odd(207))
    assert.deepStrictEqual(acknowledged, odd(207))
  }))

it.effect("a muted hint that comes before its turn is passed over in its turn", () =>
  Effect.gen(function*() {
    const { hint, said } = yield* open(0)
    hint(2)
    hint(4)
    hint(3)
    assert.deepStrictEqual(said(), [])
    hint(1)
    hint(5)
    assert.deepStrictEqual(said(), [1, 3, 5])
  }))

it.effect("an own message that waits for a muted one comes once that is passed", () =>
  Effect.gen(function*() {
    const { echo, hint, said } = yield* open(0)
    echo(2, "own")
    hint(1)
    assert.deepStrictEqual(said(), [1])
    hint(2)
    assert.deepStrictEqual(said(), [1, "own"])
  }))

it.effect("a mute that ends is over without being read again, and what it passed over stays so", () =>
  Effect.gen(function*() {
    const { hint, mutes, said } = yield* open(0)
    hint(1)
    hint(2)
    yield* TestClock.adjust(60_000)
    hint(3)
    hint(4)
    assert.deepStrictEqual(said(), [1, 3, 4])
    mutes.add("conv_1", null)
    hint(5)
    mutes.remove("conv_1")
    hint(6)
    assert.deepStrictEqual(said(), [1, 3, 4, 6])
  }))
