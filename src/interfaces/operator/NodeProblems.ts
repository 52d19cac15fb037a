import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { LoggedProblems } from "#infrastructure/platform/Telemetry"
import { NotFound } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Schema } from "effect"
import { Conflict } from "./Conflict.ts"

/** The warnings and errors that a node has logged, the newest first. Times are in milliseconds. */
const Problems = Schema.Array(Schema.Struct({
  at: Schema.Finite,
  level: Schema.Literals(["warn", "error"]),
  message: Schema.String,
  detail: Schema.String
}))

/** The newest warnings and errors that each node has logged since it started (wire.md O.1). */
export class NodeProblems extends Context.Service<NodeProblems, {
  /** Fails if there is no such node, or if it does not respond. */
  readonly of: (address: string) => Effect.Effect<typeof Problems.Type, NotFound | Conflict>
}>()("parley/operator/NodeProblems") {
  static readonly layer = Layer.effect(
    NodeProblems,
    Effect.gen(function*() {
      const logged = yield* LoggedProblems
      const procedures = yield* NodeRpc
      const problems = yield* procedures.make({
        name: "problems",
        payload: Schema.Null,
        success: Problems,
        local: () => Effect.sync(() => [...logged.warn, ...logged.error].sort((a, b) => b.at - a.at))
      })
      return NodeProblems.of({
        of: Effect.fnUntraced(function*(address) {
          if (!(yield* procedures.nodes).includes(address))
            return yield* new NotFound({ message: "This API has no such path." })
          return yield* Effect.mapError(
            problems.at(address, null),
            ({ reason }) => new Conflict({ message: `The node's log cannot be shown: ${reason}` })
          )
        })
      })
    })
  )
}
