import { assert, layer } from "@effect/vitest"
import {
  Cause,
  Context,
  Deferred,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  Queue,
  Redacted,
  References,
  Scheduler,
  Schema,
  Scope
} from "effect"
import { ClusterError, Entity, EntityAddress, EntityId, EntityType, RunnerAddress, Runners, ShardId, Sharding } from "effect/cluster"
import { Rpc, RpcSerialization, RpcServer } from "effect/rpc"
import { SocketServer } from "effect/socket"
import { TestClock } from "effect/testing"
import { once } from "node:events"
import { createServer } from "node:net"
import { Config } from "../../src/platform/Config.ts"
import { Ids } from "../../src/platform/Ids.ts"
import * as NodeLinks from "../../src/cluster/NodeLinks.ts"
import * as NodePort from "../../src/cluster/NodePort.ts"
import { remoteBreaks } from "../../src/platform/Metrics.ts"
import { StallGuard } from "../../src/platform/StallGuard.ts"
import { CallRpcs, CallsUnheard, RemoteCalls } from "../../src/cluster/RemoteCalls.ts"
import * as Procedures from "../../src/cluster/Procedures.ts"
import { forRequest, requestId } from "../../src/platform/RequestId.ts"
import { Attempts, ShardOwners, watched } from "../../src/cluster/ShardOwners.ts"
import { InternalError, NotFound, Unavailable } from "../../src/wire/WireError.ts"
import { eventually } from "../support/Eventually.ts"

const Work = Rpc.make("Work", {
  payload: { workNo: Schema.Int, text: Schema.optionalKey(Schema.String) },
  success: Schema.Struct({ by: Schema.String, workNo: Schema.Int, requestId: Schema.NullOr(Schema.String) }),
  error: Schema.Union([NotFound, Unavailable])
})
const Worker = Entity.make("Worker", [Work])
/** What the cluster's way refuses. */
const REFUSED = 1_001
/** The same after an attempt of the cluster's own that broke off. */
const REPEATED = 1_002
type Here = (workNo: number) => Effect.Effect<void, NotFound>
/** What a node does otherwise than others. */
type Odd = (calls: RemoteCalls["Service"]) => Partial<Pick<RemoteCalls["Service"], "opened" | "heard">>

const connections = Layer.unwrap(Effect.map(Config, (config) => Layer.merge(NodeLinks.layer(config), NodePort.layer(config)))).pipe(
  Layer.provideMerge(RpcSerialization.layerSchemaBinary()),
  Layer.provide(Config.layerTest({ RUNNER_HOST: "127.0.0.1", RUNNER_PORT: 0, RUNNER_SECRET: Redacted.make("a secret") }))
)

/** A node that has the actors with these ids, each in a shard of its own, and says how often it was called. */
const start = Effect.fnUntraced(function*(name: string, has: Set<string>, here: Here, odd: Odd = () => ({})) {
  const heard: Array<string> = []
  const elsewhere: Array<number> = []
  /** The cluster's own way to an actor. */
  const Work = ({ workNo }: { readonly workNo: number }) => {
    elsewhere.push(workNo)
    return workNo === REPEATED
      ? Effect.flatMap(Effect.service(Attempts), (attempts) => {
        if (attempts !== undefined) attempts.mayBeDone = true
        return Effect.fail(new NotFound({ message: String(workNo) }))
      })
      : workNo === REFUSED
      ? Effect.fail(new NotFound({ message: String(workNo) }))
      : Effect.succeed({ by: "the cluster", workNo, requestId: null })
  }
  const counted = Layer.effect(
    RemoteCalls,
    Effect.map(RemoteCalls, (calls) =>
      RemoteCalls.of({
        ...calls,
        heard: (session, texts) => Effect.suspend(() => (heard.push(texts), calls.heard(session, texts))),
        ...odd(calls)
      }))
  )
  const context = yield* Layer.build(
    RpcServer.layer(CallRpcs, { disableTracing: true, disableFatalDefects: true }).pipe(
      Layer.provide(RemoteCalls.layerHandlers),
      Layer.provideMerge(counted),
      Layer.provide(RemoteCalls.layer),
      Layer.provideMerge(Layer.fresh(ShardOwners.layer)),
      Layer.provide(RpcServer.layerProtocolSocketServer),
      Layer.provideMerge(connections),
      Layer.provideMerge(Layer.mock(Sharding.Sharding, {
        getShardId: (id) => ShardId.make("default", Number(id)),
        hasShardId: ({ id }) => has.has(String(id)),
        // Of whatever entity; there is one.
        makeClient: () => Effect.succeed((() => ({ Work })) as never)
      })),
      Layer.provide(Ids.layer),
      Layer.fresh
    )
  )
  const { address } = Context.get(context, SocketServer.SocketServer)
  if (!("port" in address)) return assert.fail("no port")
  const { client } = yield* Effect.provideContext(
    Procedures.make(Worker, {
      Work: {
        run: (_, { workNo }) => Effect.andThen(here(workNo), Effect.map(requestId, (requestId) => ({ by: name, workNo, requestId })))
      }
    }),
    context
  )
  return {
    work: client.Work,
    elsewhere,
    heard,
    owners: Context.get(context, ShardOwners),
    address: RunnerAddress.make("127.0.0.1", Number(address.port))
  }
})

