import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  COMMANDS,
  type Coverage,
  covered,
  halfWithTasks,
  RUNS,
  search,
  SECONDS,
  SEED,
  TIMEOUT_MS
} from "../../verification/simulation/Search.ts"
import { layerSeam, makeWorld, Seam, SETTINGS } from "../../verification/simulation/World.ts"
import { layerPgliteTest, layerPostgresTest } from "../support/Databases.ts"
import { breath } from "../support/Eventually.ts"
import { layerModules } from "../support/Modules.ts"

/** What 500 runs must have met, or they have shown less than they say. */
const TRANSITIONS = [
  "none → cold",
  "cold → established",
  "established → established",
  "stored → delivered, ack frame",
  "stored → delivered, legacy push",
  "stored → delivered, sync/ack",
  "stored → delivered, hide message",
  "stored → delivered, hide conversation",
  "stored → read",
  "delivered → read",
  "wait answered",
  "wait answered, answer lost",
  "wait hung up",
  "wait timed out",
  "send replayed",
  "send stored, answer lost",
  "send failed, nothing stored",
  "send refused: AwaitingReply",
  "send refused: Blocked",
  "send refused: ColdCapExceeded",
  "send refused: InboxRestricted",
  "send refused: RecipientBacklogged",
  "task SUBMITTED",
  "task WORKING",
  "task INPUT_REQUIRED",
  "task AUTH_REQUIRED",
  "task COMPLETED",
  "task FAILED",
  "task REJECTED",
  "task CANCELED",
  "task cancelled among messages",
  "task not cancelled",
  "task not stored: refused",
  "task not stored: unanswered"
]

const seam = new Seam()

layer(layerModules(layerSeam(layerPgliteTest, seam), SETTINGS))((it) => {
  it.effect(
    `${RUNS} runs of ${COMMANDS} commands or more agree with the model`,
    () =>
      Effect.gen(function*() {
        const coverage: Coverage = { commands: new Map(), transitions: new Map() }
        const { run } = yield* makeWorld(seam, coverage)
        let runs = 0
        const counted: typeof run = (commands, reaches) => Effect.suspend(() => (runs++, run(commands, reaches)))
        const found = yield* search(counted, RUNS, SEED, { commands: halfWithTasks, seconds: 0.75 * SECONDS })
        console.log(`${covered(coverage)}\n${found === undefined ? `${runs} runs agreed` : ""}`)
        if (found !== undefined) assert.fail(found)
        const never = TRANSITIONS.filter((name) => !coverage.transitions.has(name))
        if (RUNS >= 150) assert.deepStrictEqual(never, [])
      }),
    TIMEOUT_MS
  )
})

/** A few of them where batches of several lanes are on their way at once, and some take their time to commit. */
const interleaving = new Seam()
let commits = 0
interleaving.pause = Effect.suspend(() => commits++ % 3 === 0 ? Effect.promise(breath) : Effect.void)
const INTERLEAVED_RUNS = Math.ceil(RUNS / 40)

layer(layerModules(layerSeam(layerPostgresTest(), interleaving), { ...SETTINGS, DATABASE_LANES: 3 }))((it) => {
  it.effect(
    `${INTERLEAVED_RUNS} runs with commits that overlap on PostgreSQL agree with it too`,
    () =>
      Effect.gen(function*() {
        const { run } = yield* makeWorld(interleaving, { commands: new Map(), transitions: new Map() })
        const found = yield* search(run, INTERLEAVED_RUNS, SEED, { commands: halfWithTasks, seconds: 0.25 * SECONDS })
        if (found !== undefined) assert.fail(found)
      }),
    TIMEOUT_MS
  )
})
