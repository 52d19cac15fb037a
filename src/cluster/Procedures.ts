import { Effect, Layer, type Scope } from "effect"
import { Entity, type Sharding } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { logDefect } from "./LogDefect.ts"
import { RemoteCalls } from "./RemoteCalls.ts"
import { forRequest, REQUEST_ID } from "../platform/RequestId.ts"
import { forTrace, TRACEPARENT } from "../platform/Tracing.ts"
import type { Unavailable } from "../wire/WireError.ts"

/** The implementation of one Rpc of an entity, on the node that owns the entity's shard. */
export interface Behaviour<R extends Rpc.Any> {
  readonly run: (entityId: string, payload: Rpc.Payload<R>) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R>>
}

/** A behaviour for each Rpc of an entity, by the Rpc's name. */
export type Behaviours<Rpcs extends Rpc.Any> = { readonly [R in Rpcs as R["_tag"]]: Behaviour<R> }

/**
 * The caller's side of each Rpc of an entity. A call runs directly if this node owns the shard; otherwise it is sent
 * to the owner (RemoteCalls), with a deadline of 5 seconds.
 */
export type Client<Rpcs extends Rpc.Any> = {
  readonly [R in Rpcs as R["_tag"]]: (
    entityId: string,
    payload: Rpc.Payload<R>
  ) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R> | Unavailable>
}

export interface Procedures<Rpcs extends Rpc.Any> {
  readonly client: Client<Rpcs>
  /** Handles the calls that effect's cluster routes to this node. Only for nodes that own shards. */
  readonly entity: Layer.Layer<never, never, Sharding.Sharding>
}

/** A behaviour without its types. */
interface Untyped {
  readonly run: (entityId: string, payload: unknown) => Effect.Effect<unknown, unknown>
}

/**
 * The procedures of an entity, each declared once: the client and the handler are both made from the entity's Rpc and
 * the behaviour given here. Other nodes can call them while the scope is open. A call may be executed twice if an
 * answer is lost, so payloads carry ids by which a repetition is recognised; a refusal of the second attempt is then
 * answered with Unavailable, since the first one may still be under way. Handlers run concurrently: the actor
 * behind them orders its commands itself.
 */
export const make = <Type extends string, Rpcs extends Rpc.Any, All extends Behaviours<Rpcs>>(
  entity: Entity.Entity<Type, Rpcs>,
  behaviours: All
): Effect.Effect<Procedures<Rpcs>, never, RemoteCalls | Sharding.Sharding | Scope.Scope> =>
  Effect.gen(function*() {
    const calls = yield* RemoteCalls
    // The types of `Behaviours` and `Client` match each Rpc by name; a loop over the names cannot express that.
    const known = behaviours as unknown as Readonly<Record<string, Untyped>>
    const cluster = (yield* entity.client) as unknown as (
      entityId: string
    ) => Readonly<Record<string, (payload: unknown) => Effect.Effect<unknown, unknown>>>
    const rpcs = [...entity.protocol.requests.values()] as unknown as ReadonlyArray<Rpc.AnyWithProps>

    const client: Record<string, (entityId: string, payload: unknown) => Effect.Effect<unknown, unknown>> = {}
    for (const rpc of rpcs) {
      client[rpc._tag] = yield* calls.client({
        entity,
        rpc,
        here: known[rpc._tag]!.run,
        elsewhere: (entityId, payload) => cluster(entityId)[rpc._tag]!(payload)
      })
    }

    const handlers = Effect.map(Entity.CurrentAddress, ({ entityId }) =>
      Object.fromEntries(rpcs.map(({ _tag }) => {
        const { run } = known[_tag]!
        return [_tag, ({ headers, payload }: Entity.Request<Rpc.Any>) =>
          Rpc.fork(forRequest(headers[REQUEST_ID], forTrace(headers[TRACEPARENT], logDefect(run(entityId, payload)))))]
      })))

    return {
      client: client as unknown as Client<Rpcs>,
      // A defect fails its own call only; by default it would restart the entity and replay all calls in flight.
      entity: entity.toLayer(handlers as unknown as Effect.Effect<Entity.HandlersFrom<Rpcs>>, {
        disableFatalDefects: true
      }) as Layer.Layer<
        never,
        never,
        Sharding.Sharding
      >
    }
  })
