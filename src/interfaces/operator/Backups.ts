import { BACKUPS } from "#domain/archives/BackedUpMigrations"
import { type BackedUp, backUp, BackupRefused, bytesOfBackup, io } from "#domain/archives/Backup"
import { BackupNames, type StoredBackup } from "#domain/archives/BackupStore"
import { backupStore } from "#domain/archives/BackupStoreLive"
import { type Batch, job } from "#infrastructure/cluster/Job"
import { Database, type OnlineBackup } from "#infrastructure/database/Sql"
import { folderOf } from "#infrastructure/files/Blobs"
import { unlessMissing } from "#infrastructure/files/Missing"
import { Config } from "#infrastructure/platform/Config"
import { FreeDisk, LEAST_FREE_BYTES } from "#infrastructure/platform/disk/DiskSpace"
import { backupAge, backupInterval, backupsMade } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Exit, Layer } from "effect"
import { spawn } from "node:child_process"
import { randomBytes } from "node:crypto"
import { mkdir, readFile, rm, statfs, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { AuditLog, type AuditNote, loggedInstead, withoutAddresses } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

/** How many UTF-16 units of a backup's detail the audit log stores. */
const DETAIL_LENGTH = 1_000
const HOUR_MS = 3_600_000
/**
 * How long the server waits after a backup of its own that failed, in milliseconds. The time doubles with each further
 * failure, up to the time between two backups.
 */
const RETRY_MS = 900_000
/** How much space a disk must have besides a backup and its contents, in bytes. */
const SPARE_BYTES = 256 * 1024 * 1024
/** How long the console waits for the place of the backups. */
const LIST_TIMEOUT = "10 seconds"
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

const megabytes = (bytes: number, round = Math.ceil): string => `${round(bytes / 1e6)} MB`

/** The reason why a backup has failed, as a text. */
const whyOf = (cause: Cause.Cause<{ readonly message: string }>): string => {
  if (Cause.hasInterruptsOnly(cause)) return "the command ended before the backup was complete"
  return cause.reasons.find(Cause.isFailReason)?.error.message ?? "a defect, which the log of the server has"
}

/**
 * Restores a backup below itself and reads its database, in another process: this process serves clients, and has a
 * database of its own in its memory. An interruption kills the process.
 */
const checkBackup = (file: string): Effect.Effect<void, BackupRefused> =>
  Effect.callback((resume) => {
    const child = spawn(process.execPath, [process.argv[1] ?? "", "admin", "check-backup", file], {
      stdio: ["ignore", "ignore", "pipe"]
    })
    let said = ""
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-2_000)
    })
    const refuse = (why: string) => resume(Effect.fail(new BackupRefused({ message: `it cannot be restored: ${why}` })))
    child.once("error", ({ message }) => refuse(message))
    const closed = new Promise<void>((resolve) =>
      child.once("close", (code, signal) => {
        if (code === 0) resume(Effect.void)
        else refuse(said.trim() || `the check ended with ${code ?? signal}`)
        resolve()
      })
    )
    return Effect.promise(() => {
      child.kill("SIGKILL")
      return closed
    })
  })

/** Removes what a backup has left at this path, and what its check has left. */
const removed = (staged: string) =>
  Effect.promise(async () => {
    for (const left of [staged, `${staged}.check`]) await rm(left, { recursive: true, force: true })
  })

/**
 * The id of a DATA_DIR in the names of its backups, which is made once. A backup does not contain it, so a server on a
 * restored copy has another one, and neither removes the backups of the other.
 */
