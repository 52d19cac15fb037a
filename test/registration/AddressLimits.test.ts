import { AddressAttemptsRepo } from "#domain/registration/AddressAttemptsRepo"
import { AddressLimits } from "#domain/registration/AddressLimits"
import { registrationTables } from "#domain/registration/RegistrationTables"
import { Config } from "#infrastructure/platform/Config"
import { Limits } from "#infrastructure/rates/Limits"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { RateLimited, Unavailable } from "#infrastructure/wire/WireError"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Option } from "effect"
import { HttpServerRequest } from "effect/http"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { eachDatabase } from "../support/Databases.ts"
import { sweepExpired } from "../support/Expiry.ts"
import { WindowModel } from "../support/WindowModel.ts"

type Repo = AddressAttemptsRepo["Service"]

let addresses = 0
const freshAddress = (): string => `10.1.${addresses >> 8}.${addresses++ & 255}`

const requestFrom = (address: string): HttpServerRequest.HttpServerRequest =>
  HttpServerRequest.fromWeb(new Request("http://parley.example/")).modify({ remoteAddress: Option.some(address) })

/** The limits of one process, in front of this table. */
const processOn = (repo: Repo) =>
  Effect.map(
    Layer.build(
      Layer.fresh(AddressLimits.layer).pipe(
        Layer.provide(Layer.fresh(RateLimits.layerMemory)),
        Layer.provide(Layer.succeed(AddressAttemptsRepo, repo)),
        Layer.provide(Config.layerTest({}))
      )
    ),
    Context.get(AddressLimits)
  )

/** The table, and how often it was asked. */
const counting = (repo: Repo): { readonly repo: Repo; asked: number } => {
  const counter = {
    asked: 0,
    repo: {
      ...repo,
      attempt: (rule: RateRule, address: string, now: number) => {
        counter.asked++
        return repo.attempt(rule, address, now)
      }
    }
  }
  return counter
}

const passing = <E, R>(takes: ReadonlyArray<Effect.Effect<void, E, R>>) =>
  Effect.map(
    Effect.all(takes.map(Effect.exit), { concurrency: "unbounded" }),
    (exits) => exits.filter(Exit.isSuccess).length
  )

