import { Database } from "#infrastructure/database/Sql"
import { Context, Deferred, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "./Databases.ts"

/** While it is set, each prepared statement waits for it before it is carried out. */
let gate: Deferred.Deferred<void> | undefined
/** How many statements have waited, by name. */
export const waited = new Map<string, number>()

/** A database whose prepared statements `hang` holds up. */
export const layerHanging = Layer.effectContext(Effect.gen(function*() {
  const real = yield* Database
  const hangs = <Row extends object, E>(
    name: string,
    statement: (params: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, E>
  ) =>
  (params: ReadonlyArray<unknown>) =>
    Effect.suspend(() => {
      if (gate === undefined) return statement(params)
      waited.set(name, (waited.get(name) ?? 0) + 1)
      return Effect.andThen(Deferred.await(gate), statement(params))
    })
  const prepared: Database["Service"]["prepared"] = <Row extends object>(name: string, text: string) =>
    hangs(name, real.prepared<Row>(name, text))
  const raw: Database["Service"]["raw"] = <Row extends object>(name: string, text: string) =>
    hangs(name, real.raw<Row>(name, text))
  return Context.make(SqlClient.SqlClient, yield* SqlClient.SqlClient).pipe(
    Context.add(Database, { ...real, prepared, raw })
  )
})).pipe(Layer.provide(layerPgliteTest))

/**
 * Makes the database hang for statements that begin from now on. The returned effect, and the end of the scope, let
 * them go on.
 */
export const hang = Effect.gen(function*() {
  const ends = Deferred.makeUnsafe<void>()
  waited.clear()
  gate = ends
  const goOn = Effect.suspend(() => {
    gate = undefined
    return Deferred.succeed(ends, undefined)
  })
  yield* Effect.addFinalizer(() => goOn)
  return goOn
})
