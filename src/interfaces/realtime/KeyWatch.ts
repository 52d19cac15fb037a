import type { Agents } from "#domain/agents/Agents"
import type { CloseReason } from "#domain/agents/Sessions"
import type { Presences } from "#domain/presence/Presences"
import type { LiveAgents } from "#domain/push/LiveAgents"
import { Effect, Schedule } from "effect"
import { closeWith, type Connection } from "./Connection.ts"
import { readAgain } from "./SocketSession.ts"

/** How often a node checks whether the other nodes can still notify it. */
const TICK_INTERVAL = "500 millis"
/** How long accounts are cached (`AgentCache.ts`). */
const CACHE_TTL = "1 second"
/**
 * How long a node keeps its sockets while it is not connected to all other nodes and reads no keys of sockets, in
 * milliseconds.
 */
const CUT_OFF_MS = 3_000

const CUT_OFF: CloseReason = { code: 1013, text: "this server is cut off from the others: connect again" }

/** The fields of a socket that the check of keys needs. */
export interface Keyed {
  readonly keyHash: string
  /** Undefined until the key has been received and checked. */
  readonly session:
    | { readonly agent: { readonly id: string }; readonly close: (reason: CloseReason) => void }
    | undefined
}

export const badKey: CloseReason = { code: 1008, text: "the key is not valid" }

/** For how many sockets one query reads the keys. */
const BATCH_SIZE = 500

/**
 * Closes the sockets whose keys have become invalid without a notice to this node. Checks only sockets that had a
 * session before the query. The result says nothing about later sockets, and clients do not reconnect after this close.
 */
export const closeDeadKeys = Effect.fnUntraced(function*<E>(
  connections: Iterable<Keyed>,
  keyHashes: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, string>, E>
) {
  const open = Array.from(connections).flatMap(({ keyHash, session }) =>
    session === undefined ? [] : [{ keyHash, session }]
  )
  for (let from = 0; from < open.length; from += BATCH_SIZE) {
    const chunk = open.slice(from, from + BATCH_SIZE)
    const hashes = yield* keyHashes([...new Set(chunk.map(({ session }) => session.agent.id))])
    for (const { keyHash, session } of chunk) {
      if (hashes.get(session.agent.id) !== keyHash) session.close(badKey)
    }
  }
})

/**
 * When a node is notified of a new key, `LiveAgents` closes the sockets with the old key (`disconnect`). This watch
 * closes sockets whose keys have become invalid without a notice. It checks keys while other nodes cannot notify this
 * node, and after a connection to another node has ended.
 */
export const watchKeys = Effect.fnUntraced(
  function*({ agents, connections, fork, liveAgents, logDefect, now, presences }: {
    readonly agents: Agents["Service"]
    readonly connections: Iterable<Connection>
    readonly fork: (effect: Effect.Effect<void>) => void
    readonly liveAgents: LiveAgents["Service"]
    readonly logDefect: (defect: unknown) => Effect.Effect<void>
    /** The monotonic clock, in milliseconds. */
    readonly now: () => number
    readonly presences: Presences["Service"]
  }) {
    const checkKeys = closeDeadKeys(connections, agents.keyHashes)
    /** When this node last heard all other nodes, or read keys. */
    let knownAt = now()
    const known = Effect.sync(() => {
      knownAt = now()
    })
    // The reads of very many sockets may take longer on a busy machine. They end the sockets with old keys one by one.
    const checkKeysInTime = closeDeadKeys(
      connections,
      (agentIds) => Effect.tap(Effect.timeout(agents.keyHashes(agentIds), CUT_OFF_MS), known)
    )
    // A node that rejoins the cluster is ready before the other nodes have its address again. Until then, their notices
    // do not reach the node. A node that is cut off gets no notices at all, so its clients must connect to another
    // node.
    const watch = Effect.gen(function*() {
      if (!liveAgents.hearsAll()) yield* checkKeysInTime
      yield* known
    }).pipe(
      Effect.catchDefect(logDefect),
      Effect.ignore,
      Effect.andThen(Effect.sync(() => {
        if (now() - knownAt < CUT_OFF_MS) return
        for (const connection of connections) closeWith(connection, CUT_OFF)
      }))
    )
    yield* Effect.forkScoped(Effect.repeat(watch, Schedule.spaced(TICK_INTERVAL)))

    /** Closes the sockets whose keys have become invalid without a notice, and reloads the mutes. */
    const recheck = Effect.andThen(checkKeys, liveAgents.reloadMutes).pipe(
      Effect.retry(readAgain),
      Effect.catchCause((cause) =>
        Effect.logWarning("The keys and mutes of the sockets could not be checked again", cause)
      )
    )
    liveAgents.onParted((agentIds) =>
      fork(Effect.gen(function*() {
        yield* recheck
        yield* Effect.forEach(agentIds, (agentId) => Effect.ignore(presences.sockets(agentId)), {
          concurrency: 8,
          discard: true
        })
        // Meanwhile a socket may have been accepted for an account that was cached before its key changed.
        yield* Effect.sleep(CACHE_TTL)
        yield* recheck
      }))
    )
  }
)
