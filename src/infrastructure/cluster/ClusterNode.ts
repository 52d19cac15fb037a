import * as Migrations from "#infrastructure/database/Migrations"
import { sqlState } from "#infrastructure/database/Sql"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { BeforeClosing } from "#infrastructure/http/Shutdown"
import type { Settings } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { reachableUrl } from "#infrastructure/platform/PublicUrl"
import { VERSION } from "#infrastructure/platform/Version"
import { Clock, Data, Deferred, type Duration, Effect, Latch, Layer, Option, type Redacted, Schedule } from "effect"
import {
  ClusterError,
  type Runner,
  RunnerAddress,
  RunnerStorage,
  Sharding,
  ShardingConfig,
  SqlRunnerStorage
} from "effect/cluster"
import { SqlClient } from "effect/sql"
import {
  acquireRepeatedly,
  decideListing,
  followList,
  layerUnused,
  registerOnceServing,
  removeFormerRunner
} from "./EffectOverrides.ts"
import { Members } from "./Members.ts"
import { areAlike, endedBy, mayJoin, membersOf, type NodeView } from "./Membership.ts"
import { nameOf } from "./NodeAddress.ts"
import { NodeCalls } from "./NodeCalls.ts"
import { Complete, NodeDrain } from "./NodeDuty.ts"
import { NODE_PROTOCOL_VERSION } from "./NodeGreeting.ts"
import * as NodePort from "./NodePort.ts"
import * as NodeProgress from "./NodeProgress.ts"
import { NodeReports } from "./NodeReports.ts"
import { NodeRpc } from "./NodeRpc.ts"
import { ADDRESS_LOCKS, LOCK_EXPIRES_MS, lockKeyOf, type NodeInfo, type NodeRow, NodeTable } from "./NodeTable.ts"
import { PeerConnections } from "./PeerConnections.ts"
import { ownsShards, Shards } from "./Shards.ts"

/** Creates the tables in which nodes find each other, unless they exist. Several nodes may create them at once. */
export const migrate = Effect.scoped(Layer.build(SqlRunnerStorage.layerMigrations({})))

/** Another process holds the lock of this node's address. */
export class NodeAddressTaken extends Data.TaggedError("NodeAddressTaken")<{ readonly address: string }> {
  override get message(): string {
    return `Another node of this database has the address ${this.address}: set RUNNER_HOST and RUNNER_PORT to the address of this node`
  }
}

/**
 * Claims the node's address for the lifetime of the process. The claim is an advisory lock in a session that PostgreSQL
 * ends after LOCK_EXPIRES_MS without a statement. A node that is restarted may have to wait that long for the lock of
 * its predecessor.
 */
export const claimAddress = (
  { RUNNER_HOST, RUNNER_PORT }: Pick<Settings, "RUNNER_HOST" | "RUNNER_PORT">,
  patience: Duration.Input = LOCK_EXPIRES_MS + 5_000
) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const address = nameOf({ host: RUNNER_HOST, port: RUNNER_PORT })
    const key = lockKeyOf(address)
    const addressClaimed = yield* Deferred.make<void>()
    const hold = Effect.scoped(Effect.gen(function*() {
      const session = yield* sql.reserve
      // Releases the locks and resets the setting, because the session is returned to the pool.
      yield* Effect.addFinalizer(() =>
        Effect.ignore(Effect.andThen(
          session.executeRaw("SELECT pg_advisory_unlock_all()", []),
          session.executeRaw("RESET idle_session_timeout", [])
        ))
      )
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
      yield* Deferred.succeed(addressClaimed, undefined)
      yield* Effect.repeat(session.executeRaw("SELECT 1", []), Schedule.spaced(LOCK_EXPIRES_MS / 4))
    }))
    // If the session is lost, for example because the database restarts, the address is claimed again.
    yield* hold.pipe(Effect.ignore, Effect.repeat(Schedule.spaced("1 second")), Effect.forkScoped)
    yield* Deferred.await(addressClaimed).pipe(
      Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(new NodeAddressTaken({ address })) })
    )
  })

/**
 * How many database connections the pool has. One connection holds the shard locks. The others are needed while
 * statements hang and are repeated.
 */
