import { Effect } from "effect"
import type { CloseReason } from "#domain/agents/Sessions"

/** The part of a socket that the check of keys needs. */
export interface Keyed {
  readonly keyHash: string
  /** Undefined until the key has arrived and been checked. */
  readonly session: { readonly agent: { readonly id: string }; readonly close: (reason: CloseReason) => void } | undefined
}

export const badKey: CloseReason = { code: 1008, text: "the key is not valid" }

/** Sockets whose keys are read with one query. */
const CHUNK = 500

/**
 * Closes the sockets whose keys have become invalid without a notice. Checks only sockets that were sessions before the
 * query, because its result says nothing about later ones, and clients do not reconnect after this close.
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
