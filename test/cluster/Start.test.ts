import { assert, describe, it } from "@effect/vitest"
import { tmpdir } from "node:os"
import { Client } from "pg"
import { freePort } from "../../runners/local/FreePort.ts"
import { freshDatabase } from "../support/Databases.ts"
import { runParley } from "../support/RunParley.ts"

const run = (command: string, env: Readonly<Record<string, string>>) => runParley([command], env)

const tablesOf = async (url: string): Promise<ReadonlyArray<string>> => {
  const client = new Client(url)
  await client.connect()
  const { rows } = await client.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").finally(() =>
    client.end()
  )
  return rows.map((row: { readonly tablename: string }) => row.tablename)
}

describe("the start of a node", () => {
  it("names all missing settings at once", async () => {
    for (const { code, stderr } of await Promise.all([{}, { ROLE: "gateway" }].map((env) => run("runner", env)))) {
      assert.strictEqual(code, 1)
      assert.deepStrictEqual(
        stderr.trim().split("\n").map((line) => /^parley: (\w+): /.exec(line)?.[1]),
        ["DATABASE_URL", "REDIS_URL", "S3_BUCKET"]
      )
    }
    const [alone, folderless] = await Promise.all([
      run("start", { ROLE: "gateway" }),
      run("runner", {
        DATABASE_URL: "postgres://127.0.0.1:1/nobody",
        REDIS_URL: "redis://127.0.0.1:1",
        SHARED_DIR: "/dev/null/files",
        PORT: String(await freePort())
      })
    ])
    assert.strictEqual(alone.code, 1)
    assert.match(alone.stderr, /^parley: ROLE: a gateway is a node of a cluster/)
    assert.strictEqual(folderless.code, 1)
    assert.strictEqual(
      folderless.stderr,
      "parley: SHARED_DIR /dev/null/files cannot be used: a part of the path is a file\n"
    )
  })

  it("creates the tables if no other has, and stops at a database of a newer version", async () => {
    const url = await freshDatabase(18, "empty")
    const both = await Promise.all([run("migrate", { DATABASE_URL: url }), run("migrate", { DATABASE_URL: url })])
    for (const { code, stderr } of both) assert.strictEqual(code, 0, stderr)
    // The log has the format of the servers' log, and standard output is for the person alone.
    for (const { stderr, stdout } of both) {
      assert.strictEqual(stdout, "The database is up to date.\n")
      for (const line of stderr.split("\n").filter((line) => line !== ""))
        assert.hasAllKeys(JSON.parse(line), ["time", "level", "message"])
    }
    assert.include(both.map(({ stderr }) => stderr).join(""), "Creating the database")
    assert.includeMembers([...await tablesOf(url)], ["migrations", "agents", "cluster_runners", "cluster_locks"])

    const client = new Client(url)
    await client.connect()
    await client.query("INSERT INTO migrations SELECT max(id) + 1, '9999_add_future.sql', 'x', 0 FROM migrations")
      .finally(() => client.end())
    const port = await freePort()
    const { code, stderr } = await run("runner", {
      DATABASE_URL: url,
      REDIS_URL: "redis://127.0.0.1:1",
      SHARED_DIR: tmpdir(),
      PORT: String(port)
    })
    assert.strictEqual(code, 1)
    assert.match(stderr, /a newer version of Parley migrated it/)
    assert.notInclude(stderr, "\n    at ")
  })

  it("stops if the cluster has another number of shards, and names both", async () => {
    const url = await freshDatabase()
    const client = new Client(url)
    await client.connect()
    await client.query("INSERT INTO cluster_settings (shards) VALUES (900)").finally(() => client.end())
    const { code, stderr } = await run("runner", {
      DATABASE_URL: url,
      REDIS_URL: "redis://127.0.0.1:1",
      SHARED_DIR: tmpdir(),
      RUNNER_SHARDS: "300",
      PORT: String(await freePort()),
      RUNNER_PORT: String(await freePort())
    })
    assert.strictEqual(code, 1)
    assert.include(stderr, "RUNNER_SHARDS is 300 on this node, but the cluster of this database has 900 shards")
    assert.notInclude(stderr, "\n    at ")
  })
})
