import * as Migrations from "#infrastructure/database/Migrations"
import { Database } from "#infrastructure/database/Sql"
import { makeFolder } from "#infrastructure/platform/disk/Folder"
import { VERSION } from "#infrastructure/platform/Version"
import { Effect, Layer } from "effect"
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { backUp, BackupRefused, refusedBy } from "./Backup.ts"

/** The folder in DATA_DIR with the backups that were made before migrations. */
export const BACKUPS = "backups"

/** The file in DATA_DIR that a server writes before it migrates a database of schema `from`. */
export const fileBefore = (dataDir: string, from: number): string => path.join(dataDir, BACKUPS, `schema-${from}.tar`)

/** The file that exists while a migration is under way, or was interrupted. Its text is the name of the backup. */
const markerIn = (dataDir: string): string => path.join(dataDir, BACKUPS, "migrating")

const io = <A>(run: () => A): Effect.Effect<A, BackupRefused> => Effect.try({ try: run, catch: refusedBy })

/** The backup that was made before a migration that was interrupted. */
const backupOfInterrupted = (marker: string): string | undefined => {
  if (!existsSync(marker)) return undefined
  const file = path.join(path.dirname(marker), path.basename(readFileSync(marker, "utf8").trim()))
  return existsSync(file) ? file : undefined
}

/**
 * Migrates the database. Before PGlite in DATA_DIR is migrated, its files are backed up, because a migration cannot be
 * undone. The backup does not contain the file store, which no migration changes. A start that continues an interrupted
 * migration makes no further backup, so the first one stays, and starts that fail again and again do not fill the disk.
 * A backup of the same schema from an earlier upgrade is replaced when the new one is complete.
 */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const { backup } = yield* Database
  if (backup === undefined) return yield* Migrations.run()
  const dataDir = path.dirname(backup.folder)
  const marker = markerIn(dataDir)
  const prepare = Effect.fnUntraced(function*({ from, schema, to }: Migrations.Upgrade) {
    const begins = `Parley ${VERSION} migrates the database from schema ${from} to ${to}; it cannot go back.`
    const earlier = yield* io(() => backupOfInterrupted(marker))
    if (earlier !== undefined)
      return yield* Effect.logWarning(`${begins} It continues a migration before which it made the backup ${earlier}`)
    const target = fileBefore(dataDir, from)
    const unfinished = `${target}.new`
    yield* Effect.logWarning(`${begins} First it makes the backup ${target}`)
    yield* io(() => {
      makeFolder(path.dirname(target), 0o700)
      rmSync(unfinished, { force: true })
    })
    yield* backUp({ target: unfinished, database: backup, schema, store: undefined })
    yield* io(() => {
      renameSync(unfinished, target)
      writeFileSync(marker, `${path.basename(target)}\n`, { mode: 0o600 })
    })
  })
  yield* Migrations.runAfter((upgrade) =>
    Effect.catchTag(prepare(upgrade), "BackupRefused", ({ message }) =>
      Effect.fail(
        new BackupRefused({
          message: `The backup before the migration failed, so the database was not changed: ${message}`
        })
      ))
  )
  yield* io(() => rmSync(marker, { force: true }))
}))
