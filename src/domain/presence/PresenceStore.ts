import { Config } from "#infrastructure/platform/Config"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import { Redis, type RedisFailed, redisScript } from "#infrastructure/platform/Redis"
import { Clock, Context, Effect, Layer } from "effect"
import type { PresenceState } from "./Presence.ts"

export interface PresenceUpdate {
  readonly before: PresenceState
  readonly after: PresenceState
}

/**
 * The presence of agents that are online or have just gone offline. The presence of all other agents is in the database
 * (PresenceRepo).
 */
export class PresenceStore extends Context.Service<PresenceStore, {
  /** Returns the states of those of these agents that are in the store. */
  readonly get: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, PresenceState>>
  /**
   * Changes one state atomically. Starts from `otherwise` if the store contains no state. `change` may run several
   * times.
   */
  readonly update: (
    agentId: string,
    otherwise: PresenceState,
    change: (state: PresenceState) => PresenceState
  ) => Effect.Effect<PresenceUpdate>
  /** Removes an agent that is offline, if the state is still this one. */
  readonly release: (agentId: string, state: PresenceState) => Effect.Effect<void>
  /**
   * Returns the agents whose states have expired at time `at`, or would last longer than `lifetimeMs` because the clock
   * was set back.
   */
  readonly due: (at: number, lifetimeMs: number) => Effect.Effect<ReadonlyArray<string>>
}>()("parley/presence/PresenceStore") {
  /** For one process. A restart loses the states. Sockets restore the states when they reconnect. */
  static readonly layerMemory = Layer.sync(PresenceStore, () => inMemory(new Map()))

  /**
   * For all nodes, in Redis. While Redis does not respond, each node keeps its changes in memory, and writes them to
   * Redis when Redis responds again. If Redis loses a state, the agent's next sign of life restores it.
   */
  static readonly layerRedis = Layer.effect(
    PresenceStore,
    Effect.gen(function*() {
      const redis = (yield* Redis).channel("presence")
      const clock = yield* Clock.Clock
      /** States that have changed on this node since Redis stopped responding; undefined while Redis responds. */
      let meanwhile: Map<string, PresenceState> | undefined
      let alone = inMemory(new Map())

      const update = Effect.fnUntraced(function*(
        agentId: string,
        otherwise: PresenceState,
        change: (state: PresenceState) => PresenceState
      ) {
        const key = keyOf(agentId)
        let text = (yield* redis.command("GET", key)) as string | null
        for (;;) {
          const before = text === null ? otherwise : parse(text)
          const after = change(before)
          const now = clock.currentTimeMillisUnsafe()
          const kept = Math.max(0, (after.expiresAt ?? now) - now) + KEPT_MS
          const args = [agentId, text ?? "", JSON.stringify(after), after.expiresAt ?? "", kept]
          const [stored, other] = (yield* redis.run(REPLACE, [key, ENDING], args)) as [number, string?]
          if (stored === 1) return { before, after }
          text = other === undefined || other === "" ? null : other
        }
      })

      const shared = <A>(
        asked: Effect.Effect<A, RedisFailed>,
        instead: (store: PresenceStore["Service"]) => Effect.Effect<A>
      ): Effect.Effect<A> =>
        Effect.matchEffect(asked, {
          onFailure: () =>
            Effect.suspend(() => {
              if (meanwhile === undefined) alone = inMemory(meanwhile = new Map())
              return instead(alone)
            }),
          onSuccess: (value) => {
            if (meanwhile === undefined) return Effect.succeed(value)
            const heard = meanwhile
            meanwhile = undefined
            return Effect.as(
              Effect.ignore(Effect.forEach(heard, ([agentId, state]) =>
                update(agentId, state, (other) =>
                  (other.lastSeen ?? 0) > (state.lastSeen ?? 0) ? other : state), {
                concurrency: 16,
                discard: true
              })),
              value
            )
          }
        })

      return PresenceStore.of({
        get: (agentIds) =>
          agentIds.length === 0 ? Effect.succeed(new Map()) : shared(
            Effect.map(redis.command("MGET", ...agentIds.map(keyOf)), (texts) => {
              const found = new Map<string, PresenceState>()
              for (const [i, text] of (texts as ReadonlyArray<string | null>).entries()) {
                if (text !== null) found.set(agentIds[i]!, parse(text))
              }
              return found
            }),
            (store) => store.get(agentIds)
          ),
        update: (agentId, otherwise, change) =>
          shared(update(agentId, otherwise, change), (store) => store.update(agentId, otherwise, change)),
        release: (agentId, state) =>
          state.expiresAt !== null ? Effect.void : shared(
            Effect.asVoid(redis.run(RELEASE, [keyOf(agentId)], [JSON.stringify(state)])),
            (store) => store.release(agentId, state)
          ),
        due: (at, lifetimeMs) => {
          const between = (from: string | number, to: string | number) =>
            Effect.map(
              redis.command("ZRANGEBYSCORE", ENDING, from, to, "LIMIT", 0, MAX_DUE),
              (ids) => ids as ReadonlyArray<string>
            )
          return shared(
            Effect.zipWith(
              between("-inf", at),
              between(`(${at + lifetimeMs + SET_BACK_MS}`, "+inf"),
              (past, ahead) => [...past, ...ahead]
            ),
            (store) => store.due(at, lifetimeMs)
          )
        }
      })
    })
  )

  static readonly layer = Layer.unwrap(
    Effect.map(
      Config,
      (config) =>
        config.REDIS_URL === undefined
          ? PresenceStore.layerMemory
          : Layer.provide(PresenceStore.layerRedis, Redis.layer)
    )
  )
}

