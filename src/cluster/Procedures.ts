import { Effect, Layer, type Scope } from "effect"
import { Entity, type Sharding } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { logDefect } from "./LogDefect.ts"
import { RemoteCalls } from "./RemoteCalls.ts"
import { forRequest, REQUEST_ID } from "../platform/RequestId.ts"
import type { Unavailable } from "../wire/WireError.ts"

/** What one Rpc of an entity does, on the node that has the entity's shard. */
export interface Behaviour<R extends Rpc.Any> {
  readonly run: (entityId: string, payload: Rpc.Payload<R>) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R>>
  /**
   * Refusals given without looking at what an earlier attempt did: they do not prove that it failed.
   * After an attempt whose answer is lost the caller gets Unavailable instead of them.
   */
  readonly inconclusive?: (failure: Rpc.Error<R>) => boolean
}

/** A behaviour for each Rpc of an entity, by the Rpc's name. */
export type Behaviours<Rpcs extends Rpc.Any> = { readonly [R in Rpcs as R["_tag"]]: Behaviour<R> }

/**
 * The caller's side, for each Rpc of an entity. A call runs directly where the shard is on this node, and is
 * carried to its node otherwise (RemoteCalls), for 5 seconds at the most.
 */
export type Client<Rpcs extends Rpc.Any> = {
  readonly [R in Rpcs as R["_tag"]]: (
    entityId: string,
    payload: Rpc.Payload<R>
  ) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R> | Unavailable>
}

export interface Procedures<Rpcs extends Rpc.Any> {
  readonly client: Client<Rpcs>
  /** Takes the calls that the cluster itself brings here. Only for nodes that own shards. */
  readonly entity: Layer.Layer<never, never, Sharding.Sharding>
}

/** One Rpc and its behaviour where their types are of no use any more. */
interface Untyped {
  readonly run: (entityId: string, payload: unknown) => Effect.Effect<unknown, unknown>
  readonly inconclusive?: (failure: unknown) => boolean
}

/**
 * The procedures of an entity, each declared once: its schema is the entity's Rpc, its behaviour is given here, and
 * both together make the caller and the handler. Other nodes can call them as long as the scope is open. A call may
 * be carried out twice when an answer is lost, so payloads carry ids by which the second time is recognised.
 * Handlers do not wait for each other: the actor behind them has its own order.
 */
export const make = <Type extends string, Rpcs extends Rpc.Any, All extends Behaviours<Rpcs>>(
  entity: Entity.Entity<Type, Rpcs>,
  behaviours: All
): Effect.Effect<Procedures<Rpcs>, never, RemoteCalls | Sharding.Sharding | Scope.Scope> =>
  Effect.gen(function*() {
    const calls = yield* RemoteCalls
    // `Behaviours` has matched each Rpc with its behaviour and `Client` with its caller, which a loop over names cannot show.
    const known = behaviours as unknown as Readonly<Record<string, Untyped>>
    const cluster = (yield* entity.client) as unknown as (
      entityId: string
    ) => Readonly<Record<string, (payload: unknown) => Effect.Effect<unknown, unknown>>>
    const rpcs = [...entity.protocol.requests.values()] as unknown as ReadonlyArray<Rpc.AnyWithProps>

    const client: Record<string, (entityId: string, payload: unknown) => Effect.Effect<unknown, unknown>> = {}
    for (const rpc of rpcs) {
      const { run, ...rest } = known[rpc._tag]!
      client[rpc._tag] = yield* calls.client({
        entity,
        rpc,
        here: run,
        elsewhere: (entityId, payload) => cluster(entityId)[rpc._tag]!(payload),
        ...rest
      })
    }

    const handlers = Effect.map(Entity.CurrentAddress, ({ entityId }) =>
      Object.fromEntries(rpcs.map(({ _tag }) => {
        const { run } = known[_tag]!
        return [_tag, ({ headers, payload }: Entity.Request<Rpc.Any>) =>
          Rpc.fork(forRequest(headers[REQUEST_ID], logDefect(run(entityId, payload))))]
      })))

    return {
      client: client as unknown as Client<Rpcs>,
      // A defect is the answer to its caller, and no reason to begin again with all that is in flight.
      entity: entity.toLayer(handlers as unknown as Effect.Effect<Entity.HandlersFrom<Rpcs>>, {
        disableFatalDefects: true
      }) as Layer.Layer<
        never,
        never,
        Sharding.Sharding
      >
    }
  })
