import { unlessMissing } from "#infrastructure/files/Missing"
import type { Settings } from "#infrastructure/platform/Config"
import { Effect } from "effect"
import { open, readdir, rename, rm, stat } from "node:fs/promises"
import * as path from "node:path"
import { BACKUPS } from "./BackedUpMigrations.ts"
import { backupsAmong, type BackupStore, io, stagedIn, stageIn } from "./BackupStore.ts"

/** Keeps backups in a folder. */
const inFolder = (folder: string): BackupStore => ({
  list: io(async () => {
    const files: Array<{ readonly name: string; readonly bytes: number }> = []
    for (const name of await unlessMissing(readdir(folder)) ?? []) {
      const found = await unlessMissing(stat(path.join(folder, name)))
      if (found?.isFile() === true) files.push({ name, bytes: found.size })
    }
    return backupsAmong(files)
  }),
  stage: stageIn(folder),
  keep: (name) =>
    io(async () => {
      await rename(stagedIn(folder, name), path.join(folder, name))
      const handle = await open(folder, "r")
      await handle.sync().finally(() => handle.close())
    }),
  remove: (name) => io(() => rm(path.join(folder, name), { force: true }))
})

/** The store at BACKUP_TO. The code for S3 is loaded only if it is needed. */
export const backupStore = (config: Settings, place: string): Effect.Effect<BackupStore> =>
  place.startsWith("s3://")
    ? Effect.map(
      Effect.promise(() => import("./BackupStoreS3.ts")),
      ({ inBucket }) => inBucket(config, place, path.join(path.resolve(config.DATA_DIR), BACKUPS))
    )
    : Effect.succeed(inFolder(path.resolve(place)))
