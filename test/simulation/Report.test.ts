import { assert, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { type Command, inWords } from "../../verification/simulation/Commands.ts"
import { acknowledgeBeforeTheAnswer, keysNotLookedUp } from "../../verification/simulation/Mutants.ts"
import { type Coverage, type Run, searchAmong } from "../../verification/simulation/Search.ts"
import { RULES, same } from "../../verification/simulation/Violation.ts"
import { layerSeam, makeWorld, Seam, SETTINGS } from "../../verification/simulation/World.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { layerModules } from "../support/Modules.ts"

const coverage: Coverage = { commands: new Map(), transitions: new Map() }

/** The first lines of the report on these commands: those in words. */
const summaryOf = <C, R>(run: Run<C, R>, commands: ReadonlyArray<C>, words: (command: C) => string, shrinks = 0) =>
  Effect.map(
    searchAmong({
      run,
      commandsOf: () => commands,
      inWords: words,
      runs: 1,
      seed: 7,
      shrinks,
      again: (seed) => `SEED=${seed}`
    }),
    (report) => (report ?? "every run agreed").split("\n")
  )

const repeated: ReadonlyArray<Command> = [
  { _tag: "Send", from: 0, to: 1, key: 10 },
  { _tag: "Send", from: 1, to: 0, key: 10 },
  { _tag: "Send", from: 0, to: 1, key: 50 },
  { _tag: "Send", from: 0, to: 1, key: 50 },
  { _tag: "List", agent: 0, limit: 2 }
]

const seam = new Seam()
layer(layerModules(layerSeam(layerPgliteTest, seam, keysNotLookedUp), SETTINGS))((it) => {
  it.effect("a simulation that fails says which command broke which rule, before the history", () =>
    Effect.gen(function*() {
      yield* (yield* SqlClient.SqlClient).unsafe(keysNotLookedUp.schema).unprepared
      const { run } = yield* makeWorld(seam, coverage)
      const report = yield* summaryOf(run, repeated, inWords)
      assert.strictEqual(report[0], `Rule broken: ${RULES.replayed}`)
      assert.include(report[0], "(C.6)")
      assert.strictEqual(report[1], "By command 4 of 5: agent 0 sends a message with key 50 to agent 1.")
      assert.match(report[2] ?? "", /^Seen: send of k50 from 0 to 1: got /)
      assert.deepStrictEqual(report.slice(3, 10), [
        "Run 1 failed; it runs again with SEED=7",
        "The history, as short as it was found to fail:",
        ...repeated.map((command, i) => `  ${i + 1}. ${JSON.stringify(command)}`)
      ])
      assert.include(report.slice(10).join("\n"), "World.ts")
    }))
})

const waits = new Seam()
layer(layerModules(layerSeam(layerPgliteTest, waits), SETTINGS))((it) => {
  it.effect("and what only the comparison at the end finds is said to be found there", () =>
    Effect.gen(function*() {
      const { run } = yield* makeWorld(waits, coverage, acknowledgeBeforeTheAnswer)
      const lost: ReadonlyArray<Command> = [
        { _tag: "Send", from: 0, to: 1, key: 1 },
        { _tag: "Wait", agent: 1, limit: 5, takes: false }
      ]
      const report = yield* summaryOf(run, lost, inWords)
      assert.deepStrictEqual(report.slice(0, 2), [
        `Rule broken: ${RULES.notAcknowledged}`,
        "Found by the comparison at the end, after 2 commands."
      ])
    }))
})

it.effect("the number of the command is that in the shortened history", () =>
  Effect.gen(function*() {
    let sum = 0
    const run: Run<number, never> = (commands, reaches = () => {}) =>
      Effect.sync(() => {
        sum = 0
        for (const [i, n] of commands.entries()) {
          reaches(i)
          sum += n
          same("counted", sum < 10, true, "a sum below 10")
        }
      })
    const report = yield* summaryOf(run, [0, 9, 0, 0, 1, 0], (n) => `${n} is added`, 100)
    assert.deepStrictEqual(report.slice(0, 7), [
      `Rule broken: ${RULES.counted}`,
      "By command 2 of 2: 1 is added.",
      "Seen: a sum below 10: got false, expected true",
      "Run 1 failed; it runs again with SEED=7",
      "The history, as short as it was found to fail:",
      "  1. 9",
      "  2. 1"
    ])
  }))

it.effect("a run that fails otherwise names the command, and no rule", () =>
  Effect.gen(function*() {
    const run: Run<number, never> = (commands, reaches = () => {}) =>
      Effect.sync(() => {
        reaches(commands.length - 1)
        throw new Error("the connection was lost")
      })
    const report = yield* summaryOf(run, [1, 2, 3], (n) => `${n} is added`)
    assert.deepStrictEqual(report.slice(0, 3), [
      "No rule was compared: the run itself failed.",
      "By command 3 of 3: 3 is added.",
      "Seen: the connection was lost"
    ])
  }))
