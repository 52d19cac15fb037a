import { Clock, Context, Effect, Latch, Layer, Redacted, Scope, Semaphore, Stream } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient, type SqlConnection, type SqlError, Statement } from "effect/sql"
import { Socket } from "node:net"
import { setTimeout as wait } from "node:timers/promises"
import { Client, type CustomTypesConfig, Pool, type PoolClient } from "pg"
import { PgliteDatabase, type PgliteSettings } from "./Pglite.ts"
import { outcomeOf, type PgliteSession } from "./PgliteSession.ts"
import { DatabaseFault, encode, type Outcome, parserOf, PLANNER_SETTINGS, sqlError } from "./SqlValues.ts"

/**
 * The database below `SqlClient`, for the statements that are worth preparing:
 * they keep one name and one plan per connection, and take and give plain rows.
 * Integers of 64 bits come back as numbers, `bytea` as `Buffer`. Inside a
 * transaction they run on its connection.
 */
export class Database extends Context.Service<Database, {
  readonly driver: "pg" | "pglite"
  readonly prepared: <Row extends object>(
    name: string,
    text: string
  ) => (params: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>
  /**
   * One statement that waits for no other one: to see whether the database answers, however much is asked of it. On
   * PostgreSQL it has a connection to itself, opened by the first of them and kept; another one waits for the one before.
   * On PGlite it runs between two statements, and waits for a transaction at most.
   */
  readonly probe: <Row extends object>(text: string) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>
}>()("parley/database/Sql/Database") {}

/** The SQLSTATE that the database answered with; undefined when it could not be asked. */
export const sqlState = (error: SqlError.SqlError): string | undefined =>
  error.reason.cause instanceof DatabaseFault ? error.reason.cause.code : undefined

type Transform = (<A extends object>(rows: ReadonlyArray<A>) => ReadonlyArray<A>) | undefined

/** A connection that this adapter made. Statements given to it at once run one after the other. */
abstract class Session implements SqlConnection.Connection {
  /** False once the connection is lost too: there is nothing to roll back then. */
  abstract readonly inTransaction: boolean
  abstract run(text: string, params: ReadonlyArray<unknown>, name?: string): Effect.Effect<Outcome, SqlError.SqlError>
  abstract executeValues(
    text: string,
    params: ReadonlyArray<unknown>
  ): Effect.Effect<ReadonlyArray<ReadonlyArray<unknown>>, SqlError.SqlError>

  // `any` is the row type of the interface that this implements.
  execute(text: string, params: ReadonlyArray<unknown>, transform: Transform): ReturnType<SqlConnection.Connection["execute"]> {
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

  /** Not from a cursor: the whole result is in memory first. */
  executeStream(text: string, params: ReadonlyArray<unknown>, transform: Transform) {
    return Stream.unwrap(Effect.map(this.execute(text, params, transform), Stream.fromIterable))
  }
}

const quote = Statement.defaultEscape("\"")

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

/** PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, not with an error. */
const commit = (connection: SqlConnection.Connection): Effect.Effect<void, SqlError.SqlError> =>
  Effect.flatMap(connection.executeRaw("COMMIT", []), (outcome) =>
    (outcome as Outcome).command === "ROLLBACK"
      ? Effect.fail(sqlError(new DatabaseFault({ code: "25P02", message: "the transaction had failed" }), "commit"))
      : Effect.void)

const services = Effect.fnUntraced(function*(options: {
  readonly driver: "pg" | "pglite"
  /** Lends a session to the scope. */
  readonly acquirer: Effect.Effect<Session, SqlError.SqlError, Scope.Scope>
  readonly borrower: SqlConnection.Borrower
  /** Runs a statement beside all others. */
  readonly probe: (text: string) => Effect.Effect<Outcome, SqlError.SqlError>
}) {
  const client = yield* SqlClient.make({
    driver: options.driver,
    acquirer: options.acquirer,
    borrower: options.borrower,
    compiler,
    commit,
    isTransaction: (connection) => connection instanceof Session && connection.inTransaction,
    releaseSavepoint: (name) => `RELEASE SAVEPOINT ${name}`,
    spanAttributes: [["db.system.name", "postgresql"]]
  })
  const texts = new Map<string, string>()
  const database = Database.of({
    driver: options.driver,
    prepared: <Row extends object>(name: string, text: string) => {
      if ((texts.get(name) ?? text) !== text) throw new Error(`two statements have the name ${name}`)
      texts.set(name, text)
      return (params: ReadonlyArray<unknown>) => {
        // Every connection of this client is a session, and the caller knows what its statement returns.
        const run = (connection: SqlConnection.Connection) =>
          Effect.map((connection as Session).run(text, params, name), ({ rows }) => rows as ReadonlyArray<Row>)
        return Effect.withFiber((fiber) => {
          const transaction = Context.getOrUndefined(fiber.context, client.transactionService)
          return transaction === undefined ? options.borrower(run) : run(transaction[0])
        })
      }
    },
    // The caller knows what its statement returns.
    probe: <Row extends object>(text: string) => Effect.map(options.probe(text), ({ rows }) => rows as ReadonlyArray<Row>)
  })
  return Context.make(SqlClient.SqlClient, client).pipe(Context.add(Database, database))
})

/**
 * How long the server lets a statement run, wait for a lock, and a transaction idle. With a few seconds more for the
 * answer it is less than the 30 s after which a request's key is free for the next attempt (wire.md C.0).
 */
const STATEMENT_TIMEOUT_MILLIS = 20_000
const LOCK_TIMEOUT_MILLIS = 5_000
const IDLE_IN_TRANSACTION_MILLIS = 10_000
const CONNECT_TIMEOUT_MILLIS = 10_000
const IDLE_MILLIS = 60_000

/** After how many milliseconds without an answer PostgreSQL is held for unreachable, and the connection given up. */
export const AnswerTimeout = Context.Reference<number>("parley/database/Sql/AnswerTimeout", {
  defaultValue: () => STATEMENT_TIMEOUT_MILLIS + 5_000
})

/** A server that refused a statement says a moment later that it is ready for the next. */
const onceReady = (client: PoolClient, then: () => void): void => {
  const events = ["drain", "error", "end"]
  const ready = () => {
    for (const event of events) client.off(event, ready)
    then()
  }
  for (const event of events) client.once(event, ready)
}

/** A connection that can be reset under TLS too: Node can do that with the socket below it alone, which pg forgets. */
class ResettableClient extends Client {
  readonly #socket = this.connection.stream

