import * as NodeSocket from "@effect/platform-node/NodeSocket"
import * as NodeSocketServer from "@effect/platform-node/NodeSocketServer"
import { Data, Deferred, type Duration, Effect, Fiber, Layer, Option, Redacted, Schedule, Scope } from "effect"
import {
  MessageStorage,
  RunnerAddress,
  RunnerHealth,
  Runners,
  RunnerServer,
  RunnerStorage,
  Sharding,
  ShardingConfig,
  SqlRunnerStorage
} from "effect/cluster"
import { RpcClient, RpcSerialization, RpcServer } from "effect/rpc"
import { Socket, SocketServer } from "effect/socket"
import { SqlClient } from "effect/sql"
import { createHash, hkdfSync } from "node:crypto"
import { common } from "./Cluster.ts"
import type { Settings } from "./Config.ts"
import * as NodeProgress from "./NodeProgress.ts"
import { PeerRpcs, Peers } from "./Peers.ts"
import { CallRpcs, RemoteCalls } from "./RemoteCalls.ts"
import { ShardOwners } from "./ShardOwners.ts"
import { layerPg } from "./Sql.ts"

/** Any number: whoever holds this lock is the only one that makes the tables of the cluster. */
const LOCK = 7_217_536_002

/** Makes the tables in which nodes find each other, unless they are there. */
export const migrate = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql.withTransaction(Effect.andThen(
    sql`SELECT pg_advisory_xact_lock(${LOCK})`,
    Effect.scoped(Layer.build(SqlRunnerStorage.layerMigrations({})))
  ))
})

/** Two nodes with one address. */
export class NodeAddressTaken extends Data.TaggedError("NodeAddressTaken")<{ readonly address: string }> {
  override get message(): string {
    return `Another node of this database is ${this.address}: set RUNNER_HOST and RUNNER_PORT to where the others reach this one`
  }
}

const ADDRESS_LOCKS = 721_753_601
const LOCK_EXPIRES_MS = 10_000

/**
 * Claims the node's address for as long as it lives, on a session that PostgreSQL
 * ends when it is not heard of: whoever is started again waits that long for itself.
 */
export const claimAddress = (
  { RUNNER_HOST, RUNNER_PORT }: Pick<Settings, "RUNNER_HOST" | "RUNNER_PORT">,
  patience: Duration.Input = LOCK_EXPIRES_MS + 5_000
) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const address = `${RUNNER_HOST}:${RUNNER_PORT}`
    const key = createHash("sha256").update(address).digest().readInt32BE()
    const claimed = yield* Deferred.make<void>()
    const hold = Effect.scoped(Effect.gen(function*() {
      const session = yield* sql.reserve
      // The session goes back to the pool.
      yield* Effect.addFinalizer(() =>
        Effect.ignore(Effect.andThen(
          session.executeRaw("SELECT pg_advisory_unlock_all()", []),
          session.executeRaw("RESET idle_session_timeout", [])
        )))
      yield* session.executeRaw(`SELECT set_config('idle_session_timeout', '${LOCK_EXPIRES_MS}', false)`, [])
      const attempt = Effect.filterOrFail(
        session.executeValues(`SELECT pg_try_advisory_lock(${ADDRESS_LOCKS}, ${key})`, []),
        ([row]) => row?.[0] === true,
        () => new NodeAddressTaken({ address })
      )
      yield* Effect.retry(attempt, {
        while: (error) => error._tag === "NodeAddressTaken",
        schedule: Schedule.spaced("500 millis")
      })
      yield* Deferred.succeed(claimed, undefined)
      yield* Effect.repeat(session.executeRaw("SELECT 1", []), Schedule.spaced(LOCK_EXPIRES_MS / 4))
    }))
    // Its session may be lost, with the database for one: then it is claimed again.
    yield* hold.pipe(Effect.ignore, Effect.repeat(Schedule.spaced("1 second")), Effect.forkScoped)
    yield* Deferred.await(claimed).pipe(
      Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(new NodeAddressTaken({ address })) })
    )
  })

