import { Effect } from "effect"
import type { CloseReason } from "../agents/Sessions.ts"

/** A socket, as far as its key goes. */
export interface Keyed {
  readonly keyHash: string
  /** Undefined while the key is still to come, or to be checked. */
  readonly session: { readonly agent: { readonly id: string }; readonly close: (reason: CloseReason) => void } | undefined
}

export const badKey: CloseReason = { code: 1008, text: "the key is not valid" }

/** Sockets that storage is asked about at once. */
const CHUNK = 500

/**
 * Closes the sockets whose keys have died without word of it. Only those that were
 * sessions before storage is asked: what it answers tells nothing of whoever comes
 * meanwhile, and no client comes back from this close.
 */
export const closeDeadKeys = Effect.fnUntraced(function*<E>(
  connections: Iterable<Keyed>,
  keyHashes: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, string>, E>
) {
  const open = Array.from(connections).flatMap(({ keyHash, session }) => session === undefined ? [] : [{ keyHash, session }])
  for (let from = 0; from < open.length; from += CHUNK) {
    const chunk = open.slice(from, from + CHUNK)
    const hashes = yield* keyHashes([...new Set(chunk.map(({ session }) => session.agent.id))])
    for (const { keyHash, session } of chunk) {
      if (hashes.get(session.agent.id) !== keyHash) session.close(badKey)
    }
  }
})