const idOf = (dataDir: string): Effect.Effect<string, BackupRefused> =>
  io(async () => {
    const file = path.join(path.resolve(dataDir), BACKUPS, "id")
    const found = await readFile(file, "utf8").catch(() => "")
    if (/^[0-9a-f]{8}$/.test(found.trim())) return found.trim()
    const id = randomBytes(4).toString("hex")
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
    await writeFile(file, `${id}\n`, { mode: 0o600 })
    return id
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
      const freeDisk = yield* FreeDisk
      const { BACKUP_EVERY: everyHours, BACKUP_KEEP: keep, BACKUP_TO: place } = config

      const schema = Effect.map(
        database.query<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
        ([row]) => row?.name ?? ""
      )
      /** The folder of the file store, unless the files are in another store. */
      const store = config.S3_BUCKET === undefined && config.SHARED_DIR === undefined ? folderOf(config) : undefined

      const noteOf = (operator: string, action: string, detail: string): AuditNote => ({
        operator,
        action,
        handle: null,
        detail: withoutAddresses(detail).slice(0, DETAIL_LENGTH)
      })
      const noteEnd = (operator: string, action: string, detail: string) => {
        const note = noteOf(operator, action, detail)
        return Effect.catch(audit.note(note), loggedInstead(note))
      }
      /** Fails if a backup could crash the database, because the checkpoint at its beginning does not fit on the disk. */
      const canBegin = Effect.suspend(() => {
        const free = freeDisk(database.backup?.folder)
        return free >= LEAST_FREE_BYTES ? Effect.void : new BackupRefused({
          message: `The disk of DATA_DIR has ${
            megabytes(free, Math.floor)
          } free, and a backup of a running server needs ${
            megabytes(LEAST_FREE_BYTES)
          } there. Free some space, or stop the server and copy DATA_DIR.`
        })
      })
      /**
       * Writes into the audit log that a backup begins, and how it ended. The first row is part of the backup; the second
       * one is written after its end.
       */
      const recorded = <E extends { readonly message: string }>(
        operator: string,
        target: string,
        making: Effect.Effect<BackedUp, E>
      ) =>
        canBegin.pipe(
          Effect.andThen(audit.note(noteOf(operator, "begin backup", target))),
          Effect.andThen(making),
          Effect.onExit((exit) =>
            Exit.isSuccess(exit)
              ? noteEnd(operator, "backup", `${target}: ${exit.value.bytes} bytes`)
              : noteEnd(operator, "refused backup", `${target}: ${whyOf(exit.cause)}`)
          )
        )
      /**
       * Fails before anything is written if the disk at `target` has no room for a backup and, if it is checked there,
       * for its database.
       */
      const hasRoom = Effect.fnUntraced(function*(database: OnlineBackup, target: string, isChecked: boolean) {
        const folder = path.dirname(path.resolve(target))
        const sizes = yield* io(() => unlessMissing(statfs(folder)))
        if (sizes === undefined || sizes.blocks === 0) return
        const free = sizes.bavail * sizes.bsize
        const whole = yield* bytesOfBackup({ database, store })
        const unpacked = isChecked ? yield* bytesOfBackup({ database, store: undefined }) : 0
        const needed = whole + unpacked + SPARE_BYTES
        if (free < needed) {
          return yield* new BackupRefused({
            message: `The disk of ${folder} has ${megabytes(free, Math.floor)} free, and a backup${
              isChecked ? " with its check" : ""
            } needs ${megabytes(needed)}.`
          })
        }
      })
      const backUpTo = (target: string, online: OnlineBackup) =>
        Effect.flatMap(schema, (schema) => backUp({ target, database: online, schema, store }))

      const make = Effect.fnUntraced(function*(
        target: string,
        operator: string
      ): Effect.fn.Return<BackedUp, Conflict | Unavailable> {
        if (database.backup === undefined) {
          return yield* new Conflict({
            message:
              "The database is PostgreSQL: back it up with pg_dump while the servers run, and then the file store with its own tools (docs/operations.md)."
          })
        }
        const making = Effect.andThen(hasRoom(database.backup, target, false), backUpTo(target, database.backup))
        return yield* recorded(operator, target, making).pipe(
          Effect.catchTag("BackupRefused", ({ message }) => Effect.fail(new Conflict({ message }))),
          Effect.catchTag("SqlError", Effect.die)
        )
      })

      if (everyHours === undefined || place === undefined) {
        const none = { rows: 0, more: false }
        return Backups.of({ make, step: Effect.succeed(none), schedule: Effect.succeed(undefined) })
      }

      const names = new BackupNames(yield* Effect.orDie(idOf(config.DATA_DIR)))
      const kept = yield* backupStore(config, place, names)
      const monotonic = monotonicMillis(clock)
      const startedAt = yield* Clock.currentTimeMillis
      /** When the newest backup began; undefined while this is not known, or if there is none. */
      let newest: number | undefined
      let problem: string | null = null
      let failures = 0
      let waitsUntil = Number.NEGATIVE_INFINITY
      yield* backupInterval.readsIn(() => everyHours * 3_600)
      // While no backup is known, the age is the time since the start, so that an alert sees that there is none.
      yield* backupAge.readsIn(() => Math.max(0, (clock.currentTimeMillisUnsafe() - (newest ?? startedAt)) / 1_000))

      /** A backup of the future was made before the clock was set back. */
      const isDue = (now: number): boolean =>
        newest === undefined || now - newest >= everyHours * HOUR_MS || newest - now > HOUR_MS

      const makeNext = Effect.fnUntraced(function*(online: OnlineBackup, now: number) {
        const name = names.at(now)
        const shown = `${place.replace(/\/+$/, "")}/${name}`
        const making = Effect.gen(function*() {
          const staged = yield* kept.stage(name)
          return yield* Effect.gen(function*() {
            yield* hasRoom(online, staged, true)
            const made = yield* backUpTo(staged, online)
            yield* checkBackup(staged)
            yield* kept.keep(name)
            return made
          }).pipe(Effect.ensuring(removed(staged)))
        })
        const made = yield* recorded(SERVER, shown, making)
        newest = now
        yield* Effect.logInfo(`Made the backup ${shown}: ${made.bytes} bytes, restored and read for a check`)
      })

      const removeOld = Effect.gen(function*() {
        for (const { name } of (yield* kept.list).slice(0, -keep)) yield* kept.remove(name)
      }).pipe(
        Effect.catch((error) => Effect.logWarning(`Old backups in ${place} could not be removed: ${error.message}`))
      )

      const step = Effect.gen(function*() {
        const now = yield* Clock.currentTimeMillis
        if (database.backup === undefined || !isDue(now) || monotonic() < waitsUntil) return 0
        newest = (yield* kept.list).at(-1)?.at
        if (!isDue(now)) return 0
        yield* makeNext(database.backup, now)
        yield* removeOld
        return 1
      }).pipe(
        Effect.matchCauseEffect({
          onSuccess: (rows) =>
            Effect.sync(() => {
              if (rows === 0) return rows
              backupsMade.at("done").add()
              problem = null
              failures = 0
              return rows
            }),
          onFailure: (cause) =>
            Cause.hasInterruptsOnly(cause)
              ? Effect.interrupt
              : Effect.suspend(() => {
                backupsMade.at("failed").add()
                const wait = Math.min(RETRY_MS * 2 ** failures++, everyHours * HOUR_MS)
                waitsUntil = monotonic() + wait
                problem = whyOf(cause)
                const text = `The backup in ${place} failed, and will be tried again in ${
                  wait / 60_000
                } minutes: ${problem}`
                return Effect.as(Cause.hasDies(cause) ? Effect.logError(text, cause) : Effect.logError(text), 0)
              })
        }),
        Effect.map((rows) => ({ rows, more: false }))
      )

      return Backups.of({
        make,
        step,
        schedule: kept.list.pipe(
          Effect.timeoutOrElse({
            duration: LIST_TIMEOUT,
            orElse: () => Effect.fail(new BackupRefused({ message: `${place} does not answer.` }))
          }),
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
