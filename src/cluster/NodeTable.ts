import { Context, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { createHash } from "node:crypto"

/** Settings and versions that the nodes of a cluster should have in common. */
export const Facts = Schema.Struct({
  /** Version of the protocol between nodes. */
  wire: Schema.Int,
  /** The last migration that the node knows. */
  schema: Schema.String,
  publicUrl: Schema.NullOr(Schema.String),
  /** LIMITS_* by name. */
  limits: Schema.Record(Schema.String, Schema.Number),
  /** The address at which it takes requests of clients; absent in versions of before. */
  url: Schema.optionalKey(Schema.String),
  /** Whether an operator has drained it; absent: no. */
  drained: Schema.optionalKey(Schema.Boolean)
})
export type Facts = typeof Facts.Type

/** A node's row, as the database sees it now. */
export interface NodeRow {
  readonly address: string
  readonly reaches: ReadonlySet<string>
  readonly facts: Facts | undefined
  /** Its place in the order in which nodes were listed; null: it is not listed. */
  readonly listed: number | null
  /** Whether its process holds the lock of its address. */
  readonly isLocked: boolean
  /** Whether it has written its row within the last three seconds. */
  readonly isFresh: boolean
}

/** The class of the advisory locks of addresses: each process holds the lock of its own address for its lifetime. */
export const ADDRESS_LOCKS = 721_753_601

export const lockKeyOf = (address: string): number => createHash("sha256").update(address).digest().readInt32BE()

/** A row older than this is ignored, and removed when any node leaves. */
const FORGOTTEN = "10 minutes"

const decodeReaches = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.Array(Schema.String)))
const decodeFacts = Schema.decodeUnknownOption(Schema.fromJsonString(Facts))

/** The reports of the nodes about themselves, in the table `cluster_nodes`. */
export class NodeTable extends Context.Service<NodeTable, {
  /** The rows that were written within the last ten minutes, of listed nodes and others. */
  readonly look: Effect.Effect<ReadonlyArray<NodeRow>, SqlError.SqlError>
  /** Where the nodes that are alive take requests of clients. Needs no other table, so a standalone server's database has it too. */
  readonly urls: Effect.Effect<ReadonlyArray<string>, SqlError.SqlError>
  /** Writes this node's row, replacing the previous one. */
  readonly say: (address: string, reaches: ReadonlySet<string>, facts: Facts) => Effect.Effect<void, SqlError.SqlError>
  /** Removes a node's row, and all rows older than ten minutes. */
  readonly leave: (address: string) => Effect.Effect<void, SqlError.SqlError>
}>()("parley/cluster/NodeTable") {
  static readonly layer = Layer.effect(
    NodeTable,
    Effect.map(SqlClient.SqlClient, (sql) =>
      NodeTable.of({
        look: Effect.map(
          sql<{
            readonly address: string
            readonly reaches: string
            readonly facts: string
            readonly listed: number | null
            readonly locked: boolean
            readonly fresh: boolean
          }>`
            WITH locks AS MATERIALIZED (
              SELECT objid FROM pg_locks
              WHERE locktype = 'advisory' AND classid = ${ADDRESS_LOCKS} AND objsubid = 2 AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            )
            SELECT n.address, n.reaches, n.facts, r.machine_id AS listed,
              n.lock_key::oid IN (SELECT objid FROM locks) AS locked,
              clock_timestamp() - n.said_at < interval '3 seconds' AS fresh
            FROM cluster_nodes n LEFT JOIN cluster_runners r ON r.address = n.address
            WHERE clock_timestamp() - n.said_at < ${FORGOTTEN}::interval
          `,
          (rows) =>
            rows.map(({ address, facts, fresh, listed, locked, reaches }): NodeRow => ({
              address,
              reaches: new Set(decodeReaches(reaches)),
              facts: Option.getOrUndefined(decodeFacts(facts)),
              listed,
              isLocked: locked,
              isFresh: fresh
            }))
        ),
        urls: Effect.map(
          sql<{ readonly facts: string }>`
            SELECT facts FROM cluster_nodes WHERE clock_timestamp() - said_at < interval '3 seconds' ORDER BY address`,
          (rows) => rows.flatMap(({ facts }) => Option.getOrUndefined(decodeFacts(facts))?.url ?? [])
        ),
        say: (address, reaches, facts) =>
          sql`
            INSERT INTO cluster_nodes (address, lock_key, reaches, facts, said_at)
            VALUES (${address}, ${lockKeyOf(address)}, ${JSON.stringify([...reaches])}, ${JSON.stringify(facts)}, clock_timestamp())
            ON CONFLICT (address) DO UPDATE
            SET reaches = EXCLUDED.reaches, facts = EXCLUDED.facts, said_at = EXCLUDED.said_at
          `,
        leave: (address) =>
          sql`DELETE FROM cluster_nodes WHERE address = ${address} OR clock_timestamp() - said_at > ${FORGOTTEN}::interval`
      })
    )
  )
}
