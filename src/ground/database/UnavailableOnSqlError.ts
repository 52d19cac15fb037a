import { Cause, Context, Effect } from "effect"
import { SqlError } from "effect/sql"
import { LogThrottle } from "#ground/platform/LogThrottle"
import { Unavailable } from "#ground/wire/WireError"
import { isStatementDefect } from "#ground/wire/WireErrors"

type Unanswered = SqlError.SqlError | Cause.TimeoutError

/** Limits the log lines about failed statements, over all requests of the process. */
export const SqlErrorLines = Context.Reference<LogThrottle>("parley/database/UnavailableOnSqlError/SqlErrorLines", {
  defaultValue: () => new LogThrottle()
})

/**
 * Turns an SQL error or a time-out into 503 `UNAVAILABLE` (wire.md C.0), and logs it, at most once a second. A statement
 * that the database rejects as invalid is a defect. Other failures and defects pass unchanged. A defect becomes a 500
 * with one log line where the request ends.
 */
export const unavailableOnSqlError = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, Unanswered> | Unavailable, R> =>
  Effect.catch(effect, (error): Effect.Effect<never, Exclude<E, Unanswered> | Unavailable> =>
    SqlError.isSqlError(error) && isStatementDefect(error)
      ? Effect.die(error)
      : SqlError.isSqlError(error) || Cause.isTimeoutError(error)
      ? Effect.flatMap(SqlErrorLines, (lines) =>
        Effect.andThen(
          lines.log(Effect.logWarning("A statement failed or took too long, and its request was answered with 503", Cause.fail(error))),
          Effect.fail(new Unavailable())
        ))
      // The type guards above exclude these errors, but cannot narrow a type parameter.
      : Effect.fail(error as Exclude<E, Unanswered>))
