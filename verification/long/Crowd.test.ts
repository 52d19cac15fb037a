import { Conversations } from "#domain/conversations/Conversations"
import { Presences } from "#domain/presence/Presences"
import type { LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest, layerPostgresTest } from "../../test/support/Databases.ts"
import { draft, layerModules, newAgent } from "../../test/support/Modules.ts"

const HOLDERS = 10_000
const FLAPS = 10
/** How long it is there each time, and how long away. */
const STAY_MS = 250
/** Messages per second of the others, and the pairs that they are between. */
const RATE = 500
const PAIRS = 20
/** What a frame costs a real socket, roughly. */
const FRAME_MS = 0.01

const socket = (event: (frame: string) => void): LiveSession => ({
  hint: () => undefined,
  echo: () => undefined,
  event,
  close: () => undefined
})

/** The value below which 99 of 100 lie. */
const p99 = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * 0.99)] ?? 0

describe.each([["PGlite", layerPgliteTest], ["PostgreSQL 18", layerPostgresTest(18)]] as const)("%s", (_, database) => {
  // Time is the machine's own: this is a measurement.
  layer(layerModules(database, { LIMITS_SENDS_PER_SECOND: 1_000_000 }), { excludeTestServices: true })((it) => {
    it.effect(
      "an agent with 10,000 holders flaps ten times, and others' sends wait for a slice, not for the crowd",
      () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const liveAgents = yield* LiveAgents
          const conversations = yield* Conversations
          const presences = yield* Presences
          const star = yield* newAgent("star")
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
            liveAgents.attach(
              id,
              socket((frame) => {
                frames++
                most = Math.max(most, ++turn)
                last.set(id, frame)
                for (const until = performance.now() + FRAME_MS; performance.now() < until;);
              })
            )
          }
          const pairs = yield* Effect.forEach(Array.from({ length: PAIRS }, (_, i) => i), (i) =>
            Effect.gen(function*() {
              const [from, to] = [yield* newAgent(`from-${i}`), yield* newAgent(`to-${i}`)]
              yield* conversations.send(from, { _tag: "Direct", handle: to.handle }, draft("first"))
              yield* conversations.send(to, { _tag: "Direct", handle: from.handle }, draft("reply"))
              return { from, to }
            }))
          let n = 0
          /**
           * So long, a message every 2 ms, whatever became of those before; each timed from the moment when it was due.
           */
          const stream = (millis: number) =>
            Effect.gen(function*() {
              const times: Array<number> = []
              const sent: Array<Fiber.Fiber<void, unknown>> = []
              const began = performance.now()
              for (let due = began; due < began + millis; due += 1_000 / RATE) {
                const early = due - performance.now()
                if (early > 0) yield* Effect.sleep(early)
                const { from, to } = pairs[n % PAIRS]!
                sent.push(
                  yield* Effect.forkChild(Effect.map(
                    conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(`crowd-${n++}`)),
                    () => void times.push(performance.now() - due)
                  ))
                )
              }
              yield* Fiber.joinAll(sent)
              return { times, rate: sent.length / (performance.now() - began) * 1_000 }
            })
          yield* stream(1_000)
          const alone = p99((yield* stream(2_000)).times)

          const fiber = yield* Effect.forkChild(stream(FLAPS * 2 * STAY_MS))
          const own = socket(() => undefined)
          for (let i = 0; i < FLAPS; i++) {
            liveAgents.attach(star.id, own)
            yield* presences.sockets(star.id)
            yield* Effect.sleep(STAY_MS)
            liveAgents.detach(star.id, own)
            yield* presences.sockets(star.id)
            yield* Effect.sleep(STAY_MS)
          }
          const { rate, times } = yield* Fiber.join(fiber)
          yield* presences.told
          running = false
          const together = p99(times)
          yield* Effect.logInfo(
            `p99 of ${times.length} sends at ${rate.toFixed(0)}/s: ${together.toFixed(1)} ms, ${
              alone.toFixed(1)
            } ms without; ` +
              `${frames} frames, at most ${most} in a turn`
          )
          assert.isAbove(rate, RATE * 0.95)
          // Those that changed while others were told are told once, so not every flap reaches everybody: the last
          // does.
          assert.strictEqual(last.size, HOLDERS)
          for (const frame of last.values()) assert.include(frame, `"status":"offline"`)
          assert.isAtMost(most, 200)
          assert.isBelow(together, 50)
        }),
      60_000
    )
  })
})
