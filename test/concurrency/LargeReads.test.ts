import { LargeReadQueue, Slot, Ticket, type Timing } from "#infrastructure/concurrency/LargeReadQueue"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { ServerRequest } from "#infrastructure/http/ServerRequest"
import { Config } from "#infrastructure/platform/Config"
import { BlockedMillis } from "#infrastructure/platform/StallGuard"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { Socket } from "node:net"

const size: LargeAnswer = { usual: 1, max: 1, bytes: 100 }

const queueOf = (waiting: number, bytes: number, timing = atOnce): LargeReadQueue =>
  new LargeReadQueue({ waiting, bytes, cutMs: 10_000 }, timing)
const atOnce: Timing = { now: () => 0, later: (_, run) => run(), soon: (run) => run() }

/** Enters, and notes under `name` when it has its slot. */
const entering = (queue: LargeReadQueue, log: Array<string>) => (name: string, key: string, bytes = 10, slots = 2) => {
  const entered = queue.enter(key, slots, bytes)
  const mine = { slot: undefined as Slot | undefined, entered }
  const granted = (slot: Slot) => {
    log.push(name)
    mine.slot = slot
  }
  if (entered instanceof Slot) granted(entered)
  else if (entered instanceof Ticket) entered.granted = granted
  return mine
}

