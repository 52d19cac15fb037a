import { Ids, sha256 } from "#infrastructure/platform/Ids"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"

describe("Ids", () => {
  it.effect("have the forms of the contract", () =>
    Effect.gen(function*() {
      const ids = yield* Ids
      for (let i = 0; i < 2_000; i++) {
        assert.match(ids.make("agt"), /^agt_[A-Za-z0-9_-]{16}$/)
        assert.match(ids.apiKey(), /^ac_[A-Za-z0-9_-]{43}$/)
        assert.match(ids.code(), /^\d{6}$/)
      }
    }).pipe(Effect.provide(Ids.layer)))

  it.effect("are never repeated", () =>
    Effect.gen(function*() {
      const ids = yield* Ids
      const made = new Set<string>()
      for (let i = 0; i < 50_000; i++) made.add(ids.make("msg")).add(ids.apiKey())
      assert.strictEqual(made.size, 100_000)
    }).pipe(Effect.provide(Ids.layer)))

  it.effect("use each piece of the pool once", () =>
    Effect.gen(function*() {
      const ids = yield* Ids
      const first = ids.bytes(16)
      const kept = first.toString("hex")
      first.fill(0)
      const pieces = Array.from({ length: 2_000 }, () => ids.bytes(16).toString("hex"))
      assert.isFalse(pieces.includes("00".repeat(16)))
      assert.isFalse(pieces.includes(kept))
      assert.strictEqual(ids.bytes(9_000).length, 9_000)
    }).pipe(Effect.provide(Ids.layer)))

  it.effect("begin with their time", () =>
    Effect.gen(function*() {
      const ids = yield* Ids
      const time = Date.UTC(2024, 0, 2, 3, 4, 5, 678)
      yield* TestClock.setTime(time)
      const id = Buffer.from(ids.make("msg").slice(4), "base64url")
      assert.strictEqual(id.readUIntBE(0, 6), time)
    }).pipe(Effect.provide(Ids.layer)))

  it.effect("are uniform over all six digits, for codes", () =>
    Effect.gen(function*() {
      const ids = yield* Ids
      const counts = Array.from({ length: 6 }, () => new Array<number>(10).fill(0))
      const n = 60_000
      for (let i = 0; i < n; i++) {
        const code = ids.code()
        for (let place = 0; place < 6; place++) counts[place]![Number(code[place])]!++
      }
      // Chi-squared with 9 degrees of freedom: above 40 less than once in 100,000.
      for (const places of counts) {
        const chi = places.reduce((sum, seen) => sum + (seen - n / 10) ** 2 / (n / 10), 0)
        assert.isBelow(chi, 40)
      }
    }).pipe(Effect.provide(Ids.layerSeeded("codes"))))

  it.effect("are the same for the same seed, and others for another", () =>
    Effect.gen(function*() {
      const some = (seed: string) =>
        Effect.map(Ids, (ids) => [ids.make("agt"), ids.apiKey(), ids.code(), ids.bytes(100).toString("hex")]).pipe(
          Effect.provide(Ids.layerSeeded(seed), { local: true })
        )
      assert.deepStrictEqual(yield* some("a"), yield* some("a"))
      assert.notDeepEqual(yield* some("a"), yield* some("b"))
    }))
})

describe("sha256", () => {
  it("hashes text and bytes alike", () => {
    for (const text of ["", "ac_x", "\u{1f98a}"]) {
      const expected = createHash("sha256").update(text, "utf8").digest()
      assert.isTrue(sha256(text).equals(expected))
      assert.isTrue(sha256(Buffer.from(text)).equals(expected))
    }
  })
})
