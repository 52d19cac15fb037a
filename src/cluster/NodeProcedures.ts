import { Cause, Clock, Context, Data, Effect, Fiber, Layer, Option, RcMap, Schema, type Scope } from "effect"
import { RunnerAddress, Runners } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { SqlClient } from "effect/sql"
import { Config, type Settings } from "../platform/Config.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { listeningUrl } from "../platform/PublicUrl.ts"
import { logDefect } from "./LogDefect.ts"
import { addressOf, nameOf } from "./NodeAddress.ts"
import { NodeLinks, SILENT } from "./NodeLinks.ts"
import { Peers } from "./Peers.ts"

/** The asked node does not know this procedure, or failed over it. */
export class NodeFailed extends Schema.TaggedError<NodeFailed>()("NodeFailed", { reason: Schema.String }) {}

const AskNode = Rpc.make("AskNode", {
  payload: { name: Schema.String, body: Schema.String },
  success: Schema.String,
  error: NodeFailed
})

/** Calls to a node rather than to the owner of an entity. Names that have landed never change. */
export const NodeRpcs = RpcGroup.make(AskNode)

/** There is no answer from a node; `reason` is for operators. */
export class NodeSilent extends Data.TaggedError("NodeSilent")<{ readonly node: string; readonly reason: string }> {}

/** A procedure that every node carries out for itself. */
export interface NodeProcedure<Payload, A> {
  readonly at: (node: string, payload: Payload) => Effect.Effect<A, NodeSilent>
  /** Asks all known nodes at once, this one included; a node without an answer has undefined and the reason. */
  readonly everywhere: (payload: Payload) => Effect.Effect<ReadonlyArray<NodeAnswer<A>>>
}

export interface NodeAnswer<A> {
  readonly node: string
  readonly answer: A | undefined
  /** Why there is no answer; empty if there is one. */
  readonly silence: string
}

/** Nobody waits longer for a node (wire.md O). */
const PATIENCE = "900 millis"
const HANGS = "It did not answer within a second: it hangs, is very busy, or cannot be reached."
/** How old the list of nodes may be. */
const LISTED_MS = 1_000
const LIST_PATIENCE = "500 millis"

/**
 * Procedures of nodes: what concerns one process (its sockets, its figures) and not an entity. Answers come within a
 * second or not at all, and nothing is repeated: for looking, and for what may be asked for again by a person.
 */
export class NodeProcedures extends Context.Service<NodeProcedures, {
  /** This node's name: RUNNER_HOST:RUNNER_PORT; of a standalone server HOST:PORT, right once it listens. */
  readonly self: () => string
  /** Whether this is a standalone server. */
  readonly alone: boolean
  /**
   * The nodes of this database, this one first: those that the cluster lists, and those that have ended without saying
   * so within the last ten minutes.
   */
  readonly nodes: Effect.Effect<ReadonlyArray<string>>
  /** Declares a procedure: what this node does when asked, and how the others are asked. While the scope is open. */
  readonly make: <Payload extends Schema.Top, Success extends Schema.Top>(procedure: {
    readonly name: string
    readonly payload: Payload
    readonly success: Success
    readonly here: (payload: Payload["Type"]) => Effect.Effect<Success["Type"]>
  }) => Effect.Effect<NodeProcedure<Payload["Type"], Success["Type"]>, never, Scope.Scope>
  /** Handles the call of another node. */
  readonly asked: (name: string, body: string) => Effect.Effect<string, NodeFailed>
}>()("parley/cluster/NodeProcedures") {
  /** For a standalone server, which is the only node. */
  static readonly layerAlone = Layer.effect(
    NodeProcedures,
    Effect.map(Config, (config) => {
      const self = () => new URL(listeningUrl(config)).host
      return make(true, self, Effect.sync(() => [self()]), (node) => Effect.fail(new NodeSilent({ node, reason: "There is no such node." })))
    })
  )

  static readonly layer = ({ RUNNER_HOST, RUNNER_PORT }: Settings) =>
    Layer.effect(
      NodeProcedures,
      Effect.gen(function*() {
        const protocol = yield* Runners.RpcClientProtocol
        const peers = yield* Peers
        const links = yield* NodeLinks
        const scope = yield* Effect.scope
        const sql = yield* SqlClient.SqlClient
        const now = monotonicMillis(yield* Clock.Clock)
        const self = nameOf(RunnerAddress.make(RUNNER_HOST, RUNNER_PORT))
        const clients = yield* RcMap.make({
          lookup: (node: string) =>
            Effect.flatMap(
              Effect.suspend(() => protocol.make(addressOf(node))),
              (made) => Effect.provideService(RpcClient.make(NodeRpcs, { disableTracing: true }), RpcClient.Protocol, made)
            ),
          idleTimeToLive: "1 minute"
        })
        let known: { readonly names: ReadonlyArray<string>; readonly at: number } = { names: [self], at: Number.NEGATIVE_INFINITY }
        const nodes = Effect.gen(function*() {
          if (now() - known.at < LISTED_MS) return known.names
          const rows = yield* Effect.timeoutOption(
            sql<{ readonly address: string }>`
              SELECT address FROM cluster_nodes WHERE clock_timestamp() - said_at < interval '10 minutes' ORDER BY address`,
            LIST_PATIENCE
          ).pipe(Effect.catch(() => Effect.succeedNone))
          const listed = (peers.list()?.runners ?? []).map(([{ address }]) => nameOf(address))
          // Without the database, those that were there a moment ago.
          const said = Option.match(rows, { onNone: () => known.names, onSome: (all) => all.map(({ address }) => address) })
          known = { names: [...new Set([self, ...[...listed, ...said].sort()])], at: now() }
          return known.names
        })
        const ask = (node: string, name: string, body: string): Effect.Effect<string, NodeSilent> =>
          RcMap.get(clients, node).pipe(
            Effect.flatMap((client) => client.AskNode({ name, body })),
            Effect.timeout(PATIENCE),
            Effect.scoped,
            Effect.catchCause((cause) => {
              const failure = cause.reasons.find(Cause.isFailReason)?.error
              if (failure instanceof NodeFailed) return Effect.fail(new NodeSilent({ node, reason: failure.reason }))
              const problem = links.problem(node)
              const reason = Cause.isTimeoutError(failure) || problem === SILENT
                ? HANGS
                : `It cannot be reached: ${problem ?? "it has ended, or the network between the nodes is broken"}.`
              return Effect.andThen(RcMap.invalidate(clients, node), Effect.fail(new NodeSilent({ node, reason })))
            })
          )
        /** Waits no longer than it may, whatever the end of a call to a node that hangs takes: that is left to its own fiber. */
        const askInTime = (node: string, name: string, body: string): Effect.Effect<string, NodeSilent> =>
          Effect.flatMap(Effect.forkIn(ask(node, name, body), scope), (asking) =>
            Effect.timeoutOrElse(Fiber.join(asking), {
              duration: PATIENCE,
              orElse: () => Effect.fail(new NodeSilent({ node, reason: HANGS }))
            }))
        return make(false, () => self, nodes, (node, name, body) =>
          Effect.flatMap(nodes, (names) =>
            names.includes(node) ? askInTime(node, name, body) : Effect.fail(new NodeSilent({ node, reason: "There is no such node." }))))
      })
    )

  /** The handlers of calls from other nodes. */
  static readonly layerHandlers = NodeRpcs.toLayer(Effect.map(NodeProcedures, (nodes) => ({
    AskNode: ({ body, name }) => nodes.asked(name, body)
  })))
}