const DATABASE_CONNECTIONS = 4
/**
 * How long one attempt to register a node waits until the node may join. Because of this bound, a node that is stopping
 * can end its attempts.
 */
const JOIN_TIMEOUT = "2 seconds"

/**
 * How many milliseconds an excluded node has to release its shards by itself. A node that is silent has had this time
 * already.
 */
const RELEASE_TIMEOUT_MS = 3_000
const END_TIMEOUT = "1 second"

/**
 * The list of nodes and the shard locks. They use separate database connections, so that a node that is too busy to
 * serve agents still renews its locks. `EffectOverrides.ts` makes Effect's storage follow the decisions made here.
 *
 * - Each node computes from the reports of all nodes which listed nodes belong to the cluster (`Membership.ts`). No
 *   single node decides this. A node is listed only when it would belong.
 * - A node that joins, is drained or stops writes this into its row. All nodes act on the row at the same moment, which
 *   the row contains. At this moment the previous owner releases the locks, and the next owner begins to try them every
 *   50 ms.
 * - A node that takes no shards still belongs to the cluster in every other respect (`NodeDrain`). If no node takes
 *   shards, all nodes take shards.
 * - A node that is excluded and does not release its shards loses its database sessions, and its locks with them
 *   (`endedBy`). If no node can end them, PostgreSQL ends a session after LOCK_EXPIRES_MS without a statement.
 * - The connections are pipelined. Some hundred shards may move at once. Each shard is released with its own statement,
 *   which must end within a third of the lock's expiry time. Without pipelining the last statements would miss this
 *   deadline if the database is some milliseconds away or the node is busy.
 */
