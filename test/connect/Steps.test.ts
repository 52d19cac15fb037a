import { connect } from "#clients/connect/Connector"
import { Journal } from "#clients/connect/Journal"
import type { Message } from "#clients/connect/Mail"
import { type Claim, ParleyApi, Unreachable } from "#clients/connect/ParleyApi"
import { type Event, ParleySocket } from "#clients/connect/ParleySocket"
import { adapterOf } from "#clients/connect/programs/Adapters"
import type { Ended } from "#clients/connect/programs/Outcome"
import { Runs } from "#clients/connect/programs/Runs"
import { RunLog } from "#clients/connect/RunLog"
import { DEFAULTS, type Settings } from "#clients/connect/Settings"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Queue } from "effect"
import { TestClock } from "effect/testing"
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const said = (stdout: string, code = 0): Ended => ({ _tag: "Exited", code, stdout })

const message = (seq: number, conversation = "conv_a"): Message => ({
  id: `msg_${seq}`,
  conversation_id: conversation,
  sender: "bob",
  seq,
  type: "text",
  content: { text: "Hello" },
  metadata: {},
  status: "stored",
  created_at: new Date(0).toISOString(),
  context: { conversation: { type: "direct", group_name: null }, mentions: [] }
})

/** A connector on a test clock, whose server and program are in this process. */
const makeWorld = (more: Partial<Settings> = {}) =>
  Effect.gen(function*() {
    const settings: Settings = {
      ...DEFAULTS,
      server: "http://127.0.0.1:1",
      handle: "ada",
      key: "ac_x",
      agent: "command",
      allow: "all",
      settleMs: 0,
      ...more
    }
    const events = yield* Queue.unbounded<Event>()
    yield* Queue.offer(events, { _tag: "Connected", handle: "ada" })
    const history: Array<Message> = []
    const world = {
      settings,
      claims: [] as Array<boolean>,
      /** What the server answers to a claim; undefined if it does not answer. */
      claim: (ids: ReadonlyArray<string>): Claim | undefined => ({
        count: ids.length,
        deferred: false,
        expiresIn: 600
      }),
      runs: 0,
      killed: 0,
      program: Effect.succeed(said("Answered.")) as Effect.Effect<Ended>,
      sent: [] as Array<unknown>,
      acknowledged: [] as Array<string>,
      log: [] as Array<string>,
      /** Whether the server takes acknowledgements. */
      takes: true,
      arrive: (seq: number, conversation?: string) => {
        history.push(message(seq, conversation))
        return Effect.andThen(Queue.offer(events, { _tag: "Mail", message: message(seq, conversation) }), world.rest)
      },
      /** Lets all fibers do what they can without time passing. */
      rest: TestClock.adjust(0),
      journal: yield* Journal
    }
    const services = Layer.mergeAll(
      Layer.succeed(ParleyApi, {
        handle: Effect.succeed("ada"),
        claim: (ids, _, defer) =>
          Effect.suspend(() => {
            world.claims.push(defer)
            const claim = world.claim(ids)
            return claim === undefined
              ? Effect.fail(new Unreachable({ reason: "no answer", retryAfterMs: null }))
              : Effect.succeed(claim)
          }),
        history: () => Effect.sync(() => [...history]),
        isContact: () => Effect.succeed(true),
        send: (body) =>
          Effect.sync(() => {
            world.sent.push(body)
            return { message: message(99), replayed: false }
          })
      }),
      Layer.succeed(ParleySocket, {
        take: Queue.takeAll(events),
        acknowledge: (ids) =>
          Effect.sync(() => {
            world.acknowledged.push(...ids)
            if (world.takes)
              history.forEach((one, at) => ids.includes(one.id) && (history[at] = { ...one, status: "delivered" }))
          })
      }),
      Layer.succeed(Runs, {
        run: () =>
          Effect.suspend(() => {
            world.runs++
            return Effect.onInterrupt(world.program, () => Effect.sync(() => world.killed++))
          }),
        endLeftovers: () => Effect.void
      }),
      Layer.succeed(RunLog, {
        note: (event, fields) =>
          Effect.sync(() => void world.log.push(event === "waits" ? String(fields?.["hold"]) : event))
      })
    )
    yield* Effect.forkScoped(Effect.provide(connect(settings, adapterOf("command", { new: ["answer"] })), services))
    yield* world.rest
    return world
  })

const on = <A, E>(test: Effect.Effect<A, E, Journal>) => Effect.provide(test, Layer.fresh(Journal.layerAt(":memory:")))

