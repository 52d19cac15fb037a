import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  type EventStep,
  eventStepsOf,
  type Heard,
  layerEvents,
  makeEventsWorld
} from "../../verification/simulation/rules/EventsWorld.ts"
import { RUNS, SEED, TIMEOUT_MS } from "../../verification/simulation/rules/Runs.ts"
import { searchAmong } from "../../verification/simulation/Search.ts"
import { layerPgliteTest } from "../support/Databases.ts"

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const send: EventStep = { kind: "send", sender: 0 }
const wait = (ms: number): EventStep => ({ kind: "wait", ms })
const answers = (status: number): EventStep => ({ kind: "receiver", status })
const lease = (seconds: number): EventStep => ({ kind: "lease", seconds })
const refresh = (ttlMs: number): EventStep => ({ kind: "refresh", ttlMs })

/** What the receiver heard in a history: message and milliseconds. */
const hearing = Effect.fnUntraced(function*(steps: ReadonlyArray<EventStep>) {
  const heard: Array<Heard> = []
  const run = yield* makeEventsWorld((post) => heard.push(post))
  yield* run(steps, undefined, true)
  return heard.map(({ at, no }) => [no, at] as const)
})

layer(layerEvents(layerPgliteTest))((it) => {
  it.effect("a receiver that is down for an hour is tried six times, and gets everything in order once its client refreshes", () =>
    Effect.gen(function*() {
      const waits = [10 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE].flatMap((
        ms
      ) => [wait(ms - SECOND), wait(SECOND)])
      const down = [
        answers(500),
        send,
        send,
        send,
        ...waits,
        wait(HOUR - 1_300 * SECOND),
        send,
        answers(200),
        wait(HOUR),
        refresh(HOUR),
        send
      ]
      assert.deepStrictEqual(yield* hearing(down), [
        ...[0, 10, 40, 100, 400, 1_300].map((seconds) => [1, seconds * SECOND] as const),
        ...[1, 2, 3, 4, 5].map((no) => [no, 2 * HOUR] as const)
      ])
    }))

  it.effect("410 suspends at once, and 413 leaves out this event alone", () =>
    Effect.gen(function*() {
      const steps = [answers(410), send, send, wait(HOUR), answers(413), refresh(24 * HOUR), answers(200), send]
      assert.deepStrictEqual(yield* hearing(steps), [[1, 0], [1, HOUR], [2, HOUR], [3, HOUR]])
    }))

  it.effect("while a reply lease stands nothing is told, and at its end what still waits", () =>
    Effect.gen(function*() {
      const ended = [
        lease(300),
        send,
        wait(MINUTE),
        send,
        { kind: "acknowledge", nth: 0 } as const,
        wait(MINUTE),
        lease(0)
      ]
      assert.deepStrictEqual(yield* hearing(ended), [[2, 2 * MINUTE]])
      const expired = [lease(60), send, wait(59 * SECOND), send, wait(SECOND)]
      assert.deepStrictEqual(yield* hearing(expired), [[1, MINUTE], [2, MINUTE]])
      const begunLate = [answers(500), send, lease(60), answers(200), wait(10 * SECOND), wait(50 * SECOND)]
      assert.deepStrictEqual(yield* hearing(begunLate), [[1, 0], [1, MINUTE]])
    }))

  it.effect("an expired subscription tells nothing, and a client that subscribes again with its cursor misses nothing", () =>
    Effect.gen(function*() {
      const steps = [
        refresh(MINUTE),
        send,
        wait(59 * SECOND),
        send,
        wait(SECOND),
        send,
        wait(HOUR),
        send,
        refresh(HOUR)
      ]
      assert.deepStrictEqual(yield* hearing(steps), [[1, 0], [2, 59 * SECOND], [3, HOUR + MINUTE], [4, HOUR + MINUTE]])
    }))

  it.effect(
    `in ${RUNS} histories, a webhook of MCP Events gets exactly what waits and is unmuted, in order`,
    () =>
      Effect.gen(function*() {
        const found = yield* searchAmong({
          run: yield* makeEventsWorld(),
          commandsOf: (seed) => eventStepsOf(seed, 60),
          runs: RUNS,
          seed: SEED,
          shrinks: 200,
          again: (seed) => `SEED=${seed} RUNS=1`
        })
        if (found !== undefined) assert.fail(found)
      }),
    TIMEOUT_MS
  )
})