eachDatabase((database) => {
  layer(AddressAttemptsRepo.layer.pipe(Layer.provideMerge(database)))((it) => {
    it.effect("the table counts as the definition says, whatever the pauses and steps of the clock", () =>
      Effect.gen(function*() {
        const repo = yield* AddressAttemptsRepo
        const step = fc.integer({ min: -4_000, max: 6_000 })
        const histories = fc.sample(
          fc.record({
            limit: fc.integer({ min: 1, max: 6 }),
            pauses: fc.array(step, { minLength: 30, maxLength: 40, size: "max" })
          }),
          15
        )
        for (const { limit, pauses } of histories) {
          const rule = { name: "register", limit, windowMs: 10_000, window: "test window" }
          const model = new WindowModel(rule)
          const address = freshAddress()
          let now = 1_700_000_000_000
          for (const pause of pauses) {
            // Now and then further back than a window.
            now += pause < -3_900 ? -15_000 : pause
            const waitMs = model.wait(now)
            const attempted = yield* repo.attempt(rule, address, now)
            assert.strictEqual(attempted.waitMs, waitMs)
            if (waitMs > 0) continue
            const { remaining, resetMs } = model.add(now)
            assert.deepStrictEqual([attempted.remaining, attempted.resetMs], [remaining, resetMs])
          }
        }
      }))

    it.effect("exactly the limit of 200 attempts at once in two processes counts, and both say how long to wait", () =>
      Effect.gen(function*() {
        const repo = yield* AddressAttemptsRepo
        const [one, two] = [yield* processOn(repo), yield* processOn(repo)]
        yield* TestClock.setTime(1_700_000_000_000)
        const request = requestFrom(freshAddress())
        const takes = Array.from({ length: 200 }, (_, i) => (i % 2 === 0 ? one : two).take("register_verify", request))
        assert.strictEqual(yield* passing(takes), 10)
        yield* TestClock.adjust("1 minute")
        for (const limits of [one, two]) {
          const refused = yield* Effect.flip(limits.take("register_verify", request))
          assert.instanceOf(refused, RateLimited)
          if (refused instanceof RateLimited)
            assert.deepInclude(refused.details, { retry_after_ms: 540_000, limit: 10, window: "10 minutes" })
        }
        yield* TestClock.adjust("9 minutes")
        assert.strictEqual(yield* passing([one, two].map((limits) => limits.take("register_verify", request))), 2)
      }))

    it.effect("a flood asks the database for what may count, and once more", () =>
      Effect.gen(function*() {
        const repo = yield* AddressAttemptsRepo
        const [here, there] = [counting(repo), counting(repo)]
        const [one, two] = [yield* processOn(here.repo), yield* processOn(there.repo)]
        const request = requestFrom(freshAddress())
        const flood = (limits: AddressLimits["Service"]) =>
          passing(Array.from({ length: 500 }, () => limits.take("register", request)))
        assert.strictEqual(yield* flood(one), 5)
        assert.strictEqual(here.asked, 5)
        assert.strictEqual(yield* flood(two), 0)
        assert.isAtMost(there.asked, 5)
        const { asked } = there
        yield* flood(two)
        assert.strictEqual(there.asked, asked)
      }))

    it.effect("an address that was refused is let in by the limit that an operator has raised", () =>
      Effect.gen(function*() {
        const repo = yield* AddressAttemptsRepo
        const inForce = yield* Limits
        const [one, two] = [yield* processOn(repo), yield* processOn(repo)]
        const request = requestFrom(freshAddress())
        const attempts = (limits: AddressLimits["Service"]) =>
          passing(Array.from({ length: 20 }, () => limits.take("register", request)))
        const change = (value: number) =>
          inForce.set([{ name: "LIMITS_REGISTER_PER_HOUR", agentId: null, value, until: null }])
        assert.deepStrictEqual([yield* attempts(one), yield* attempts(two)], [5, 0])
        change(8)
        assert.deepStrictEqual([yield* attempts(two), yield* attempts(one)], [3, 0])
        change(6)
        assert.deepStrictEqual([yield* attempts(two), yield* attempts(one)], [0, 0])
        change(9)
        assert.deepStrictEqual([yield* attempts(two), yield* attempts(one)], [1, 0])
      }).pipe(Effect.provide(Limits.layer)))

    it.effect("rows that say nothing any more are removed, and only those", () =>
      Effect.gen(function*() {
        const repo = yield* AddressAttemptsRepo
        const sql = yield* SqlClient.SqlClient
        const limits = yield* processOn(repo)
        yield* sql`DELETE FROM address_attempts`
        yield* TestClock.setTime(1_800_000_000_000)
        yield* limits.take("register_verify", requestFrom(freshAddress()))
        yield* limits.take("register", requestFrom(freshAddress()))
        yield* TestClock.adjust("10 minutes")
        const sweep = Effect.provide(sweepExpired(registrationTables, "address_attempts"), Config.layerTest({}))
        assert.deepStrictEqual(yield* sweep, { rows: 1, more: false })
        assert.deepStrictEqual(yield* sql`SELECT route FROM address_attempts`, [{ route: "register" }])
      }))
  })
})

describe("without a database", () => {
  const broken: Repo = {
    attempt: () => Effect.fail(new Unavailable())
  }

  it.effect("no attempt passes uncounted, and none is used up", () =>
    Effect.gen(function*() {
      let repo = broken
      const limits = yield* processOn({ ...broken, attempt: (...attempt) => repo.attempt(...attempt) })
      const request = requestFrom(freshAddress())
      for (let i = 0; i < 20; i++) {
        assert.strictEqual((yield* Effect.flip(limits.take("recover", request))).code, "UNAVAILABLE")
      }
      repo = { ...broken, attempt: () => Effect.succeed({ waitMs: 0, remaining: 0, resetMs: 0 }) }
      const takes = Array.from({ length: 10 }, () => limits.take("recover", request))
      assert.strictEqual(yield* passing(takes), 3)
    }).pipe(Effect.scoped))
})
