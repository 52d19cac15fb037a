import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Schedule, Scope } from "effect"
import { Database } from "./Sql.ts"

/** Two polls fit into the second in which a change must be in effect on every node (wire.md G.8b and O). */
const POLL_INTERVAL = "400 millis"

/** One part of each poll: a SELECT, and the handler of its rows. */
export interface Poll<Row extends object> {
  readonly name: string
  /** A SELECT statement with the parameters `$1`, `$2` and so on. */
  readonly select: string
  readonly params: Effect.Effect<ReadonlyArray<unknown>>
  readonly handle: (rows: ReadonlyArray<Row>) => Effect.Effect<void, Unavailable>
}

/**
 * Reads from the database what other nodes and operators have changed. All parts of the server share one statement,
 * because an idle node spends most of its time on such statements.
 */
export class SharedPoll extends Context.Service<SharedPoll, {
  /** Makes a SELECT part of each poll until the scope closes. */
  readonly add: <Row extends object>(poll: Poll<Row>) => Effect.Effect<void, never, Scope.Scope>
}>()("parley/database/SharedPoll") {
  /** Polls as long as the process runs. */
  static readonly layer = Layer.effect(
    SharedPoll,
    Effect.gen(function*() {
      const database = yield* Database
      const polls = new Set<Poll<never>>()

      const once = Effect.gen(function*() {
        const asked = [...polls]
        if (asked.length === 0) return
        const params: Array<unknown> = []
        const columns: Array<string> = []
        for (const [i, { params: own, select }] of asked.entries()) {
          const before = params.length
          const numbered = select.replace(/\$(\d+)/g, (_, n: string) => `$${Number(n) + before}`)
          columns.push(`(SELECT coalesce(json_agg(p${i}), '[]') FROM (${numbered}) p${i}) AS p${i}`)
          params.push(...yield* own)
        }
        const read = database.prepared<Record<string, ReadonlyArray<never>>>(
          `poll ${asked.map(({ name }) => name).join(" ")}`,
          `SELECT ${columns.join(", ")}`
        )
        const [row] = yield* read(params)
        for (const [i, { handle, name }] of asked.entries()) {
          yield* Effect.catchCause(handle(row![`p${i}`]!), (cause) => failed(name, cause))
        }
      })
      yield* Effect.catchCause(once, (cause) => failed("all changes", cause)).pipe(
        Effect.repeat(Schedule.spaced(POLL_INTERVAL)),
        Effect.forkScoped
      )

      return SharedPoll.of({
        add: (poll) =>
          Effect.acquireRelease(Effect.sync(() => polls.add(poll)), () => Effect.sync(() => polls.delete(poll)))
      })
    })
  )
}

const failed = (what: string, cause: unknown): Effect.Effect<void> =>
  Effect.logWarning(`The poll for ${what} failed. The next one repeats it`, cause)
