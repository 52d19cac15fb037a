import { exportedFiles } from "#domain/archives/AgentTables"
import { removeStatement } from "#domain/conversations/MessageRetention"
import { isAgentTable } from "#infrastructure/database/Tables"
import * as erasure from "#interfaces/operator/Erasure"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { globSync, readFileSync } from "node:fs"
import { tables } from "../../src/Tables.ts"
import { layerPgliteTest } from "../support/Databases.ts"

/** Every column of the schema's tables. */
const columnsOfSchema = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{ readonly table: string; readonly column: string }>`
    SELECT c.table_name AS "table", c.column_name AS "column" FROM information_schema.columns c
    JOIN pg_tables t ON t.schemaname = 'public' AND t.tablename = c.table_name
    WHERE c.table_schema = 'public'`
})

const owned = tables.map(({ table }) => table)
const agentTables = tables.filter(isAgentTable)
/** The files of an export, and the tables that they join. */
const exportedParts = exportedFiles(tables).flatMap((file) => file.join === undefined ? [file] : [file, file.join])

const jobsOf = ({ retention }: typeof tables[number]): ReadonlyArray<string> =>
  "kept" in retention ? [] : [...(retention.jobs ?? []), ...(retention.withMessage === undefined ? [] : ["messages"])]

layer(layerPgliteTest)("the tables", (it) => {
  it.effect("each has one module that owns it, and each that a module owns exists", () =>
    Effect.gen(function*() {
      const there = new Set((yield* columnsOfSchema).map(({ table }) => table))
      assert.sameMembers(
        owned,
        [...there],
        "list a new table in the file …Tables.ts of its module, and a new module in src/Tables.ts"
      )
    }))

  it.effect("an export has every column of every table of agents, or says why not", () =>
    Effect.gen(function*() {
      const rows = yield* columnsOfSchema
      assert.sameMembers([...new Set(exportedParts.map(({ table }) => table))], agentTables.map(({ table }) => table))
      for (const { columns, table, without } of exportedParts) {
        const named = [...columns, ...Object.keys(without)]
        const there = rows.filter((row) => row.table === table).map(({ column }) => column)
        assert.sameMembers(named, there, `the columns of ${table}`)
      }
      for (const { json = [], table } of agentTables) {
        assert.includeMembers(rows.filter((row) => row.table === table).map(({ column }) => column), [...json], table)
      }
      const files = exportedFiles(tables).map(({ name }) => name)
      assert.strictEqual(new Set(files).size, files.length)
    }))

  it("an erasure says of each with data of agents what it removes and what remains", () => {
    for (const { erasure: { keeps, removes }, table } of agentTables) assert.isNotEmpty([...removes, ...keeps], table)
    const OUTSIDE = "backups, exports, logs, and mails in the outbox"
    const named = (lists: ReadonlyArray<ReadonlyArray<string>>) => [...new Set(lists.flat())]
    assert.sameMembers(named(agentTables.map((one) => one.erasure.removes)), erasure.removed.map(({ what }) => what))
    assert.sameMembers(
      [...named(agentTables.map((one) => one.erasure.keeps)), OUTSIDE],
      erasure.remains.map(({ what }) => what)
    )
  })

  it("the jobs that remove old rows exist", () => {
    const jobs = globSync("src/**/*.ts", { cwd: `${import.meta.dirname}/../..` }).flatMap((file) =>
      [...readFileSync(`${import.meta.dirname}/../../${file}`, "utf8").matchAll(/\bjob\(\{\s*name: "(\w+)"/g)].map((
        [, name]
      ) => name)
    )
    assert.isAbove(jobs.length, 15)
    assert.includeMembers(jobs, tables.flatMap(jobsOf))
  })

  it("tables whose rows expire by the same job name the same period", () => {
    const periods = new Map<string, unknown>()
    for (const { retention, table } of tables) {
      for (const { every, job } of "kept" in retention ? [] : retention.expires ?? []) {
        assert.strictEqual(periods.get(job) ?? every, every, table)
        periods.set(job, every)
      }
    }
  })

  it("the statement that removes old messages removes rows of the tables that say so, and of no others", () => {
    const removed = [...removeStatement(tables).matchAll(/DELETE FROM (\w+) /g)].map(([, table]) => table)
    assert.sameMembers(removed, tables.filter((one) => jobsOf(one).includes("messages")).map(({ table }) => table))
  })

  it.effect("a job removes what is about one message alone, whatever table it is in", () =>
    Effect.gen(function*() {
      const aboutMessages = (yield* columnsOfSchema).filter(({ column }) => column === "seq" || column === "message_id")
        .map(({ table }) => table)
      assert.includeMembers(aboutMessages, ["envelopes", "messages"])
      // Tasks and words have jobs of their own, which remove those whose message is gone (src/interfaces/a2a/Tasks.ts,
      // src/domain/search/).
      const jobs = ["messages", "a2a_tasks", "message_words_gone"]
      assert.deepStrictEqual(
        tables.filter(({ table }) => aboutMessages.includes(table)).filter((one) =>
          !jobsOf(one).some((job) => jobs.includes(job))
        ),
        []
      )
    }))
})