const make = (
  alone: boolean,
  self: () => string,
  nodes: Effect.Effect<ReadonlyArray<string>>,
  elsewhere: (node: string, name: string, body: string) => Effect.Effect<string, NodeSilent>
): NodeProcedures["Service"] => {
  const served = new Map<string, (body: string) => Effect.Effect<string>>()
  return NodeProcedures.of({
    self,
    alone,
    nodes,
    asked: (name, body) =>
      Effect.suspend(() => {
        const serve = served.get(name)
        return serve === undefined
          ? Effect.fail(new NodeFailed({ reason: "It does not know what it was asked: it is starting, or of another version." }))
          : Effect.catchDefect(logDefect(serve(body)), () => Effect.fail(new NodeFailed({ reason: "It failed: its log says why." })))
      }),
    make: Effect.fnUntraced(function*({ here, name, payload, success }) {
      const payloads = codecOf(payload)
      const answers = codecOf(success)
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          served.set(name, (body) =>
            Effect.suspend(() => Effect.map(here(payloads.decode(body)), answers.encode)))
        }),
        () => Effect.sync(() => served.delete(name))
      )
      const at = (node: string, given: typeof payload.Type): Effect.Effect<typeof success.Type, NodeSilent> =>
        Effect.suspend(() =>
          node === self()
            ? Effect.timeoutOrElse(here(given), {
              duration: PATIENCE,
              orElse: () => Effect.fail(new NodeSilent({ node, reason: "It did not answer within a second." }))
            })
            : Effect.map(elsewhere(node, name, payloads.encode(given)), answers.decode)
        )
      return {
        at,
        everywhere: (given) =>
          Effect.flatMap(nodes, (names) =>
            Effect.forEach(names, (node) =>
              Effect.match(at(node, given), {
                onFailure: ({ reason }): NodeAnswer<typeof success.Type> => ({ node, answer: undefined, silence: reason }),
                onSuccess: (answer): NodeAnswer<typeof success.Type> => ({ node, answer, silence: "" })
              }), { concurrency: "unbounded" }))
      }
    })
  })
}

const codecOf = <S extends Schema.Top>(schema: S) => {
  const codec = Schema.fromJsonString(Schema.toCodecJson(schema)) as unknown as Schema.Codec<S["Type"], string>
  return { encode: Schema.encodeUnknownSync(codec), decode: Schema.decodeUnknownSync(codec) }
}