// The hash tag keeps all keys in one slot of a Redis cluster, because a script writes both a state and the list of
// expiry times.
const keyOf = (agentId: string): string => `{parley:presence}:${agentId}`
const ENDING = "{parley:presence}:ending"
/** How long Redis keeps a state after its expiry if no node removes it, in milliseconds. */
const KEPT_MS = 3_600_000
const MAX_DUE = 500

// Safe without a check: only `update` writes these values.
const parse = (text: string): PresenceState => JSON.parse(text) as PresenceState

/** Compare and set: stores a state if the current state is still the one that was read. */
const REPLACE = redisScript(`
local state = redis.call('GET', KEYS[1]) or ''
if state ~= ARGV[2] then return {0, state} end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[5])
if ARGV[4] == '' then redis.call('ZREM', KEYS[2], ARGV[1]) else redis.call('ZADD', KEYS[2], ARGV[4], ARGV[1]) end
return {1}`)

const RELEASE = redisScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

const inMemory = (states: Map<string, PresenceState>): PresenceStore["Service"] => {
  /**
   * Expiry times, earliest first. All states have the same lifetime, so the order of insertion is the order of expiry.
   */
  const ending = new Map<string, number>()
  return PresenceStore.of({
    get: (agentIds) =>
      Effect.sync(() => {
        const found = new Map<string, PresenceState>()
        for (const id of agentIds) {
          const state = states.get(id)
          if (state !== undefined) found.set(id, state)
        }
        return found
      }),
    update: (agentId, otherwise, change) =>
      Effect.sync(() => {
        const before = states.get(agentId) ?? otherwise
        const after = change(before)
        states.set(agentId, after)
        if (after.expiresAt !== before.expiresAt || !ending.has(agentId)) {
          ending.delete(agentId)
          if (after.expiresAt !== null) ending.set(agentId, after.expiresAt)
        }
        return { before, after }
      }),
    release: (agentId, state) =>
      Effect.sync(() => {
        if (states.get(agentId) === state && state.expiresAt === null) states.delete(agentId)
      }),
    due: (at, lifetimeMs) =>
      Effect.sync(() => {
        const due: Array<string> = []
        for (const [id, expiresAt] of ending) {
          if (expiresAt > at && expiresAt <= at + lifetimeMs + SET_BACK_MS) break
          due.push(id)
        }
        return due
      })
  })
}
