import { Layer } from "effect"
import { AnonymousBudget, Budgets } from "../../src/auth/Budgets.ts"
import { LargeReads } from "../../src/rates/LargeReads.ts"
import { RateLimits } from "../../src/rates/RateLimits.ts"

/** The budgets of requests, for tests that serve some of the routes alone. */
export const requestBudgets = AnonymousBudget.layer.pipe(
  Layer.provideMerge(Budgets.layer),
  Layer.provide(Layer.mergeAll(LargeReads.layer, RateLimits.layerMemory))
)
