import { Clock, Context, Effect, Layer } from "effect"
import { Config } from "../platform/Config.ts"
import { Redis, type RedisFailed, redisScript } from "../platform/Redis.ts"
import type { PresenceState } from "./Presence.ts"

export interface PresenceUpdate {
  readonly before: PresenceState
  readonly after: PresenceState
}

/** The presence of the agents that are, or just were, there; the rest is rows (PresenceRepo). */
export class PresenceStore extends Context.Service<PresenceStore, {
  /** What is held of these agents; nothing for those that are not there. */
  readonly get: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, PresenceState>>
  /** Changes one state at once; an agent that is not held begins as `otherwise`. */
  readonly update: (
    agentId: string,
    otherwise: PresenceState,
    change: (state: PresenceState) => PresenceState
  ) => Effect.Effect<PresenceUpdate>
  /** Lets go of an agent whose state is still this one. */
  readonly release: (agentId: string, state: PresenceState) => Effect.Effect<void>
  /** Agents whose states have ended by a time. */
  readonly due: (at: number) => Effect.Effect<ReadonlyArray<string>>
}>()("parley/presence/PresenceStore") {
  /** Of one process; what is online is found out again after a restart. */
  static readonly layerMemory = Layer.sync(PresenceStore, () => inMemory(new Map()))

  /**
   * Of all nodes, in Redis. While that does not answer, each node knows what it has heard
   * since, and adds it when there is an answer again; what Redis has lost is found out
   * with the next sign of life of each agent.
   */
  static readonly layerRedis = Layer.effect(
    PresenceStore,
    Effect.gen(function*() {
      const redis = (yield* Redis).channel("presence")
      const clock = yield* Clock.Clock
      /** What was heard while there was no answer. */
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
                update(agentId, state, (other) => (other.lastSeen ?? 0) > (state.lastSeen ?? 0) ? other : state), {
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
        due: (at) =>
          shared(
            Effect.map(
              redis.command("ZRANGEBYSCORE", ENDING, "-inf", at, "LIMIT", 0, MAX_DUE),
              (ids) => ids as ReadonlyArray<string>
            ),
            (store) => store.due(at)
          )
      })
    })
  )

  static readonly layer = Layer.unwrap(Effect.map(Config, (config) =>
    config.REDIS_URL === undefined ? PresenceStore.layerMemory : Layer.provide(PresenceStore.layerRedis, Redis.layer)))
}

// One slot of a Redis cluster: a script touches a state and the list of what ends.
const keyOf = (agentId: string): string => `{parley:presence}:${agentId}`
const ENDING = "{parley:presence}:ending"
/** How long a state outlasts its end, should nobody let go of it. */
const KEPT_MS = 3_600_000
const MAX_DUE = 500

// Only `update` writes what is read here.
const parse = (text: string): PresenceState => JSON.parse(text) as PresenceState

/** Stores a state if the one before is still as it was read. */
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
  /** In the order in which they end, for all last equally long. */
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
    due: (at) =>
      Effect.sync(() => {
        const due: Array<string> = []
        for (const [id, expiresAt] of ending) {
          if (expiresAt > at) break
          due.push(id)
        }
        return due
      })
  })
}
