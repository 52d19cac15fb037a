import { assert, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Exit, Fiber, Layer, Logger, Schema } from "effect"
import {
  Entity,
  MessageStorage,
  RunnerHealth,
  Runners,
  RunnerStorage,
  ShardId,
  Sharding,
  ShardingConfig
} from "effect/cluster"
import { Rpc, RpcClient } from "effect/rpc"
import { TestClock } from "effect/testing"
import { awaitShards } from "../../src/cluster/Cluster.ts"
import * as Procedures from "../../src/cluster/Procedures.ts"
import { withRemoteDeadline } from "../../src/cluster/RemoteDeadline.ts"
import { RemoteCalls } from "../../src/cluster/RemoteCalls.ts"
import { forRequest, REQUEST_ID, requestId } from "../../src/platform/RequestId.ts"
import { formatJson } from "../../src/platform/Telemetry.ts"
import { InternalError, NotFound, Unavailable } from "../../src/wire/WireError.ts"
import { answer } from "../../src/wire/WireErrors.ts"

/** Its payload is another thing once it has travelled: a time that is not decoded is text. */
const Work = Rpc.make("Work", {
  payload: { at: Schema.DateFromString },
  success: Schema.Struct({ by: Schema.String, requestId: Schema.NullOr(Schema.String) }),
  error: NotFound
})
const Wake = Rpc.make("Wake")
const Worker = Entity.make("Worker", [Work, Wake])

const at = new Date(1_000)

/** A node that has every shard or none; `cluster` is the cluster's own way to the others. */
const node = (isHere: boolean, cluster: (payload: { readonly at: Date }) => Effect.Effect<unknown, unknown>) =>
  RemoteCalls.layerAlone.pipe(Layer.provideMerge(Layer.mock(Sharding.Sharding, {
    getShardId: () => ShardId.make("default", 1),
    hasShardId: () => isHere,
    // Of whatever entity; there is one.
    makeClient: () => Effect.succeed((() => ({ Work: cluster, Wake: () => cluster({ at }) })) as never)
  })))

it.effect("where the shard is here a call runs at once, on the very payload, with no deadline", () =>
  Effect.gen(function*() {
    const heard: Array<unknown> = []
    const { client } = yield* Procedures.make(Worker, {
      Work: {
        run: (entityId, payload) =>
          Effect.suspend(() => {
            heard.push(entityId, payload)
            return entityId === "slow" ? Effect.never : Effect.fail(new NotFound({ message: "no work" }))
          })
      },
      Wake: { run: (entityId) => Effect.sync(() => void heard.push(entityId)) }
    })
    const payload = { at }
    assert.deepStrictEqual(yield* Effect.flip(client.Work("a", payload)), new NotFound({ message: "no work" }))
    yield* client.Wake("b")
    assert.deepStrictEqual([heard[0], heard[2]], ["a", "b"])
    assert.strictEqual(heard[1], payload)
    const slow = yield* Effect.forkChild(client.Work("slow", payload), { startImmediately: true })
    yield* TestClock.adjust("1 minute")
    assert.isUndefined(slow.pollUnsafe())
  }).pipe(Effect.provide(node(true, () => Effect.die("it was sent away")))))

