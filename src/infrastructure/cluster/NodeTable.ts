import type { OwnedTable } from "#infrastructure/database/Tables"
import { Context, Effect, Latch, Layer, Option, Schema } from "effect"
import { Runner } from "effect/cluster"
import { SqlClient, type SqlError } from "effect/sql"
import { createHash } from "node:crypto"
import { SHARD_LOCKS } from "./EffectOverrides.ts"

/** The table with one row for each node, and the table with the settings that all nodes have in common. */
export const clusterTables: ReadonlyArray<OwnedTable> = [
  {
    table: "cluster_nodes",
    retention: { kept: "nodes remove the rows of nodes that are gone" },
    notExported: "the servers"
  },
  {
    table: "cluster_settings",
    retention: { kept: "one row" },
    notExported: "the servers"
  }
]

/** Settings and versions that the nodes of a cluster should have in common. */
export const NodeInfo = Schema.Struct({
  /** The version of Parley. Nodes before 0.2.0 omit it. */
  version: Schema.optionalKey(Schema.String),
  /** Version of the protocol between nodes. */
  wire: Schema.Int,
  /** The last migration that the node knows. */
  schema: Schema.String,
  publicUrl: Schema.NullOr(Schema.String),
  /** LIMITS_* by name. */
  limits: Schema.Record(Schema.String, Schema.Number),
  /** The address at which the node takes requests of clients. Nodes of older versions omit it. */
  url: Schema.optionalKey(Schema.String)
})
export type NodeInfo = typeof NodeInfo.Type

/** A node's row, with the values that the database computes when the row is read. */
export interface NodeRow {
  readonly address: string
  /** The node itself is included. Nodes that reach the same nodes share one set. */
  readonly reaches: ReadonlySet<string>
  readonly facts: NodeInfo | undefined
  /** The node's place in the order in which nodes were listed, or null if the node is not listed. */
  readonly listed: number | null
  /** The node as Effect lists it, or null if the node is not listed or its last sign of life is too old. */
  readonly runner: Runner.Runner | null
  /** Whether the node's process holds the lock of its address. */
  readonly isLocked: boolean
  /**
   * Whether the node has written its row within the last three seconds. A time more than three seconds in the future is
   * from before the database's clock was set back.
   */
  readonly isFresh: boolean
  /**
   * Whether the row is not fresh although some other node has kept writing its row for three seconds without a gap.
   * After a pause of the database, no node counts as silent before all nodes had three seconds to write.
   */
  readonly isSilent: boolean
  /**
   * Whether the node takes shards after `turnsInMs` milliseconds. Until then the opposite holds. The time is at most
   * 750 ms, also after the database's clock was set back.
   */
  readonly owns: boolean
  readonly turnsInMs: number
  /** When the row was read, according to the database's clock. */
  readonly readAt: string
}

/** The class of the advisory locks of addresses. Each process holds the lock of its own address for its lifetime. */
export const ADDRESS_LOCKS = 721_753_601

/** The key of a text, as the generated columns of `cluster_nodes` compute it. */
const keyOf = (text: string): string => createHash("md5").update(text).digest("hex").slice(0, 16)

export const lockKeyOf = (address: string): number => createHash("sha256").update(address).digest().readInt32BE()

/**
 * How old the row of a working node may be. A node writes its row every half second, so the node may stand still for
 * 2.4 s. A garbage collection, a busy processor or one lost packet takes less time.
 */
const EXPIRY = "3 seconds"
/**
 * How long after a node has written that it takes or hands over shards all nodes act on the row. Each node reads the
 * rows every half second, so every node has read the row by then.
 */
const TURN = "0.75 seconds"
/** `end` does nothing if the rows on which it was decided were read longer ago than this. */
const MAX_READ_AGE = "1 second"

/** The longest time between two writes of a row for which the row counts as written without a gap. */
const STEADY = "2 seconds"

/** How long `nextRows` waits for another reader. `Members` reads the rows every 500 ms. */
const NEXT_ROWS_TIMEOUT = "750 millis"