describe("the queue for large answers", () => {
  it("gives a peer its slots at once, and the next one when an answer has left", () => {
    const log: Array<string> = []
    const enter = entering(queueOf(10, 1_000), log)
    const first = enter("one", "eve")
    enter("two", "eve")
    enter("three", "eve")
    enter("four", "bob")
    assert.deepStrictEqual(log, ["one", "two", "four"])
    first.slot!.encoded(0)
    assert.deepStrictEqual(log, ["one", "two", "four"])
    first.slot!.left()
    assert.deepStrictEqual(log, ["one", "two", "four", "three"])
  })

  it("lets peers take turns where the process is at its bound, and what is encoded makes room", () => {
    const log: Array<string> = []
    const enter = entering(queueOf(10, 20), log)
    const running = [enter("eve 1", "eve", 10, 4), enter("eve 2", "eve", 10, 4)]
    enter("eve 3", "eve", 10, 4)
    enter("eve 4", "eve", 10, 4)
    enter("bob 1", "bob")
    running[0]!.slot!.encoded(0)
    running[1]!.slot!.encoded(0)
    assert.deepStrictEqual(log, ["eve 1", "eve 2", "eve 3", "bob 1"])
  })

  it("admits one that is larger than the process's bound alone, so that it is not refused for ever", () => {
    const log: Array<string> = []
    const enter = entering(queueOf(10, 20), log)
    const first = enter("first", "eve")
    enter("huge", "bob", 1_000)
    assert.deepStrictEqual(log, ["first"])
    first.slot!.left()
    assert.deepStrictEqual(log, ["first", "huge"])
  })

  it("keeps the slot of a large answer for a second for each 4 MiB, and that of one that was cut off for ten", () => {
    const time = { now: 1_000 }
    const later: Array<{ readonly at: number; readonly run: () => void }> = []
    const queue = queueOf(10, 1_000, {
      now: () => time.now,
      later: (ms, run) => later.push({ at: time.now + ms, run }),
      soon: (run) => run()
    })
    const enter = entering(queue, [])
    const [small, large, cut] = ["small", "large", "cut"].map((key) => enter(key, key).slot!) as [Slot, Slot, Slot]
    small.encoded(262_144)
    large.encoded(2 * 4_194_304)
    cut.encoded(2 * 4_194_304)
    time.now = 1_500
    small.left()
    large.left()
    cut.cut()
    cut.left()
    assert.deepStrictEqual([queue.underWay, later.map(({ at }) => at)], [2, [3_000, 11_500]])
    later.forEach(({ run }) => run())
    large.left()
    assert.strictEqual(queue.underWay, 0)
  })

  it("begins no more than a peer's slots in a turn of the event loop, however soon the answers have left", () => {
    const soon: Array<() => void> = []
    const log: Array<string> = []
    const enter = entering(queueOf(10, 1_000, { ...atOnce, soon: (run) => soon.push(run) }), log)
    for (const name of ["one", "two"]) enter(name, "eve").slot!.left()
    enter("three", "eve")
    enter("other", "bob")
    assert.deepStrictEqual(log, ["one", "two", "other"])
    soon.splice(0).forEach((run) => run())
    assert.deepStrictEqual(log, ["one", "two", "other", "three"])
  })

  describe("statements of a peer that block the process", () => {
    /** A queue, with a clock that runs its timers in their order. */
    const timed = () => {
      let now = 1_000
      let timers: Array<{ readonly at: number; readonly run: () => void }> = []
      const queue = queueOf(256, 1_000, {
        now: () => now,
        later: (ms, run) => timers.push({ at: now + ms, run }),
        soon: (run) => run()
      })
      const log: Array<string> = []
      const runTo = (time: number): void => {
        for (;;) {
          const [first] = timers.filter(({ at }) => at <= time).sort((one, other) => one.at - other.at)
          if (first === undefined) break
          timers = timers.filter((timer) => timer !== first)
          now = Math.max(now, first.at)
          first.run()
        }
        now = Math.max(now, time)
      }
      return {
        enter: entering(queue, log),
        now: () => now,
        timers: () => timers.length,
        runTo,
        /** Asserts that these get their slots at this time, and nothing gets one before it. */
        assertNext: (time: number, ...names: ReadonlyArray<string>) => {
          const before = [...log]
          runTo(time - 1)
          assert.deepStrictEqual(log, before)
          runTo(time)
          assert.deepStrictEqual(log, [...before, ...names])
        }
      }
    }

    it("pay four times as long, of which 60 ms are credit; the others go on", () => {
      const { assertNext, enter } = timed()
      const slots = ["one", "two"].map((name) => enter(name, "eve").slot!)
      enter("three", "eve")
      slots[0]!.blocked.ms = 100
      slots[1]!.blocked.ms = 200
      slots.forEach((slot) => slot.left())
      enter("four", "eve")
      assert.isDefined(enter("other", "bob").slot)
      // Both pauses, one after the other, although a slot is free.
      assertNext(2_040, "three", "four")
    })

    it("are added up when they are short, so that one peer takes a quarter of the time", () => {
      const { enter, now, runTo } = timed()
      let requests = 0
      // The peer asks again as soon as it has an answer.
      for (; now() < 11_000; requests++) {
        const mine = enter("short", "eve")
        for (let ms = 0; ms < 1_000 && mine.slot === undefined; ms++) runTo(now() + 1)
        runTo(now() + 5)
        mine.slot!.blocked.ms = 5
        mine.slot!.left()
      }
      assert.isAtMost(requests * 5, 10_000 / 4 + 30)
      assert.isAtLeast(requests * 5, 10_000 / 4 - 30)
    })

    it("make no pause for a request now and then, and leave no timer", () => {
      const { enter, now, runTo, timers } = timed()
      for (let i = 0; i < 20; i++) {
        const { slot } = enter("quick", "carl")
        assert.isDefined(slot)
        slot!.blocked.ms = 5
        slot!.left()
        runTo(now() + 20)
      }
      assert.strictEqual(timers(), 0)
    })

    it("count for 600 ms of one read at most, because others run between its statements", () => {
      const { assertNext, enter } = timed()
      const { slot } = enter("long", "dora")
      slot!.blocked.ms = 60_000
      slot!.left()
      enter("next", "dora")
      assertNext(2_740, "next")
    })

    it("delay no request for as long as a large answer keeps its slot", () => {
      const { assertNext, enter } = timed()
      const { slot } = enter("large", "eve")
      slot!.encoded(10 * 4_194_304)
      slot!.blocked.ms = 100
      slot!.left()
      enter("next", "eve")
      assertNext(1_240, "next")
    })

    it("are paid before the next slot where the process was at its bound", () => {
      const { assertNext, enter } = timed()
      const { slot } = enter("large", "eve")
      slot!.encoded(10 * 4_194_304)
      const full = enter("full", "bob", 1_000)
      enter("one", "eve")
      enter("two", "eve")
      slot!.blocked.ms = 100
      slot!.left()
      full.slot!.encoded(0)
      assertNext(1_240, "one")
    })

    it("are charged before a slot is granted", () => {
      const { assertNext, enter } = timed()
      const { slot } = enter("one", "eve", 1_000)
      enter("two", "eve")
      slot!.blocked.ms = 100
      slot!.left()
      assertNext(1_240, "two")
    })

    it("leave a peer alone that has come back when a late timer of its former requests runs", () => {
      const later: Array<() => void> = []
      let now = 1_000
      const queue = queueOf(10, 1_000, { now: () => now, later: (_, run) => later.push(run), soon: (run) => run() })
      const enter = entering(queue, [])
      const { slot } = enter("one", "eve")
      slot!.blocked.ms = 1.1
      slot!.left()
      now = 1_003.4
      enter("two", "eve").slot!.left()
      now = 1_003.6
      for (const name of ["three", "four"]) assert.isDefined(enter(name, "eve").slot)
      now = 1_004
      later.splice(0).forEach((run) => run())
      assert.isUndefined(enter("five", "eve").slot)
    })

    it("begin nothing when a timer is early", () => {
      const later: Array<() => void> = []
      let now = 1_000
      const queue = queueOf(10, 1_000, { now: () => now, later: (_, run) => later.push(run), soon: (run) => run() })
      const log: Array<string> = []
      const enter = entering(queue, log)
      const slot = enter("one", "eve").slot!
      slot.blocked.ms = 100
      slot.left()
      enter("two", "eve")
      now = 1_239
      later.splice(0).forEach((run) => run())
      assert.deepStrictEqual(log, ["one"])
      now = 1_240
      later.splice(0).forEach((run) => run())
      assert.deepStrictEqual(log, ["one", "two"])
    })
  })

  it("knows whether a peer waits for its own slots or for the bound of the process", () => {
    const queue = queueOf(10, 20)
    const enter = entering(queue, [])
    const [first] = [enter("x", "x"), enter("y", "y")]
    enter("eve 1", "eve", 10, 1)
    enter("eve 2", "eve", 10, 1)
    enter("bob", "bob", 20)
    assert.isTrue(queue.hasFreeSlot("eve"))
    first!.slot!.encoded(0)
    assert.deepStrictEqual([queue.hasFreeSlot("eve"), queue.hasFreeSlot("bob")], [false, true])
  })

  it("refuses answers that its queue cannot hold, and forgets peers that have left", () => {
    const log: Array<string> = []
    const queue = queueOf(1, 1_000)
    const enter = entering(queue, log)
    const running = [enter("one", "eve"), enter("two", "eve")]
    const waiting = enter("three", "eve")
    assert.strictEqual(enter("four", "eve").entered, "full")
    ;(waiting.entered as Ticket).leave()
    running.forEach(({ slot }) => slot!.left())
    assert.deepStrictEqual([queue.underWay, queue.waiting], [0, 0])
    assert.deepStrictEqual(log, ["one", "two"])
  })

  it("never exceeds its bounds, and serves every peer in the end", () => {
    fc.assert(fc.property(
      fc.array(
        fc.tuple(
          fc.nat(3),
          fc.integer({ min: 1, max: 30 }),
          fc.constantFrom("enter", "enter", "encoded", "left", "leave")
        ),
        { maxLength: 120 }
      ),
      (steps) => {
        const log: Array<string> = []
        const queue = queueOf(5, 40)
        const enter = entering(queue, log)
        const all: Array<
          { readonly key: string; readonly bytes: number; reading: boolean; over: boolean } & ReturnType<typeof enter>
        > = []
        const check = () => {
          const live = all.filter(({ over, slot }) => slot !== undefined && !over)
          for (const key of ["0", "1", "2", "3"]) assert.isAtMost(live.filter((one) => one.key === key).length, 2)
          const reading = live.filter(({ reading }) => reading)
          if (reading.length > 1) assert.isAtMost(reading.reduce((sum, { bytes }) => sum + bytes, 0), 40)
          assert.strictEqual(queue.underWay, live.length)
        }
        for (const [i, bytes, what] of steps) {
          const one = all[(i * 7 + bytes) % Math.max(all.length, 1)]
          if (what === "enter")
            all.push(
              Object.assign(enter(`${all.length}`, String(i), bytes), {
                key: String(i),
                bytes,
                reading: true,
                over: false
              })
            )
          else if (one?.slot !== undefined && what === "encoded") {
            one.reading = false
            one.slot.encoded(0)
          } else if (one?.slot !== undefined && what === "left") {
            one.reading = false
            one.over = true
            one.slot.left()
          } else if (what === "leave" && one?.entered instanceof Ticket && one.slot === undefined) {
            one.over = true
            one.entered.leave()
          }
          check()
        }
        for (let round = 0; round <= all.length; round++) {
          for (const one of all) {
            if (one.slot === undefined || one.over) continue
            one.reading = false
            one.over = true
            one.slot.left()
          }
        }
        assert.deepStrictEqual([queue.underWay, queue.waiting], [0, 0])
        assert.isTrue(all.every(({ entered, over, slot }) => entered === "full" || slot !== undefined || over))
      }
    ))
  })
})