it.effect("where it is not, the call goes away with the id of its request, and its caller is held for 5 s", () => {
  let answers = true
  const cluster = (payload: { readonly at: Date }) =>
    answers
      ? Effect.map(RpcClient.CurrentHeaders, (headers) => ({ by: payload.at.toISOString(), requestId: headers[REQUEST_ID] ?? null }))
      : Effect.never
  return Effect.gen(function*() {
    const { client } = yield* Procedures.make(Worker, {
      Work: { run: () => Effect.die("it was done here") },
      Wake: { run: () => Effect.die("it was done here") }
    })
    assert.deepStrictEqual(yield* forRequest("req_1", client.Work("a", { at })), { by: at.toISOString(), requestId: "req_1" })
    assert.deepStrictEqual((yield* client.Work("a", { at })).requestId, null)
    answers = false
    const held = yield* Effect.forkChild(Effect.flip(client.Work("a", { at })), { startImmediately: true })
    yield* TestClock.adjust("4999 millis")
    assert.isUndefined(held.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.deepStrictEqual(yield* Fiber.join(held), new Unavailable())
  }).pipe(Effect.provide(node(false, cluster)))
})

/** As standalone, but every call to an entity is encoded and decoded, as between nodes. */
const cluster = Layer.provideMerge(Layer.effectDiscard(awaitShards), RemoteCalls.layerAlone.pipe(
  Layer.provideMerge(Sharding.layer),
  Layer.provideMerge(Runners.layerNoop),
  Layer.provideMerge(MessageStorage.layerNoop),
  Layer.provide([RunnerStorage.layerMemory, RunnerHealth.layerNoop]),
  Layer.provide(ShardingConfig.layer({ simulateRemoteSerialization: true, shardsPerGroup: 300 }))
)).pipe(Layer.provide(Layer.succeed(Clock.Clock, Clock.Clock.defaultValue())))

it.effect("calls that the cluster brings are done for their requests, and do not wait for each other", () => {
  const lines: Array<Record<string, unknown>> = []
  return Effect.gen(function*() {
    const first = yield* Deferred.make<void>()
    const { entity } = yield* Procedures.make(Worker, {
      Work: {
        run: (entityId, payload) =>
          Effect.gen(function*() {
            if (payload.at.getTime() === 0) return yield* new NotFound({ message: entityId })
            yield* Effect.logInfo("working")
            if (payload.at.getTime() === 1_000) yield* Deferred.await(first)
            return { by: `${entityId} ${payload.at.toISOString()}`, requestId: yield* requestId }
          })
      },
      Wake: { run: () => Effect.asVoid(Deferred.succeed(first, undefined)) }
    })
    yield* Layer.build(entity)
    const { Wake, Work } = (yield* Worker.client)("w")
    const held = yield* Effect.forkChild(Work({ at }, { headers: { [REQUEST_ID]: "r-1" } }), { startImmediately: true })
    const other = yield* Work({ at: new Date(2_000) }, { headers: { [REQUEST_ID]: "r-2" } })
    assert.deepStrictEqual(other, { by: "w 1970-01-01T00:00:02.000Z", requestId: "r-2" })
    assert.deepStrictEqual((yield* Work({ at: new Date(2_000) })).requestId, null)
    assert.deepStrictEqual(yield* Effect.flip(Work({ at: new Date(0) })), new NotFound({ message: "w" }))
    assert.isUndefined(held.pollUnsafe())
    yield* Wake()
    assert.strictEqual((yield* Fiber.join(held)).requestId, "r-1")
    assert.deepStrictEqual(
      lines.flatMap(({ message, request_id }) => message === "working" ? [request_id] : []),
      ["r-1", "r-2", undefined]
    )
  }).pipe(
    Effect.provide(cluster),
    Effect.provide(Logger.layer([Logger.make((options) => {
      lines.push(JSON.parse(formatJson(options)) as Record<string, unknown>)
    })]))
  )
})

it.effect("a defect is 500 to the caller and one line here, with stack and request id; nothing begins again", () => {
  const lines: Array<Record<string, unknown>> = []
  let made = 0
  const bug = () => new TypeError("what nobody thought of")
  return Effect.gen(function*() {
    const { entity } = yield* Procedures.make(Worker, {
      Work: { run: () => Effect.suspend(() => (made++, Effect.die(bug()))) },
      Wake: { run: () => Effect.void }
    })
    yield* Layer.build(entity)
    const { Work } = (yield* Worker.client)("w")
    for (const id of ["r-1", "r-2"]) {
      const exit = yield* Effect.exit(forRequest(id, withRemoteDeadline(Work({ at }))))
      const [reason] = Exit.isFailure(exit) ? exit.cause.reasons : []
      assert.instanceOf(reason?._tag === "Die" ? reason.defect : undefined, InternalError)
      const response = yield* answer(Exit.isFailure(exit) ? exit.cause : assert.fail("no failure"))
      assert.strictEqual(response.status, 500)
    }
    assert.strictEqual(made, 2)
    const told = lines.filter(({ level }) => level === "error" || level === "warn")
    assert.deepStrictEqual(told.map(({ request_id }) => request_id), ["r-1", "r-2"])
    for (const { cause } of told) assert.match(String(cause), /TypeError: what nobody thought of\n\s+at bug/)
  }).pipe(
    Effect.provide(cluster),
    Effect.provide(Logger.layer([Logger.make((options) => {
      lines.push(JSON.parse(formatJson(options)) as Record<string, unknown>)
    })]))
  )
})
