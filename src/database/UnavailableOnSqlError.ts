import { Cause, Context, Effect } from "effect"
import { SqlError } from "effect/sql"
import { Seldom } from "../platform/Seldom.ts"
import { Unavailable } from "../wire/WireError.ts"

type Unanswered = SqlError.SqlError | Cause.TimeoutError

/** Lines about a database that does not answer, over all requests of the process. */
export const SqlErrorLines = Context.Reference<Seldom>("parley/database/UnavailableOnSqlError/SqlErrorLines", {
  defaultValue: () => new Seldom()
})

/**
 * A statement that fails or takes too long is logged, once a second at most, and answered with 503 `UNAVAILABLE`
 * (wire.md C.0). Every other failure passes as it is, and so does a defect: it becomes 500 and one log line where
 * the request ends.
 */
export const unavailableOnSqlError = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, Unanswered> | Unavailable, R> =>
  Effect.catch(effect, (error): Effect.Effect<never, Exclude<E, Unanswered> | Unavailable> =>
    SqlError.isSqlError(error) || Cause.isTimeoutError(error)
      ? Effect.flatMap(SqlErrorLines, (lines) =>
        Effect.andThen(
          lines.log(Effect.logWarning("A statement failed or took too long: its request is answered with 503", Cause.fail(error))),
          Effect.fail(new Unavailable())
        ))
      // The tests above exclude these, which the type of a parameter cannot show.
      : Effect.fail(error as Exclude<E, Unanswered>))
