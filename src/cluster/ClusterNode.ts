import { Data, Deferred, type Duration, Effect, Latch, Layer, Option, type Redacted, Schedule } from "effect"
import {
  ClusterError,
  MessageStorage,
  type Runner,
  RunnerAddress,
  RunnerHealth,
  Runners,
  RunnerStorage,
  Sharding,
  ShardingConfig,
  SqlRunnerStorage
} from "effect/cluster"
import { SqlClient } from "effect/sql"
import { common } from "./Cluster.ts"
import type { Settings } from "../platform/Config.ts"
import { reachableUrl } from "../platform/PublicUrl.ts"
import { membersOf, mayJoin, type NodeSight } from "./Membership.ts"
import * as Migrations from "../database/Migrations.ts"
import { nameOf } from "./NodeAddress.ts"
import { Complete, NodeDrain, whileAble } from "./NodeDuty.ts"
import { Members } from "./Members.ts"
import { ownsShards } from "./Shards.ts"
import { NodeCalls } from "./NodeCalls.ts"
import { WIRE } from "./NodeGreeting.ts"
import { NodeLines } from "./NodeLines.ts"
import * as NodePort from "./NodePort.ts"
import { NodeProcedures } from "./NodeProcedures.ts"
import * as NodeProgress from "./NodeProgress.ts"
import { NodeReports } from "./NodeReports.ts"
import { ADDRESS_LOCKS, type Facts, lockKeyOf, type NodeRow, NodeTable } from "./NodeTable.ts"
import { layerPg } from "../database/SqlPostgres.ts"

/** The key of the advisory lock under which the cluster's tables are created; an arbitrary number. */
const LOCK = 7_217_536_002

/** Creates the tables in which nodes find each other, unless they exist. */
export const migrate = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql.withTransaction(Effect.andThen(
    sql`SELECT pg_advisory_xact_lock(${LOCK})`,
    Effect.scoped(Layer.build(SqlRunnerStorage.layerMigrations({})))
  ))
})

/** Another process holds the lock of this node's address. */
export class NodeAddressTaken extends Data.TaggedError("NodeAddressTaken")<{ readonly address: string }> {
  override get message(): string {
    return `Another node of this database is ${this.address}: set RUNNER_HOST and RUNNER_PORT to where the others reach this one`
  }
}

const LOCK_EXPIRES_MS = 10_000

/**
 * Claims the node's address for the life of the process, with a lock on a session that PostgreSQL ends after
 * LOCK_EXPIRES_MS of silence. A node that is restarted may have to wait that long for the lock of its predecessor.
 */
export const claimAddress = (
  { RUNNER_HOST, RUNNER_PORT }: Pick<Settings, "RUNNER_HOST" | "RUNNER_PORT">,
  patience: Duration.Input = LOCK_EXPIRES_MS + 5_000
) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const address = nameOf({ host: RUNNER_HOST, port: RUNNER_PORT })
    const key = lockKeyOf(address)
    const claimed = yield* Deferred.make<void>()
    const hold = Effect.scoped(Effect.gen(function*() {
      const session = yield* sql.reserve
      // Cleans up, because the session goes back to the pool.
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
    // If the session is lost, for example because the database restarts, the address is claimed again.
    yield* hold.pipe(Effect.ignore, Effect.repeat(Schedule.spaced("1 second")), Effect.forkScoped)
    yield* Deferred.await(claimed).pipe(
      Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(new NodeAddressTaken({ address })) })
    )
  })

/** One connection is for the shard locks; the others are needed while statements hang and are repeated. */
const CONNECTIONS = 4
/**
 * How long one attempt to register a node waits for it to be accepted. It is bounded so that a node that is stopping
 * gives up.
 */
const JOINS_WITHIN = "2 seconds"

/**
 * The list of nodes and the shard locks, on database connections of their own, so that a node too busy to serve agents
 * still renews its locks.
 *
 * - Which listed nodes belong to the cluster is computed from what all nodes report about each other
 *   (`Membership.ts`); no single node decides it. A node is listed once it would belong.
 * - A node that an operator has drained counts as one that cannot own shards, unless all are drained; for everything
 *   else it belongs (`NodeDrain`).
 * - For the last node that leaves, the empty list is withheld: effect would report it as a failure.
 * - The connections are pipelined. Shards that move are released one statement each, some hundred at once, and each
 *   has a third of the lock's expiry for it. Without pipelining the last ones would miss that deadline if the database
 *   is some milliseconds away or the node is busy.
 */
