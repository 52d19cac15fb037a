import { Config, type Settings } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { listeningUrl } from "#infrastructure/platform/PublicUrl"
import { Clock, Context, Data, Effect, Layer, Option, type Schema, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { codecOf } from "./EntityRpc.ts"
import { Members } from "./Members.ts"
import { NodeCalls } from "./NodeCalls.ts"
import { SILENT } from "./NodeDial.ts"
import { PeerConnections } from "./PeerConnections.ts"

/** A node did not respond. `reason` is for operators. */
export class NodeSilent extends Data.TaggedError("NodeSilent")<{ readonly node: string; readonly reason: string }> {}

/** A procedure that each node runs for itself. */
export interface NodeRpcCall<Payload, A> {
  readonly at: (node: string, payload: Payload) => Effect.Effect<A, NodeSilent>
  /**
   * Calls the procedure on all known nodes at once, including this node. For a node that does not respond, the reason
   * is returned.
   */
  readonly everywhere: (payload: Payload) => Effect.Effect<ReadonlyArray<NodeAnswer<A>>>
}

export interface NodeAnswer<A> {
  readonly node: string
  readonly answer: A | undefined
  /** Why there is no answer; empty if there is an answer. */
  readonly silence: string
}

/** How long a call waits for the response of a node (wire.md O). */
const CALL_TIMEOUT = "900 millis"
const CALL_TIMEOUT_MS = 900
const HANGS = "It did not answer within a second: it hangs, is very busy, or cannot be reached."
/** How old the cached list of nodes may be, in milliseconds. */
const LISTED_MS = 1_000
const LIST_TIMEOUT = "500 millis"

/**
 * Procedures that concern one process (its sockets, its figures) and no entity. A node responds within a second or not
 * at all, and no call is repeated. Therefore procedures are only for reading, and for commands that a person can
 * repeat.
 */
export class NodeRpc extends Context.Service<NodeRpc, {
  /**
   * This node's name: RUNNER_HOST:RUNNER_PORT, or HOST:PORT of a standalone server. HOST:PORT is correct only after the
   * server has begun to listen.
   */
  readonly self: () => string
  /** Whether this is a standalone server. */
  readonly alone: boolean
  /**
   * The nodes of this database, with this node first. They are the nodes that the cluster lists, and nodes that have
   * died within the last ten minutes.
   */
  readonly nodes: Effect.Effect<ReadonlyArray<string>>
  /**
   * Declares a procedure while the scope is open. `local` runs the procedure on this node. The returned object calls
   * the procedure on any node.
   */
  readonly make: <Payload extends Schema.Top, Success extends Schema.Top>(procedure: {
    readonly name: string
    readonly payload: Payload
    readonly success: Success
    readonly local: (payload: Payload["Type"]) => Effect.Effect<Success["Type"]>
  }) => Effect.Effect<NodeRpcCall<Payload["Type"], Success["Type"]>, never, Scope.Scope>
}>()("parley/cluster/NodeRpc") {
  /** For a standalone server, which is the only node. */
  static readonly layerAlone = Layer.effect(
    NodeRpc,
    Effect.gen(function*() {
      const config = yield* Config
      const self = () => new URL(listeningUrl(config)).host
      return yield* make(true, self, Effect.sync(() => [self()]))
    })
  )

  static readonly layer = ({ RUNNER_HOST, RUNNER_PORT }: Settings) =>
    Layer.effect(
      NodeRpc,
      Effect.gen(function*() {
        const members = yield* Members
        const sql = yield* SqlClient.SqlClient
        const now = monotonicMillis(yield* Clock.Clock)
        const self = `${RUNNER_HOST}:${RUNNER_PORT}`
        let known: { readonly names: ReadonlyArray<string>; readonly at: number } = {
          names: [self],
          at: Number.NEGATIVE_INFINITY
        }
        const nodes = Effect.gen(function*() {
          if (now() - known.at < LISTED_MS) return known.names
          const rows = yield* Effect.timeoutOption(
            sql<{ readonly address: string }>`
              SELECT address FROM cluster_nodes WHERE clock_timestamp() - said_at < interval '10 minutes' ORDER BY address`,
            LIST_TIMEOUT
          ).pipe(Effect.catch(() => Effect.succeedNone))
          // If the database does not respond, the nodes of the last list are used.
          const said = Option.match(rows, {
            onNone: () => known.names,
            onSome: (all) => all.map(({ address }) => address)
          })
          known = { names: [...new Set([self, ...[...members.others(), ...said].sort()])], at: now() }
          return known.names
        })
        return yield* make(false, () => self, nodes)
      })
    )
}

const make = Effect.fnUntraced(
  function*(alone: boolean, self: () => string, nodes: Effect.Effect<ReadonlyArray<string>>) {
    const calls = yield* NodeCalls
    const lines = yield* PeerConnections
    const now = monotonicMillis(yield* Clock.Clock)
    return NodeRpc.of({
      self,
      alone,
      nodes,
      make: Effect.fnUntraced(
        function*<Payload extends Schema.Top, Success extends Schema.Top>({ local, name, payload, success }: {
          readonly name: string
          readonly payload: Payload
          readonly success: Success
          readonly local: (payload: Payload["Type"]) => Effect.Effect<Success["Type"]>
        }) {
          const payloads = codecOf(payload)
          const answers = codecOf(success)
          yield* calls.serve(`node/${name}`, (_, given) =>
            Effect.suspend(() =>
              Effect.map(
                local(payloads.decode(given)),
                (value) => ({ ending: "done" as const, value: answers.encode(value) })
              )
            ))
          const ask = Effect.fnUntraced(function*(node: string, given: Payload["Type"]) {
            const silent = (reason: string) => new NodeSilent({ node, reason })
            if (!(yield* nodes).includes(node))
              return yield* silent("There is no such node.")
            const answer = yield* calls.call(node, `node/${name}`, "", payloads.encode(given), now() + CALL_TIMEOUT_MS)
            if (answer === "unsent") {
              const problem = lines.problem(node)
              return yield* silent(
                problem === SILENT
                  ? HANGS
                  : `It cannot be reached: ${problem ?? "it has ended, or the network between the nodes is broken"}.`
              )
            }
            if (typeof answer === "string")
              return yield* silent(HANGS)
            if (answer.ending === "done") return answers.decode(answer.value)
            return yield* silent(
              answer.ending === "broken"
                ? "It failed: its log says why."
                : "It does not know this procedure: it is starting, or runs another version of Parley."
            )
          })
          const at = (node: string, given: Payload["Type"]): Effect.Effect<Success["Type"], NodeSilent> =>
            Effect.timeoutOrElse(Effect.suspend(() => node === self() ? local(given) : ask(node, given)), {
              duration: CALL_TIMEOUT,
              orElse: () => Effect.fail(new NodeSilent({ node, reason: HANGS }))
            })
          return {
            at,
            everywhere: (given: Payload["Type"]) =>
              Effect.flatMap(nodes, (names) =>
                Effect.forEach(names, (node) =>
                  Effect.match(at(node, given), {
                    onFailure: ({ reason }): NodeAnswer<Success["Type"]> => ({
                      node,
                      answer: undefined,
                      silence: reason
                    }),
                    onSuccess: (answer): NodeAnswer<Success["Type"]> => ({ node, answer, silence: "" })
                  }), { concurrency: "unbounded" }))
          }
        }
      )
    })
  }
)
