import { databaseTimes } from "#infrastructure/platform/Metrics"
import { Effect, Layer, Redacted, Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlError } from "effect/sql"
import { Socket } from "node:net"
import { setTimeout as wait } from "node:timers/promises"
import { Client, type ClientConfig, type CustomTypesConfig, Pool, type PoolClient } from "pg"
import { AnswerTimeout, PgConnection, services } from "./Sql.ts"
import { encode, type Outcome, parserOf, PLANNER_SETTINGS, sqlError, STATEMENT_TIMEOUT_MILLIS } from "./SqlValues.ts"

/** How long a statement may wait for a lock. */
const LOCK_TIMEOUT_MILLIS = 5_000
/** How long a transaction may be idle before PostgreSQL ends its session. */
const IDLE_IN_TRANSACTION_MS = 10_000
const CONNECT_TIMEOUT_MILLIS = 10_000
const IDLE_MS = 60_000
/** How long a probe waits for a response before its connection counts as dead and another connection is opened. */
const PROBE_MS = 3_000

/** Calls `then` when the server is ready for the next statement, which it reports shortly after an error. */
const onceReady = (client: PoolClient, then: () => void): void => {
  const events = ["drain", "error", "end"]
  const ready = () => {
    for (const event of events) client.off(event, ready)
    then()
  }
  for (const event of events) client.once(event, ready)
}

/**
 * A connection that can be reset even if it uses TLS. Node can only reset the TCP socket. With TLS, pg drops its
 * reference to the TCP socket, so this class keeps a reference.
 */
class ResettableClient extends Client {
  readonly #socket = this.connection.stream

  constructor(config?: ClientConfig & { readonly mark?: number }) {
    super(config)
    if (config?.mark === undefined) return
    const named = (this as unknown as { connectionParameters: { application_name: string } }).connectionParameters
    // PostgreSQL truncates the name to 63 bytes, and the mark must stay complete.
    named.application_name = `${named.application_name.slice(0, 50)}@${config.mark}`
  }

  /** Resets the TCP connection and discards its unsent data. */
  reset(): void {
    if (this.#socket instanceof Socket) this.#socket.resetAndDestroy()
  }
}

/** A connection of the pool, from check-out to return. */
class PooledConnection extends PgConnection {
  readonly #reserved: boolean
  #client: PoolClient | undefined
  #returned = false
  #lost = false
  /** The number of statements that were sent and have no response yet. It is above one only with pipelining. */
  #underWay = 0
  #submitted = 0
  #answered = 0
  readonly #waiting: Array<() => void> = []

  /** A reserved connection runs several statements, which may leave session-level locks and settings. */
  constructor(reserved: boolean) {
    super()
    this.#reserved = reserved
  }

