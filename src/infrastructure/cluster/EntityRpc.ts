import { remoteCalls, remoteSeconds } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { withTrace } from "#infrastructure/platform/Tracing"
import { CALLER_TIMEOUT_MS, InternalError, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Effect, Schema, type Scope } from "effect"
import { type Entity, EntityId, Sharding } from "effect/cluster"
import type { Rpc } from "effect/rpc"
import { Members } from "./Members.ts"
import { type Answer, NodeCalls, type Unanswered } from "./NodeCalls.ts"

/** The implementation of one Rpc of an entity, on the node that owns the entity's shard. */
export interface Handler<R extends Rpc.Any> {
  readonly run: (entityId: string, payload: Rpc.Payload<R>) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R>>
}

/** The handler for each Rpc of an entity, by the Rpc's name. */
export type Handlers<Rpcs extends Rpc.Any> = { readonly [R in Rpcs as R["_tag"]]: Handler<R> }

/**
 * The client functions for the Rpcs of an entity. A call runs directly if this node owns the shard. Otherwise the call
 * is sent to the owner, and fails with `Unavailable` after 5 seconds.
 */
export type Client<Rpcs extends Rpc.Any> = {
  readonly [R in Rpcs as R["_tag"]]: (
    entityId: string,
    payload: Rpc.Payload<R>
  ) => Effect.Effect<Rpc.Success<R>, Rpc.Error<R> | Unavailable>
}

/** A handler without its types. */
interface Untyped {
  readonly run: (entityId: string, payload: unknown) => Effect.Effect<unknown, unknown>
}

/**
 * How many milliseconds to wait before a call that found no owner is tried again for the first time. Each pause is
 * twice as long as the one before.
 */
const MIN_RETRY_DELAY_MS = 25
/** The longest pause, in milliseconds. */
const MAX_RETRY_DELAY_MS = 200

/**
 * Makes the client of an entity from its Rpcs and their handlers, and serves calls from other nodes to these handlers
 * while the scope is open. If a response is lost, a call may be executed twice. Therefore payloads contain ids by which
 * a repetition is recognised. If the second attempt is refused, the call fails with `Unavailable`, because the first
 * attempt may still be in progress. Handlers run concurrently. The actor behind the handlers puts its commands into an
 * order itself.
 */
export const make = Effect.fnUntraced(function*<Type extends string, Rpcs extends Rpc.Any, All extends Handlers<Rpcs>>(
  entity: Entity.Entity<Type, Rpcs>,
  behaviours: All
): Effect.fn.Return<Client<Rpcs>, never, Members | NodeCalls | Sharding.Sharding | Scope.Scope> {
  const members = yield* Members
  const calls = yield* NodeCalls
  const sharding = yield* Sharding.Sharding
  const stallGuard = yield* StallGuard
  const now = monotonicMillis(yield* Clock.Clock)
  // The types `Handlers` and `Client` match each Rpc by name. A loop over the names cannot express this.
  const known = behaviours as unknown as Readonly<Record<string, Untyped>>
  const shardOf = (entityId: string) => {
    const id = EntityId.make(entityId)
    return sharding.getShardId(id, entity.getShardGroup(id))
  }

  const client: Record<string, (entityId: string, payload: unknown) => Effect.Effect<unknown, unknown>> = {}
  for (const rpc of entity.protocol.requests.values() as unknown as Iterable<Rpc.AnyWithProps>) {
    const { run } = known[rpc._tag]!
    const name = `${entity.type}/${rpc._tag}`
    const payloads = codecOf(rpc.payloadSchema)
    const successes = codecOf(rpc.successSchema)
    const failures = codecOf(rpc.errorSchema)
    const seconds = remoteSeconds.at(name)

    yield* calls.serve(
      name,
      (entityId, payload) =>
        !sharding.hasShardId(shardOf(entityId)) || stallGuard.stalledLately("nodes") ?
          undefined :
          Effect.suspend(() => run(entityId, payloads.decode(payload))).pipe(
            Effect.map((value): Answer => ({ ending: "done", value: successes.encode(value) })),
            Effect.catch((failure) =>
              Effect.sync((): Answer => ({ ending: "refused", value: failures.encode(failure) }))
            )
          )
    )

    /** Sends a call to one node once. */
    const attempt = (
      node: string | undefined,
      entityId: string,
      payload: unknown,
      until: number
    ): Effect.Effect<Answer | Unanswered> => {
      if (node === undefined) return Effect.succeed("unsent")
      const began = performance.now()
      return Effect.map(
        withTrace(`call ${name}`, "client", calls.call(node, name, entityId, payload, until)),
        (answer) => {
          if (typeof answer !== "string") seconds.millis(performance.now() - began)
          return answer
        }
      )
    }

    /** Tries the nodes that may own the shard until one of them responds. */
    const remote = Effect.fnUntraced(function*(entityId: string, payload: unknown) {
      remoteCalls.add()
      const shard = shardOf(entityId)
      const until = now() + CALLER_TIMEOUT_MS
      const encoded = payloads.encode(payload)
      // Whether an attempt without a response may have been executed, or may still be executed. In this case a later
      // refusal does not prove that the call had no effect.
      let mayBeDone = false
      for (let tries = 0;; tries++) {
        if (sharding.hasShardId(shard)) {
          return yield* mayBeDone
            ? Effect.mapError(run(entityId, payload), () => new Unavailable())
            : run(entityId, payload)
        }
        const owners = members.ownersOf(shard)
        const answer = yield* attempt(owners[tries % Math.max(1, owners.length)], entityId, encoded, until)
        if (answer === "late") return yield* new Unavailable()
        if (answer === "lost") mayBeDone = true
        else if (answer !== "unsent" && answer.ending !== "absent") {
          if (answer.ending === "done") return successes.decode(answer.value)
          if (answer.ending === "refused")
            return yield* Effect.fail(mayBeDone ? new Unavailable() : failures.decode(answer.value))
          if (answer.ending === "broken" && answer.value !== null) return yield* Effect.die(new InternalError())
          return yield* new Unavailable()
        }
        // An excluded node cannot connect to the owner, but the client can repeat its request at another node.
        if (now() >= until || (answer === "unsent" && !members.belongs())) return yield* new Unavailable()
        const pause = Math.min(MAX_RETRY_DELAY_MS, MIN_RETRY_DELAY_MS * 2 ** tries)
        // The list of nodes is not read before shorter pauses, because each node reads it twice a second anyway.
        if (pause === MAX_RETRY_DELAY_MS) yield* members.refresh
        yield* Effect.sleep(Math.min(pause, until - now()))
      }
    })

    client[rpc._tag] = (entityId, payload) =>
      Effect.suspend(() => sharding.hasShardId(shardOf(entityId)) ? run(entityId, payload) : remote(entityId, payload))
  }
  return client as unknown as Client<Rpcs>
})

/** The JSON codec of a procedure's schema. These schemas need no services and are synchronous. */
export const codecOf = <S extends Schema.Top>(schema: S) => {
  const codec = Schema.toCodecJson(schema) as unknown as Schema.Codec<S["Type"], unknown>
  return { encode: Schema.encodeUnknownSync(codec), decode: Schema.decodeUnknownSync(codec) }
}
