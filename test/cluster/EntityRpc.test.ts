import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { Members } from "#infrastructure/cluster/Members"
import { forRequest, requestId } from "#infrastructure/platform/RequestId"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { formatJson } from "#infrastructure/platform/Telemetry"
import { InternalError, NotFound, Unavailable } from "#infrastructure/wire/WireError"
import { answer } from "#infrastructure/wire/WireErrors"
import { assert, it } from "@effect/vitest"
import { Cause, Context, Deferred, Effect, Exit, Fiber, Layer, Logger, Schema } from "effect"
import { Entity, EntityId, ShardId, Sharding } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { TestClock } from "effect/testing"
import { breath, chanceFor, eventually } from "../support/Eventually.ts"
import { connected, makeCalls, type Wires, wires } from "../support/Lines.ts"

/** Its payload is another thing once it has travelled: a time that is not decoded is text. */
const Work = Rpc.make("Work", {
  payload: { at: Schema.DateFromString, text: Schema.optionalKey(Schema.String) },
  success: Schema.Struct({ by: Schema.String, requestId: Schema.NullOr(Schema.String) }),
  error: NotFound
})
const Worker = Entity.make("Worker", [Work])
const at = new Date(1_000)

type Run = (
  by: string
) => (
  entityId: string,
  payload: { readonly at: Date }
) => Effect.Effect<{ readonly by: string; readonly requestId: string | null }, NotFound>

const done: Run = (by) => () => Effect.map(requestId, (requestId) => ({ by, requestId }))
const until = (what: string, isSo: () => boolean): Effect.Effect<void> =>
  Effect.promise(async () => void await eventually(what, () => isSo() || undefined))

/** The same, while the clock of the test goes on. */
const meanwhile = (what: string, isSo: () => boolean): Effect.Effect<void> =>
  Effect.raceFirst(
    until(what, isSo),
    Effect.forever(Effect.andThen(TestClock.adjust("25 millis"), Effect.promise(breath)))
  )

/** A node that has the actors with these ids; `owners` are the nodes that it takes for the owners of all others. */
const start = Effect.fnUntraced(
  function*(made: Wires, name: string, has: Set<string>, owners: () => ReadonlyArray<string>, run: Run) {
    const { calls, context, lines } = yield* makeCalls(made, name)
    let looks = 0
    const client = yield* EntityRpc.make(Worker, { Work: { run: run(name) } }).pipe(
      Effect.provide(Context.merge(
        context,
        yield* Layer.build(Layer.merge(
          Layer.mock(Sharding.Sharding, {
            // Each actor is in a shard of its own.
            getShardId: (id: EntityId.EntityId) => ShardId.make("default", Number(id)),
            hasShardId: ({ id }) => has.has(String(id))
          }),
          Layer.mock(Members, {
            list: () => undefined,
            belongs: () => true,
            others: () => [],
            ownersOf: owners,
            refresh: Effect.sync(() => void looks++)
          })
        ))
      ))
    )
    yield* lines.start
    return {
      has,
      calls,
      lines,
      work: (id: string, payload: { readonly at: Date; readonly text?: string } = { at }) => client.Work(id, payload),
      looks: () => looks
    }
  }
)

/** Two nodes with a line: the second owns actor 1, and the first calls it there. */
const pair = Effect.fnUntraced(function*(run: Run, owners = ["b:1"]) {
  const made = yield* wires
  const caller = yield* start(made, "a:1", new Set(), () => owners, run)
  const callee = yield* start(made, "b:1", new Set(["1"]), () => [], run)
  yield* connected(caller.lines, callee.lines)
  return { made, caller, callee }
})

it.effect("a call runs at once, on the very payload and without a deadline, if this node owns the shard", () =>
  Effect.gen(function*() {
    const heard: Array<unknown> = []
    const { callee } = yield* pair(() => (entityId, payload) =>
      Effect.suspend(() => {
        heard.push(entityId, payload)
        return heard.length > 2 ? Effect.never : Effect.fail(new NotFound({ message: "no work" }))
      })
    )
    const payload = { at }
    assert.deepStrictEqual(yield* Effect.flip(callee.work("1", payload)), new NotFound({ message: "no work" }))
    assert.strictEqual(heard[1], payload)
    const slow = yield* Effect.forkChild(callee.work("1", payload), { startImmediately: true })
    yield* TestClock.adjust("1 minute")
    assert.isUndefined(slow.pollUnsafe())
  }))