/** A caller, and a node that it takes for the owner of the shards 1 to 9. */
const pair = Effect.fnUntraced(function*(here: Here, odd?: Odd) {
  const has = new Set(["1", "2", "3"])
  const end = yield* Scope.make()
  const callee = yield* Scope.provide(start("callee", has, here, odd), end)
  const caller = yield* start("caller", new Set(), () => Effect.die("nothing is here"))
  for (let id = 1; id < 10; id++) caller.owners.sent(ShardId.make("default", id), callee.address)
  return { has, callee, caller, end: Scope.close(end, Exit.void) }
})

const until = (what: string, check: () => boolean) => Effect.promise(() => eventually(what, () => check() || undefined))

layer(Layer.empty)((it) => {
  it.effect("many calls go to a node together, and each is answered by itself", () => {
    const lines: Array<string> = []
    return Effect.gen(function*() {
      const slow = yield* Deferred.make<void>()
      const { callee, caller } = yield* pair((workNo) =>
        workNo === 0
          ? Deferred.await(slow)
          : workNo === 1
          ? Effect.fail(new NotFound({ message: "no such work" }))
          : workNo === 2
          ? Effect.die(new TypeError("a mistake"))
          : workNo === 3
          ? Effect.interrupt
          : Effect.void
      )
      const calls = Array.from({ length: 200 }, (_, workNo) => Effect.exit(caller.work("1", { workNo })))
      const first = yield* Effect.forkChild(calls[0]!, { startImmediately: true })
      const [refused, died, interrupted, ...rest] = yield* Effect.all(calls.slice(1), { concurrency: "unbounded" })
      assert.deepStrictEqual(
        rest,
        rest.map((_, i) => Exit.succeed({ by: "callee", workNo: i + 4, requestId: null }))
      )
      assert.deepStrictEqual(refused, Exit.fail(new NotFound({ message: "no such work" })))
      assert.deepStrictEqual(interrupted, Exit.fail(new Unavailable()))
      assert.deepStrictEqual(died, Exit.die(new InternalError()))
      assert.strictEqual(lines.length, 1)
      assert.match(lines[0] ?? "", /A call from another node failed .*TypeError: a mistake\n\s+at/s)
      assert.isUndefined(first.pollUnsafe())
      yield* Deferred.succeed(slow, undefined)
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(first)))
      assert.isBelow(callee.heard.length, 10)
      assert.deepStrictEqual(caller.elsewhere, [])
    }).pipe(
      Effect.provide(Logger.layer([Logger.make(({ cause, message }) => void lines.push(`${String(message)} ${Cause.pretty(cause)}`))]))
    )
  })

  it.effect("a call carries the id of the request that it is made for", () =>
    Effect.gen(function*() {
      const { caller } = yield* pair(() => Effect.void)
      assert.strictEqual((yield* forRequest("req_1", caller.work("1", { workNo: 1 }))).requestId, "req_1")
    }))

  it.effect("what may have waited while its node stood still is not done there", () => {
    let late = false
    let done = 0
    return Effect.gen(function*() {
      const { caller } = yield* pair(() => Effect.sync(() => done++))
      assert.strictEqual((yield* caller.work("1", { workNo: 1 })).by, "callee")
      late = true
      assert.strictEqual((yield* caller.work("1", { workNo: 2 })).by, "the cluster")
      assert.strictEqual(done, 1)
    }).pipe(Effect.provideService(StallGuard, { listensOn: () => {}, stalledLately: () => late }))
  })

  it.effect("an actor that is not there is called the cluster's way, at once the next time; so it is when nobody knows", () =>
    Effect.gen(function*() {
      const { callee, caller, has } = yield* pair(() => Effect.void)
      assert.strictEqual((yield* caller.work("7", { workNo: 1 })).by, "the cluster")
      assert.lengthOf(callee.heard, 1)
      assert.strictEqual((yield* caller.work("7", { workNo: 2 })).by, "the cluster")
      assert.lengthOf(callee.heard, 1)
      has.add("7")
      caller.owners.sent(ShardId.make("default", 7), callee.address)
      assert.strictEqual((yield* caller.work("7", { workNo: 3 })).by, "callee")
      caller.owners.gone(callee.address)
      assert.strictEqual((yield* caller.work("7", { workNo: 4 })).by, "the cluster")
      assert.deepStrictEqual(caller.elsewhere, [1, 2, 4])
    }))

  it.effect("calls that a node does not answer because it ends, or is given up, are made again the cluster's way", () =>
    Effect.gen(function*() {
      let begun = 0
      const stuck = () => Effect.andThen(Effect.sync(() => begun++), Effect.never)
      const work = (caller: { readonly work: Effect.Success<ReturnType<typeof pair>>["caller"]["work"] }) =>
        Effect.forkChild(
          Effect.forEach([1, 2, 3], (workNo) => caller.work("1", { workNo }), { concurrency: 3 }),
          { startImmediately: true }
        )
      const ends = yield* pair(stuck)
      const first = yield* work(ends.caller)
      yield* until("the calls are heard", () => begun === 3)
      yield* ends.end
      assert.deepStrictEqual((yield* Fiber.join(first)).map(({ by }) => by), Array(3).fill("the cluster"))
      assert.isUndefined(ends.caller.owners.of(ShardId.make("default", 2)))

      const hangs = yield* pair(stuck)
      const second = yield* work(hangs.caller)
      yield* until("the calls are heard", () => begun === 6)
      hangs.caller.owners.gone(hangs.callee.address)
      assert.deepStrictEqual((yield* Fiber.join(second)).map(({ by }) => by), Array(3).fill("the cluster"))
    }))

  it.effect("a refusal says nothing after an attempt whose answer is lost, which may still be under way", () =>
    Effect.gen(function*() {
      let begun = 0
      const ends = yield* pair(() => Effect.andThen(Effect.sync(() => begun++), Effect.never))
      const call = yield* Effect.forkChild(Effect.flip(ends.caller.work("1", { workNo: REFUSED })), { startImmediately: true })
      yield* until("the call is heard", () => begun === 1)
      yield* ends.end
      assert.strictEqual((yield* Fiber.join(call))._tag, "Unavailable")
      assert.strictEqual((yield* Effect.flip(ends.caller.work("1", { workNo: REPEATED })))._tag, "Unavailable")
      // Where nobody was asked before, it says what it says.
      assert.strictEqual((yield* Effect.flip(ends.caller.work("1", { workNo: REFUSED })))._tag, "NotFound")
    }))

  it.effect("an attempt of the cluster's own that broke off is told to who provides for that", () =>
    Effect.gen(function*() {
      const address = RunnerAddress.make("127.0.0.1", 1)
      const failing = (error: ClusterError.RunnerUnavailable | ClusterError.EntityNotAssignedToRunner) =>
        Effect.gen(function*() {
          const owners = yield* Effect.provide(Effect.service(ShardOwners), Layer.fresh(ShardOwners.layer))
          const attempts = { mayBeDone: false }
          const runners = watched({ ...({} as Runners.Runners["Service"]), send: () => Effect.fail(error) }, owners)
          const message = { _tag: "OutgoingRequest", envelope: { address: { shardId: ShardId.make("default", 1) } }, context: Context.make(Attempts, attempts) }
          yield* Effect.flip(runners.send({ address, message: message as never }) as Effect.Effect<unknown, unknown>)
          return attempts.mayBeDone
        })
      assert.isTrue(yield* failing(new ClusterError.RunnerUnavailable({ address })))
      // Nothing was done there.
      assert.isFalse(yield* failing(new ClusterError.EntityNotAssignedToRunner({
        address: EntityAddress.make({ shardId: ShardId.make("default", 1), entityType: EntityType.make("Worker"), entityId: EntityId.make("1") })
      })))
    }))

  it.effect("a call is answered at whatever moment its node is given up", () =>
    Effect.gen(function*() {
      const { callee, caller } = yield* pair(() => Effect.void)
      for (let moment = 0; moment < 60; moment++) {
        caller.owners.sent(ShardId.make("default", 1), callee.address)
        // It yields wherever one with much to do might.
        const call = yield* caller.work("1", { workNo: moment }).pipe(
          Effect.provideService(Scheduler.MaxOpsBeforeYield, 3),
          Effect.forkChild
        )
        for (let i = 0; i < moment; i++) yield* Effect.yieldNow
        caller.owners.gone(callee.address)
        yield* until(`call ${moment} is answered`, () => call.pollUnsafe() !== undefined)
      }
    }))

  it.effect("a caller is held for 5 s", () =>
    Effect.gen(function*() {
      let begun = 0
      const { caller } = yield* pair((workNo) => workNo === 0 ? Effect.void : Effect.andThen(Effect.sync(() => begun++), Effect.never))
      const waiting = yield* Effect.forkChild(Effect.flip(caller.work("1", { workNo: 1 })), { startImmediately: true })
      yield* until("the call is heard", () => begun === 1)
      yield* caller.work("1", { workNo: 0 })
      yield* TestClock.adjust("4999 millis")
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(yield* Fiber.join(waiting), new Unavailable())
      assert.deepStrictEqual(caller.elsewhere, [])
    }))

  it.effect("more than may be under way is refused, until somebody stops waiting", () =>
    Effect.gen(function*() {
      const { caller } = yield* pair(() => Effect.never)
      const large = (workNo: number) => caller.work("1", { workNo, text: "x".repeat(1_000_000) })
      const waiting = yield* Effect.forEach(
        Array.from({ length: 64 }, (_, workNo) => workNo),
        (workNo) => Effect.forkChild(large(workNo), { startImmediately: true })
      )
      assert.deepStrictEqual(yield* Effect.flip(large(64)), new Unavailable())
      yield* Fiber.interrupt(waiting[0]!)
      const last = yield* Effect.forkChild(large(65), { startImmediately: true })
      assert.isUndefined(last.pollUnsafe())
    }))

  it.effect("a node that does not even hear a call is waited for no longer than 3 s", () =>
    Effect.gen(function*() {
      const { caller } = yield* pair(() => Effect.void)
      const silent = yield* Effect.acquireRelease(
        Effect.promise(async () => {
          const server = createServer(() => {}).listen(0, "127.0.0.1")
          await once(server, "listening")
          return server
        }),
        (server) => Effect.sync(() => server.close())
      )
      const address = silent.address()
      if (address === null || typeof address === "string") return assert.fail("no port")
      caller.owners.sent(ShardId.make("default", 1), RunnerAddress.make("127.0.0.1", address.port))
      const waiting = yield* Effect.forkChild(caller.work("1", { workNo: 1 }), { startImmediately: true })
      yield* TestClock.adjust("3 seconds")
      assert.strictEqual((yield* Fiber.join(waiting)).by, "the cluster")
    }))

  it.effect("that the calls to a node broke off is logged with the node and the reason, once a minute each, and counted", () => {
    const lines: Array<string> = []
    const logger = Layer.merge(
      Logger.layer([Logger.make(({ cause, message }) => void lines.push([String(message), Cause.pretty(cause)].join(" ")))]),
      // What whoever watches the nodes says too, at a level that is shown, is said here for debugging.
      Layer.succeed(References.MinimumLogLevel, "Debug")
    )
    const counted = (reason: string) =>
      remoteBreaks.at(reason).value
    /** Calls a node that breaks the line, twice within a minute and once after it; gives the lines of the log. */
    const broken = Effect.fnUntraced(function*(reason: string, odd: Odd, before?: (end: Effect.Effect<void>) => Effect.Effect<void>) {
      const { callee, caller, end } = yield* pair(() => Effect.void, odd)
      const was = counted(reason)
      lines.length = 0
      for (let i = 0; i < 2; i++) {
        caller.owners.sent(ShardId.make("default", 1), callee.address)
        const call = yield* Effect.forkChild(caller.work("1", { workNo: i }), { startImmediately: true })
        if (before !== undefined) yield* before(end)
        assert.strictEqual((yield* Fiber.join(call)).by, "the cluster")
        yield* until("the line is given up", () => caller.owners.of(ShardId.make("default", 1)) === undefined)
      }
      assert.isAtLeast(counted(reason) - was, 2, `${reason}: ${lines.join("\n")}`)
      const told = lines.filter((line) => line.includes(`127.0.0.1:${callee.address.port}`))
      assert.lengthOf(told, 1, told.join("\n"))
      yield* TestClock.adjust("61 seconds")
      caller.owners.sent(ShardId.make("default", 1), callee.address)
      const call = yield* Effect.forkChild(caller.work("1", { workNo: 3 }), { startImmediately: true })
      if (before !== undefined) yield* before(Effect.void)
      yield* Fiber.join(call)
      yield* until("it is told again", () => lines.filter((line) => line.includes(`127.0.0.1:${callee.address.port}`)).length === 2)
      return told.join()
    })
    const answering = (text: string): Odd => () => ({
      opened: () => Effect.tap(Queue.unbounded<string>(), (answers) => Queue.offer(answers, text)),
      heard: () => Effect.never
    })
    let asked = 0
    const unanswered: Odd = () => ({ heard: () => Effect.andThen(Effect.sync(() => asked++), Effect.never) })
    return Effect.gen(function*() {
      assert.match(yield* broken("answer", answering("nonsense")), /an answer of it is not understood.*JSON/s)
      const moved = yield* broken("answer", answering(JSON.stringify([1, "moved", { text: "a message" }])))
      assert.match(moved, /an answer of it is not understood.*at \[1\]/s)
      // No line of the log has what agents write.
      assert.notInclude(moved, "a message")
      assert.match(
        yield* broken("session", () => ({ heard: () => Effect.fail(new CallsUnheard()) })),
        /it does not know this node's session any more/
      )
      assert.match(
        yield* broken("failure", (calls) => ({ heard: (session) => calls.heard(session, "nonsense") })),
        /it failed on the calls.*JSON/s
      )
      assert.match(
        yield* broken("silence", unanswered, () => {
          const before = asked
          return Effect.andThen(until("the call has arrived", () => asked > before), TestClock.adjust("3 seconds"))
        }),
        /it has not taken a call for 3 s/
      )
      assert.match(yield* broken("connection", unanswered, (end) => end), /the connection/)
      // A node that the cluster has given up is nothing to be told of here.
      const { callee, caller } = yield* pair(() => Effect.never)
      lines.length = 0
      const call = yield* Effect.forkChild(caller.work("1", { workNo: 1 }), { startImmediately: true })
      yield* until("the call is heard", () => callee.heard.length === 1)
      caller.owners.gone(callee.address)
      yield* Fiber.join(call)
      assert.deepStrictEqual(lines, [])
    }).pipe(Effect.provide(logger))
  })
})