describe("over time, a connector", () => {
  it.effect("renews the claims of a run each minute, and ends the run and sends nothing when another process has them", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      world.program = Effect.never
      yield* world.arrive(1)
      yield* TestClock.adjust("3 minutes")
      assert.deepStrictEqual(world.claims, [true, false, false, false])
      world.claim = () => ({ count: 0, deferred: false, expiresIn: 600 })
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual([world.runs, world.killed, world.sent, world.acknowledged], [1, 1, [], []])
      assert.strictEqual((yield* world.journal.work("conv_a"))?.hold, "claimed elsewhere")
    }))))

  it.effect("ends a run when its claims have ended while the server did not answer", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      world.program = Effect.never
      yield* world.arrive(1)
      world.claim = () => undefined
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(world.killed, 0)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(world.killed, 1)
    }))))

  it.effect("runs nothing while its claims fail, and tries again after longer and longer times", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      const works = world.claim
      world.claim = () => undefined
      yield* world.arrive(1)
      yield* TestClock.adjust("1 minute")
      assert.isTrue(world.claims.length >= 6 && world.claims.length <= 7)
      assert.strictEqual(world.runs, 0)
      world.claim = works
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual([world.runs, world.acknowledged], [1, ["msg_1"]])
    }))))

  it.effect("claims again within 15 s while a live session has a lease", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      const works = world.claim
      world.claim = () => ({ count: 0, deferred: true, expiresIn: 600 })
      yield* world.arrive(1)
      yield* TestClock.adjust("15 seconds")
      assert.deepStrictEqual([world.log.at(-1), world.claims.length, world.runs], ["deferred", 2, 0])
      world.claim = works
      yield* TestClock.adjust("15 seconds")
      assert.strictEqual(world.runs, 1)
    }))))

  it.effect("gives the reply up to a live session if its claims ended before it could send", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      world.program = Effect.delay(Effect.succeed(said("Answered.")), "599 seconds")
      yield* world.arrive(1)
      world.claim = () => undefined
      yield* TestClock.adjust("599 seconds")
      world.claim = () => ({ count: 0, deferred: true, expiresIn: 60 })
      yield* TestClock.adjust("2 minutes")
      assert.deepStrictEqual([world.claims.at(-1), world.log.at(-1), world.sent], [true, "deferred", []])
    }))))

  it.effect("repeats a failed run after 30 s and 5 min, and then parks it until a newer message", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      world.program = Effect.succeed(said("half", 3))
      yield* world.arrive(1)
      const runs: Array<number> = [world.runs]
      for (const seconds of [29, 1, 299, 1, 3_600]) {
        yield* TestClock.adjust(seconds * 1_000)
        runs.push(world.runs)
      }
      assert.deepStrictEqual(runs, [1, 1, 2, 2, 3, 3])
      assert.deepStrictEqual([world.log.at(-1), world.acknowledged], ["parked", []])
      world.program = Effect.succeed(said("Answered."))
      yield* world.arrive(2)
      assert.deepStrictEqual([world.runs, world.sent.length, world.acknowledged], [4, 1, ["msg_2", "msg_1"]])
    }))))

  it.effect("repeats an acknowledgement until the server shows it, and then forgets the message", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      world.takes = false
      yield* world.arrive(1)
      yield* TestClock.adjust("6 seconds")
      assert.deepStrictEqual(world.acknowledged, ["msg_1", "msg_1", "msg_1"])
      world.takes = true
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* world.journal.unfinished, [])
      assert.deepStrictEqual([world.acknowledged.length, world.runs, world.sent.length], [4, 1, 1])
    }))))

  it.effect("runs at most two programs at once, and one in a conversation", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      world.program = Effect.delay(Effect.succeed(said("NO_REPLY")), "10 seconds")
      yield* world.arrive(1, "conv_a")
      yield* world.arrive(2, "conv_a")
      assert.strictEqual(world.runs, 1)
      for (const [seq, conversation] of [[3, "conv_b"], [4, "conv_c"]] as const) yield* world.arrive(seq, conversation)
      assert.strictEqual(world.runs, 2)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(world.runs, 4)
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(world.acknowledged.toSorted(), ["msg_1", "msg_2", "msg_3", "msg_4"])
    }))))

  it.effect("keeps log files for 14 days", () =>
    Effect.gen(function*() {
      const folder = mkdtempSync(join(tmpdir(), "parley-connect-logs-"))
      for (let day = 0; day <= 20; day++) {
        yield* Effect.provide(
          Effect.flatMap(RunLog, (log) => log.note("connected", { day })),
          RunLog.layerAt(folder, DEFAULTS.logDays)
        )
        yield* TestClock.adjust("1 day")
      }
      const names = readdirSync(folder).toSorted()
      assert.deepStrictEqual([names.length, names[0], names.at(-1)], [15, "1970-01-07.jsonl", "1970-01-21.jsonl"])
      assert.strictEqual(statSync(join(folder, "1970-01-21.jsonl")).mode & 0o777, 0o600)
      rmSync(folder, { recursive: true })
    }))

  it.effect("runs six times an hour in a conversation, and answers what waited after that hour", () =>
    on(Effect.scoped(Effect.gen(function*() {
      const world = yield* makeWorld()
      for (let seq = 1; seq <= 8; seq++) yield* world.arrive(seq)
      assert.deepStrictEqual([world.runs, (yield* world.journal.work("conv_a"))?.waiting.length], [6, 2])
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(world.runs, 7)
    }))))
})
