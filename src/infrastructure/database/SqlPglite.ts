import { freeBytes, FullDisk, saysNoSpace } from "#infrastructure/platform/disk/DiskSpace"
import { databaseTimes } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { BlockedMillis } from "#infrastructure/platform/StallGuard"
import { Clock, Effect, Latch, Layer, Semaphore } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlError } from "effect/sql"
import { readdirSync } from "node:fs"
import { join } from "node:path"
import { NoSpaceLeft, PgliteDatabase, type PgliteSettings } from "./Pglite.ts"
import { outcomeOf, type PgliteSession } from "./PgliteSession.ts"
import { type OnlineBackup, PgConnection, services } from "./Sql.ts"
import { DatabaseFault, noSpace, type Outcome, sqlError } from "./SqlValues.ts"

/** The only session of PGlite. A statement runs synchronously and blocks the event loop. */
class PgliteConnection extends PgConnection {
  readonly #database: PgliteDatabase
  /** The last failed recovery. */
  #failed: { readonly error: SqlError.SqlError; readonly at: number; readonly free: number } | undefined

  constructor(database: PgliteDatabase) {
    super()
    this.#database = database
  }

  get inTransaction(): boolean {
    return this.#database.session.inTransaction
  }

  run(text: string, params: ReadonlyArray<unknown>, name?: string) {
    return this.#attempt((session) =>
      outcomeOf(name === undefined ? session.query(text, params) : session.prepared(name, text, params))
    )
  }

  executeValues(text: string, params: ReadonlyArray<unknown>) {
    return this.#attempt((session) => session.query(text, params).rows)
  }

  /**
   * Runs a statement between two statements of the caller that has reserved the session. Returns undefined while that
   * caller is in a transaction.
   */
  runBetween(text: string): Effect.Effect<Outcome | undefined, SqlError.SqlError> {
    return this.#attempt((session) => session.inTransaction ? undefined : outcomeOf(session.query(text, [])))
  }

  get hasCrashed(): boolean {
    return this.#database.session.hasCrashed
  }

  /**
   * Prepares the session for the next caller: rolls back a transaction that was left open, or recovers from a crash.
   */
  readonly ready: Effect.Effect<void, SqlError.SqlError> = Effect.suspend(() => {
    if (this.#database.session.hasCrashed) return this.#recover
    return this.inTransaction ? Effect.asVoid(this.run("ROLLBACK", [])) : Effect.void
  })

  readonly #recover = Effect.gen({ self: this }, function*() {
    const now = yield* Clock.currentTimeMillis
    const last = this.#failed
    const isFull = last !== undefined && noSpace(last.error) !== undefined
    // Both are Infinity if nobody knows how much is free.
    const hasGained = isFull && this.#free() > last.free + LOG_FILE_BYTES
    if (
      last !== undefined && !hasGained && now < last.at + (isFull ? FULL_RECOVERY_INTERVAL_MS : RECOVERY_INTERVAL_MS)
    ) {
      return yield* last.error
    }
    // A full disk is already logged once a minute.
    if (!isFull) yield* Effect.logError("PGlite crashed; opening the database again")
    yield* Effect.tryPromise({
      try: () => this.#database.reopen(),
      catch: (error) => sqlError(error, "connect")
    }).pipe(Effect.tapError((error) => Effect.sync(() => (this.#failed = { error, at: now, free: this.#free() }))))
    if (isFull) yield* Effect.logInfo("The disk has space again, and the database is open")
    this.#failed = undefined
    // Uninterruptible because two concurrent openings of the folder would corrupt it.
  }).pipe(Effect.uninterruptible)

  /** The bytes that are free on the disk of DATA_DIR. */
  #free(): number {
    const { folder } = this.#database
    return folder === undefined ? Infinity : freeBytes(folder)
  }

  /** Adds the folder to an error that reports a full disk. */
  #explained(fault: DatabaseFault): DatabaseFault {
    const { folder } = this.#database
    return folder === undefined || (fault.code !== "53100" && !saysNoSpace(fault.message))
      ? fault
      : new DatabaseFault({ code: fault.code, message: new NoSpaceLeft(folder, fault.message).message })
  }

  readonly checkpoint = this.#attempt(() => this.#database.checkpoint())

  #attempt<A>(statement: (session: PgliteSession) => A): Effect.Effect<A, SqlError.SqlError> {
    return Effect.withFiber((fiber) => {
      // A test clock stands still while a statement runs, so in a test no peer has to pause because the machine was
      // busy.
      const now = monotonicMillis(fiber.getRef(Clock.Clock))
      const began = now()
      try {
        return Effect.succeed(statement(this.#database.session))
      } catch (error) {
        return error instanceof DatabaseFault
          ? Effect.fail(sqlError(this.#explained(error), "execute"))
          : Effect.die(error)
      } finally {
        const took = now() - began
        databaseTimes.millis(took)
        const blocked = fiber.getRef(BlockedMillis)
        if (blocked !== undefined) blocked.ms += took
      }
    })
  }
}

/** The pause after a failed recovery before the next attempt, because each attempt blocks the event loop. */
const RECOVERY_INTERVAL_MS = 1_000
/**
 * The pause if the recovery failed because the disk is full. The pause ends earlier if as much space becomes free as a
 * file of the write-ahead log needs.
 */
const FULL_RECOVERY_INTERVAL_MS = 10_000
const LOG_FILE_BYTES = 16_777_216
/** How often a probe checks whether the current transaction has ended. */
const TRANSACTION_END_POLL_INTERVAL = "5 millis"

const LOG_FILE = /^[0-9A-F]{24}$/
/**
 * Ends the current file of the write-ahead log. A record is written first, because PostgreSQL does not end a file
 * without records.
 */
const NEXT_LOG_FILE = "SELECT pg_logical_emit_message(false, 'parley', ''); SELECT pg_switch_wal()"

const BACKUP_STOP = "SELECT labelfile AS label, pg_walfile_name(lsn) AS last FROM pg_backup_stop(false)"

/** How a database is opened and closed. */
interface Opening {
  readonly open: (onCheckpointDue: () => void) => Promise<PgliteDatabase>
  readonly close: (opened: PgliteDatabase) => Promise<void>
}

/** PGlite, in a folder or in memory. It has one session: while a transaction holds it, every other statement waits. */
export const layerPglite = (settings: PgliteSettings) =>
  layerPgliteOf({
    open: (onCheckpointDue) => PgliteDatabase.open(settings, onCheckpointDue),
    close: (opened) => opened.close()
  })

/** PGlite with the caller's functions to open and close the database. */
export const layerPgliteOf = ({ close, open }: Opening) =>
  Layer.effectContext(Effect.gen(function*() {
    const checkpointDue = yield* Latch.make()
    const database = yield* Effect.acquireRelease(
      Effect.tryPromise({
        try: () => open(() => checkpointDue.openUnsafe()),
        catch: (error) => sqlError(error, "connect")
      }),
      (opened) => Effect.promise(() => close(opened))
    )
    const connection = new PgliteConnection(database)
    const fullDisk = yield* FullDisk
    const turn = yield* Semaphore.make(1)
    /** Runs an effect while no other statement or transaction holds the connection. */
    const inTurn = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      turn.withPermit(Effect.andThen(connection.ready, effect))
    const runInTurn = (text: string): Effect.Effect<Outcome, SqlError.SqlError> => inTurn(connection.run(text, []))
    const probe = (text: string): Effect.Effect<Outcome, SqlError.SqlError> =>
      Effect.suspend(() =>
        connection.hasCrashed
          ? runInTurn(text)
          : Effect.flatMap(connection.runBetween(text), (outcome) =>
            outcome === undefined
              ? Effect.andThen(Effect.sleep(TRANSACTION_END_POLL_INTERVAL), probe(text))
              : Effect.succeed(outcome))
      )
    yield* checkpointDue.await.pipe(
      Effect.andThen(checkpointDue.close),
      Effect.andThen(inTurn(connection.checkpoint)),
      Effect.catch((error) => {
        const full = noSpace(error)
        return full === undefined
          ? Effect.logWarning("The database could not write a checkpoint", error.message)
          : fullDisk.report("database", full)
      }),
      Effect.forever,
      Effect.forkScoped
    )
    const { folder } = database
    const backup: OnlineBackup | undefined = folder === undefined ? undefined : {
      folder,
      one: yield* Semaphore.make(1),
      begin: Effect.acquireRelease(
        Effect.suspend(() => {
          database.keepLog()
          return runInTurn("SELECT pg_backup_start('parley', true)")
        }).pipe(Effect.onError(() => Effect.sync(() => database.letLogGo()))),
        // This statement fails if `end` has ended the backup, which is the normal case.
        () =>
          Effect.andThen(
            Effect.ignore(runInTurn("SELECT pg_backup_stop(false)")),
            Effect.sync(() => database.letLogGo())
          )
      ).pipe(Effect.asVoid),
      end: Effect.map(runInTurn(BACKUP_STOP), ({ rows: [row] }) => {
        const label = String(row?.["label"])
        return { label, first: /\(file ([0-9A-F]{24})\)/.exec(label)?.[1] ?? "", last: String(row?.["last"]) }
      }),
      // A checkpoint renames files of the log for later use, with their old bytes. Each renamed file is used once here,
      // which overwrites it with zeros. Then a checkpoint removes all files before the current one.
      clearLog: Effect.gen(function*() {
        yield* runInTurn("SET wal_recycle = off")
        for (const name of readdirSync(join(folder, "pg_wal"))) if (LOG_FILE.test(name)) yield* runInTurn(NEXT_LOG_FILE)
        return yield* turn.withPermit(Effect.suspend(() =>
          database.keepsLog
            ? Effect.succeed(false)
            : Effect.as(Effect.andThen(connection.ready, connection.checkpoint), true)
        ))
      }).pipe(
        Effect.ensuring(Effect.ignore(runInTurn("RESET wal_recycle"))),
        (cleared) => Effect.suspend(() => database.keepsLog ? Effect.succeed(false) : cleared)
      )
    }
    return yield* services({
      driver: "pglite",
      backup,
      acquirer: Effect.uninterruptibleMask((restore) =>
        Effect.gen(function*() {
          yield* restore(turn.takeScoped(1))
          yield* connection.ready
          return connection
        })
      ),
      borrower: (use) => inTurn(use(connection)),
      probe
    })
  })).pipe(Layer.provide(Reactivity.layer))
