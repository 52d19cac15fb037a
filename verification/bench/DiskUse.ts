import { connected } from "./Database.ts"

/** Bytes of each table of a database, its indexes included, after a vacuum. */
export const tableSizes = (url: string): Promise<ReadonlyMap<string, number>> =>
  connected(url, async (client) => {
    await client.query("VACUUM")
    const { rows } = await client.query<{ readonly name: string; readonly bytes: string }>(
      "SELECT relname AS name, pg_total_relation_size(oid) AS bytes FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    return new Map(rows.map(({ bytes, name }) => [name, Number(bytes)]))
  })

export interface DiskUse {
  /** Of all tables, for each message that was stored between two measurements. */
  readonly bytesPerMessage: number
  /** The tables that grew by more than a byte per message. */
  readonly tables: Readonly<Record<string, number>>
}

export const growth = (
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
  messages: number
): DiskUse => {
  const each = [...after].map(([name, bytes]) => [name, (bytes - (before.get(name) ?? 0)) / messages] as const)
  return {
    bytesPerMessage: each.reduce((sum, [, bytes]) => sum + bytes, 0),
    tables: Object.fromEntries(each.filter(([, bytes]) => bytes > 1).toSorted(([, one], [, two]) => two - one))
  }
}
