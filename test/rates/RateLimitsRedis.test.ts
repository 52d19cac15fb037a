import { Config } from "#infrastructure/platform/Config"
import { redisFallbacks } from "#infrastructure/platform/Metrics"
import { Redis } from "#infrastructure/platform/Redis"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { Charge, RateRule } from "#infrastructure/rates/RateRule"
import { readTaken, TAKE, takeArguments, takeKeys, windowKey } from "#infrastructure/rates/SlidingWindowScript"
import { RateLimited } from "#infrastructure/wire/WireError"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Redacted, References, Schema } from "effect"
import { createServer, type Server } from "node:net"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { elapse, eventually, eventuallyEffect } from "../support/Eventually.ts"
import { Stopwatch } from "../support/Promptly.ts"
import { untilConnected } from "../support/RedisConnection.ts"
import { WindowModel } from "../support/WindowModel.ts"

let names = 0
const rule = (limit: number, windowMs: number): RateRule => ({
  name: `test${names++}`,
  limit,
  windowMs,
  window: "test window"
})

/** A process's limits, with a connection of their own, which is there unless `awaited` says otherwise. */
const layerOf = (url: string, waitMs = 20_000, awaited: Layer.Layer<never, never, Redis> = untilConnected) =>
  RateLimits.layerRedis.pipe(
    Layer.provideMerge(awaited),
    Layer.provideMerge(Redis.layer),
    Layer.provide(Config.layerTest({ REDIS_URL: Redacted.make(url), REDIS_TIMEOUT_MS: waitMs })),
    Layer.provide(Layer.succeed(References.MinimumLogLevel, "Error")),
    Layer.orDie
  )

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const decidedAlone = (reason: string): Effect.Effect<number> => Effect.sync(() => redisFallbacks.at(reason).value)

/** How many of so many takes at once are accepted. */
const accepted = (limits: RateLimits["Service"], one: RateRule, key: string, times: number) =>
  Effect.map(
    Effect.all(Array.from({ length: times }, () => Effect.exit(limits.take(one, key))), { concurrency: "unbounded" }),
    (exits) => exits.filter(Exit.isSuccess).length
  )

/** Takes until Redis decides again. */
const untilShared = (limits: RateLimits["Service"]) =>
  eventuallyEffect(
    () => "an answer of Redis",
    Effect.suspend(() => Effect.map(limits.take(rule(1, 60_000), "k"), ({ sharedAt }) => sharedAt ?? undefined))
  )

/** A connection of the test's own. */
const channel = Effect.map(Redis, (redis) => redis.channel("test"))

