import { assert, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { makeSpareConcurrency } from "../../src/webhooks/HostConcurrency.ts"

it.effect("what may be left undone waits in bounded numbers, for each host and in all, and takes no other host's place", () =>
  Effect.gen(function*() {
    const fork = Effect.runForkWith(yield* Effect.context<never>())
    const permits = makeSpareConcurrency(10, 2, { inAll: 12, perHost: 5 })
    const gate = yield* Deferred.make<void>()
    const begun: Record<string, number> = {}
    const ended: Record<string, number> = {}
    const post = (host: string, times: number, work: Effect.Effect<void>) => {
      for (let i = 0; i < times; i++) {
        const one = Effect.andThen(Effect.sync(() => begun[host] = (begun[host] ?? 0) + 1), work)
        fork(Effect.ensuring(permits(host)(one), Effect.sync(() => ended[host] = (ended[host] ?? 0) + 1)))
      }
    }
    post("slow", 1_000, Deferred.await(gate))
    assert.deepStrictEqual([begun, ended], [{ slow: 2 }, { slow: 995 }])
    post("quick", 1, Effect.void)
    assert.strictEqual(begun["quick"], 1)
    post("slower", 1_000, Deferred.await(gate))
    post("slowest", 1_000, Deferred.await(gate))
    assert.deepStrictEqual([begun, ended], [
      { slow: 2, quick: 1, slower: 2, slowest: 2 },
      { slow: 995, quick: 1, slower: 995, slowest: 998 }
    ])
    // All places in all are taken; whoever ends makes room.
    post("quick", 1, Effect.void)
    assert.strictEqual(begun["quick"], 1)
    yield* Deferred.succeed(gate, undefined)
    for (let turn = 0; turn < 10; turn++) yield* Effect.yieldNow
    assert.deepStrictEqual([begun["slow"], begun["slower"], begun["slowest"]], [5, 5, 2])
    post("quick", 1, Effect.void)
    assert.strictEqual(begun["quick"], 2)
  }))