  /** What the machine still has of it reaches nobody. */
  reset(): void {
    if (this.#socket instanceof Socket) this.#socket.resetAndDestroy()
  }
}

/** A connection of the pool, from its checking out to its return. */
class PgSession extends Session {
  readonly #reserved: boolean
  #client: PoolClient | undefined
  #returned = false
  #lost = false
  /** Statements that were sent and are not answered: more than one only where they are pipelined. */
  #underWay = 0
  #submitted = 0
  #answered = 0
  readonly #waiting: Array<() => void> = []

  /** A reserved one is held for several statements, which may leave locks and settings to the session. */
  constructor(reserved: boolean) {
    super()
    this.#reserved = reserved
  }

  /** The pool's answer may come when nobody waits for it any more. */
  accept(client: PoolClient): void {
    this.#client = client
    if (this.#returned) this.#release()
  }

  /**
   * Gives the connection back, as soon as the statement that an interrupted fiber left behind has ended. A reserved one
   * whose last statement was not answered with success is ended at once: that one was to tidy up, and whoever got the
   * connection next would hold the locks of the one before, for as long as it is used.
   */
  giveBack(): void {
    this.#returned = true
    if (this.#underWay === 0 || this.#isUntidy) this.#release()
  }

  get #isUntidy(): boolean {
    return this.#reserved && this.#answered !== this.#submitted
  }

  #release(): void {
    const client = this.#client
    this.#client = undefined
    // What has not left this machine must not reach the database later, when somebody else has done it again.
    if (this.#lost && client instanceof ResettableClient) client.reset()
    // One that is still in a transaction is ended rather than handed to the next.
    client?.release(this.#lost || this.#isUntidy || client.getTransactionStatus() !== "I")
  }

  get inTransaction(): boolean {
    const status = this.#client?.getTransactionStatus()
    return !this.#lost && (status === "T" || status === "E")
  }

  run(text: string, params: ReadonlyArray<unknown>, name?: string): Effect.Effect<Outcome, SqlError.SqlError> {
    return this.#submit(text, params, name, false)
  }

  executeValues(text: string, params: ReadonlyArray<unknown>) {
    // In this mode pg gives its rows as arrays.
    return Effect.map(this.#submit(text, params, undefined, true), ({ rows }) => rows as unknown as ReadonlyArray<Array<unknown>>)
  }

  #submit(text: string, params: ReadonlyArray<unknown>, name: string | undefined, arrays: boolean) {
    return Effect.flatMap(AnswerTimeout, (timeout) => Effect.callback<Outcome, SqlError.SqlError>((resume) => {
      const query = {
        text,
        query_timeout: timeout,
        ...(params.length > 0 ? { values: params.map(encode) } : {}),
        ...(name === undefined ? {} : { name }),
        ...(arrays ? { rowMode: "array" } : {})
      }
      const turn = ++this.#submitted
      const start = () => {
        const client = this.#client
        if (client === undefined) return resume(Effect.fail(sqlError(new Error("the connection was given back"), "execute")))
        this.#underWay++
        const end = (outcome: Effect.Effect<Outcome, SqlError.SqlError>) => {
          this.#underWay--
          this.#waiting.shift()?.()
          // Runs the fiber at once, which may come back with its next statement.
          resume(outcome)
          if (this.#returned && this.#underWay === 0) this.#release()
        }
        client.query(query, (error: (Error & { readonly severity?: string }) | null, result: Outcome | Array<Outcome>) => {
          if (error === null || error === undefined) {
            this.#answered = turn
            const last = Array.isArray(result) ? result.at(-1) : result
            return end(last === undefined ? Effect.die("no result") : Effect.succeed(last))
          }
          const failure = sqlError(error, "execute")
          const isLost = failure.reason._tag === "ConnectionError" || error.severity === "FATAL" || error.severity === "PANIC"
          if (!isLost && client.pipeline) return end(Effect.fail(failure))
          if (!isLost) return onceReady(client, () => end(Effect.fail(failure)))
          this.#lost = true
          end(Effect.fail(failure))
        })
      }
      if (this.#underWay === 0 || this.#client?.pipeline === true) return start()
      this.#waiting.push(start)
      return Effect.sync(() => {
        const at = this.#waiting.indexOf(start)
        if (at >= 0) this.#waiting.splice(at, 1)
      })
    }))
  }
}

interface PgOptions {
  readonly url: Redacted.Redacted<string>
  readonly poolSize: number
  /**
   * Sends what a session is given at once without waiting for the answer to what it was given before, so that
   * many small statements on one connection cost a turn of a busy event loop together rather than one each.
   */
  readonly pipeline?: boolean
}

/** Connections that are closed when nobody has used them for so many milliseconds; 0: never. */
const pool = (options: PgOptions, idleMillis: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const made = new Pool({
        connectionString: Redacted.value(options.url),
        Client: ResettableClient,
        max: options.poolSize,
        pipeline: options.pipeline === true,
        application_name: "parley",
        options: Object.entries(PLANNER_SETTINGS).map(([name, value]) => `-c ${name}=${value}`).join(" "),
        statement_timeout: STATEMENT_TIMEOUT_MILLIS,
        lock_timeout: LOCK_TIMEOUT_MILLIS,
        idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MILLIS,
        connectionTimeoutMillis: CONNECT_TIMEOUT_MILLIS,
        idleTimeoutMillis: idleMillis,
        keepAlive: true,
        keepAliveInitialDelayMillis: 10_000,
        types: { getTypeParser: (oid: number) => parserOf(oid) } as CustomTypesConfig
      })
      // Without a listener a lost connection would end the process; the pool listens to idle ones only.
      made.on("error", () => {})
      made.on("connect", (client) => client.on("error", () => {}))
      return made
    }),
    // A connection whose statement never ends must not hold up the end of the process.
    (made) => Effect.promise(() => Promise.race([made.end(), wait(5_000, undefined, { ref: false })]))
  )

/** PostgreSQL 15 or later, through a pool. */
export const layerPg = (options: PgOptions) =>
  Layer.effectContext(Effect.gen(function*() {
    const connections = yield* pool(options, IDLE_MILLIS)
    const probing = yield* pool({ url: options.url, poolSize: 1 }, 0)
    const checkOut = (session: PgSession, from = connections) =>
      Effect.callback<Session, SqlError.SqlError>((resume) =>
        from.connect((error, client) => {
          if (client === undefined) return resume(Effect.fail(sqlError(error ?? new Error("no connection"), "connect")))
          session.accept(client)
          resume(Effect.succeed(session))
        })
      )
    return yield* services({
      driver: "pg",
      acquirer: Effect.uninterruptibleMask((restore) =>
        Effect.gen(function*() {
          const session = new PgSession(true)
          yield* Scope.addFinalizer(yield* Effect.scope, Effect.sync(() => session.giveBack()))
          return yield* restore(checkOut(session))
        })
      ),
      borrower: (use) =>
        Effect.suspend(() => {
          const session = new PgSession(false)
          return Effect.ensuring(Effect.flatMap(checkOut(session), use), Effect.sync(() => session.giveBack()))
        }),
      probe: (text) =>
        Effect.suspend(() => {
          const session = new PgSession(false)
          return Effect.ensuring(
            Effect.andThen(checkOut(session, probing), session.run(text, [])),
            Effect.sync(() => session.giveBack())
          )
        })
    })
  })).pipe(Layer.provide(Reactivity.layer))

/** The one session of PGlite. A statement runs at once and stops the event loop meanwhile. */
class EmbeddedSession extends Session {
  readonly #database: PgliteDatabase
  #retryAt = 0

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

  /** A statement of whoever does not hold the session, between two of its holder; undefined within a transaction. */
  runBetween(text: string): Effect.Effect<Outcome | undefined, SqlError.SqlError> {
    return this.#attempt((session) => session.inTransaction ? undefined : outcomeOf(session.query(text, [])))
  }

  get hasCrashed(): boolean {
    return this.#database.session.hasCrashed
  }

  /** Between two holders: what one left open must not become part of the next one's work, and a crash is recovered from. */
  readonly ready: Effect.Effect<void, SqlError.SqlError> = Effect.suspend(() => {
    if (this.#database.session.hasCrashed) return this.#recover
    return this.inTransaction ? Effect.asVoid(this.run("ROLLBACK", [])) : Effect.void
  })

  readonly #recover = Effect.gen({ self: this }, function*() {
    const now = yield* Clock.currentTimeMillis
    if (now < this.#retryAt) return yield* sqlError(new Error("PGlite crashed and could not be opened again"), "connect")
    this.#retryAt = now + RECOVERY_INTERVAL_MILLIS
    yield* Effect.logError("PGlite crashed; opening the database again")
    yield* Effect.tryPromise({
      try: () => this.#database.reopen(),
      catch: (error) => sqlError(error, "connect")
    })
    this.#retryAt = 0
    // Two that open the folder at once would corrupt it.
  }).pipe(Effect.uninterruptible)

  readonly checkpoint = this.#attempt(() => this.#database.checkpoint())

  #attempt<A>(statement: (session: PgliteSession) => A): Effect.Effect<A, SqlError.SqlError> {
    return Effect.suspend(() => {
      try {
        return Effect.succeed(statement(this.#database.session))
      } catch (error) {
        return error instanceof DatabaseFault ? Effect.fail(sqlError(error, "execute")) : Effect.die(error)
      }
    })
  }
}

/** How soon after a failed recovery the next is tried: each stops the event loop for a moment. */
const RECOVERY_INTERVAL_MILLIS = 1_000
/** How often a probe looks whether the transaction that is under way has ended. */
const BETWEEN_TRANSACTIONS = "5 millis"

/** What opens a database and what is done with it at the end. */
interface Opening {
  readonly open: (onCheckpointDue: () => void) => Promise<PgliteDatabase>
  readonly close: (opened: PgliteDatabase) => Promise<void>
}

/**
 * PGlite, in a folder or in memory. It has one session: a transaction holds it
 * to itself, and every other statement waits.
 */
export const layerPglite = (settings: PgliteSettings) =>
  layerPgliteOf({
    open: (onCheckpointDue) => PgliteDatabase.open(settings, onCheckpointDue),
    close: (opened) => opened.close()
  })

/** The same around a database that the caller opens and closes. */
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
    const session = new EmbeddedSession(database)
    const turn = yield* Semaphore.make(1)
    const probe = (text: string): Effect.Effect<Outcome, SqlError.SqlError> =>
      Effect.suspend(() =>
        session.hasCrashed
          ? turn.withPermit(Effect.andThen(session.ready, session.run(text, [])))
          : Effect.flatMap(session.runBetween(text), (outcome) =>
            outcome === undefined ? Effect.andThen(Effect.sleep(BETWEEN_TRANSACTIONS), probe(text)) : Effect.succeed(outcome))
      )
    yield* checkpointDue.await.pipe(
      Effect.andThen(checkpointDue.close),
      Effect.andThen(turn.withPermit(Effect.andThen(session.ready, session.checkpoint))),
      Effect.catch((error) => Effect.logWarning("The database could not write a checkpoint", error.message)),
      Effect.forever,
      Effect.forkScoped
    )
    return yield* services({
      driver: "pglite",
      acquirer: Effect.uninterruptibleMask((restore) =>
        Effect.gen(function*() {
          yield* restore(turn.takeScoped(1))
          yield* session.ready
          return session
        })
      ),
      borrower: (use) => turn.withPermit(Effect.andThen(session.ready, use(session))),
      probe
    })
  })).pipe(Layer.provide(Reactivity.layer))