  /**
   * Stores the connection that the pool has lent. If `release` was called before the pool had a connection, the
   * connection is returned to the pool at once.
   */
  accept(client: PoolClient): void {
    this.#client = client
    if (this.#returned) this.#release()
  }

  /**
   * Returns the connection to the pool. If an interrupted fiber has left a statement running, the connection is
   * returned after this statement has ended. A reserved connection whose last statement did not succeed is closed at
   * once instead. Its last statement was meant to clean up, so the next user of the connection would inherit the locks
   * of the previous user.
   */
  release(): void {
    this.#returned = true
    if (this.#underWay === 0 || this.#isUntidy) this.#release()
  }

  get #isUntidy(): boolean {
    return this.#reserved && this.#answered !== this.#submitted
  }

  #release(): void {
    const client = this.#client
    this.#client = undefined
    // Unsent data must not reach the database later, when the request may have been repeated elsewhere.
    if (this.#lost && client instanceof ResettableClient) client.reset()
    // A connection that is still in a transaction is closed rather than reused.
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
    // With rowMode "array" pg returns rows as arrays.
    return Effect.map(
      this.#submit(text, params, undefined, true),
      ({ rows }) => rows as unknown as ReadonlyArray<Array<unknown>>
    )
  }

  #submit(text: string, params: ReadonlyArray<unknown>, name: string | undefined, arrays: boolean) {
    return Effect.flatMap(AnswerTimeout, (timeout) =>
      Effect.callback<Outcome, SqlError.SqlError>((resume) => {
        const query = {
          text,
          ...(params.length > 0 ? { values: params.map(encode) } : {}),
          ...(name === undefined ? {} : { name }),
          ...(arrays ? { rowMode: "array" } : {})
        }
        const turn = ++this.#submitted
        const start = () => {
          const client = this.#client
          if (client === undefined)
            return resume(Effect.fail(sqlError(new Error("the connection was returned to the pool"), "execute")))
          this.#underWay++
          const began = performance.now()
          const end = (outcome: Effect.Effect<Outcome, SqlError.SqlError>) => {
            this.#underWay--
            databaseTimes.millis(performance.now() - began)
            this.#waiting.shift()?.()
            // `resume` runs the fiber synchronously. The fiber may submit its next statement before `resume` returns.
            resume(outcome)
            if (this.#returned && this.#underWay === 0)
              this.#release()
          }
          let isOverdue = false
          // pg's `query_timeout` is not used, because it keeps a statement in memory until a full garbage collection
          // (docs/decisions/0006-heap-options.md).
          const patience = setTimeout(() => {
            isOverdue = true
            this.#lost = true
            // Statements that were sent after this one get no response either.
            if (client.pipeline && client instanceof ResettableClient) client.reset()
            end(Effect.fail(sqlError(new Error(`no answer within ${timeout} ms`), "execute")))
          }, timeout)
          client.query(
            query,
            (error: (Error & { readonly severity?: string }) | null, result: Outcome | Array<Outcome>) => {
              if (isOverdue) return
              clearTimeout(patience)
              if (error === null || error === undefined) {
                this.#answered = turn
                const last = Array.isArray(result) ? result.at(-1) : result
                return end(last === undefined ? Effect.die("no result") : Effect.succeed(last))
              }
              const failure = sqlError(error, "execute")
              const isLost = failure.reason._tag === "ConnectionError" || error.severity === "FATAL" ||
                error.severity === "PANIC"
              if (!isLost && client.pipeline) return end(Effect.fail(failure))
              if (!isLost) return onceReady(client, () => end(Effect.fail(failure)))
              this.#lost = true
              end(Effect.fail(failure))
            }
          )
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
   * Whether a session sends each statement without waiting for the responses to earlier statements. Then many small
   * statements on one connection together take one turn of a busy event loop, instead of one turn each.
   */
  readonly pipeline?: boolean
  /** A number that is appended to the `application_name` of the sessions after an `@`, whatever name the URL sets. */
  readonly mark?: number | undefined
}

/**
 * A pool of connections. A connection is closed after it has been idle for `idleMillis`, or never if `idleMillis` is 0.
 */
const pool = (options: PgOptions, idleMillis: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const made = new Pool({
        connectionString: Redacted.value(options.url),
        Client: ResettableClient,
        max: options.poolSize,
        pipeline: options.pipeline === true,
        ...(options.mark === undefined ? {} : { mark: options.mark }),
        application_name: "parley",
        options: Object.entries(PLANNER_SETTINGS).map(([name, value]) => `-c ${name}=${value}`).join(" "),
        statement_timeout: STATEMENT_TIMEOUT_MILLIS,
        lock_timeout: LOCK_TIMEOUT_MILLIS,
        idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
        connectionTimeoutMillis: CONNECT_TIMEOUT_MILLIS,
        idleTimeoutMillis: idleMillis,
        keepAlive: true,
        keepAliveInitialDelayMillis: 10_000,
        types: { getTypeParser: (oid: number) => parserOf(oid) } as CustomTypesConfig
      })
      // Without an error listener a lost connection would end the process. The pool listens on idle connections only.
      made.on("error", () => {})
      made.on("connect", (client) => client.on("error", () => {}))
      return made
    }),
    // A connection whose statement never ends must not delay the end of the process.
    (made) => Effect.promise(() => Promise.race([made.end(), wait(5_000, undefined, { ref: false })]))
  )

/** Connects to PostgreSQL 15 or later through a pool. */
export const layerPg = (options: PgOptions) =>
  Layer.effectContext(Effect.gen(function*() {
    const connections = yield* pool(options, IDLE_MS)
    const probing = yield* pool({ url: options.url, poolSize: 1, mark: options.mark }, 0)
    const checkOut = (connection: PooledConnection, from = connections) =>
      Effect.callback<PgConnection, SqlError.SqlError>((resume) =>
        from.connect((error, client) => {
          if (client === undefined) return resume(Effect.fail(sqlError(error ?? new Error("no connection"), "connect")))
          connection.accept(client)
          resume(Effect.succeed(connection))
        })
      )
    /**
     * Whether the last probe got no response. If the next probe, on a new connection, gets no response either, the
     * database hangs. The next probe waits longer, because each probe that times out may leave a hanging session in the
     * database.
     */
    let unanswered = false
    const runProbe = (connection: PooledConnection, text: string) =>
      Effect.flatMap(AnswerTimeout, (timeout) => {
        const patience = unanswered ? timeout : Math.min(timeout, PROBE_MS)
        unanswered = true
        return connection.run(text, []).pipe(
          Effect.provideService(AnswerTimeout, patience),
          Effect.tap(() =>
            Effect.sync(() => {
              unanswered = false
            })
          )
        )
      })
    return yield* services({
      driver: "pg",
      acquirer: Effect.uninterruptibleMask((restore) =>
        Effect.gen(function*() {
          const connection = new PooledConnection(true)
          yield* Scope.addFinalizer(yield* Effect.scope, Effect.sync(() => connection.release()))
          return yield* restore(checkOut(connection))
        })
      ),
      borrower: (use) =>
        Effect.suspend(() => {
          const connection = new PooledConnection(false)
          return Effect.ensuring(Effect.flatMap(checkOut(connection), use), Effect.sync(() => connection.release()))
        }),
      probe: (text) =>
        Effect.suspend(() => {
          const connection = new PooledConnection(false)
          return Effect.ensuring(
            Effect.andThen(checkOut(connection, probing), runProbe(connection, text)),
            Effect.sync(() => connection.release())
          )
        })
    })
  })).pipe(Layer.provide(Reactivity.layer))