export const storage = (url: Redacted.Redacted<string>, self: string) =>
  Layer.effect(
    RunnerStorage.RunnerStorage,
    Effect.gen(function*() {
      const storage = yield* RunnerStorage.RunnerStorage
      const table = yield* NodeTable
      const drain = yield* NodeDrain
      const rows = Effect.mapError(table.look, (cause) => new ClusterError.PersistenceError({ cause }))
      const sightings = Effect.map(Effect.all([storage.getRunners, rows], { concurrency: 2 }), ([runners, rows]) => {
        const said = new Map(rows.map((row) => [row.address, row]))
        return { runners, said, listed: runners.map(([runner]) => sightOf(runner, said.get(nameOf(runner.address)))) }
      })
      const join = (runner: Runner.Runner) =>
        Effect.flatMap(sightings, ({ listed, said }) =>
          mayJoin(listed, sightOf(runner, said.get(nameOf(runner.address)))) ? Effect.void : Effect.fail("not yet")).pipe(
            Effect.retry({ schedule: Schedule.spaced("100 millis"), while: (failure) => failure === "not yet" }),
            Effect.timeout(JOINS_WITHIN),
            Effect.mapError((cause) => new ClusterError.PersistenceError({ cause }))
          )
      let left = false
      return yield* whileAble(RunnerStorage.RunnerStorage.of({
        ...storage,
        register: (runner) => Effect.andThen(join(runner), storage.register(runner, true)),
        unregister: (address) =>
          Effect.suspend(() => {
            left = true
            return Effect.andThen(storage.unregister(address), Effect.ignore(table.leave(nameOf(address))))
          }),
        // No node sets the health of another: membership is computed.
        setRunnerHealth: () => Effect.void,
        getRunners: Effect.flatMap(sightings, ({ listed, runners, said }) => {
          if (left && runners.length === 0) return Effect.never
          const members = membersOf(listed)
          const isDrained = (address: string) => address === self ? drain.drained : said.get(address)?.facts?.drained === true
          const owners = listed.filter(({ address, ownsShards }) => ownsShards && members.has(address))
          const drained = owners.filter(({ address }) => isDrained(address)).map(({ address }) => address)
          // Somebody has to own the shards: if all are drained, nobody is.
          drain.nodes = new Set(drained.length < owners.length ? drained : [])
          return Effect.succeed(runners.map(([runner]): [Runner.Runner, boolean] => {
            const address = nameOf(runner.address)
            return [runner, members.has(address) && !drain.nodes.has(address)]
          }))
        })
      }))
    })
  ).pipe(
    Layer.provide(SqlRunnerStorage.layerStorage({})),
    Layer.provideMerge(NodeTable.layer),
    Layer.provide(layerPg({ url, poolSize: CONNECTIONS, pipeline: true }))
  )

const NOBODY: ReadonlySet<string> = new Set()

const sightOf = (runner: Runner.Runner, said: NodeRow | undefined): NodeSight => ({
  address: nameOf(runner.address),
  ownsShards: ownsShards(runner),
  listed: said?.listed ?? 0,
  isCurrent: said !== undefined && said.isLocked && said.isFresh,
  reaches: said?.reaches ?? NOBODY
})

/** Removes the rows that an earlier process at this address left, so that they are not taken for this process's. */
const forgetPredecessor = ({ RUNNER_HOST, RUNNER_PORT }: Settings) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const address = nameOf({ host: RUNNER_HOST, port: RUNNER_PORT })
    yield* sql`DELETE FROM cluster_runners WHERE address = ${address}`
    yield* sql`DELETE FROM cluster_nodes WHERE address = ${address}`
  })

/** This node's versions and settings that should be the same on all nodes. */
const factsOf = (config: Settings) =>
  Effect.map(Migrations.latest, (schema): Facts => ({
    wire: WIRE,
    schema,
    publicUrl: config.PUBLIC_URL ?? null,
    limits: Object.fromEntries(
      Object.entries(config).flatMap(([name, value]) =>
        name.startsWith("LIMITS_") && typeof value === "number" ? [[name, value] as const] : [])
    )
  }))

/**
 * One of many nodes on PostgreSQL. It holds advisory locks for its share of the shards there, on a connection of its
 * own, and takes calls from the other nodes on RUNNER_PORT. A node that is killed loses its shards within about three
 * seconds; one that hangs, after ten, when PostgreSQL ends its session. A gateway is a node without shards: it is
 * listed, and listens for pushes to its sockets.
 */
export const layer = (config: Settings & { readonly DATABASE_URL: Redacted.Redacted<string> }) =>
  Layer.merge(NodeProgress.layer, NodeProcedures.layer(config)).pipe(
    Layer.provideMerge(NodeCalls.layer),
    Layer.provideMerge(Sharding.layer),
    Layer.provide(RunnerHealth.layerNoop),
    // Calls to entities go over the lines (Procedures.ts); effect's cluster sends nothing to other nodes.
    Layer.provide(Runners.layerNoop),
    Layer.provideMerge(Members.layer),
    Layer.provideMerge(MessageStorage.layerNoop),
    Layer.provideMerge(Layer.unwrap(Effect.map(factsOf(config), (facts) => NodeReports.layer(facts, () => reachableUrl(config, config.RUNNER_HOST))))),
    Layer.provide(storage(config.DATABASE_URL, nameOf({ host: config.RUNNER_HOST, port: config.RUNNER_PORT }))),
    Layer.provideMerge(NodeDrain.layer),
    Layer.provideMerge(Layer.effect(Complete, Latch.make(false))),
    Layer.provide(Layer.effectDiscard(Effect.andThen(Effect.andThen(claimAddress(config), migrate), forgetPredecessor(config)))),
    // Before the address is claimed, which may take a while: a port that is in use is reported at once.
    Layer.provide(NodePort.layer(config)),
    Layer.provideMerge(NodeLines.layer(config)),
    Layer.provide(ShardingConfig.layer({
      ...common,
      runnerAddress: Option.some(RunnerAddress.make(config.RUNNER_HOST, config.RUNNER_PORT)),
      assignedShardGroups: config.ROLE === "gateway" ? [] : ["default"],
      refreshAssignmentsInterval: "500 millis",
      // Health checks by single nodes are not used; see `storage`.
      runnerHealthCheckInterval: "1 hour",
      shardLockExpiration: LOCK_EXPIRES_MS,
      entityMessagePollInterval: "1 second"
    }))
  )
