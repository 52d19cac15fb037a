import { Effect, Semaphore } from "effect"

/** The fields of a socket that the comparison of cursors needs. */
export interface Following {
  readonly session: { readonly agent: { readonly id: string }; readonly check: (head: number) => void } | undefined
}

/** For how many sockets one query reads the inboxes. */
const BATCH_SIZE = 500

/**
 * Compares sessions with the newest numbers of their inboxes in storage. Only one comparison runs at a time. If two ran
 * at once, a session could get an older number after a newer one. The session would then conclude that its cursor is
 * beyond storage (`check`).
 */
export const makeComparison = <E>(
  connections: Iterable<Following>,
  heads: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, number>, E>
): Effect.Effect<void, E> =>
  Semaphore.makeUnsafe(1).withPermits(1)(Effect.gen(function*() {
    const sessions = Array.from(connections).flatMap(({ session }) => session ?? [])
    for (let from = 0; from < sessions.length; from += BATCH_SIZE) {
      const chunk = sessions.slice(from, from + BATCH_SIZE)
      const found = yield* heads([...new Set(chunk.map(({ agent }) => agent.id))])
      for (const session of chunk) {
        const head = found.get(session.agent.id)
        if (head !== undefined) session.check(head)
      }
    }
  }))
