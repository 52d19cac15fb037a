import { codecOf } from "#infrastructure/cluster/EntityRpc"
import { type Handler, NodeCalls } from "#infrastructure/cluster/NodeCalls"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { Entity } from "effect/cluster"
import type { Rpc } from "effect/rpc"

const served = new WeakMap<NodeCalls["Service"], Map<string, Handler>>()

/** Keeps the handlers that serve other nodes, for `entityClient`. */
export const layerRemembering = Layer.effect(
  NodeCalls,
  Effect.map(NodeCalls, (calls) => {
    const handlers = new Map<string, Handler>()
    const remembering = NodeCalls.of({
      ...calls,
      serve: (procedure, handler) => {
        handlers.set(procedure, handler)
        return calls.serve(procedure, handler)
      }
    })
    served.set(remembering, handlers)
    return remembering
  })
)

type Client<Rpcs extends Rpc.Any> = {
  readonly [R in Rpcs as R["_tag"]]: (
    payload: Rpc.Payload<R>
  ) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R> | Unavailable>
}

/** Calls an entity of this node as another node does, with payloads and answers in JSON. */
export const entityClient = <Type extends string, Rpcs extends Rpc.Any>(entity: Entity.Entity<Type, Rpcs>) =>
  Effect.map(Effect.context<NodeCalls>(), (context) => {
    const handlers = served.get(Context.get(context, NodeCalls))
    if (handlers === undefined) throw new Error("these modules do not remember what they serve")
    const travelled = (value: unknown): unknown => value === undefined ? undefined : JSON.parse(JSON.stringify(value))
    return (id: string): Client<Rpcs> =>
      Object.fromEntries(
        Array.from(entity.protocol.requests.values() as unknown as Iterable<Rpc.AnyWithProps>, (rpc) => [
          rpc._tag,
          Effect.fnUntraced(function*(payload: unknown) {
            const performed = handlers.get(`${entity.type}/${rpc._tag}`)?.(
              id,
              travelled(codecOf(rpc.payloadSchema).encode(payload))
            )
            if (performed === undefined) return yield* Effect.die("the entity is not here")
            const { ending, value } = yield* performed
            if (ending === "done") return codecOf(rpc.successSchema).decode(travelled(value))
            return yield* ending === "refused"
              ? Effect.fail(codecOf(rpc.errorSchema).decode(travelled(value)))
              : Effect.die(ending)
          })
        ])
      ) as unknown as Client<Rpcs>
  })
