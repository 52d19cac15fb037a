import type { Client } from "pg"
import { cpuOfTree } from "./CpuTime.ts"
import { connected } from "./Database.ts"

/** The tables to which a send adds rows. A table that the measured commit does not have is left out. */
const TABLES = ["messages", "message_keys", "envelopes"]
/** The columns that an acknowledgement sets. They are null in the rows that are added. */
const LATER = ["delivered_at", "read_at"]
/** The most messages and the most time of one measurement. */
const MESSAGES = 30_000
const MOST_MS = 10_000

interface Table {
  readonly name: string
  readonly columns: ReadonlyArray<{ readonly name: string; readonly type: string }>
  readonly key: ReadonlyArray<string>
  readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>
}

/** A copy of a table without its rows, in the schema `floor`, and the rows that were added to it last. */
const copyOf = async (client: Client, name: string, count: number): Promise<Table> => {
  const { rows: columns } = await client.query<{ readonly name: string; readonly type: string; readonly key: boolean }>(
    `SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type,
      a.attnum = ANY ((SELECT indkey FROM pg_index WHERE indrelid = a.attrelid AND indisprimary)::smallint[]) AS key
    FROM pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`,
    [`public.${name}`]
  )
  await client.query(`CREATE TABLE floor.${name} (LIKE public.${name} INCLUDING ALL)`)
  // LIKE does not copy the storage options of a table.
  const { rows: [options] } = await client.query<{ readonly list: string | null }>(
    "SELECT array_to_string(reloptions, ', ') AS list FROM pg_class WHERE oid = $1::regclass",
    [`public.${name}`]
  )
  if (options?.list) await client.query(`ALTER TABLE floor.${name} SET (${options.list})`)
  const { rows } = await client.query(
    `SELECT * FROM public.${name} OFFSET GREATEST(0, (SELECT count(*) FROM public.${name}) - $1)`,
    [count]
  )
  return {
    name,
    columns,
    key: columns.filter(({ key }) => key).map(({ name }) => name),
    rows: rows.map((row: Record<string, unknown>) => ({
      ...row,
      ...Object.fromEntries(LATER.filter((column) => column in row).map((column) => [column, null]))
    }))
  }
}

/** Parameters from `$first` on as rows, a parameter for each column. */
const asRows = (columns: Table["columns"], first: number): string =>
  `unnest(${columns.map(({ type }, i) => `$${first + i}::${type}[]`).join(", ")}) AS x(${
    columns.map(({ name }) => `"${name}"`).join(", ")
  })`

const byColumn = (columns: Table["columns"], rows: Table["rows"]): ReadonlyArray<ReadonlyArray<unknown>> =>
  columns.map(({ name }) => rows.map((row) => row[name]))

/** One statement that adds a batch to all tables. */
const adding = (tables: ReadonlyArray<Table>): string => {
  let first = 1
  const parts = tables.map(({ columns, name }) => {
    const part = `INSERT INTO floor.${name} SELECT * FROM ${asRows(columns, first)}`
    first += columns.length
    return part
  })
  const last = parts.pop()!
  return parts.length === 0 ? last : `WITH ${parts.map((part, i) => `part_${i} AS (${part})`).join(", ")} ${last}`
}

/** One statement that acknowledges a batch: finds each row by its key. */
const acknowledging = (table: string, keys: Table["columns"]): string =>
  `UPDATE floor.${table} e SET delivered_at = 1 FROM ${asRows(keys, 1)} WHERE ${
    keys.map(({ name }) => `e."${name}" = x."${name}"`).join(" AND ")
  }`

/**
 * The least work that a database could do for messages, in microseconds of its processor time for each, measured
 * several times. One prepared statement adds the same rows to the same tables with the same indexes, and another
 * acknowledges them. Rows are committed one by one, and in batches as large as the server's. The statements take no
 * locks, check nothing and assign no numbers.
 */
export const measureDatabaseFloor = (
  url: string,
  pid: number,
  batch: { readonly sends: number; readonly acks: number },
  times: number
): Promise<ReadonlyArray<number>> =>
  connected(url, async (client) => {
    await client.query("DROP SCHEMA IF EXISTS floor CASCADE; CREATE SCHEMA floor")
    const { rows: there } = await client.query<{ readonly name: string }>(
      "SELECT name FROM unnest($1::text[]) AS t(name) WHERE to_regclass('public.' || name) IS NOT NULL",
      [TABLES]
    )
    const tables: Array<Table> = []
    for (const { name } of there) tables.push(await copyOf(client, name, MESSAGES))
    const count = Math.min(...tables.map(({ rows }) => rows.length))
    const inboxes = tables.find(({ columns }) => columns.some(({ name }) => name === "delivered_at"))
    if (inboxes === undefined) throw new Error("none of the tables knows what was delivered")
    const keys = inboxes.columns.filter(({ name }) => inboxes.key.includes(name))
    const add = { name: "floor_add", text: adding(tables) }
    const acknowledge = { name: "floor_acknowledge", text: acknowledging(inboxes.name, keys) }
    const sends = Math.max(1, Math.round(batch.sends))
    const acks = Math.max(1, Math.round(batch.acks))
    const acknowledgeRows = (from: number, to: number) =>
      client.query({ ...acknowledge, values: [...byColumn(keys, inboxes.rows.slice(from, to))] })
    const measured: Array<number> = []
    for (let time = 0; time < times; time++) {
      await client.query(`TRUNCATE ${tables.map(({ name }) => `floor.${name}`).join(", ")}`)
      await client.query("CHECKPOINT")
      const begin = cpuOfTree(pid)
      const deadline = performance.now() + MOST_MS
      let added = 0
      let acknowledged = 0
      while (added < count && performance.now() < deadline) {
        const from = added
        added = Math.min(count, from + sends)
        const values = tables.flatMap(({ columns, rows }) => byColumn(columns, rows.slice(from, added)))
        await client.query({ ...add, values })
        for (; acknowledged + acks <= added; acknowledged += acks)
          await acknowledgeRows(acknowledged, acknowledged + acks)
      }
      if (acknowledged < added)
        await acknowledgeRows(acknowledged, added)
      measured.push((cpuOfTree(pid) - begin) / added)
    }
    await client.query("DROP SCHEMA floor CASCADE")
    return measured
  })
