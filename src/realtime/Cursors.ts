import { Effect, Semaphore } from "effect"

/** A socket, as far as its cursor goes. */
export interface Following {
  readonly session: { readonly agent: { readonly id: string }; readonly check: (head: number) => void } | undefined
}

/** Sockets that storage is asked about at once. */
const CHUNK = 500

/**
 * Tells sessions how far their inboxes are in storage. One comparison at a time: what a
 * session was told before is then older than what it is told next, and a cursor that has
 * gone on between two questions is never taken for one that storage has lost (Session.check).
 */
export const makeComparison = <E>(
  connections: Iterable<Following>,
  heads: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, number>, E>
): Effect.Effect<void, E> =>
  Semaphore.makeUnsafe(1).withPermits(1)(Effect.gen(function*() {
    const sessions = Array.from(connections).flatMap(({ session }) => session ?? [])
    for (let from = 0; from < sessions.length; from += CHUNK) {
      const chunk = sessions.slice(from, from + CHUNK)
      const found = yield* heads([...new Set(chunk.map(({ agent }) => agent.id))])
      for (const session of chunk) {
        const head = found.get(session.agent.id)
        if (head !== undefined) session.check(head)
      }
    }
  }))
