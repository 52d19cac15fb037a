import { FullDisk } from "#infrastructure/platform/disk/DiskSpace"
import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { Unavailable } from "#infrastructure/wire/WireError"
import { isStatementDefect } from "#infrastructure/wire/WireErrors"
import { Cause, Context, Effect } from "effect"
import { SqlError } from "effect/sql"
import { noSpace } from "./SqlValues.ts"

/** Limits the log lines about failed statements of all requests and jobs in the process. */
export const SqlErrorLines = Context.Reference<LogThrottle>("parley/database/SqlUnavailable/SqlErrorLines", {
  defaultValue: () => new LogThrottle()
})

/**
 * Turns an SQL error or a time-out into 503 `UNAVAILABLE` (wire.md C.0), whose `cause` is the error. Logs at most one
 * error a second, and a full disk at most once a minute. A statement that the database rejects as invalid is a defect.
 * A defect becomes a 500 with one log line where the request ends.
 */
export const unavailable = (error: SqlError.SqlError | Cause.TimeoutError): Effect.Effect<never, Unavailable> =>
  SqlError.isSqlError(error) && isStatementDefect(error)
    ? Effect.die(error)
    : Effect.andThen(
      logFailure(error),
      // The cause is not enumerable, because it is not part of the wire's error.
      Effect.suspend(() => Effect.fail(Object.defineProperty(new Unavailable(), "cause", { value: error })))
    )

const logFailure = (error: SqlError.SqlError | Cause.TimeoutError): Effect.Effect<void> => {
  const full = SqlError.isSqlError(error) ? noSpace(error) : undefined
  return full === undefined
    ? Effect.flatMap(
      SqlErrorLines,
      (lines) =>
        lines.log(
          Effect.logWarning(
            "A statement failed or took too long, and its caller fails with UNAVAILABLE",
            Cause.fail(error)
          )
        )
    )
    : Effect.flatMap(FullDisk, (disks) => disks.report("database", full))
}
