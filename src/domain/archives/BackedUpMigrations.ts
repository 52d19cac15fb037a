import * as Migrations from "#infrastructure/database/Migrations"
import { Database } from "#infrastructure/database/Sql"
import { makeFolder } from "#infrastructure/platform/disk/Folder"
import { VERSION } from "#infrastructure/platform/Version"
import { Effect, Layer } from "effect"
import { rmSync } from "node:fs"
import * as path from "node:path"
import { backUp, BackupRefused } from "./Backup.ts"

/** The folder in DATA_DIR with the backups that were made before migrations. */
export const BACKUPS = "backups"

/** The file in DATA_DIR that a server writes before it migrates a database of schema `from`. */
export const fileBefore = (dataDir: string, from: number): string => path.join(dataDir, BACKUPS, `schema-${from}.tar`)

/**
 * Migrates the database. Before PGlite in DATA_DIR is migrated, its files are backed up, because a migration cannot be
 * undone. The backup does not contain the file store, which no migration changes. A backup of the same schema is
 * replaced, so that a start that fails again and again does not fill the disk.
 */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const { backup } = yield* Database
  yield* Migrations.runAfter((upgrade) =>
    Effect.gen(function*() {
      const { from, schema, to } = upgrade
      if (backup === undefined) return yield* Migrations.announce(upgrade)
      const target = fileBefore(path.dirname(backup.folder), from)
      yield* Effect.logWarning(
        `Parley ${VERSION} migrates the database from schema ${from} to ${to}; it cannot go back. First it makes the backup ${target}`
      )
      yield* Effect.try({
        try: () => {
          makeFolder(path.dirname(target), 0o700)
          rmSync(target, { force: true })
        },
        catch: (error) => new BackupRefused({ message: error instanceof Error ? error.message : String(error) })
      })
      yield* backUp({ target, database: backup, schema, store: undefined })
    }).pipe(
      Effect.catchTag("BackupRefused", ({ message }) =>
        Effect.fail(
          new BackupRefused({
            message: `The backup before the migration failed, so the database was not changed: ${message}`
          })
        ))
    )
  )
}))
