import * as Cluster from "#infrastructure/cluster/Cluster"
import { type Batch, job } from "#infrastructure/cluster/Job"
import { jobRows, jobRuns, jobSeconds } from "#infrastructure/platform/Metrics"
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"

const cluster = Layer.provideMerge(Layer.effectDiscard(Cluster.awaitShards), Cluster.layerStandalone).pipe(
  Layer.provide(Layer.succeed(Clock.Clock, Clock.Clock.defaultValue()))
)

it.effect("a job goes on while there is more, comes back every period, outlives its failures and ends with its scope", () =>
  Effect.gen(function*() {
    const batches: Array<Batch | "fails" | "dies"> = [
      { rows: 2, more: true },
      { rows: 1, more: false },
      "fails",
      "dies",
      { rows: 5, more: false }
    ]
    const done: Array<readonly [number, unknown]> = []
    const batch = Effect.gen(function*() {
      const next = batches.shift() ?? { rows: 0, more: false }
      done.push([yield* Clock.currentTimeMillis, next])
      if (next === "fails") return yield* Effect.fail(new Error("no"))
      if (next === "dies") return yield* Effect.die(new Error("never"))
      return next
    })
    yield* Effect.scoped(Effect.gen(function*() {
      yield* Layer.build(Layer.provide(job({ name: "tested", every: "10 minutes", batch }), cluster))
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(done, [[0, { rows: 2, more: true }], [10, { rows: 1, more: false }]])
      yield* TestClock.adjust("20 minutes")
      // Half a minute after a failure, not a period.
      assert.deepStrictEqual(done.slice(2).map(([at]) => at), [600_010, 630_010, 660_010])
      yield* TestClock.adjust("1 minute")
      const after = done.length
      assert.strictEqual(after, 6)
      assert.strictEqual(jobRows.at("tested").value, 8)
      assert.strictEqual(jobRuns.at("tested", "done").value, 3)
      assert.strictEqual(jobRuns.at("tested", "failed").value, 2)
      assert.strictEqual(jobSeconds.at("tested").count, 4)
    }))
    const ended = done.length
    yield* TestClock.adjust("1 hour")
    assert.strictEqual(done.length, ended)
  }))
