import * as BackedUpMigrations from "#domain/archives/BackedUpMigrations"
import { unpack } from "#domain/archives/Backup"
import * as Migrations from "#infrastructure/database/Migrations"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { VERSION } from "#infrastructure/platform/Version"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { makeEmptyDataDir } from "../support/Databases.ts"

const folder = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "parley-upgrade-"))),
  (made) => Effect.promise(() => rm(made, { recursive: true, force: true }))
)

/** A folder with a database without a schema. */
const emptyDatabase = Effect.tap(folder, (dataDir) => Effect.promise(() => makeEmptyDataDir(dataDir)))

const applied = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  return (yield* sql<{ readonly id: number }>`SELECT id FROM migrations ORDER BY id`).length
})

/** Opens the database as a server does, and returns what the log says. */
const started = (dataDir: string) =>
  Effect.gen(function*() {
    const logged: Array<string> = []
    const opened = yield* Effect.result(
      Effect.provide(
        applied,
        BackedUpMigrations.layer.pipe(
          Layer.provideMerge(layerPglite({ dataDir })),
          Layer.provide(Logger.layer([Logger.make(({ message }) => void logged.push(String(message)))]))
        )
      )
    )
    return { opened, logged: logged.filter((line) => line.includes("migrates")) }
  })

describe("a start that migrates a database of PGlite", () => {
  it.live("says so in one line, and backs the database up before", () =>
    Effect.gen(function*() {
      const dataDir = yield* emptyDatabase
      const all = yield* Migrations.schema
      const to = all.length
      const from = to - 2
      yield* Effect.provide(Migrations.run(all.slice(0, from)), layerPglite({ dataDir }))
      const file = BackedUpMigrations.fileBefore(dataDir, from)

      // Without the backup there is no migration.
      mkdirSync(join(`${file}.new`, "in the way"), { recursive: true })
      const refused = yield* started(dataDir)
      assert.strictEqual(refused.opened._tag, "Failure")
      assert.strictEqual(yield* Effect.provide(applied, layerPglite({ dataDir })), from)
      yield* Effect.promise(() => rm(`${file}.new`, { recursive: true }))

      const { logged, opened } = yield* started(dataDir)
      assert.deepStrictEqual(opened._tag === "Success" ? opened.success : opened.failure, to)
      assert.deepStrictEqual(logged, [
        `Parley ${VERSION} migrates the database from schema ${from} to ${to}; it cannot go back. First it makes the backup ${file}`
      ])
      assert.deepStrictEqual(readdirSync(join(dataDir, "backups")), [`schema-${from}.tar`])
      const restored = yield* folder
      const unpacked = yield* unpack(file, restored)
      yield* unpacked.finish
      assert.strictEqual(yield* Effect.provide(applied, layerPglite({ dataDir: restored })), from)

      assert.deepStrictEqual((yield* started(dataDir)).logged, [])
    }))

  it.live("keeps the backup when it continues a migration that was interrupted", () =>
    Effect.gen(function*() {
      const dataDir = yield* emptyDatabase
      const all = yield* Migrations.schema
      const to = all.length
      const file = BackedUpMigrations.fileBefore(dataDir, to - 2)
      yield* Effect.provide(Migrations.run(all.slice(0, to - 1)), layerPglite({ dataDir }))
      // As a start leaves it that migrated from to - 2 and ended after one file.
      mkdirSync(join(dataDir, "backups"))
      writeFileSync(file, "the backup")
      writeFileSync(join(dataDir, "backups/migrating"), `schema-${to - 2}.tar\n`)
      const { logged, opened } = yield* started(dataDir)
      assert.deepStrictEqual(opened._tag === "Success" ? opened.success : opened.failure, to)
      assert.deepStrictEqual(logged, [
        `Parley ${VERSION} migrates the database from schema ${
          to - 1
        } to ${to}; it cannot go back. It continues a migration before which it made the backup ${file}`
      ])
      assert.deepStrictEqual(readdirSync(join(dataDir, "backups")), [`schema-${to - 2}.tar`])
      assert.strictEqual(readFileSync(file, "utf8"), "the backup")
    }))

  it.live("makes no backup of a new database", () =>
    Effect.gen(function*() {
      const dataDir = yield* emptyDatabase
      const { logged } = yield* started(dataDir)
      assert.deepStrictEqual(logged, [])
      assert.isFalse(existsSync(join(dataDir, "backups")))
    }))
})