export const storage = (url: Redacted.Redacted<string>, self: string) =>
  Layer.effect(
    RunnerStorage.RunnerStorage,
    Effect.gen(function*() {
      const storage = yield* RunnerStorage.RunnerStorage
      const table = yield* NodeTable
      const drain = yield* NodeDrain
      const now = monotonicMillis(yield* Clock.Clock)
      /** When this node first saw each excluded node as excluded, in monotonic milliseconds. */
      let excludedSince: ReadonlyMap<string, number> = new Map()
      /** The nodes that own shards according to the last list. */
      let owning = ""
      let mayEnd = true
      const persistence = (cause: unknown) => new ClusterError.PersistenceError({ cause })
      const rows = Effect.mapError(table.rows, persistence)
      /** One statement reads the listed nodes with what they report, so it takes the place of Effect's `getRunners`. */
      const sightings = Effect.map(rows, (rows) => {
        const said = new Map(rows.map((row) => [row.address, row]))
        const runners = rows.flatMap(({ runner }) => runner ?? [])
        const listed = runners.map((runner) => viewOf(runner, said.get(nameOf(runner.address))))
        return { runners, said, listed: listed.sort((one, other) => one.listed - other.listed) }
      })
      let judged = { listed: [] as ReadonlyArray<NodeView>, members: NOBODY, excluded: [] as ReadonlyArray<NodeView> }
      /** The members and the nodes whose sessions this node may end. They are computed again when a row has changed. */
      const judge = (listed: ReadonlyArray<NodeView>): typeof judged =>
        areAlike(judged.listed, listed)
          ? judged
          : judged = { listed, members: membersOf(listed), excluded: endedBy(self, listed) }
      /** Waits until this node may be listed. Returns true if no other listed node owns shards. */
      const awaitAdmission = (runner: Runner.Runner) =>
        Effect.flatMap(sightings, ({ listed, said }) => {
          const others = listed.filter(({ address, ownsShards }) => ownsShards && address !== self)
          return mayJoin(listed, viewOf(runner, said.get(nameOf(runner.address))))
            ? Effect.succeed(others.length === 0)
            : Effect.fail("not yet")
        }).pipe(
          Effect.retry({ schedule: Schedule.spaced("100 millis"), while: (failure) => failure === "not yet" }),
          Effect.timeout(JOIN_TIMEOUT),
          Effect.mapError(persistence)
        )
      /** Ends the database sessions of nodes that are excluded and keep their shards. */
      const endSessions = (
        excluded: ReadonlyArray<NodeView>,
        said: ReadonlyMap<string, NodeRow>
      ): Effect.Effect<void> => {
        const before = excludedSince
        excludedSince = new Map(excluded.map(({ address }) => [address, before.get(address) ?? now()]))
        const due = excluded.flatMap(({ address, isSilent }) =>
          isSilent || now() - excludedSince.get(address)! >= RELEASE_TIMEOUT_MS ? [address] : []
        )
        const readAt = said.get(self)?.readAt
        if (due.length === 0 || readAt === undefined) return Effect.void
        return table.end(due, readAt).pipe(
          Effect.tap((count) =>
            count === 0
              ? Effect.void
              : Effect.logWarning(`Ended ${count} database sessions of ${due.join(", ")}, to take over its shards`)
          ),
          Effect.tapError((error) => {
            if (sqlState(error) !== "42501" || !mayEnd) return Effect.void
            mayEnd = false
            return Effect.logWarning(
              "The role of DATABASE_URL may not end the database sessions of a node that hangs, so its shards move "
                + "after 10 s and not after 4: use the same role on all nodes, or grant it pg_signal_backend"
            )
          }),
          Effect.timeout(END_TIMEOUT),
          Effect.ignore
        )
      }
      const listed = decideListing(storage, {
        join: Effect.fnUntraced(function*(runner, register) {
          const isFirst = yield* awaitAdmission(runner)
          const registered = yield* register
          drain.joined = true
          if (!drain.drained) yield* Effect.mapError(table.takeShards(self, isFirst), persistence)
          return registered
        }),
        leave: Effect.ignore(table.leave(self)),
        runners: Effect.gen(function*() {
          const { listed, runners, said } = yield* sightings
          const { excluded, members } = judge(listed)
          yield* endSessions(excluded, said)
          // If a node takes or hands over shards, waits for the moment at which all nodes act on its row.
          const waited = Math.min(...said.values().map(({ turnsInMs }) => turnsInMs > 0 ? turnsInMs : Infinity))
          const turned = Number.isFinite(waited) ? waited : 0
          yield* Effect.sleep(turned)
          const owners = listed.filter(({ address, ownsShards }) => ownsShards && members.has(address)).map((
            { address }
          ) => address)
          const idle = owners.filter((address) => {
            const row = said.get(address)
            return row !== undefined && row.owns !== row.turnsInMs <= turned
          })
          // Some node must own the shards. If no node takes shards, all nodes take shards.
          drain.nodes = new Set(idle.length < owners.length ? idle : [])
          owning = owners.filter((address) => !drain.nodes.has(address)).sort().join()
          return runners.map((runner) => {
            const address = nameOf(runner.address)
            return [runner, members.has(address) && !drain.nodes.has(address)]
          })
        })
      })
      return yield* registerOnceServing(acquireRepeatedly(listed, () => owning))
    })
  ).pipe(
    Layer.provide(SqlRunnerStorage.layerStorage({})),
    Layer.provideMerge(NodeTable.layer),
    Layer.provide(layerPg({ url, poolSize: DATABASE_CONNECTIONS, pipeline: true, mark: lockKeyOf(self) }))
  )

const NOBODY: ReadonlySet<string> = new Set()

const viewOf = (runner: Runner.Runner, said: NodeRow | undefined): NodeView => ({
  address: nameOf(runner.address),
  ownsShards: ownsShards(runner),
  listed: said?.listed ?? 0,
  isCurrent: said !== undefined && said.isLocked && said.isFresh,
  isSilent: said?.isSilent === true,
  reaches: said?.reaches ?? NOBODY
})

/**
 * Removes the rows that an earlier process at this address left, so that other nodes do not take them for rows of this
 * process.
 */
const forgetPredecessor = ({ RUNNER_HOST, RUNNER_PORT }: Settings) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const address = nameOf({ host: RUNNER_HOST, port: RUNNER_PORT })
    yield* removeFormerRunner(address)
    yield* sql`DELETE FROM cluster_nodes WHERE address = ${address}`
  })

