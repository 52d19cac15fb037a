import { Layer } from "effect"
import { AnonymousBudget, Budgets } from "#domain/auth/Budgets"
import { LargeReads } from "#ground/rates/LargeReads"
import { RateLimits } from "#ground/rates/RateLimits"

/** The budgets of requests, for tests that serve some of the routes alone. */
export const requestBudgets = AnonymousBudget.layer.pipe(
  Layer.provideMerge(Budgets.layer),
  Layer.provide(Layer.mergeAll(LargeReads.layer, RateLimits.layerMemory))
)
