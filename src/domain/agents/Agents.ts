import { unavailable } from "#infrastructure/database/SqlUnavailable"
import { Config } from "#infrastructure/platform/Config"
import { nextTick } from "#infrastructure/platform/EventLoop"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Fiber, Layer } from "effect"
import type { Agent, AgentId } from "./Agent.ts"
import { AgentCache, AgentIndex, hashText } from "./AgentCache.ts"
import { AgentsRepo, type Sought } from "./AgentsRepo.ts"
import { avatarUrlOf } from "./AvatarUrl.ts"

/**
 * A cache of accounts for the other modules. The rows are the truth, including the status (AgentEntity). A node caches
 * a row for at most a second, so an account from here may be a second old. One statement reads all accounts that
 * callers in the same tick of the event loop ask for and that are not cached.
 *
 * Every change of an account removes it from the caches of all nodes before the response to the change
 * (`Sessions.changed` and `Sessions.disconnect`). Both wait up to a second for a node that does not respond. By then
 * the cached row of that node has expired. So after the response, the caller finds the change on every node that the
 * database lists. Statements that commit something test status and deletion again.
 */
export class Agents extends Context.Service<Agents, {
  /** Returns the account whose live key has this hash, whatever its status, or undefined if there is none. */
  readonly byKeyHash: (hash: Buffer) => Effect.Effect<Agent | undefined, Unavailable>
  /** Returns the account with this normalised handle, or undefined if it is unknown or deleted. */
  readonly byHandle: (handle: string) => Effect.Effect<Agent | undefined, Unavailable>
  /**
   * Returns accounts by id. Deleted accounts are included, because their messages keep a sender. Unknown ids are left
   * out.
   */
  readonly byIds: (ids: ReadonlyArray<AgentId>) => Effect.Effect<ReadonlyMap<AgentId, Agent>, Unavailable>
  /** Reads the hashes of the live keys of these agents from storage. The hashes are in hex. */
  readonly keyHashes: (ids: ReadonlyArray<AgentId>) => Effect.Effect<ReadonlyMap<AgentId, string>, Unavailable>
  /** Removes this agent and its key from the cache of this node. */
  readonly forget: (id: AgentId) => void
  /** The absolute URL of an agent's avatar, or null if it has none. */
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
      const now = monotonicMillis(clock)

      /**
       * A statement that searches for accounts. It runs in its own fiber, so that the interruption of one caller does
       * not affect the other callers.
       */
      type LookUp = Fiber.Fiber<AgentIndex, Unavailable>
      /** The look-ups that are under way or about to begin, by name (`key …`, `handle …`, `id …`). */
      const underWay = new Map<string, LookUp>()
      /** The look-up that collects names during this tick of the event loop. */
      let next: { readonly sought: Sought; readonly names: Array<string>; readonly lookUp: LookUp } | undefined
      // Counts changes. A look-up that began before a change may have read the old row, so its result is not cached.
      let changes = 0

      const begin = (sought: Sought): Effect.Effect<AgentIndex, Unavailable> =>
        Effect.suspend(() => {
          next = undefined
          const began = now()
          const before = changes
          return repo.find(sought).pipe(
            Effect.timeout(QUERY_TIMEOUT),
            Effect.catchTag("TimeoutError", unavailable),
            Effect.map((found) => {
              if (changes === before) { for (const agent of found) cache.put(agent, began) }
              return new AgentIndex(found)
            })
          )
        })

      const gathering = (): NonNullable<typeof next> => {
        const names: Array<string> = []
        const sought: Sought = { ids: [], handles: [], keyHashes: [] }
        // In the next tick, all sockets that are readable now have been read.
        const lookUp = runFork(Effect.andThen(nextTick, begin(sought)))
        lookUp.addObserver(() => {
          for (const name of names) if (underWay.get(name) === lookUp) underWay.delete(name)
        })
        return { names, sought, lookUp }
      }

      /** Joins the look-up for this name, or adds the name to the look-up of this tick of the event loop. */
      const lookUp = (name: string, seek: (sought: Sought) => void): LookUp => {
        const known = underWay.get(name)
        if (known !== undefined) return known
        const { lookUp, names, sought } = next ??= gathering()
        seek(sought)
        names.push(name)
        underWay.set(name, lookUp)
        return lookUp
      }

      return Agents.of({
        byKeyHash: (hash) =>
          Effect.suspend(() => {
            const key = hashText(hash)
            const cached = cache.byKey(key, now())
            return cached !== undefined
              ? Effect.succeed(cached)
              : Effect.map(Fiber.join(lookUp(`key ${key}`, (sought) => sought.keyHashes.push(hash))), ({ keys }) =>
                keys.get(key))
          }),
        byHandle: (handle) =>
          Effect.suspend(() => {
            const cached = cache.byHandle(handle, now())
            return cached !== undefined
              ? Effect.succeed(living(cached))
              : Effect.map(
                Fiber.join(lookUp(`handle ${handle}`, (sought) => sought.handles.push(handle))),
                ({ handles }) => living(handles.get(handle))
              )
          }),
        byIds: (ids) =>
          Effect.suspend(() => {
            const time = now()
            const found = new Map<AgentId, Agent>()
            const waiting = new Map<AgentId, LookUp>()
            for (const id of ids) {
              const cached = cache.byId(id, time)
              if (cached !== undefined) found.set(id, cached)
              else waiting.set(id, lookUp(`id ${id}`, (sought) => sought.ids.push(id)))
            }
            if (waiting.size === 0) return Effect.succeed(found)
            return Effect.map(Effect.forEach(new Set(waiting.values()), (lookUp) => Fiber.join(lookUp)), (answers) => {
              for (const id of waiting.keys()) {
                for (const answer of answers) {
                  const agent = answer.ids.get(id)
                  if (agent !== undefined) found.set(id, agent)
                }
              }
              return found
            })
          }),
        keyHashes: (ids) =>
          Effect.map(
            repo.byIds(ids),
            (found) =>
              new Map(
                found.flatMap(({ id, keyHash }) => keyHash === null ? [] : [[id, keyHash.toString("hex")] as const])
              )
          ),
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

const living = (agent: Agent | undefined): Agent | undefined =>
  agent === undefined || agent.deletedAt !== null ? undefined : agent