describe.skipIf(missingRedis !== "")(`RateLimits in Redis${missingRedis}`, () => {
  let server: RedisServer
  beforeAll(async () => {
    server = await RedisServer.start()
  })
  afterAll(() => server.kill())

  const using = <A, E>(effect: Effect.Effect<A, E, RateLimits | Redis>, waitMs?: number): Effect.Effect<A, E> =>
    Effect.suspend(() => Effect.provide(effect, layerOf(server.url, waitMs), { local: true }))

  it.live.prop(
    "answers as the definition does, for several windows at once, whatever the pauses and steps of the clock",
    {
      // Far above what a run takes, for keys expire by the real clock.
      windows: Schema.Tuple([between(200_000, 600_000), between(200_000, 2_000_000), between(600_000, 4_000_000)]),
      limits: Schema.Tuple([between(1, 5), between(1, 8), between(1, 12)]),
      alone: between(0, 1),
      steps: Schema.Array(Schema.Struct({ pause: between(-300_000, 400_000), key: Schema.Literals(["a", "b"]) })).check(
        Schema.isMaxLength(60)
      )
    },
    ({ alone, limits, steps, windows }) =>
      using(Effect.gen(function*() {
        const redis = yield* channel
        const rules = limits.map((limit, i) => rule(limit, windows[i]!))
        const models = new Map<string, WindowModel>()
        let now = 1_700_000_000_000
        for (const { key, pause } of steps) {
          now += pause
          const charges: ReadonlyArray<Charge> = rules.map((rule) => ({ rule, key }))
          const taking = [{ charges, alone }]
          const answer = yield* redis.run(TAKE, takeKeys(taking), takeArguments(taking, { now: now * 1000 }))
          const [actual] = readTaken(taking, answer)?.all ?? []
          const known = charges.map(({ rule }) => {
            const name = `${rule.name} ${key}`
            const model = models.get(name) ?? new WindowModel(rule)
            models.set(name, model)
            return model
          })
          const refusing = (some: ReadonlyArray<WindowModel>) =>
            some.map((model) => ({ model, wait: model.wait(now) })).sort((a, b) => b.wait - a.wait)[0]
          const first = refusing(known.slice(0, alone))
          let expected = first
          if (first === undefined || first.wait === 0) {
            const states = known.slice(0, alone).map((model) => model.add(now))
            expected = refusing(known.slice(alone))
            if (expected === undefined || expected.wait === 0) {
              states.push(...known.slice(alone).map((model) => model.add(now)))
              assert.isUndefined(actual?.refusal)
              assert.deepStrictEqual(
                actual?.places.map(({ remaining, resetMs }, i) => ({ limit: limits[i], remaining, resetMs })),
                states
              )
              continue
            }
          }
          assert.lengthOf(actual?.places ?? [], first === undefined || first.wait === 0 ? alone : 0)
          if (!(actual?.refusal instanceof RateLimited)) return assert.fail("accepted")
          assert.strictEqual(actual.refusal.details?.retry_after_ms, expected?.wait)
        }
      })),
    { arbitrary: { runs: 60, size: 60 } }
  )

  it.live("exactly the limit of 200 takes at once through two connections passes", () =>
    Effect.gen(function*() {
      const one = yield* Layer.build(layerOf(server.url))
      const two = yield* Layer.build(layerOf(server.url))
      const sixty = rule(60, 60_000)
      const counts = yield* Effect.all(
        [one, two].map((context) => accepted(Context.get(context, RateLimits), sixty, "k", 100)),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(counts[0]! + counts[1]!, 60, counts.join(" and "))
      const refused = yield* Effect.flip(Context.get(one, RateLimits).take(sixty, "k"))
      assert.isAtMost(refused.details?.retry_after_ms ?? Infinity, 60_000)
      assert.isAtLeast(refused.details?.retry_after_ms ?? 0, 1)
    }).pipe(Effect.scoped))

  it.live("a window slides on Redis's clock, and waiting as long as it says is enough", () =>
    using(Effect.gen(function*() {
      const limits = yield* RateLimits
      const quick = rule(2, 1_000)
      const waitFor = Effect.match(limits.take(quick, "k"), {
        onFailure: ({ details }) => details?.retry_after_ms ?? Infinity,
        onSuccess: () => 0
      })
      // On a busy machine three takes may take longer than the window.
      let wait = yield* Effect.repeat(waitFor, { until: (wait) => wait > 0 })
      assert.isAtMost(wait, 1_000)
      // Who refuses then may be this process, which knows the time of a place in Redis only to within the delay of its
      // answers.
      while (wait > 0) {
        yield* Effect.promise(() => elapse("the wait that it says", wait))
        wait = yield* waitFor
      }
    })))

  it.live("takes all or nothing, refuses with the longest wait, and refunds", () =>
    using(Effect.gen(function*() {
      const limits = yield* RateLimits
      const [minute, day] = [rule(3, 60_000), rule(2, 86_400_000)]
      const both = limits.takeAll([{ rule: minute, key: "k" }, { rule: day, key: "k" }])
      assert.deepStrictEqual((yield* both).map(({ remaining }) => remaining), [2, 1])
      const [, last] = yield* both
      const refused = yield* Effect.flip(both)
      assert.strictEqual(refused.details?.limit, 2)
      assert.isAbove(refused.details?.retry_after_ms ?? 0, 3_600_000)
      // The refusal took nothing of the minute.
      assert.strictEqual((yield* limits.take(minute, "k")).remaining, 0)
      assert.isAbove((yield* Effect.flip(both)).details?.retry_after_ms ?? 0, 3_600_000)
      limits.refund(day, "k", last!)
      const freed = yield* eventuallyEffect(
        () => "the free place",
        Effect.match(limits.take(day, "k"), { onFailure: () => undefined, onSuccess: (state) => state })
      )
      assert.strictEqual(freed.remaining, 0)
    })))

  it.live("a charge is taken in the same round trip, and counts whatever else refuses", () =>
    using(Effect.gen(function*() {
      const limits = yield* RateLimits
      const redis = yield* channel
      const [general, own] = [rule(3, 60_000), rule(1, 60_000)]
      const owed = { rule: general, key: "k" }
      yield* limits.take(rule(1, 60_000), "the script is there")
      yield* redis.command("CONFIG", "RESETSTAT")
      yield* limits.takeTogether(owed, limits.take(own, "k"))
      const calls = String(yield* redis.command("INFO", "commandstats")).match(/cmdstat_eval\w*:calls=\d+/g)
      assert.deepStrictEqual(calls, ["cmdstat_evalsha:calls=1"])
      assert.strictEqual((yield* Effect.flip(limits.takeTogether(owed, limits.take(own, "k")))).details?.limit, 1)
      // What takes nothing of its own pays all the same.
      yield* limits.takeTogether(owed, Effect.void)
      assert.strictEqual((yield* Effect.flip(limits.takeTogether(owed, Effect.void))).details?.limit, 3)
      assert.strictEqual((yield* Effect.flip(limits.takeTogether(owed, limits.take(own, "other")))).details?.limit, 3)
      assert.strictEqual((yield* limits.take(own, "other")).remaining, 0)
    })))

  it.live("a key holds no more than its limit and is gone a window after the last take", () =>
    using(Effect.gen(function*() {
      const limits = yield* RateLimits
      const redis = yield* channel
      const short = rule(5, 200)
      for (let i = 0; i < 50; i++) yield* Effect.exit(limits.take(short, "k"))
      const key = windowKey({ rule: short, key: "k" })
      assert.isAtMost(Number(yield* redis.command("LLEN", key)), 5)
      yield* eventuallyEffect(
        () => "the end of the key",
        Effect.map(redis.command("EXISTS", key), (n) => n === 0 || undefined)
      )
    })))

  it.live("however many entries have left a window since the last take, the rest are counted", () =>
    using(Effect.gen(function*() {
      const redis = yield* channel
      const charge = { rule: rule(300, 60_000), key: "k" }
      const take = (ms: number) => {
        const taking = [{ charges: [charge], alone: 0 }]
        return Effect.map(
          redis.run(TAKE, takeKeys(taking), takeArguments(taking, { now: (1_700_000_000_000 + ms) * 1_000 })),
          (answer) => {
            const place = readTaken(taking, answer)?.all?.[0]?.places[0]
            return [place?.remaining, place?.resetMs]
          }
        )
      }
      for (let ms = 0; ms < 250; ms++) yield* take(ms)
      assert.deepStrictEqual(yield* take(250), [49, 59_750])
      // Of 251 entries one has left, then two, then 103 and then all.
      assert.deepStrictEqual(yield* take(60_000), [49, 1])
      assert.deepStrictEqual(yield* take(60_002), [50, 1])
      assert.deepStrictEqual(yield* take(60_105), [152, 1])
      assert.deepStrictEqual(yield* take(130_000), [299, 60_000])
      assert.strictEqual(yield* redis.command("LLEN", windowKey(charge)), 1)
    })))

  it.live("requests of one turn are decided one after the other, each by its own windows", () =>
    using(Effect.gen(function*() {
      const redis = yield* channel
      const [a, b] = [rule(2, 60_000), rule(3, 60_000)]
      const of = (...rules: ReadonlyArray<RateRule>) => rules.map((rule) => ({ rule, key: "k" }))
      const takings = [
        { charges: of(a, b), alone: 0 },
        { charges: of(a), alone: 0 },
        { charges: of(b, a), alone: 1 },
        { charges: of(a, b), alone: 0 },
        { charges: of(b), alone: 0 }
      ]
      const answer = yield* redis.run(TAKE, takeKeys(takings), takeArguments(takings, { now: 1_700_000_000_000_000 }))
      const taken = readTaken(takings, answer)
      assert.strictEqual(taken?.at, 1_700_000_000_000_000)
      assert.deepStrictEqual(
        taken?.all?.map(({ places, refusal }) => [
          places.map(({ remaining }) => remaining).join(),
          refusal instanceof RateLimited ? refusal.details?.limit : refusal
        ]),
        [["1,2", undefined], ["0", undefined], ["1", 2], ["", 2], ["0", undefined]]
      )
      // After the moment in which it was worth something it counts nothing.
      const late = yield* redis.run(
        TAKE,
        takeKeys(takings),
        takeArguments(takings, { now: 2_000_000, latest: 1_999_999 })
      )
      assert.deepStrictEqual(readTaken(takings, late), { at: 2_000_000, all: undefined })
    })))

  it.live("an invalid value in Redis leaves that request to this node's own count; others of the same turn are limited together", () =>
    using(Effect.gen(function*() {
      const limits = yield* RateLimits
      const redis = yield* channel
      const ten = rule(10, 60_000)
      yield* redis.command("SET", windowKey({ rule: ten, key: "broken" }), "nonsense")
      const before = yield* decidedAlone("nonsense")
      const [broken, sound] = yield* Effect.all([
        Effect.all(Array.from({ length: 10 }, () => limits.take(ten, "broken")), { concurrency: "unbounded" }),
        Effect.all(Array.from({ length: 10 }, () => limits.take(ten, "sound")), { concurrency: "unbounded" })
      ], { concurrency: "unbounded" })
      assert.isTrue(broken.every(({ sharedAt }) => sharedAt === null))
      assert.isTrue(sound.every(({ sharedAt }) => sharedAt !== null))
      assert.strictEqual((yield* decidedAlone("nonsense")) - before, 10)
      yield* Effect.flip(limits.take(ten, "broken"))
      yield* Effect.flip(limits.take(ten, "sound"))
    })))

  it.live("when Redis is killed, each node's own count decides at once, and all together when it is back, empty", () =>
    using(
      Effect.gen(function*() {
        const limits = yield* RateLimits
        const [one, many] = [rule(1, 60_000), rule(1_000, 60_000)]
        yield* limits.take(one, "k")
        yield* Effect.flip(limits.take(one, "k"))
        const before = yield* decidedAlone("down")
        const racing = yield* Effect.forkChild(accepted(limits, many, "k", 200), { startImmediately: true })
        yield* Effect.promise(() => server.kill())
        const redis = yield* channel
        yield* Effect.promise(() =>
          eventually("the end of the connection", () => redis.unusable() === "down" || undefined)
        )
        const watch = new Stopwatch()
        assert.strictEqual(yield* accepted(limits, many, "k", 900), 800)
        assert.strictEqual(yield* accepted(limits, one, "k", 100), 0)
        watch.endsWithin(1_000)
        assert.strictEqual(yield* Fiber.join(racing), 200)
        assert.isAtLeast((yield* decidedAlone("down")) - before, 800)
        yield* Effect.promise(() => server.launch())
        yield* untilShared(limits)
        // What Redis has lost, this node has not.
        assert.strictEqual(yield* accepted(limits, one, "k", 100), 0)
        const other = yield* Layer.build(Layer.fresh(layerOf(server.url)))
        yield* Context.get(other, RateLimits).take(one, "k")
      }).pipe(Effect.scoped)
    ))

  it.live("when Redis is paused, a few requests wait as long as they may, the others not at all; then all are limited together again", () =>
    using(
      Effect.gen(function*() {
        const limits = yield* RateLimits
        const many = rule(10_000, 3_600_000)
        yield* limits.take(many, "k")
        // An answer in time, so that no earlier wait counts.
        yield* untilShared(limits)
        server.pause()
        const before = yield* decidedAlone("slow")
        for (let round = 0; round < 2; round++) {
          for (let taken = 0; taken < 50; taken++) {
            const watch = new Stopwatch()
            assert.isNull((yield* limits.take(many, "k")).sharedAt)
            watch.endsWithin(1_000)
          }
          yield* Effect.promise(() => elapse("the time after which it is asked whether it is back", 1_500))
        }
        server.resume()
        // Three until the circuit opens; who asks then whether Redis is back is no request.
        assert.strictEqual((yield* decidedAlone("slow")) - before, 3)
        yield* untilShared(limits)
      }),
      50
    ))

  it.live("a server that is not there yet delays no start for longer than a second, and is used when it comes", () =>
    Effect.gen(function*() {
      yield* Effect.promise(() => server.kill())
      const watch = new Stopwatch()
      const limits = Context.get(yield* Layer.build(layerOf(server.url, undefined, Layer.empty)), RateLimits)
      watch.endsWithin(3_000)
      const one = rule(1, 60_000)
      assert.isNull((yield* limits.take(one, "k")).sharedAt)
      yield* Effect.flip(limits.take(one, "k"))
      yield* Effect.promise(() => server.launch())
      yield* untilShared(limits)
    }).pipe(Effect.scoped))
})

describe("RateLimits in what is no Redis", () => {
  let server: Server
  beforeAll(() => {
    server = createServer((socket) => {
      socket.on("error", () => undefined)
      socket.on("data", (bytes) => {
        for (const _ of String(bytes).matchAll(/^\*/gm)) socket.write("+whatever\r\n")
      })
    })
    return new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  })
  afterAll(() => void server.close())

  it.live("an invalid answer leaves the request to this node's own count", () =>
    Effect.gen(function*() {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      const limits = Context.get(yield* Layer.build(layerOf(`redis://127.0.0.1:${port}`)), RateLimits)
      const before = yield* decidedAlone("nonsense")
      const three = rule(3, 60_000)
      for (let i = 0; i < 3; i++) assert.isNull((yield* limits.take(three, "k")).sharedAt)
      yield* Effect.flip(limits.take(three, "k"))
      assert.strictEqual((yield* decidedAlone("nonsense")) - before, 3)
    }).pipe(Effect.scoped))
})
