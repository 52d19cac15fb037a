import { type FrameSource, makeClientFrames } from "#interfaces/realtime/ClientFrames"
import type { SocketSession } from "#interfaces/realtime/SocketSession"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"

it.effect("of read_acks that come at once, the highest through_seq counts, whatever their order (wire.md E.6)", () =>
  Effect.gen(function*() {
    const fork = Effect.runForkWith(yield* Effect.context<never>())
    const checked = yield* Deferred.make<void>()
    const read: Array<readonly [conversationId: string, through: number]> = []
    const frames = makeClientFrames({
      conversations: {
        participation: (_agentId, conversationId) =>
          Effect.as(Deferred.await(checked), { conversationId, counterpartyId: "agt_b", hiddenThrough: 0 }),
        typing: () => Effect.die("nobody types")
      },
      deliveries: {
        find: () => Effect.die("no frame names a message"),
        readThrough: (_agentId, _handle, conversationId, through) =>
          Effect.sync(() => void read.push([conversationId, through]))
      },
      presences: { put: () => Effect.die("no frame is about presence") },
      framesPerSecond: 100,
      refusalsPerSecond: 100,
      now: () => 0,
      fork: () => (effect) => void fork(effect),
      logDefect: Effect.die
    })
    const source: FrameSource = {
      lookups: 0,
      waiting: undefined,
      holds: 0,
      socket: { pause: () => {}, resume: () => {}, readyState: 1 },
      requestId: undefined,
      frames: undefined,
      refusals: undefined,
      slowed: false,
      reads: undefined
    }
    // Of a SocketSession, a read_ack that is not refused needs only its agent.
    const session = { agent: { id: "agt_a" }, handle: "a" } as unknown as SocketSession
    const readAck = (conversationId: string, through: number) =>
      frames.receive(
        source,
        session,
        JSON.stringify({ type: "message.read_ack", payload: { conversation_id: conversationId, through_seq: through } })
      )
    for (const through of [4, 6, 3]) readAck("conv_1", through)
    readAck("conv_2", 5)
    yield* Deferred.succeed(checked, undefined)
    yield* Effect.repeat(Effect.yieldNow, { times: 20 })
    assert.deepStrictEqual(read, [["conv_1", 6], ["conv_2", 5]])
    readAck("conv_1", 2)
    yield* Effect.repeat(Effect.yieldNow, { times: 20 })
    assert.deepStrictEqual(read.slice(2), [["conv_1", 2]])
  }))

it.effect("a frame with a number that would be changed is refused, and its id is repeated only if it was not changed (wire.md E.6)", () =>
  Effect.sync(() => {
    const frames = makeClientFrames({
      conversations: { participation: () => Effect.die("nothing is read"), typing: () => Effect.die("nobody types") },
      deliveries: { find: () => Effect.die("nothing is found"), readThrough: () => Effect.die("nothing is read") },
      presences: { put: () => Effect.die("no presence changes") },
      framesPerSecond: 100,
      refusalsPerSecond: 100,
      now: () => 0,
      fork: () => () => assert.fail("nothing is run"),
      logDefect: Effect.die
    })
    const source: FrameSource = {
      lookups: 0,
      waiting: undefined,
      holds: 0,
      socket: { pause: () => {}, resume: () => {}, readyState: 1 },
      requestId: undefined,
      frames: undefined,
      refusals: undefined,
      slowed: false,
      reads: undefined
    }
    const answers: Array<
      { readonly id?: unknown; readonly payload: { readonly code: string; readonly message: string } }
    > = []
    const session = {
      agent: { id: "agt_a" },
      handle: "a",
      event: (text: string) => answers.push(JSON.parse(text)),
      acknowledge: () => assert.fail("nothing is acknowledged")
    } as unknown as SocketSession
    for (
      const frame of [
        `{"type":"message.read_ack","id":"x","payload":{"conversation_id":"c","through_seq":9007199254740993}}`,
        `{"type":"typing.start","id":7,"payload":{"conversation_id":"c","deep":[{"n":1e400}]}}`,
        `{"type":"ack","message_id":"msg_1","id":9007199254740993}`
      ]
    ) frames.receive(source, session, frame)
    assert.deepStrictEqual(answers.map(({ id, payload }) => [id, payload.code, payload.message.split(":")[0]]), [
      ["x", "VALIDATION_ERROR", "payload.through_seq"],
      [7, "VALIDATION_ERROR", "payload.deep.0.n"],
      [undefined, "VALIDATION_ERROR", "id"]
    ])
  }))