it.effect("many calls go to the owner, each is answered by itself, and a slow one holds up no other", () => {
  const lines: Array<string> = []
  return Effect.gen(function*() {
    const slow = yield* Deferred.make<void>()
    const { caller } = yield* pair((by) => (_, { at }) =>
      Effect.andThen(
        at.getTime() === 0
          ? Deferred.await(slow)
          : at.getTime() === 1
          ? Effect.fail(new NotFound({ message: "no such work" }))
          : at.getTime() === 2
          ? Effect.die(new TypeError("a mistake"))
          : at.getTime() === 3
          ? Effect.interrupt
          : Effect.void,
        Effect.succeed({ by: `${by} ${at.toISOString()}`, requestId: null })
      )
    )
    const calls = Array.from({ length: 200 }, (_, i) => Effect.exit(caller.work("1", { at: new Date(i) })))
    const first = yield* Effect.forkChild(calls[0]!, { startImmediately: true })
    const [refused, died, interrupted, ...rest] = yield* Effect.all(calls.slice(1), { concurrency: "unbounded" })
    assert.deepStrictEqual(
      rest,
      rest.map((_, i) => Exit.succeed({ by: `b:1 ${new Date(i + 4).toISOString()}`, requestId: null }))
    )
    assert.deepStrictEqual(refused, Exit.fail(new NotFound({ message: "no such work" })))
    assert.deepStrictEqual(interrupted, Exit.fail(new Unavailable()))
    assert.deepStrictEqual(died, Exit.die(new InternalError()))
    assert.strictEqual(lines.length, 1)
    assert.match(lines[0] ?? "", /A call from another node failed .*TypeError: a mistake\n\s+at/s)
    assert.isUndefined(first.pollUnsafe())
    yield* Deferred.succeed(slow, undefined)
    assert.isTrue(Exit.isSuccess(yield* Fiber.join(first)))
  }).pipe(
    Effect.provide(
      Logger.layer([Logger.make(({ cause, message }) => void lines.push(`${String(message)} ${Cause.pretty(cause)}`))])
    )
  )
})

it.effect("a call carries the id of its request; a defect is 500 to the caller, and a line of the owner's log with that id and the stack", () => {
  const lines: Array<Record<string, unknown>> = []
  return Effect.gen(function*() {
    const { caller } = yield* pair((by) => (id, { at }) =>
      at.getTime() === 0 ? Effect.die(new TypeError("what nobody thought of")) : done(by)(id, { at })
    )
    assert.deepStrictEqual(yield* forRequest("req_1", caller.work("1")), { by: "b:1", requestId: "req_1" })
    assert.strictEqual((yield* caller.work("1")).requestId, null)
    const exit = yield* Effect.exit(forRequest("req_2", caller.work("1", { at: new Date(0) })))
    const response = yield* answer(Exit.isFailure(exit) ? exit.cause : assert.fail("no failure"))
    assert.strictEqual(response.status, 500)
    const told = lines.filter(({ level }) => level === "error" || level === "warn")
    assert.deepStrictEqual(told.map(({ request_id }) => request_id), ["req_2"])
    assert.match(String(told[0]!["cause"]), /TypeError: what nobody thought of\n\s+at/)
  }).pipe(Effect.provide(Logger.layer([Logger.make((options) => {
    lines.push(JSON.parse(formatJson(options)) as Record<string, unknown>)
  })])))
})

it.effect("a node that is not the owner says so and does nothing: the former owner is asked, and the list is read again", () =>
  Effect.gen(function*() {
    const made = yield* wires
    const has = new Set<string>()
    const owners = ["b:1", "c:1"]
    let runs = 0
    const counted: Run = (by) => (id, payload) => Effect.andThen(Effect.sync(() => runs++), done(by)(id, payload))
    const caller = yield* start(made, "a:1", new Set(), () => owners, counted)
    const newer = yield* start(made, "b:1", has, () => [], counted)
    const former = yield* start(made, "c:1", new Set(["1"]), () => [], counted)
    yield* connected(caller.lines, newer.lines, former.lines)
    const moving = yield* Effect.forkChild(caller.work("1"), { startImmediately: true })
    yield* meanwhile("an answer", () => moving.pollUnsafe() !== undefined)
    assert.strictEqual((yield* Fiber.join(moving)).by, "c:1")
    former.has.delete("1")
    const between = yield* Effect.forkChild(caller.work("1"), { startImmediately: true })
    yield* meanwhile("the list to be read again", () => caller.looks() > 0)
    has.add("1")
    yield* meanwhile("an answer", () => between.pollUnsafe() !== undefined)
    assert.strictEqual((yield* Fiber.join(between)).by, "b:1")
    assert.strictEqual(runs, 2)
  }))