/**
 * After this time without a statement, in milliseconds, PostgreSQL ends a session. Another node may end the session
 * earlier. A node that has not renewed its shard locks for as long is not listed, as in Effect's `getRunners`.
 */
export const LOCK_EXPIRES_MS = 10_000

/** A row that is older than this is ignored, and is removed when any node leaves. */
const ROW_EXPIRY = "10 minutes"

const decodeReaches = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.Array(Schema.String)))
/** Null if the text is not that of a node. Effect ignores such a row, too. */
const decodeRunner = (text: string): Runner.Runner | null => {
  try {
    return Runner.Runner.decodeSync(text)
  } catch {
    return null
  }
}
const decodeFacts = Schema.decodeUnknownOption(Schema.fromJsonString(NodeInfo))

/** The reports of the nodes about themselves, in the table `cluster_nodes`. */
export class NodeTable extends Context.Service<NodeTable, {
  /**
   * The rows that were written within the last ten minutes, of listed and unlisted nodes, and a row for each listed node
   * that has written none. Such a node reaches nobody, and counts as one that takes shards.
   */
  readonly rows: Effect.Effect<ReadonlyArray<NodeRow>, SqlError.SqlError>
  /**
   * Waits until some part of this node has read the rows, and returns them. Reads the rows itself if nobody does so
   * within 750 ms.
   */
  readonly nextRows: Effect.Effect<ReadonlyArray<NodeRow>, SqlError.SqlError>
  /**
   * The addresses at which live nodes take requests of clients. This reads no other table, so it also works on a
   * standalone server.
   */
  readonly urls: Effect.Effect<ReadonlyArray<string>, SqlError.SqlError>
  /** Writes this node's row, replacing the previous one. `owns` says whether the node takes shards. */
  readonly report: (
    address: string,
    reaches: ReadonlySet<string>,
    facts: NodeInfo,
    owns: boolean
  ) => Effect.Effect<void, SqlError.SqlError>
  /**
   * Writes that a node takes shards from now on. All nodes act on this at the same moment or, with `atOnce`,
   * immediately.
   */
  readonly takeShards: (address: string, atOnce: boolean) => Effect.Effect<void, SqlError.SqlError>
  /**
   * Ends database sessions of other nodes and returns the number of ended sessions. Does nothing if the rows that were
   * read at `readAt` are older than a second. A node whose row is not fresh loses all its sessions. A node whose row is
   * fresh loses only the session that holds locks of shards. Sessions that began after the row was written belong to a
   * new process at the address, and stay.
   */
  readonly end: (addresses: ReadonlyArray<string>, readAt: string) => Effect.Effect<number, SqlError.SqlError>
  /** Removes a node's row, and all rows older than ten minutes. */
  readonly leave: (address: string) => Effect.Effect<void, SqlError.SqlError>
}>()("parley/cluster/NodeTable") {
  static readonly layer = Layer.effect(
    NodeTable,
    Effect.map(SqlClient.SqlClient, (sql) => {
      /** A time more than three seconds in the future is from before the database's clock was set back. */
      const isFresh = sql.literal(
        `(clock_timestamp() - said_at BETWEEN interval '-${EXPIRY}' AND interval '${EXPIRY}')`
      )
      let known: Known = { reaches: new Map(), facts: new Map(), runners: new Map() }
      /** Writes a row that the node has not written yet, or that has changed. */
      const write = (address: string, [reaches, facts]: readonly [string, string], owns: boolean) =>
        sql`
          INSERT INTO cluster_nodes AS n (address, lock_key, reaches, facts, said_at, steady_since, owns, turned_at)
          VALUES (${address}, ${lockKeyOf(address)}, ${reaches}, ${facts},
            clock_timestamp(), clock_timestamp(), ${owns}, clock_timestamp() - ${TURN}::interval)
          ON CONFLICT (address) DO UPDATE
          SET reaches = EXCLUDED.reaches, facts = EXCLUDED.facts, said_at = EXCLUDED.said_at, owns = EXCLUDED.owns,
            steady_since = CASE WHEN EXCLUDED.said_at >= n.said_at AND EXCLUDED.said_at - n.said_at < ${STEADY}::interval
              THEN n.steady_since ELSE EXCLUDED.said_at END,
            turned_at = CASE WHEN n.owns <> EXCLUDED.owns THEN EXCLUDED.said_at
              WHEN n.turned_at > EXCLUDED.said_at THEN EXCLUDED.turned_at ELSE n.turned_at END
        `
      const heard = Latch.makeUnsafe(false)
      let latest: ReadonlyArray<NodeRow> = []
      const rows = Effect.tap(
        Effect.suspend(() => {
          const before = known
          return Effect.map(
            sql<RowAsRead>`
              WITH locks AS MATERIALIZED (
                SELECT objid FROM pg_locks
                WHERE locktype = 'advisory' AND classid = ${ADDRESS_LOCKS} AND objsubid = 2 AND granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
              )
              SELECT COALESCE(n.address, r.address) AS address, n.reaches_key AS "reachesKey", n.facts_key AS "factsKey",
                CASE WHEN n.reaches_key <> ALL(${[...before.reaches.keys()]}::text[])
                  AND row_number() OVER (PARTITION BY n.reaches_key) = 1 THEN n.reaches END AS reaches,
                CASE WHEN n.facts_key <> ALL(${[...before.facts.keys()]}::text[])
                  AND row_number() OVER (PARTITION BY n.facts_key) = 1 THEN n.facts END AS facts,
                r.machine_id AS listed,
                CASE WHEN r.last_heartbeat > now() - ${`${LOCK_EXPIRES_MS} milliseconds`}::interval THEN r.runner END AS runner,
                COALESCE(n.lock_key::oid IN (SELECT objid FROM locks), false) AS "isLocked",
                COALESCE(n.is_fresh, false) AS "isFresh",
                COALESCE(NOT n.is_fresh, false)
                  AND bool_or(n.is_fresh AND clock_timestamp() - n.steady_since > ${EXPIRY}::interval) OVER () AS "isSilent",
                COALESCE(n.owns, true) AS owns,
                CASE WHEN n.turned_at <= clock_timestamp()
                  THEN greatest(0, extract(epoch FROM n.turned_at + ${TURN}::interval - clock_timestamp())::float8 * 1000)
                  ELSE 0 END AS "turnsInMs",
                CASE WHEN row_number() OVER () = 1 THEN clock_timestamp()::text END AS "readAt"
              FROM (
                SELECT *, ${isFresh} AS is_fresh FROM cluster_nodes WHERE clock_timestamp() - said_at < ${ROW_EXPIRY}::interval
              ) n
                FULL JOIN cluster_runners r ON r.address = n.address
            `,
            (rows) => {
              known = learned(before, rows)
              return rowsOf(rows, known)
            }
          )
        }),
        (read) => {
          latest = read
          return heard.release
        }
      )
      return NodeTable.of({
        rows,
        nextRows: Effect.raceFirst(
          Effect.map(heard.await, () => latest),
          Effect.delay(rows, NEXT_ROWS_TIMEOUT)
        ),
        urls: Effect.map(
          sql<{ readonly facts: string }>`
            SELECT facts FROM cluster_nodes WHERE ${isFresh} ORDER BY address`,
          (rows) => rows.flatMap(({ facts }) => Option.getOrUndefined(decodeFacts(facts))?.url ?? [])
        ),
        report: (address, reaches, facts, owns) => {
          const said = [JSON.stringify([...reaches, address].sort()), JSON.stringify(facts)] as const
          const [reachesKey, factsKey] = said.map(keyOf)
          return Effect.flatMap(
            sql<{ readonly isThere: boolean }>`
              UPDATE cluster_nodes SET said_at = clock_timestamp(),
                steady_since = CASE WHEN clock_timestamp() >= said_at AND clock_timestamp() - said_at < ${STEADY}::interval
                  THEN steady_since ELSE clock_timestamp() END,
                turned_at = CASE WHEN turned_at > clock_timestamp() THEN clock_timestamp() - ${TURN}::interval ELSE turned_at END
              WHERE address = ${address} AND reaches_key = ${reachesKey} AND facts_key = ${factsKey} AND owns = ${owns}
              RETURNING true AS "isThere"`,
            ([same]) => same === undefined ? Effect.asVoid(write(address, said, owns)) : Effect.void
          )
        },
        takeShards: (address, atOnce) =>
          sql`
            UPDATE cluster_nodes SET owns = true,
              turned_at = CASE WHEN ${atOnce}::boolean THEN clock_timestamp() - ${TURN}::interval ELSE clock_timestamp() END
            WHERE address = ${address}
          `,
        end: (addresses, readAt) =>
          Effect.map(
            sql`
              SELECT pg_terminate_backend(a.pid, 100)
              FROM cluster_nodes n JOIN pg_stat_activity a ON a.application_name LIKE '%@' || n.lock_key
              WHERE n.address = ANY(${addresses}::text[]) AND a.datname = current_database()
                AND (n.said_at < ${readAt}::timestamptz OR NOT ${isFresh}) AND clock_timestamp() - ${readAt}::timestamptz < ${MAX_READ_AGE}::interval
                AND (a.backend_start < n.said_at) IS NOT FALSE
                AND (NOT ${isFresh} OR a.pid IN (
                  SELECT pid FROM pg_locks
                  WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = ${SHARD_LOCKS}::oid))
            `,
            ({ length }) => length
          ),
        leave: (address) =>
          sql`DELETE FROM cluster_nodes WHERE address = ${address} OR clock_timestamp() - said_at > ${ROW_EXPIRY}::interval`
      })
    })
  )
}

