import { Limits } from "#infrastructure/rates/Limits"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { RateLimited } from "#infrastructure/wire/WireError"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { readdirSync, readFileSync } from "node:fs"
import { rates } from "../../src/Limits.ts"

const rule: RateRule = {
  name: "send",
  setting: "LIMITS_SENDS_PER_SECOND",
  limit: 3,
  windowMs: 60_000,
  window: "minute"
}

describe("limits that operators change", () => {
  it.effect("hold for one agent or for all, until their time", () =>
    Effect.gen(function*() {
      const limits = yield* Limits
      const send = rule
      assert.strictEqual(limits.rule(send, "agt_a"), send)
      const change = { name: "LIMITS_SENDS_PER_SECOND", until: null }
      limits.set([{ ...change, agentId: "agt_a", value: 1 }, { ...change, agentId: null, value: 2 }])
      assert.deepStrictEqual(["agt_a", "agt_b"].map((key) => limits.rule(send, key).limit), [1, 2])
      assert.strictEqual(limits.rule({ ...send, setting: "LIMITS_CARDS_PER_MINUTE" }, "agt_a").limit, 3)
      assert.strictEqual(limits.of("LIMITS_SENDS_PER_SECOND", 9, "agt_b"), 2)
      limits.set([{ ...change, agentId: "agt_a", value: 1, until: 1_000 }])
      assert.strictEqual(limits.rule(send, "agt_a").limit, 1)
      yield* TestClock.adjust("1 second")
      assert.strictEqual(limits.rule(send, "agt_a").limit, 3)
      limits.set([])
      assert.strictEqual(limits.any(), false)
    }).pipe(Effect.provide(Limits.layer)))

  it.effect("apply to the next request, also where more was accepted before", () =>
    Effect.gen(function*() {
      const limits = yield* Limits
      const rates = yield* RateLimits
      const send: RateRule = { ...rule, message: (limit) => `At most ${limit}.` }
      yield* rates.take(send, "agt_a")
      yield* rates.take(send, "agt_a")
      limits.set([{ name: "LIMITS_SENDS_PER_SECOND", agentId: null, value: 1, until: null }])
      const refused = yield* Effect.flip(rates.take(send, "agt_a"))
      assert.instanceOf(refused, RateLimited)
      assert.strictEqual(refused.details?.limit, 1)
      assert.strictEqual(refused.message, "At most 1.")
      assert.instanceOf(yield* Effect.flip(rates.takeAll([{ rule: send, key: "agt_a" }])), RateLimited)
      assert.deepStrictEqual(rates.countsOf("agt_a").map(({ count, rule }) => [rule.name, count]), [["send", 2]])
      limits.set([{ name: "LIMITS_SENDS_PER_SECOND", agentId: "agt_a", value: 9, until: null }])
      for (let i = 0; i < 7; i++) yield* rates.take(send, "agt_a")
      assert.instanceOf(yield* Effect.flip(rates.take(send, "agt_a")), RateLimited)
    }).pipe(Effect.provide(Layer.provideMerge(RateLimits.layerMemory, Limits.layer))))

  it("include every rate that a module declares, each with a name and a setting of its own", () => {
    const source = new URL("../../src", import.meta.url).pathname
    const declared = readdirSync(source, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"))
      .flatMap((name) => [...readFileSync(`${source}/${name}`, "utf8").matchAll(/setting: "(LIMITS_\w+)"/g)])
      .map(([, setting]) => setting)
    assert.isAbove(declared.length, 20)
    assert.sameMembers(rates.map(({ setting }) => setting), declared)
    assert.strictEqual(new Set(rates.map(({ setting }) => setting)).size, rates.length)
    assert.strictEqual(new Set(rates.map(({ name }) => name)).size, rates.length)
  })
})
