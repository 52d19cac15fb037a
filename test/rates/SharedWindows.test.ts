import { Config } from "#infrastructure/platform/Config"
import { Redis } from "#infrastructure/platform/Redis"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule, RateState } from "#infrastructure/rates/RateRule"
import { RedisClock } from "#infrastructure/rates/SharedWindows"
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Redacted, References } from "effect"
import { elapse, eventually } from "../support/Eventually.ts"
import { FakeRedis } from "../support/FakeRedis.ts"
import { MEASURES, Stopwatch } from "../support/Promptly.ts"
import { untilConnected } from "../support/RedisConnection.ts"

let names = 0
const rule = (limit: number, windowMs = 60_000): RateRule => ({
  name: `shared${names++}`,
  limit,
  windowMs,
  window: "test window"
})

/** The limits of one node, and its connection, which is there. */
const node = (url: string, timeoutMs: number) =>
  Layer.build(
    Layer.fresh(RateLimits.layerRedis).pipe(
      Layer.provideMerge(untilConnected),
      Layer.provideMerge(Layer.fresh(Redis.layer)),
      Layer.provide(Config.layerTest({ REDIS_URL: Redacted.make(url), REDIS_TIMEOUT_MS: timeoutMs })),
      Layer.provide(Layer.succeed(References.MinimumLogLevel, "Fatal")),
      Layer.orDie
    )
  )

const limitsOf = (url: string, timeoutMs = 150) => Effect.map(node(url, timeoutMs), Context.get(RateLimits))

type Limits = RateLimits["Service"]

/** What becomes of so many takes in the same turn. */
const takes = (limits: Limits, one: RateRule, times: number, key = "k") =>
  Effect.map(
    Effect.all(Array.from({ length: times }, () => Effect.exit(limits.take(one, key))), { concurrency: "unbounded" }),
    (exits) => exits.flatMap((exit) => Exit.isSuccess(exit) ? [exit.value] : [])
  )

const areShared = (states: ReadonlyArray<RateState>): boolean => states.every(({ sharedAt }) => sharedAt !== null)

/** Takes until Redis decides again. */
const untilShared = (limits: Limits) =>
  Effect.promise(() =>
    eventually("an answer of Redis", async () => {
      const { sharedAt } = await Effect.runPromise(Effect.orDie(limits.take(rule(1), "k")))
      return sharedAt ?? undefined
    })
  )

/** Long enough for a busy machine. Where Redis answers or refuses, no test takes that long. */
const PATIENT_MS = 20_000

/** This process does nothing for so long. */
const standStill = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