/** A row as the database sends it. The texts are null if the reader knows them, or if an earlier row contains them. */
interface RowAsRead extends Omit<NodeRow, "reaches" | "facts" | "runner" | "readAt"> {
  readonly runner: string | null
  readonly reachesKey: string
  readonly factsKey: string
  readonly reaches: string | null
  readonly facts: string | null
  /** Null in all rows but one. */
  readonly readAt: string | null
}

/** The decoded texts of the last read, by their keys. */
interface Known {
  readonly reaches: ReadonlyMap<string, ReadonlySet<string>>
  readonly facts: ReadonlyMap<string, NodeInfo | undefined>
  readonly runners: ReadonlyMap<string, Runner.Runner | null>
}

/** The texts that the rows use. Texts that no row uses any more are forgotten. */
const learned = (before: Known, rows: ReadonlyArray<RowAsRead>): Known => {
  const reaches = new Map<string, ReadonlySet<string>>()
  const facts = new Map<string, NodeInfo | undefined>()
  for (const row of rows) {
    if (row.reaches !== null) reaches.set(row.reachesKey, new Set(decodeReaches(row.reaches)))
    if (row.facts !== null) facts.set(row.factsKey, Option.getOrUndefined(decodeFacts(row.facts)))
  }
  const runners = new Map<string, Runner.Runner | null>()
  for (const { runner } of rows)
    if (runner !== null) runners.set(runner, before.runners.get(runner) ?? decodeRunner(runner))
  for (const { factsKey, reachesKey } of rows) {
    const reached = before.reaches.get(reachesKey)
    if (reached !== undefined) reaches.set(reachesKey, reached)
    if (before.facts.has(factsKey)) facts.set(factsKey, before.facts.get(factsKey))
  }
  return { reaches, facts, runners }
}

const rowsOf = (rows: ReadonlyArray<RowAsRead>, { facts, reaches, runners }: Known): ReadonlyArray<NodeRow> => {
  const readAt = rows.find((row) => row.readAt !== null)?.readAt ?? ""
  return rows.map((row): NodeRow => ({
    address: row.address,
    reaches: reaches.get(row.reachesKey) ?? NOBODY,
    facts: facts.get(row.factsKey),
    listed: row.listed,
    runner: row.runner === null ? null : runners.get(row.runner) ?? null,
    isLocked: row.isLocked,
    isFresh: row.isFresh,
    isSilent: row.isSilent,
    owns: row.owns,
    turnsInMs: row.turnsInMs,
    readAt
  }))
}

const NOBODY: ReadonlySet<string> = new Set()
