import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import { claimAddress } from "../../src/platform/ClusterNode.ts"
import { layerPostgresTest } from "../support/Databases.ts"

describe("a node's address", () => {
  it.live("is one node's at a time, and free when that one has ended", () =>
    Effect.gen(function*() {
      const here = { RUNNER_HOST: "127.0.0.1", RUNNER_PORT: 34_431 }
      const first = yield* Scope.make()
      const claim = claimAddress(here, "700 millis")
      yield* Scope.provide(claim, first)
      const failure = yield* Effect.flip(Effect.scoped(claim))
      assert.include(failure.message, "127.0.0.1:34431")
      yield* Effect.scoped(claimAddress({ ...here, RUNNER_PORT: 34_432 }, "700 millis"))
      yield* Scope.close(first, Exit.void)
      yield* Effect.scoped(claimAddress(here, "2 seconds"))
    }).pipe(Effect.provide(layerPostgresTest(18, { poolSize: 6, kind: "empty" }).pipe(Layer.orDie))))
})