describe("limits that nodes share", () => {
  let redis: FakeRedis
  beforeEach(async () => {
    redis = await FakeRedis.start()
  })
  afterEach(() => redis.stop())

  it.live("requests of one turn are one command, and several if there are very many", () =>
    Effect.gen(function*() {
      const limits = yield* limitsOf(redis.url, PATIENT_MS)
      assert.isTrue(areShared(yield* takes(limits, rule(50), 50)))
      assert.deepStrictEqual([redis.commands, redis.requests], [1, 50])
      assert.isTrue(areShared(yield* takes(limits, rule(1_000), 450)))
      assert.deepStrictEqual([redis.commands, redis.requests], [4, 500])
    }).pipe(Effect.scoped))

  it.live("two nodes accept the limit together, and who is above its own node's count costs no question", () =>
    Effect.gen(function*() {
      const [one, two] = yield* Effect.all([limitsOf(redis.url, PATIENT_MS), limitsOf(redis.url, PATIENT_MS)])
      const sixty = rule(60)
      const both = yield* Effect.all([takes(one, sixty, 200), takes(two, sixty, 200)], { concurrency: "unbounded" })
      assert.strictEqual(both.flat().length, 60)
      assert.isTrue(areShared(both.flat()))
      assert.isAtMost(redis.requests, 120)
    }).pipe(Effect.scoped))

  it.live.runIf(MEASURES)(
    "a Redis that answers in a millisecond is not slow, though this process stands still for longer than it waits",
    () =>
      Effect.gen(function*() {
        redis.answerAfter(1)
        const limits = yield* limitsOf(redis.url, 1_000)
        yield* takes(limits, rule(1), 1)
        for (let i = 0; i < 2; i++) {
          const taking = yield* Effect.forkChild(takes(limits, rule(100), 100), { startImmediately: true })
          // In the turn after the one in which it was asked: the answer waits in the socket meanwhile.
          yield* Effect.callback<void>((resume) => {
            setImmediate(() =>
              setTimeout(() => {
                standStill(1_300)
                resume(Effect.void)
              })
            )
          })
          const states = yield* Fiber.join(taking)
          assert.strictEqual(states.length, 100)
          assert.isTrue(areShared(states))
        }
      }).pipe(Effect.scoped)
  )

  for (const [what, ms] of [["hangs", Infinity], ["is slow", 30_000]] as const) {
    it.live(`while it ${what} each node accepts what its own count allows: all within the limit, nothing beyond`, () =>
      Effect.gen(function*() {
        const nodes = yield* Effect.all([limitsOf(redis.url), limitsOf(redis.url)])
        for (const limits of nodes) yield* takes(limits, rule(1), 1)
        redis.answerAfter(ms)
        const sixty = rule(60)
        for (const limits of nodes) {
          assert.strictEqual((yield* takes(limits, sixty, 40)).length, 40)
          assert.strictEqual((yield* takes(limits, sixty, 100)).length, 20)
          assert.strictEqual((yield* takes(limits, sixty, 100)).length, 0)
        }
        // After a few answers that did not come nobody waits any more.
        const [one] = nodes
        for (let i = 0; i < 4; i++) yield* takes(one!, rule(1), 1)
        const watch = new Stopwatch()
        for (let i = 0; i < 50; i++) yield* takes(one!, rule(1), 1)
        watch.endsWithin(1_000)
      }).pipe(Effect.scoped))
  }

  it.live("an answer long after the deadline does not count", () =>
    Effect.gen(function*() {
      const [one, two] = yield* Effect.all([limitsOf(redis.url), limitsOf(redis.url)])
      for (const limits of [one, two]) yield* takes(limits, rule(1), 1)
      const sixty = rule(60)
      redis.answerAfter(Infinity)
      assert.isFalse(areShared(yield* takes(one, sixty, 60)))
      yield* Effect.promise(() => elapse("the time in which an answer counts", 800))
      redis.answerAfter(0)
      yield* untilShared(one)
      yield* untilShared(two)
      assert.strictEqual((yield* takes(two, sixty, 60)).length, 60)
      // Its own count knows.
      assert.strictEqual((yield* takes(one, sixty, 60)).length, 0)
    }).pipe(Effect.scoped))

  it.live("while Redis is away the same holds without a wait, and when it comes back, empty, no node accepts again what it has accepted", () =>
    Effect.gen(function*() {
      const limits = yield* limitsOf(redis.url, PATIENT_MS)
      const sixty = rule(60)
      assert.isTrue(areShared(yield* takes(limits, sixty, 30)))
      yield* Effect.promise(() => redis.close())
      const watch = new Stopwatch()
      assert.strictEqual((yield* takes(limits, sixty, 20)).length, 20)
      watch.endsWithin(1_000)
      yield* Effect.promise(() => redis.launch())
      yield* untilShared(limits)
      assert.strictEqual((yield* takes(limits, sixty, 100)).length, 10)
      assert.strictEqual((yield* takes(limits, sixty, 100)).length, 0)
    }).pipe(Effect.scoped))

  it.live("a place that is given back is free on this node and for the others", () =>
    Effect.gen(function*() {
      const [one, two] = yield* Effect.all([limitsOf(redis.url, PATIENT_MS), limitsOf(redis.url, PATIENT_MS)])
      const two_ = rule(2)
      const [first] = yield* takes(one, two_, 2)
      assert.strictEqual((yield* takes(one, two_, 1)).length, 0)
      one.refund(two_, "k", first!)
      assert.strictEqual((yield* takes(one, two_, 2)).length, 1)
      assert.strictEqual((yield* takes(two, two_, 1)).length, 0)
    }).pipe(Effect.scoped))

  it.live("a refusal by Redis leaves no place taken in this node's own count", () =>
    Effect.gen(function*() {
      const [one, two] = yield* Effect.all([limitsOf(redis.url, PATIENT_MS), limitsOf(redis.url, PATIENT_MS)])
      const ten = rule(10)
      assert.strictEqual((yield* takes(one, ten, 10)).length, 10)
      for (let i = 0; i < 5; i++) assert.strictEqual((yield* takes(two, ten, 10)).length, 0)
      yield* Effect.promise(() => redis.close())
      assert.strictEqual((yield* takes(two, ten, 20)).length, 10)
    }).pipe(Effect.scoped))

  it.live("a charge counts although the request's own limit refuses it, with Redis and without", () =>
    Effect.gen(function*() {
      const limits = yield* limitsOf(redis.url, PATIENT_MS)
      const other = yield* limitsOf(redis.url, PATIENT_MS)
      const counts = (general: RateRule, own: RateRule) =>
        Effect.gen(function*() {
          const owed = { rule: general, key: "k" }
          const request = Effect.result(limits.takeTogether(owed, limits.take(own, "k")))
          for (let i = 0; i < 3; i++) yield* request
          return yield* Effect.flip(limits.takeTogether(owed, Effect.void))
        })
      const general = rule(3)
      assert.strictEqual((yield* counts(general, rule(1))).details?.limit, 3)
      yield* Effect.promise(() => eventually("the last question", () => redis.requests >= 3 || undefined))
      assert.strictEqual((yield* takes(other, general, 1)).length, 0)
      yield* Effect.promise(() => redis.close())
      assert.strictEqual((yield* counts(rule(3), rule(1))).details?.limit, 3)
    }).pipe(Effect.scoped))

  it.live("each purpose has a circuit of its own", () =>
    Effect.gen(function*() {
      const connection = Context.get(yield* node(redis.url, 300), Redis)
      const [one, other] = [connection.channel("one"), connection.channel("other")]
      redis.answerAfter(Infinity)
      for (let i = 0; i < 4; i++) yield* Effect.ignore(one.command("PING"))
      assert.deepStrictEqual([one.unusable(), other.unusable()], ["open", undefined])
      redis.answerAfter(0)
      yield* Effect.promise(() => eventually("the circuit to close", () => one.unusable() === undefined || undefined))
    }).pipe(Effect.scoped))
})

describe("RedisClock", () => {
  it("is never behind Redis, and as close as the fastest answer", () => {
    const clock = new RedisClock()
    assert.strictEqual(clock.at(0), 0)
    // Redis is 5 s ahead.
    clock.read(5_110_000, 100, 150)
    assert.strictEqual(clock.at(200), 5_210_000)
    clock.read(5_300_500, 300, 301)
    assert.strictEqual(clock.at(400), 5_400_500)
    // A slow answer tells nothing new, and its moment is what it was.
    assert.strictEqual(clock.read(5_490_000, 400, 500), 489.5)
    assert.strictEqual(clock.at(600), 5_600_500)
  })

  it("follows Redis's clock when that is set", () => {
    const clock = new RedisClock()
    clock.read(5_000_000, 0, 1)
    clock.read(9_010_000, 10, 11)
    assert.strictEqual(clock.at(20), 9_020_000)
    clock.read(1_030_000, 30, 31)
    assert.strictEqual(clock.at(40), 1_040_000)
  })
})
