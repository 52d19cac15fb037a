import { databaseWaits } from "#infrastructure/platform/Metrics"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Scope, type Semaphore, Stream } from "effect"
import { SqlClient, type SqlConnection, SqlError, Statement } from "effect/sql"
import { unavailable } from "./SqlUnavailable.ts"
import { DatabaseFault, type Outcome, sqlError, STATEMENT_TIMEOUT_MILLIS } from "./SqlValues.ts"

/** Milliseconds without an answer after which PostgreSQL counts as unreachable and the connection is closed. */
export const AnswerTimeout = Context.Reference<number>("parley/database/Sql/AnswerTimeout", {
  defaultValue: () => STATEMENT_TIMEOUT_MILLIS + 5_000
})

/**
 * Runs the SQL statements of the modules. A statement fails with the wire's `Unavailable`, or with a defect if the
 * database rejects the statement as invalid (SqlUnavailable.ts). A prepared statement has one name, and one plan on
 * each connection. 64-bit integers are returned as numbers, `bytea` as `Buffer`. Inside a transaction the statements
 * run on the connection of the transaction.
 */
export class Database extends Context.Service<Database, {
  /**
   * The statements are the same for both drivers. PGlite runs inside this process, so the process does nothing else
   * while a statement runs. Each use of `driver` and each mention of PGlite follows from this: one lane of commits
   * (`Conversations`), a turn of the event loop before each batch (`CommitQueue`), pauses of peers after long reads
   * (`LargeReadQueue`), vacuum and analysis by the server (`Vacuum`, `Maintenance`), and backups of PGlite's files
   * (`OnlineBackup`). Only PostgreSQL serves several nodes.
   */
  readonly driver: "pg" | "pglite"
  readonly prepared: <Row extends object>(
    name: string,
    text: string
  ) => (params: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, Unavailable>
  /** Like `prepared`, but fails with the SQL error itself, for a caller that depends on the SQLSTATE. */
  readonly raw: <Row extends object>(
    name: string,
    text: string
  ) => (params: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>
  /** Runs a statement that is not worth preparing. `SqlClient` makes the fragments of such a statement. */
  readonly query: <Row extends object>(
    text: TemplateStringsArray,
    ...params: Array<unknown>
  ) => Effect.Effect<ReadonlyArray<Row>, Unavailable>
  readonly transaction: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | Unavailable, R>
  /**
   * Runs one statement ahead of all queued statements, to check whether the database responds even under load. On
   * PostgreSQL probes share a separate connection, and wait only for each other. The first probe opens this connection.
   * On PGlite a probe runs between two statements, and waits at most for the end of a transaction.
   */
  readonly probe: <Row extends object>(text: string) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>
  /** Undefined on PostgreSQL, which has backup tools of its own, and for a database in memory. */
  readonly backup: OnlineBackup | undefined
}>()("parley/database/Sql/Database") {}

/**
 * A backup of PGlite's files while statements continue to run, according to PostgreSQL's protocol for online backups
 * (`pg_backup_start`). The files are copied while they change. When the copy is opened, PostgreSQL replays the
 * write-ahead log that was written during the copy, which brings all files to one state.
 */
export interface OnlineBackup {
  /** The folder of the database's files. */
  readonly folder: string
  /** The backup that is running holds this semaphore, because the database allows one backup at a time. */
  readonly one: Semaphore.Semaphore
  /**
   * Begins the backup with a checkpoint. Until the scope ends no other checkpoint is written, so no part of the log is
   * removed.
   */
  readonly begin: Effect.Effect<void, SqlError.SqlError, Scope.Scope>
  /** Ends the backup. Run it after all files except the log have been copied. */
  readonly end: Effect.Effect<LogOfBackup, SqlError.SqlError>
  /**
   * Removes every record that has been written to the write-ahead log so far, also from the files that PostgreSQL keeps
   * for reuse. Returns `false`, and removes nothing, while a backup needs the log. Runs several statements, each of
   * which writes a file of 16 MB.
   */
  readonly clearLog: Effect.Effect<boolean, SqlError.SqlError>
}

/** The parts of a backup that must be copied after `OnlineBackup.end` and before the scope ends. */
export interface LogOfBackup {
  /** The content of the file `backup_label` of the copy. */
  readonly label: string
  /** The names of the first and the last file of the log that the backup needs. */
  readonly first: string
  readonly last: string
}

/** The SQLSTATE that the database returned, or undefined if the database did not respond. */
export const sqlState = (error: SqlError.SqlError): string | undefined =>
  error.reason.cause instanceof DatabaseFault ? error.reason.cause.code : undefined

type Transform = (<A extends object>(rows: ReadonlyArray<A>) => ReadonlyArray<A>) | undefined

/** A connection of this adapter. Statements that are submitted concurrently run one after the other. */
export abstract class PgConnection implements SqlConnection.Connection {
  /**
   * Whether a transaction is open. False after the connection is lost, because then there is no transaction to roll
   * back.
   */
  abstract readonly inTransaction: boolean
  abstract run(text: string, params: ReadonlyArray<unknown>, name?: string): Effect.Effect<Outcome, SqlError.SqlError>
  abstract executeValues(
    text: string,
    params: ReadonlyArray<unknown>
  ): Effect.Effect<ReadonlyArray<ReadonlyArray<unknown>>, SqlError.SqlError>

  // The row type of the implemented interface is `any`.
  execute(
    text: string,
    params: ReadonlyArray<unknown>,
    transform: Transform
  ): ReturnType<SqlConnection.Connection["execute"]> {
    return Effect.map(this.run(text, params), ({ rows }) => transform === undefined ? rows : transform(rows))
  }

  executeRaw(text: string, params: ReadonlyArray<unknown>): Effect.Effect<Outcome, SqlError.SqlError> {
    return this.run(text, params)
  }

  executeUnprepared(text: string, params: ReadonlyArray<unknown>, transform: Transform) {
    return this.execute(text, params, transform)
  }

  executeValuesUnprepared(text: string, params: ReadonlyArray<unknown>) {
    return this.executeValues(text, params)
  }

  /** Does not use a cursor: the whole result is read into memory first. */
  executeStream(text: string, params: ReadonlyArray<unknown>, transform: Transform) {
    return Stream.unwrap(Effect.map(this.execute(text, params, transform), Stream.fromIterable))
  }
}

const quote = Statement.defaultEscape('"')

const compiler = Statement.makeCompiler({
  dialect: "pg",
  placeholder: (index) => `$${index}`,
  onIdentifier: quote,
  onRecordUpdate: (placeholders, alias, columns, values, returning) => [
    `(values ${placeholders}) AS ${alias}${columns}${returning ? ` RETURNING ${returning[0]}` : ""}`,
    returning ? [...values.flat(), ...returning[1]] : values.flat()
  ],
  onCustom: () => ["", []]
})

/** PostgreSQL responds to the COMMIT of a failed transaction with ROLLBACK instead of an error. */
const commit = (connection: SqlConnection.Connection): Effect.Effect<void, SqlError.SqlError> =>
  Effect.flatMap(connection.executeRaw("COMMIT", []), (outcome) =>
    (outcome as Outcome).command === "ROLLBACK"
      ? Effect.fail(sqlError(new DatabaseFault({ code: "25P02", message: "the transaction had failed" }), "commit"))
      : Effect.void)

/** Makes the services `SqlClient` and `Database`. Their connections come from `acquirer` and `borrower`. */
export const services = Effect.fnUntraced(function*(options: {
  readonly driver: "pg" | "pglite"
  /** Lends a connection to the scope. */
  readonly acquirer: Effect.Effect<PgConnection, SqlError.SqlError, Scope.Scope>
  readonly borrower: SqlConnection.Borrower
  /** Runs a statement ahead of all queued statements (see `Database.probe`). */
  readonly probe: (text: string) => Effect.Effect<Outcome, SqlError.SqlError>
  readonly backup?: OnlineBackup | undefined
}) {
  const borrower: SqlConnection.Borrower = (use) =>
    Effect.suspend(() => {
      const began = performance.now()
      return options.borrower((connection) => {
        databaseWaits.millis(performance.now() - began)
        return use(connection)
      })
    })
  const client = yield* SqlClient.make({
    driver: options.driver,
    acquirer: options.acquirer,
    borrower,
    compiler,
    commit,
    isTransaction: (connection) => connection instanceof PgConnection && connection.inTransaction,
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`,
    spanAttributes: [["db.system.name", "postgresql"]]
  })
  const texts = new Map<string, string>()
  const raw = <Row extends object>(name: string, text: string) => {
    if ((texts.get(name) ?? text) !== text) throw new Error(`two statements have the name ${name}`)
    texts.set(name, text)
    return (params: ReadonlyArray<unknown>): Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError> => {
      // Every connection of this client is a PgConnection, and the caller knows what its statement returns.
      const run = (connection: SqlConnection.Connection) =>
        Effect.map((connection as PgConnection).run(text, params, name), ({ rows }) => rows as ReadonlyArray<Row>)
      return Effect.withFiber((fiber) => {
        const transaction = Context.getOrUndefined(fiber.context, client.transactionService)
        return transaction === undefined ? borrower(run) : run(transaction[0])
      })
    }
  }
  const database = Database.of({
    driver: options.driver,
    prepared: <Row extends object>(name: string, text: string) => {
      const run = raw<Row>(name, text)
      return (params) => Effect.catch(run(params), unavailable)
    },
    raw,
    query: <Row extends object>(text: TemplateStringsArray, ...params: Array<unknown>) =>
      Effect.catch(client<Row>(text, ...params), unavailable),
    transaction: (effect) => Effect.catchIf(client.withTransaction(effect), SqlError.isSqlError, unavailable),
    // The caller knows what its statement returns.
    probe: <Row extends object>(text: string) =>
      Effect.map(options.probe(text), ({ rows }) => rows as ReadonlyArray<Row>),
    backup: options.backup
  })
  return Context.make(SqlClient.SqlClient, client).pipe(Context.add(Database, database))
})
