import { Database } from "#infrastructure/database/Sql"
import { assert } from "@effect/vitest"
import { Effect, Layer, type Scope } from "effect"
import { SqlClient } from "effect/sql"

interface Node {
  readonly "Node Type": string
  readonly "Relation Name"?: string
  readonly "Index Name"?: string
  readonly "Index Cond"?: string
  readonly Plans?: ReadonlyArray<Node>
}

/** How a statement reads a table; without an index, index and condition are empty. */
export interface Scan {
  readonly table: string
  readonly index: string
  readonly condition: string
}

const scans = (node: Node): ReadonlyArray<Scan> => {
  const below = (node.Plans ?? []).flatMap(scans)
  const table = node["Relation Name"]
  if (table === undefined || node["Node Type"] === "ModifyTable") return below
  // Rows that the statement has found and locked before.
  if (node["Node Type"] === "Tid Scan") return below
  // A bitmap's indexes are in the nodes below.
  const by = node["Index Name"] === undefined ? node.Plans ?? [] : [node]
  const of = (key: "Index Name" | "Index Cond") => by.map((one) => one[key] ?? "").join(" ").trim()
  return [{ table, index: of("Index Name"), condition: of("Index Cond") }, ...below]
}

/**
 * How every statement that `building` prepares reads its tables under its generic plan, with all tables empty: as on a
 * server that has just been set up.
 */
export const scansOf = <A, E, R>(
  building: Effect.Effect<A, E, R>
): Effect.Effect<
  ReadonlyMap<string, ReadonlyArray<Scan>>,
  E,
  Exclude<R, Database> | Database | SqlClient.SqlClient | Scope.Scope
> =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const database = yield* Database
    const texts = new Map<string, string>()
    const record = (name: string, text: string) => {
      texts.set(name, text)
      return () => Effect.succeed([])
    }
    const recording = Layer.succeed(Database, { ...database, backup: undefined, prepared: record, raw: record })
    yield* Effect.provide(building, recording)
    const found = new Map<string, ReadonlyArray<Scan>>()
    for (const [name, text] of texts) {
      const [row] = yield* Effect.orDie(sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<{ readonly Plan: Node }> }>(
        `EXPLAIN (GENERIC_PLAN, FORMAT JSON) ${text}`
      ))
      found.set(name, scans(row!["QUERY PLAN"][0]!.Plan))
    }
    return found
  })

/** Any index is accepted: two indexes on the same columns serve a look-up by these columns equally well. */
export const ANY = ""

/** For each statement, the index by which it must reach a table, and the columns that it must name. */
export type Ways = Readonly<
  Record<string, Readonly<Record<string, readonly [index: string, ...columns: ReadonlyArray<string>]>>>
>

/** Asserts that these statements read exactly these tables, each in the given way. */
export const assertWays = (found: ReadonlyMap<string, ReadonlyArray<Scan>>, ways: Ways): void => {
  const wrong: Array<string> = []
  for (const [name, tables] of Object.entries(ways)) {
    const scanned = found.get(name) ?? assert.fail(`there is no statement ${name}`)
    assert.sameMembers([...new Set(scanned.map(({ table }) => table))], Object.keys(tables), name)
    for (const { condition, index, table } of scanned) {
      const [wanted, ...columns] = tables[table] ?? [ANY]
      if (
        (wanted !== ANY && index !== wanted) || index === "" || !columns.every((column) => condition.includes(column))
      ) {
        wrong.push(`${name}: ${table} by ${index} (${condition})`)
      }
    }
  }
  assert.deepStrictEqual(wrong, [])
}
