import { Effect } from "effect"
import { SqlError } from "effect/sql"
import { Unavailable } from "./WireError.ts"

/** A database that fails is logged, and 503 to the caller; other failures pass. */
export const orUnavailable = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable, R> =>
  Effect.catch(effect, (error): Effect.Effect<never, Exclude<E, SqlError.SqlError> | Unavailable> =>
    SqlError.isSqlError(error)
      ? Effect.andThen(Effect.logError("The database failed", error), Effect.fail(new Unavailable()))
      // The test above excludes it, which the type of a parameter cannot show.
      : Effect.fail(error as Exclude<E, SqlError.SqlError>))
