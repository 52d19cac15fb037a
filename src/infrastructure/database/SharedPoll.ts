import { LogThrottle } from "#infrastructure/platform/LogThrottle"
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
 * because an idle node spends most of its time on such statements. While this statement fails, each part is read alone.
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
      const throttle = new LogThrottle()
      const failed = (name: string, cause: unknown) =>
        throttle.log(Effect.logWarning(`The poll for ${name} failed. The next one repeats it`, cause), name)

      /** Returns the rows of each of these parts, which one statement reads. */
      const read = Effect.fnUntraced(function*(asked: ReadonlyArray<Poll<never>>) {
        const params: Array<unknown> = []
        const columns: Array<string> = []
        for (const [i, { params: own, select }] of asked.entries()) {
          const before = params.length
          const numbered = select.replace(/\$(\d+)/g, (_, n: string) => `$${Number(n) + before}`)
          columns.push(`(SELECT coalesce(json_agg(p${i}), '[]') FROM (${numbered}) p${i}) AS p${i}`)
          params.push(...yield* own)
        }
        const statement = database.prepared<Record<string, ReadonlyArray<never>>>(
          `poll ${asked.map(({ name }) => name).join(" ")}`,
          `SELECT ${columns.join(", ")}`
        )
        const [row] = yield* statement(params)
        return asked.map((poll, i) => ({ poll, rows: row![`p${i}`]! }))
      })
      const poll = (asked: ReadonlyArray<Poll<never>>) =>
        Effect.flatMap(
          read(asked),
          Effect.forEach(
            ({ poll: { handle, name }, rows }) => Effect.catchCause(handle(rows), (cause) => failed(name, cause)),
            { discard: true }
          )
        )
      const pollApart = Effect.forEach(
        (part: Poll<never>) => Effect.catchCause(poll([part]), (cause) => failed(part.name, cause)),
        { discard: true }
      )
      const once = Effect.suspend(() => {
        const asked = [...polls]
        // If the shared statement fails, the parts that can be read must not wait for the one that cannot.
        return asked.length < 2 ? pollApart(asked) : Effect.catchCause(poll(asked), () => pollApart(asked))
      })
      yield* once.pipe(Effect.repeat(Schedule.spaced(POLL_INTERVAL)), Effect.forkScoped)

      return SharedPoll.of({
        add: (poll) =>
          Effect.acquireRelease(Effect.sync(() => polls.add(poll)), () => Effect.sync(() => polls.delete(poll)))
      })
    })
  )
}