/** Both sides of a connection prove that they know RUNNER_SECRET, and what they say is encrypted (TLS with a pre-shared key). */
const sharedKey = (secret: Redacted.Redacted<string>) => {
  const psk = Buffer.from(hkdfSync("sha256", Redacted.value(secret), "", "parley between nodes", 32))
  const identity = "parley"
  const options = { ciphers: "ECDHE-PSK-CHACHA20-POLY1305", minVersion: "TLSv1.2", maxVersion: "TLSv1.2" } as const
  return {
    server: { ...options, pskCallback: (_: unknown, given: string) => given === identity ? psk : null },
    client: { ...options, pskCallback: () => ({ psk, identity }), checkServerIdentity: () => undefined }
  }
}

/** What is said goes out at once: two small texts in a row would wait for the other side's 40 ms. */
const AT_ONCE = { noDelay: true }
/** A connection that cannot be made soon is given up: the call is tried again. */
const PATIENCE = { openTimeout: 1_000, ...AT_ONCE }

/** The connections that this node makes to others. */
export const clients = ({ RUNNER_SECRET }: Settings) =>
  Layer.effect(
    Runners.RpcClientProtocol,
    Effect.map(RpcSerialization.RpcSerialization, (serialization) => ({
      codecFor: serialization.codecFor,
      make: Effect.fnUntraced(function*({ host, port }: RunnerAddress.RunnerAddress) {
        const socket = yield* RUNNER_SECRET === undefined
          ? NodeSocket.makeNet({ ...PATIENCE, host, port })
          : NodeSocket.makeTls({ ...PATIENCE, ...sharedKey(RUNNER_SECRET).client, host, port })
        return yield* RpcClient.makeProtocolSocket().pipe(
          Effect.provideService(Socket.Socket, socket),
          Effect.provideService(RpcSerialization.RpcSerialization, serialization)
        )
      }, Effect.orDie)
    }))
  )

/** The other nodes could not reach this one. */
export class NodeListenFailed extends Data.TaggedError("NodeListenFailed")<{ readonly message: string }> {}

const listenFailed = ({ RUNNER_HOST, RUNNER_PORT }: Settings, cause: unknown): NodeListenFailed => {
  const code: unknown = Reflect.get(Object(cause), "code")
  return new NodeListenFailed({
    message: code === "EADDRINUSE"
      ? `RUNNER_PORT ${RUNNER_PORT} on ${RUNNER_HOST} is in use: stop what listens there, or set RUNNER_PORT.`
      : code === "EADDRNOTAVAIL" || code === "ENOTFOUND"
      ? `RUNNER_HOST ${RUNNER_HOST} is not an address of this machine.`
      : `Cannot listen for other nodes on ${RUNNER_HOST}:${RUNNER_PORT}: ${cause instanceof Error ? cause.message : String(cause)}`
  })
}

const CLOSED_WITHIN = "500 millis"

/** Where the others connect to this node. */
export const server = (config: Settings) => {
  const address = { host: config.RUNNER_HOST, port: config.RUNNER_PORT, ...AT_ONCE }
  const made = config.RUNNER_SECRET === undefined
    ? NodeSocketServer.make(address)
    : NodeSocketServer.makeTls({ ...address, ...sharedKey(config.RUNNER_SECRET).server })
  // A connection whose handshake ends while the server is being closed is kept open by nobody but the other node,
  // and would hold up the end of this one for as long as that likes.
  return Layer.effect(
    SocketServer.SocketServer,
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      yield* Effect.addFinalizer((exit) =>
        Effect.forkDetach(Scope.close(scope, exit)).pipe(
          Effect.flatMap((closing) => Effect.timeoutOption(Effect.interruptible(Fiber.await(closing)), CLOSED_WITHIN))
        ))
      return yield* Effect.mapError(Scope.provide(made, scope), ({ reason }) => listenFailed(config, reason.cause))
    })
  )
}