/** How long a node that stops waits until other nodes own its shards. */
const HANDOVER_TIMEOUT = "2500 millis"

/**
 * A node that is asked to stop first hands its shards over to the other nodes. Meanwhile it still serves requests and
 * calls the other nodes.
 */
const layerHandOver = Layer.effect(
  BeforeClosing,
  Effect.gen(function*() {
    const drain = yield* NodeDrain
    const sharding = yield* Sharding.Sharding
    const shards = yield* Shards
    const released = Effect.suspend(() => {
      drain.drained = true
      return shards.some((shard) => sharding.hasShardId(shard)) ? Effect.fail("some are left") : Effect.void
    })
    return Effect.retry(released, Schedule.spaced("20 millis")).pipe(
      Effect.timeoutOption(HANDOVER_TIMEOUT),
      Effect.ignore
    )
  })
)

const layerFollowing = Layer.effect(
  RunnerStorage.RunnerStorage,
  Effect.gen(function*() {
    const storage = yield* RunnerStorage.RunnerStorage
    return followList(storage, yield* Members, monotonicMillis(yield* Clock.Clock))
  })
)

/** This node's versions and settings that should be the same on all nodes. */
const infoOf = (config: Settings) =>
  Effect.map(Migrations.latest, (schema): NodeInfo => ({
    version: VERSION,
    wire: NODE_PROTOCOL_VERSION,
    schema,
    publicUrl: config.PUBLIC_URL ?? null,
    limits: Object.fromEntries(
      Object.entries(config).flatMap(([name, value]) =>
        name.startsWith("LIMITS_") && typeof value === "number" ? [[name, value] as const] : []
      )
    )
  }))

/**
 * One of several nodes on PostgreSQL. The node holds advisory locks for its share of the shards, on a separate database
 * connection, and accepts calls from the other nodes on RUNNER_PORT. A node that is killed loses its shards within
 * about three seconds. A node that hangs loses its shards within five seconds, because another node ends its database
 * sessions. A gateway is a node without shards. It is listed, and receives pushes for its sockets.
 */
export const layer = (config: Settings & { readonly DATABASE_URL: Redacted.Redacted<string> }) =>
  Layer.mergeAll(NodeProgress.layer, NodeRpc.layer(config), layerHandOver).pipe(
    Layer.provideMerge(NodeCalls.layer),
    Layer.provideMerge(Layer.provide(Sharding.layer, layerFollowing)),
    Layer.provide(layerUnused),
    Layer.provideMerge(Members.layer),
    Layer.provideMerge(
      Layer.unwrap(
        Effect.map(infoOf(config), (facts) => NodeReports.layer(facts, () => reachableUrl(config, config.RUNNER_HOST)))
      )
    ),
    Layer.provide(storage(config.DATABASE_URL, nameOf({ host: config.RUNNER_HOST, port: config.RUNNER_PORT }))),
    Layer.provideMerge(NodeDrain.layer),
    Layer.provideMerge(Layer.effect(Complete, Latch.make(false))),
    Layer.provide(
      Layer.effectDiscard(Effect.andThen(Effect.andThen(claimAddress(config), migrate), forgetPredecessor(config)))
    ),
    // The node listens before it claims the address, which may take a long time, so that a port in use is reported at
    // once.
    Layer.provide(NodePort.layer(config)),
    Layer.provideMerge(PeerConnections.layer(config)),
    Layer.provide(Layer.unwrap(Effect.map(Shards, ({ length }) =>
      ShardingConfig.layer({
        shardsPerGroup: length,
        runnerAddress: Option.some(RunnerAddress.make(config.RUNNER_HOST, config.RUNNER_PORT)),
        assignedShardGroups: config.ROLE === "gateway" ? [] : ["default"],
        // The list of nodes makes `Sharding` wait; see `followList`.
        refreshAssignmentsInterval: "1 millis",
        // Health checks by single nodes are not used; see `layerUnused`.
        runnerHealthCheckInterval: "1 hour",
        shardLockExpiration: LOCK_EXPIRES_MS,
        entityMessagePollInterval: "1 second"
      })))),
    Layer.provideMerge(Shards.layerStored(config))
  )
