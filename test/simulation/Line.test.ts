import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import type { Command } from "../../verification/simulation/line/Commands.ts"
import { mutants } from "../../verification/simulation/line/Mutants.ts"
import { LINE_RUNS, searchLines } from "../../verification/simulation/line/Search.ts"
import { makeRun } from "../../verification/simulation/line/World.ts"
import { SECONDS, SEED, TIMEOUT_MS } from "../../verification/simulation/Search.ts"

/** What 500 runs must have met, or they have shown less than they say. */
const MET = [
  "call done",
  "call absent",
  "call lost",
  "call late",
  "call unsent",
  "call refused",
  "send stored",
  "send replayed",
  "send unanswered",
  "message shown",
  "echo shown",
  "flood"
]

/** Histories that an earlier version of the server lost a message in, by the mutant that has the old mistake. */
const HISTORIES: Readonly<Record<string, ReadonlyArray<Command>>> = {
  "sockets are compared with storage before the other node pushes to them": [
    { _tag: "Idle", node: 0, ms: 1_000 },
    { _tag: "Open", agent: 1, node: 1 },
    { _tag: "Cut", one: 0, other: 1, sends: [{ node: 1, from: 2, to: 1, key: 20 }, { node: 1, from: 0, to: 2, key: 9 }] }
  ],
  "a socket that is reading its inbox is not compared with storage": [
    { _tag: "Send", node: 0, from: 1, to: 2, key: 4 },
    { _tag: "Open", agent: 1, node: 0 },
    {
      _tag: "Burst",
      sends: [{ node: 2, from: 1, to: 0, key: 3 }, { node: 1, from: 1, to: 0, key: 26 }, { node: 0, from: 0, to: 1, key: 10 }, { node: 0, from: 1, to: 0, key: 30 }]
    },
    { _tag: "Pass", ms: 30 },
    { _tag: "Flood", opens: 0, node: 1, from: 0, to: 1, key: 7 },
    { _tag: "Open", agent: 1, node: 2 }
  ]
}

describe("nodes whose lines break, double and delay what they say", () => {
  it.live(`keep the rules in ${LINE_RUNS} runs`, () =>
    Effect.gen(function*() {
      const { coverage, found, runs } = yield* searchLines({ seconds: 0.5 * SECONDS })
      console.log([`seed ${SEED}, ${runs} runs of lines`, ...[...coverage].sort(([, a], [, b]) => b - a).map(([what, n]) => `${String(n).padStart(8)}  ${what}`)].join("\n"))
      if (found !== undefined) assert.fail(found)
      if (LINE_RUNS >= 500) assert.deepStrictEqual(MET.filter((what) => !coverage.has(what)), [])
    }), TIMEOUT_MS)

  it.live("do the same each time", () =>
    Effect.gen(function*() {
      const [one, other] = [yield* searchLines({ runs: 3, seed: SEED }), yield* searchLines({ runs: 3, seed: SEED })]
      assert.isAbove(one.coverage.size, 5)
      assert.deepStrictEqual([...one.coverage], [...other.coverage])
    }))

  for (const [name, history] of Object.entries(HISTORIES)) {
    it.live(`lose no message in the history that shows it if ${name}`, () =>
      Effect.gen(function*() {
        assert.isTrue(Exit.isSuccess(yield* Effect.exit(makeRun(new Map())(history))))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(makeRun(new Map(), mutants[name])(history))), "the history shows nothing any more: find another one")
      }))
  }
})
