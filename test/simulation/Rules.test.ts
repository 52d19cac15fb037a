import { layer } from "@effect/vitest"
import { inHistories, RUNS, TIMEOUT_MS } from "../../verification/simulation/rules/Runs.ts"
import { layerSociety, makeSocietyWorld } from "../../verification/simulation/rules/SocietyWorld.ts"
import { stepInWords, stepsOf } from "../../verification/simulation/rules/Steps.ts"
import { layerPgliteTest } from "../support/Databases.ts"

layer(layerSociety(layerPgliteTest))((it) => {
  it.effect(
    `${RUNS} histories of agents who write, react, block, mute, gather and leave agree with the models`,
    () =>
      inHistories(
        [
          "Envelope",
          "Message as shown",
          "Direct conversation",
          "Agent",
          "Group invite",
          "Attachment",
          "Reaction",
          "Outcome",
          "Hops",
          "Budget"
        ],
        (seed) => stepsOf(seed, 110),
        stepInWords,
        makeSocietyWorld
      ),
    TIMEOUT_MS
  )
})