const layer = LargeReads.layer.pipe(
  Layer.provide(Config.layerTest({ HTTP_LARGE_READS: 1, HTTP_LARGE_READS_WAITING: 2, HTTP_READING_BYTES: 150 }))
)

/** What a statement does that blocks the process for so long. */
const blocksFor = (ms: number) =>
  Effect.withFiber<void>((fiber) =>
    Effect.sync(() => {
      const blocked = fiber.getRef(BlockedMillis)
      if (blocked !== undefined) blocked.ms += ms
    })
  )

const refusalOf = (exit: Exit.Exit<unknown, unknown>) => Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined

describe("requests for large answers", () => {
  it.effect("wait ten seconds for a slot of their agent, then are refused with 429", () =>
    Effect.gen(function*() {
      const reads = yield* LargeReads
      const gate = yield* Deferred.make<void>()
      const first = yield* Effect.forkChild(reads.during("eve", size, Deferred.await(gate)))
      const second = yield* Effect.forkChild(reads.during("eve", size, Effect.succeed("second")))
      yield* TestClock.adjust("9 seconds")
      assert.isUndefined(second.pollUnsafe())
      yield* TestClock.adjust("2 seconds")
      const refused = refusalOf(yield* Fiber.await(second)) as { readonly code: string; readonly retryAfterMs: number }
      assert.deepStrictEqual([refused.code, refused.retryAfterMs], ["RATE_LIMITED", 1_000])
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(first)
      assert.strictEqual(yield* reads.during("eve", size, Effect.succeed("third")), "third")
    }).pipe(Effect.provide(layer)))

  it.effect("are refused with 503 where the process is at its bound, which is no fault of theirs", () =>
    Effect.gen(function*() {
      const reads = yield* LargeReads
      const first = yield* Effect.forkChild(reads.during("eve", size, Effect.never))
      const other = yield* Effect.forkChild(reads.during("bob", size, Effect.succeed("never")))
      yield* TestClock.adjust("11 seconds")
      assert.strictEqual((refusalOf(yield* Fiber.await(other)) as { readonly code: string }).code, "UNAVAILABLE")
      yield* Fiber.interrupt(first)
      assert.strictEqual(yield* reads.during("bob", size, Effect.succeed("served")), "served")
    }).pipe(Effect.provide(layer)))

  it.effect("leave the queue when their client hangs up, and are refused at once where it is full", () =>
    Effect.gen(function*() {
      const reads = yield* LargeReads
      const first = yield* Effect.forkChild(reads.during("eve", size, Effect.never))
      const gone = yield* Effect.forkChild(reads.during("eve", size, Effect.void))
      const waiting = yield* Effect.forkChild(reads.during("eve", size, Effect.succeed("served")))
      yield* TestClock.adjust("1 second")
      const full = yield* Effect.exit(reads.during("eve", size, Effect.void))
      assert.strictEqual((refusalOf(full) as { readonly code: string }).code, "RATE_LIMITED")
      yield* Fiber.interrupt(gone)
      yield* Fiber.interrupt(first)
      assert.strictEqual(yield* Fiber.join(waiting), "served")
    }).pipe(Effect.provide(layer)))

  it.effect("pay for all reads inside of them, and for a search in its own slot", () =>
    Effect.gen(function*() {
      const reads = yield* LargeReads
      yield* reads.during("eve", size, Effect.andThen(blocksFor(50), reads.search("eve", blocksFor(100))))
      const next = yield* Effect.forkChild(reads.during("eve", size, Effect.succeed("served")))
      // A timer counts from the turn in which it begins to sleep.
      const pass = (ms: number) => Effect.repeat(TestClock.adjust("1 millis"), { times: ms - 1 })
      yield* pass(380)
      assert.isUndefined(next.pollUnsafe())
      yield* pass(20)
      assert.strictEqual(yield* Fiber.join(next), "served")

      const source = new ServerRequest(new Socket())
      const request = { source } as HttpServerRequest.HttpServerRequest
      const inRequest = Effect.provideService(HttpServerRequest.HttpServerRequest, request)
      yield* reads.ofAgent("bob", size, blocksFor(10)).pipe(inRequest)
      yield* reads.ofAgent("bob", size, blocksFor(100)).pipe(inRequest)
      assert.strictEqual(source.reading?.blocked?.ms, 110)
    }).pipe(Effect.provide(layer)))

  it.effect("say that reads take too much of the server's time, if that is why they are refused", () =>
    Effect.gen(function*() {
      const reads = yield* LargeReads
      const fibers = yield* Effect.forEach(
        Array.from({ length: 8 }),
        () => Effect.forkChild(reads.during("eve", size, blocksFor(10_000)))
      )
      yield* TestClock.adjust("11 seconds")
      assert.match(String(refusalOf(yield* Fiber.await(fibers[7]!))), /more than their share of the server's time/)
    }).pipe(Effect.provide(
      LargeReads.layer.pipe(Layer.provide(Config.layerTest({ HTTP_LARGE_READS: 1 })))
    )))
})
