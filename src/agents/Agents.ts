import { Clock, Context, Effect, Fiber, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { Config } from "../platform/Config.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import type { Unavailable } from "../wire/WireError.ts"
import type { Agent, AgentId } from "./Agent.ts"
import { avatarUrlOf } from "./AvatarUrl.ts"
import { AgentsRepo, type StoredAgent } from "./AgentsRepo.ts"

/**
 * A cache of accounts for the other rooms; the rows are the truth, status included (AgentEntity). What is
 * read here may be a second old, which is how long a node keeps a row at most. Every change of an account
 * drops it from the caches of all nodes before the change is answered (`Sessions.changed` and
 * `Sessions.disconnect`, which wait a second for a node that does not answer; what that node has cached
 * has expired by then). So a caller whose change was answered finds it on every node that the database
 * lists. Statements that commit something test status and deletion again.
 */
export class Agents extends Context.Service<Agents, {
  /** The account whose live key has this hash, whatever its status; undefined if there is none. */
  readonly byKeyHash: (hash: Buffer) => Effect.Effect<Agent | undefined, Unavailable>
  /** By normalised handle; undefined for unknown and deleted accounts. */
  readonly byHandle: (handle: string) => Effect.Effect<Agent | undefined, Unavailable>
  /** By id, deleted ones included (their messages keep a sender); unknown ids are absent. One query at most. */
  readonly byIds: (ids: ReadonlyArray<AgentId>) => Effect.Effect<ReadonlyMap<AgentId, Agent>, Unavailable>
  /** The hashes of the live keys of these agents, in hex, read from storage. */
  readonly keyHashes: (ids: ReadonlyArray<AgentId>) => Effect.Effect<ReadonlyMap<AgentId, string>, Unavailable>
  /** Drops this agent from the caches, its key included. */
  readonly forget: (id: AgentId) => void
  /** Absolute URL of an avatar. */
  readonly avatarUrl: (agent: Agent) => string | null
}>()("parley/agents/Agents") {
  static readonly layer = Layer.effect(
    Agents,
    Effect.gen(function*() {
      const repo = yield* AgentsRepo
      const clock = yield* Clock.Clock
      const config = yield* Config
      const runFork = Effect.runForkWith(yield* Effect.context<never>())
      const cache = new AgentCache()
      const now = () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

      /**
       * Look-ups under way, by what they look for. Each runs in a fiber of its own, so that interrupting
       * one caller does not fail the others.
       */
      type LookUp = Fiber.Fiber<ReadonlyArray<StoredAgent>, Unavailable>
      const underWay = new Map<string, LookUp>()
      // A look-up that began before a change may have read the old row: it answers its callers, but is not cached.
      let changes = 0

      const startLookUp = (
        keys: ReadonlyArray<string>,
        query: Effect.Effect<ReadonlyArray<StoredAgent>, SqlError.SqlError>
      ): LookUp => {
        const began = now()
        const before = changes
        const fiber = runFork(
          query.pipe(
            Effect.timeout(QUERY_TIMEOUT),
            Effect.tap((found) =>
              Effect.sync(() => {
                if (changes === before) { for (const agent of found) cache.put(agent, began) }
              })
            ),
            unavailableOnSqlError
          )
        )
        // On PGlite the query has ended already.
        if (fiber.pollUnsafe() === undefined) {
          for (const key of keys) underWay.set(key, fiber)
          fiber.addObserver(() => {
            for (const key of keys) {
              if (underWay.get(key) === fiber) underWay.delete(key)
            }
          })
        }
        return fiber
      }

      const one = (
        key: string,
        query: Effect.Effect<StoredAgent | undefined, SqlError.SqlError>
      ): Effect.Effect<Agent | undefined, Unavailable> =>
        Effect.map(
          Fiber.join(
            underWay.get(key) ?? startLookUp([key], Effect.map(query, (found) => found === undefined ? [] : [found]))
          ),
          (found) => found[0]
        )

      return Agents.of({
        byKeyHash: (hash) =>
          Effect.suspend(() => {
            const key = hash.toString("latin1")
            const cached = cache.byKey(key, now())
            return cached === undefined ? one(`key ${key}`, repo.byKeyHash(hash)) : Effect.succeed(cached)
          }),
        byHandle: (handle) =>
          Effect.suspend(() => {
            const cached = cache.byHandle(handle, now())
            return cached === undefined ? one(`handle ${handle}`, repo.byHandle(handle)) : Effect.succeed(cached)
          }).pipe(Effect.map((agent) => agent === undefined || agent.deletedAt !== null ? undefined : agent)),
        byIds: (ids) =>
          Effect.suspend(() => {
            const time = now()
            const found = new Map<AgentId, Agent>()
            const missing = new Set<AgentId>()
            const waiting = new Set<LookUp>()
            for (const id of ids) {
              const cached = cache.byId(id, time)
              if (cached !== undefined) {
                found.set(id, cached)
                continue
              }
              const fiber = underWay.get(`id ${id}`)
              if (fiber !== undefined) waiting.add(fiber)
              else missing.add(id)
            }
            if (missing.size > 0) {
              const asked = [...missing]
              waiting.add(startLookUp(asked.map((id) => `id ${id}`), repo.byIds(asked)))
            }
            if (waiting.size === 0) return Effect.succeed(found)
            const wanted = new Set(ids)
            return Effect.map(Fiber.joinAll(waiting), (answers) => {
              for (const answer of answers) {
                for (const agent of answer) {
                  if (wanted.has(agent.id)) found.set(agent.id, agent)
                }
              }
              return found
            })
          }),
        keyHashes: (ids) =>
          Effect.map(unavailableOnSqlError(repo.byIds(ids)), (found) =>
            new Map(found.flatMap(({ id, keyHash }) => keyHash === null ? [] : [[id, keyHash.toString("hex")] as const]))),
        forget: (id) => {
          changes++
          // Later callers must not join a look-up that began before the change.
          underWay.clear()
          cache.forget(id)
        },
        avatarUrl: (agent) => agent.avatarKey === null ? null : avatarUrlOf(config, agent.avatarKey)
      })
    })
  )
}

const QUERY_TIMEOUT = "5 seconds"
const MAX_AGE_MILLIS = 1_000
const MAX_AGENTS = 50_000

interface Entry {
  readonly agent: StoredAgent
  readonly key: string | undefined
  readonly loadedAt: number
}

/**
 * The accounts read last, each under its id, handle and key; when it is full, the one read longest ago is
 * dropped.
 */
class AgentCache {
  private readonly ids = new Map<AgentId, Entry>()
  private readonly handles = new Map<string, Entry>()
  private readonly keys = new Map<string, Entry>()

  byId(id: AgentId, now: number): StoredAgent | undefined {
    return fresh(this.ids.get(id), now)
  }

  byHandle(handle: string, now: number): StoredAgent | undefined {
    return fresh(this.handles.get(handle), now)
  }

  byKey(key: string, now: number): StoredAgent | undefined {
    return fresh(this.keys.get(key), now)
  }

  put(agent: StoredAgent, loadedAt: number): void {
    const known = this.ids.get(agent.id)
    if (known !== undefined && known.loadedAt > loadedAt) return
    this.forget(agent.id)
    if (this.ids.size >= MAX_AGENTS) {
      const oldest = this.ids.keys().next()
      if (oldest.done !== true) this.forget(oldest.value)
    }
    const entry: Entry = { agent, key: agent.keyHash?.toString("latin1"), loadedAt }
    this.ids.set(agent.id, entry)
    this.handles.set(agent.handle, entry)
    if (entry.key !== undefined) this.keys.set(entry.key, entry)
  }

  forget(id: AgentId): void {
    const entry = this.ids.get(id)
    if (entry === undefined) return
    this.ids.delete(id)
    this.handles.delete(entry.agent.handle)
    if (entry.key !== undefined) this.keys.delete(entry.key)
  }
}

const fresh = (entry: Entry | undefined, now: number): StoredAgent | undefined =>
  entry === undefined || now - entry.loadedAt >= MAX_AGE_MILLIS ? undefined : entry.agent
