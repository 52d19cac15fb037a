import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import type { LiveSession } from "../../src/agents/AgentActor.ts"
import { AgentActors } from "../../src/agents/AgentActors.ts"
import { Conversations } from "../../src/conversations/Conversations.ts"
import { Presences } from "../../src/presence/Presences.ts"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { draft, layerRooms, newAgent } from "../support/Rooms.ts"

const HOLDERS = 10_000
const FLAPS = 10
/** What a frame costs a real socket, roughly. */
const FRAME_MS = 0.01

const socket = (event: (frame: string) => void): LiveSession => ({
  hint: () => undefined,
  echo: () => undefined,
  event,
  close: () => undefined
})

/** The value below which 99 of 100 lie. */
const p99 = (values: ReadonlyArray<number>): number => values.toSorted((a, b) => a - b)[Math.floor(values.length * 0.99)] ?? 0

describe.each([["PGlite", layerPgliteTest], ["PostgreSQL 18", layerPostgresTest(18)]] as const)("%s", (_, database) => {
  // Time is the machine's own: this is a measurement.
  layer(layerRooms(database, { LIMITS_SENDS_PER_SECOND: 1_000_000 }), { excludeTestServices: true })((it) => {
    it.effect("an agent with 10,000 holders flaps ten times, and others' sends wait for a slice, not for the crowd", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const actors = yield* AgentActors
        const conversations = yield* Conversations
        const presences = yield* Presences
        const [star, a, b] = [yield* newAgent("star"), yield* newAgent("crowd-a"), yield* newAgent("crowd-b")]
        yield* sql`
          INSERT INTO contacts (agent_id, contact_id, added_at)
          SELECT 'agt_holder_' || i, ${star.id}::text, 0 FROM generate_series(1, ${HOLDERS}::int) i`
        const last = new Map<string, string>()
        let frames = 0
        // Frames since the event loop last came round, and the most there ever were.
        let turn = 0
        let most = 0
        const around = (): void => {
          turn = 0
          if (running) setImmediate(around)
        }
        let running = true
        setImmediate(around)
        for (let i = 1; i <= HOLDERS; i++) {
          const id = `agt_holder_${i}`
          actors.attach(id, socket((frame) => {
            frames++
            most = Math.max(most, ++turn)
            last.set(id, frame)
            for (const until = performance.now() + FRAME_MS; performance.now() < until;);
          }))
        }
        let n = 0
        const send = conversations.send.bind(conversations)
        const times: Array<number> = []
        const sending = Effect.gen(function*() {
          const began = performance.now()
          yield* send(a, { _tag: "Direct", handle: b.handle }, draft(`crowd-${n++}`))
          times.push(performance.now() - began)
          yield* Effect.sleep(2)
        })
        yield* send(a, { _tag: "Direct", handle: b.handle }, draft("first"))
        yield* send(b, { _tag: "Direct", handle: a.handle }, draft("reply"))
        for (let i = 0; i < 300; i++) yield* sending
        const alone = p99(times.splice(0))

        const fiber = yield* Effect.forkChild(Effect.forever(sending))
        const own = socket(() => undefined)
        for (let i = 0; i < FLAPS; i++) {
          actors.attach(star.id, own)
          yield* presences.sockets(star.id)
          yield* Effect.sleep(100)
          actors.detach(star.id, own)
          yield* presences.sockets(star.id)
          yield* Effect.sleep(100)
        }
        yield* presences.told
        yield* Fiber.interrupt(fiber)
        running = false
        const together = p99(times)
        yield* Effect.logInfo(
          `p99 of ${times.length} sends: ${together.toFixed(1)} ms, ${alone.toFixed(1)} ms without; ${frames} frames, at most ${most} in a turn`
        )
        assert.isAbove(times.length, 100)
        // Those that changed while others were told are told once, so not every flap reaches everybody: the last does.
        assert.strictEqual(last.size, HOLDERS)
        for (const frame of last.values()) assert.include(frame, `"status":"offline"`)
        assert.isAtMost(most, 200)
        // A machine that is slow without the crowd says nothing about the crowd.
        if (alone < 10) assert.isBelow(together, 50)
      }), 30_000)
  })
})
