import type { SqlError } from "effect/sql"
import { sqlState } from "./Sql.ts"

/**
 * Why a commit failed, as the label of the metric. `system` is a problem of the database itself. `refused` is a problem
 * that the batch caused.
 */
export type CommitFailure = "connection" | "system" | "lock" | "refused" | "defect"

/**
 * SQLSTATEs of insufficient resources (53), system errors (58) and read-only transactions (25006). The batch does not
 * cause these errors.
 */
const OUT_OF_ROOM = /^(?:53|58|25006)/

/** The SQLSTATE of an error if the database lacks resources or refuses writes, and otherwise undefined. */
export const outOfRoom = (error: SqlError.SqlError): string | undefined => {
  const state = sqlState(error)
  return state !== undefined && OUT_OF_ROOM.test(state) ? state : undefined
}

export const failureOf = (error: SqlError.SqlError): Exclude<CommitFailure, "defect"> => {
  switch (error.reason._tag) {
    case "ConnectionError":
      return "connection"
    case "LockTimeoutError":
      return "lock"
    // The batch is not halved, because each half could block the lane for another full time-out.
    case "StatementTimeoutError":
      return "system"
    default:
      return outOfRoom(error) === undefined ? "refused" : "system"
  }
}

/**
 * Whether the same batch may succeed if it is repeated. It may after a deadlock (40P01), a serialisation failure
 * (40001) or a concurrent insert of the same unique key (23505).
 */
export const maySucceedLater = (error: SqlError.SqlError): boolean => {
  const { _tag } = error.reason
  return _tag === "DeadlockError" || _tag === "SerializationError" || _tag === "UniqueViolation"
}
