import { type BackedUp, backUp, BackupRefused } from "#domain/archives/Backup"
import { nameAt, type StoredBackup } from "#domain/archives/BackupStore"
import { backupStore } from "#domain/archives/BackupStoreLive"
import { type Batch, job } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { folderOf } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { backupAge, backupInterval, backupsMade } from "#infrastructure/platform/Metrics"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Exit, Layer } from "effect"
import { execFile } from "node:child_process"
import { rm } from "node:fs/promises"
import { promisify } from "node:util"
import { AuditLog, withoutAddresses } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/** How many UTF-16 units of a backup's detail the audit log stores. */
const DETAIL_LENGTH = 1_000
const HOUR_MS = 3_600_000
/** How long the server waits after a backup of its own that failed, in milliseconds. */
const RETRY_MS = 900_000
/** The name of the server itself in the audit log. */
const SERVER = "server"

/** The backups that the server makes on its own, as the console shows them. */
export interface Schedule {
  readonly everyHours: number
  readonly place: string
  readonly keep: number
  /** Oldest first. */
  readonly backups: ReadonlyArray<StoredBackup>
  /** Why the last attempt failed, or null if it did not. */
  readonly problem: string | null
}

/** The reason why a backup has failed, as a text. */
const whyOf = (cause: Cause.Cause<{ readonly message: string }>): string => {
  if (Cause.hasInterruptsOnly(cause)) return "the command ended before the backup was complete"
  return cause.reasons.find(Cause.isFailReason)?.error.message ?? "a defect, which the log of the server has"
}

/**
 * Restores a backup below itself and reads its database, in another process: this process serves clients, and has a
 * database of its own in its memory.
 */
const checkBackup = (file: string): Effect.Effect<void, BackupRefused> =>
  Effect.tryPromise({
    try: (signal) =>
      promisify(execFile)(process.execPath, [process.argv[1] ?? "", "admin", "check-backup", file], { signal }),
    catch: (error) => {
      const { message = "", stderr = "" } = Object(error) as { readonly message?: string; readonly stderr?: string }
      return new BackupRefused({ message: `it cannot be restored: ${stderr.trim() || message}` })
    }
  })

/** Backups of a server with its database in DATA_DIR: those of operators, and those of BACKUP_EVERY. */
export class Backups extends Context.Service<Backups, {
  /** Backs the server up into a new file on its machine, for an operator. */
  readonly make: (target: string, operator: string) => Effect.Effect<BackedUp, Conflict | Unavailable>
  /** Makes a backup if one is due, checks it, and removes those that are no longer kept. Runs as a job. */
  readonly step: Effect.Effect<Batch>
  /** Undefined if the server makes no backups on its own. */
  readonly schedule: Effect.Effect<Schedule | undefined, Conflict>
}>()("parley/operator/Backups") {
  static readonly layer = Layer.effect(
    Backups,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const config = yield* Config
      const database = yield* Database
      const clock = yield* Clock.Clock
      const { BACKUP_EVERY: everyHours, BACKUP_KEEP: keep, BACKUP_TO: place } = config

      const schema = Effect.map(
        database.query<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
        ([row]) => row?.name ?? ""
      )
      /** The folder of the file store, unless the files are in another store. */
      const store = config.S3_BUCKET === undefined && config.SHARED_DIR === undefined ? folderOf(config) : undefined

      const make = Effect.fnUntraced(function*(target: string, operator: string) {
        if (database.backup === undefined) {
          return yield* new Conflict({
            message:
              "The database is PostgreSQL: back it up with pg_dump while the servers run, and then the file store with its own tools (docs/operations.md)."
          })
        }
        const noted = (action: string, detail: string) =>
          audit.note({ operator, action, handle: null, detail: withoutAddresses(detail).slice(0, DETAIL_LENGTH) })
        // This row is part of the backup. The row with the outcome is written after the end of the backup.
        yield* noted("begin backup", target)
        return yield* backUp({ target, database: database.backup, schema: yield* schema, store }).pipe(
          Effect.onExit((exit) =>
            Effect.catch(
              Exit.isSuccess(exit)
                ? noted("backup", `${target}: ${exit.value.bytes} bytes`)
                : noted("refused backup", `${target}: ${whyOf(exit.cause)}`),
              (error) =>
                Effect.logWarning(`The outcome of the backup ${target} could not be written into the audit log`, error)
            )
          ),
          Effect.catchTag("BackupRefused", ({ message }) => Effect.fail(new Conflict({ message }))),
          Effect.catchTag("SqlError", Effect.die)
        )
      })

      if (everyHours === undefined || place === undefined) {
        const none = { rows: 0, more: false }
        return Backups.of({ make, step: Effect.succeed(none), schedule: Effect.succeed(undefined) })
      }

      const kept = yield* backupStore(config, place)
      /** When the newest backup began; undefined while this is not known, or if there is none. */
      let newest: number | undefined
      let problem: string | null = null
      let waitsUntil = Number.NEGATIVE_INFINITY
      yield* backupInterval.readsIn(() => everyHours * 3_600)
      yield* backupAge.readsIn(() =>
        newest === undefined ? undefined : Math.max(0, (clock.currentTimeMillisUnsafe() - newest) / 1_000)
      )

      const isDue = (now: number): boolean => newest === undefined || now - newest >= everyHours * HOUR_MS

      const makeNext = Effect.fnUntraced(function*(now: number, before: ReadonlyArray<StoredBackup>) {
        const name = nameAt(now)
        const staged = yield* kept.stage(name)
        const made = yield* make(staged, SERVER).pipe(
          Effect.andThen((made) => Effect.as(checkBackup(staged), made)),
          Effect.tap(() => kept.keep(name)),
          Effect.onError(() => Effect.promise(() => rm(staged, { force: true })))
        )
        newest = now
        yield* Effect.logInfo(`Made the backup ${name} in ${place}: ${made.bytes} bytes, restored and read for a check`)
        for (const { name } of before.slice(0, Math.max(0, before.length + 1 - keep))) yield* kept.remove(name)
      })

      const step = Effect.gen(function*() {
        const now = yield* Clock.currentTimeMillis
        if (!isDue(now) || now < waitsUntil) return 0
        const before = yield* kept.list
        newest = before.at(-1)?.at
        if (!isDue(now)) return 0
        yield* makeNext(now, before)
        return 1
      }).pipe(
        Effect.matchCauseEffect({
          onSuccess: (rows) =>
            Effect.sync(() => {
              if (rows > 0) {
                backupsMade.at("done").add()
                problem = null
              }
              return rows
            }),
          onFailure: (cause) =>
            Cause.hasInterruptsOnly(cause)
              ? Effect.interrupt
              : Effect.suspend(() => {
                backupsMade.at("failed").add()
                waitsUntil = clock.currentTimeMillisUnsafe() + RETRY_MS
                problem = whyOf(cause)
                return Effect.as(
                  Effect.logError(
                    `The backup in ${place} failed, and will be tried again in ${RETRY_MS / 60_000} minutes: ${problem}`
                  ),
                  0
                )
              })
        }),
        Effect.map((rows) => ({ rows, more: false }))
      )

      return Backups.of({
        make,
        step,
        schedule: kept.list.pipe(
          Effect.map((backups) => ({ everyHours, place, keep, backups, problem })),
          Effect.mapError(({ message }) => new Conflict({ message }))
        )
      })
    })
  )

  /** Looks once a minute whether a backup is due, as long as the server runs. */
  static readonly layerRunning = job({
    name: "backups",
    every: "1 minute",
    batch: Effect.flatMap(Backups, ({ step }) => step)
  })
}