/** The shard locks have a connection to themselves; the others are for what hangs while it is asked again. */
const CONNECTIONS = 4

/**
 * The list of nodes and the locks of shards, on connections of their own: whoever is too busy to
 * answer agents must still say that it lives. The last node to leave is not told that nobody is left: it
 * would report that as a failure. Shards that move are let go of one by one, some hundred at once, and each
 * has a third of the locks' life for it: on a connection that waits for every answer those at the end would
 * run out of theirs where the database is some milliseconds away or the node is busy.
 */
export const storage = (url: Redacted.Redacted<string>) =>
  Layer.effect(
    RunnerStorage.RunnerStorage,
    Effect.map(RunnerStorage.RunnerStorage, (storage) => {
      let left = false
      return RunnerStorage.RunnerStorage.of({
        ...storage,
        unregister: (address) =>
          Effect.suspend(() => {
            left = true
            return storage.unregister(address)
          }),
        getRunners: Effect.flatMap(storage.getRunners, (runners) =>
          left && runners.length === 0 ? Effect.never : Effect.succeed(runners))
      })
    })
  ).pipe(
    Layer.provide(SqlRunnerStorage.layerStorage({})),
    Layer.provide(layerPg({ url, poolSize: CONNECTIONS, pipeline: true }))
  )

/** A node that does not answer for so long is taken for dead; one that is gone is noticed sooner (Peers). */
const health = Layer.effect(
  RunnerHealth.RunnerHealth,
  Effect.map(Runners.Runners, (runners) =>
    RunnerHealth.RunnerHealth.of({
      isAlive: (address) =>
        runners.ping(address).pipe(Effect.timeout("2 seconds"), Effect.retry({ times: 1 }), Effect.isSuccess)
    }))
)

/**
 * One of many nodes on PostgreSQL: its share of the shards is locked there, on a
 * connection of its own, and calls come from the other nodes on RUNNER_PORT. A node
 * that is killed loses its shards within about three seconds, one that hangs after
 * ten, when the database ends its locks. A gateway is a node like the others, listed
 * and listening for what they push to its sockets, but for its share, which is empty.
 */
export const layer = (config: Settings & { readonly DATABASE_URL: Redacted.Redacted<string> }) =>
  Layer.merge(
    NodeProgress.layer,
    RpcServer.layer(Runners.Rpcs.merge(PeerRpcs, CallRpcs), {
      spanPrefix: "RunnerServer",
      disableTracing: true,
      disableFatalDefects: true
    })
  ).pipe(
    Layer.provide([RunnerServer.layerHandlers, Peers.layerHandlers, RemoteCalls.layerHandlers]),
    Layer.provideMerge(RemoteCalls.layer),
    Layer.provideMerge(Sharding.layer),
    Layer.provide(health),
    Layer.provideMerge(Layer.mergeAll(ShardOwners.layerRunners, Peers.layer)),
    Layer.provide(ShardOwners.layer),
    Layer.provideMerge(MessageStorage.layerNoop),
    Layer.provide(storage(config.DATABASE_URL)),
    Layer.provide(Layer.effectDiscard(Effect.andThen(claimAddress(config), migrate))),
    Layer.provide(RpcServer.layerProtocolSocketServer),
    Layer.provide([clients(config), server(config)]),
    Layer.provide(RpcSerialization.layerSchemaBinary()),
    Layer.provide(ShardingConfig.layer({
      ...common,
      runnerAddress: Option.some(RunnerAddress.make(config.RUNNER_HOST, config.RUNNER_PORT)),
      assignedShardGroups: config.ROLE === "gateway" ? [] : ["default"],
      refreshAssignmentsInterval: "1 second",
      runnerHealthCheckInterval: "2 seconds",
      shardLockExpiration: LOCK_EXPIRES_MS,
      entityMessagePollInterval: "1 second"
    }))
  )
