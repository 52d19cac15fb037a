import { describe, layer } from "@effect/vitest"
import {
  codeStepInWords,
  codeStepsOf,
  layerCodes,
  makeCodesWorld
} from "../../verification/simulation/rules/CodesWorld.ts"
import {
  layerRates,
  makeRatesWorld,
  rateStepInWords,
  rateStepsOf
} from "../../verification/simulation/rules/RatesWorld.ts"
import { inHistories, RUNS, TIMEOUT_MS } from "../../verification/simulation/rules/Runs.ts"
import { layerPgliteTest } from "../support/Databases.ts"

describe("codes", () => {
  layer(layerCodes(layerPgliteTest))((it) => {
    it.effect(
      `${RUNS} histories of codes by e-mail agree with the model`,
      () => inHistories(["Pending code"], (seed) => codeStepsOf(seed, 50), codeStepInWords, makeCodesWorld, 0.5),
      TIMEOUT_MS
    )
  })
})

describe("rates", () => {
  layer(layerRates(layerPgliteTest))((it) => {
    it.effect(
      `${RUNS} histories of limited requests agree with the definition of a sliding window`,
      () => inHistories([], (seed) => rateStepsOf(seed, 40), rateStepInWords, makeRatesWorld, 0.5),
      TIMEOUT_MS
    )
  })
})