it.effect("a call without an owner is held for 5 s, and then refused with UNAVAILABLE", () =>
  Effect.gen(function*() {
    const { caller } = yield* pair(done, [])
    const waiting = yield* Effect.forkChild(Effect.flip(caller.work("1")), { startImmediately: true })
    yield* TestClock.adjust("4900 millis")
    assert.isUndefined(waiting.pollUnsafe())
    yield* TestClock.adjust("200 millis")
    assert.deepStrictEqual(yield* Fiber.join(waiting), new Unavailable())
  }))

it.effect("an owner that does not answer holds its callers for 5 s", () =>
  Effect.gen(function*() {
    let begun = 0
    const { caller } = yield* pair((by) => (id, { at }) =>
      at.getTime() === 0 ? done(by)(id, { at }) : Effect.andThen(Effect.sync(() => begun++), Effect.never)
    )
    const waiting = yield* Effect.forkChild(Effect.flip(caller.work("1")), { startImmediately: true })
    yield* until("the call is heard", () => begun === 1)
    yield* caller.work("1", { at: new Date(0) })
    yield* TestClock.adjust("4900 millis")
    assert.isUndefined(waiting.pollUnsafe())
    yield* TestClock.adjust("400 millis")
    assert.deepStrictEqual(yield* Fiber.join(waiting), new Unavailable())
    assert.strictEqual(begun, 1)
  }))

it.effect("a call that may have waited while its node stood still is not executed there", () => {
  let late = false
  let runs = 0
  return Effect.gen(function*() {
    const { caller } = yield* pair((by) => (id, payload) =>
      Effect.andThen(Effect.sync(() => runs++), done(by)(id, payload))
    )
    assert.strictEqual((yield* caller.work("1")).by, "b:1")
    late = true
    const waiting = yield* Effect.forkChild(caller.work("1"), { startImmediately: true })
    yield* Effect.promise(() => chanceFor("a second run"))
    assert.isUndefined(waiting.pollUnsafe())
    assert.strictEqual(runs, 1)
  }).pipe(Effect.provideService(StallGuard, { listensOn: () => {}, stalledLately: () => late }))
})

it.effect("calls whose line breaks are made again at the owner; then a refusal is no answer, since the first attempt may be under way", () =>
  Effect.gen(function*() {
    const made = yield* wires
    let begun = 0
    const stuck: Run = () => () => Effect.andThen(Effect.sync(() => begun++), Effect.never)
    const refuses: Run = (by) => (id, { at }) =>
      at.getTime() === 0 ? Effect.fail(new NotFound({ message: "no" })) : done(by)(id, { at })
    const caller = yield* start(made, "a:1", new Set(), () => ["b:1", "c:1"], done)
    const hangs = yield* start(made, "b:1", new Set(["1"]), () => [], stuck)
    const other = yield* start(made, "c:1", new Set(["1"]), () => [], refuses)
    yield* connected(caller.lines, hangs.lines, other.lines)
    const calls = yield* Effect.forkChild(
      Effect.all([caller.work("1"), Effect.flip(caller.work("1", { at: new Date(0) }))], { concurrency: 2 }),
      { startImmediately: true }
    )
    yield* until("the calls are heard", () => begun === 2)
    hangs.lines.to("a:1")?.end("connection")
    yield* meanwhile("answers", () => calls.pollUnsafe() !== undefined)
    const [again, refused] = yield* Fiber.join(calls)
    assert.strictEqual(again.by, "c:1")
    assert.strictEqual(refused._tag, "Unavailable")
    // Where nobody was asked before, a refusal is what it is.
    hangs.has.delete("1")
    const first = yield* Effect.forkChild(Effect.flip(caller.work("1", { at: new Date(0) })), {
      startImmediately: true
    })
    yield* meanwhile("the answer", () => first.pollUnsafe() !== undefined)
    assert.strictEqual((yield* Fiber.join(first))._tag, "NotFound")
  }))

it.effect("calls above the limit are refused until a caller stops waiting", () =>
  Effect.gen(function*() {
    const { caller } = yield* pair(() => () => Effect.never)
    const large = () => caller.work("1", { at, text: "x".repeat(1_000_000) })
    const waiting = yield* Effect.forEach(Array.from({ length: 64 }), () =>
      Effect.forkChild(large(), { startImmediately: true }))
    assert.deepStrictEqual(yield* Effect.flip(large()), new Unavailable())
    yield* Fiber.interrupt(waiting[0]!)
    const last = yield* Effect.forkChild(large(), { startImmediately: true })
    assert.isUndefined(last.pollUnsafe())
  }))
