import { unlessMissing } from "#infrastructure/files/Missing"
import type { Settings } from "#infrastructure/platform/Config"
import { Clock, Effect } from "effect"
import { open, readdir, rename, rm, stat } from "node:fs/promises"
import * as path from "node:path"
import { BACKUPS } from "./BackedUpMigrations.ts"
import { BackupRefused, io } from "./Backup.ts"
import { type BackupNames, type BackupStore, stagedIn, stageIn } from "./BackupStore.ts"

/** Keeps backups in a folder. The folder is never created, because it may be a disk that is not mounted. */
const inFolder = (folder: string, names: BackupNames): BackupStore => {
  const isThere = Effect.flatMap(
    io(() => unlessMissing(stat(folder))),
    (found) =>
      found?.isDirectory() === true
        ? Effect.void
        : Effect.fail(new BackupRefused({ message: `There is no folder ${folder}. Create it, or mount its disk.` }))
  )
  return {
    list: Effect.gen(function*() {
      yield* isThere
      const now = yield* Clock.currentTimeMillis
      return yield* io(async () => {
        const files: Array<{ readonly name: string; readonly bytes: number }> = []
        for (const name of await readdir(folder)) {
          const found = await unlessMissing(stat(path.join(folder, name)))
          if (found?.isFile() === true) files.push({ name, bytes: found.size })
        }
        return names.among(files, now)
      })
    }),
    stage: (name) => Effect.andThen(isThere, stageIn(folder, names)(name)),
    keep: (name) =>
      io(async () => {
        await rename(stagedIn(folder, name), path.join(folder, name))
        const handle = await open(folder, "r")
        await handle.sync().finally(() => handle.close())
      }),
    remove: (name) => io(() => rm(path.join(folder, name), { force: true }))
  }
}

/** The store at BACKUP_TO. The code for S3 is loaded only if it is needed. */
export const backupStore = (config: Settings, place: string, names: BackupNames): Effect.Effect<BackupStore> =>
  place.startsWith("s3://")
    ? Effect.map(
      Effect.promise(() => import("./BackupStoreS3.ts")),
      ({ inBucket }) => inBucket(config, place, path.join(path.resolve(config.DATA_DIR), BACKUPS), names)
    )
    : Effect.succeed(inFolder(path.resolve(place), names))
