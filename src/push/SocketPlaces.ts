/** The place of one socket among those of its agent on all nodes. */
export interface SocketPlace {
  readonly agentId: string
  /**
   * When it was let in, in milliseconds; a second later if the place was contested; always after all
   * sockets known there.
   */
  readonly since: number
}

/** The same for the sockets that an agent has on another node. */
export type Elsewhere = readonly [node: string, since: ReadonlyArray<number>]

/** A socket's place among those of its agent, taken before the socket is attached. */
export interface SocketSlot extends SocketPlace {
  /** Whether other nodes may be giving away the same place right now; `PushRouter.reachable` completes when that is decided. */
  readonly contested: boolean
  /** Called when sockets on other nodes turn out to come first; by then the place has been given back. */
  readonly displaced: () => void
}

/** The time of the next socket: after all known ones, however clocks differ. */
export const nextSince = (now: number, own: ReadonlyArray<SocketPlace>, elsewhere: Iterable<Elsewhere>): number => {
  let since = now
  for (const place of own) since = Math.max(since, place.since + 1)
  for (const [, others] of elsewhere) for (const other of others) since = Math.max(since, other + 1)
  return since
}

/**
 * Which of an agent's sockets on `node` exceed the limit: of all that are known the first ones stay,
 * ordered by time and then by node. Each node decides about its own, all by the same order, so nodes that
 * know of the same sockets keep exactly as many as the limit.
 */
export const beyond = <P extends SocketPlace>(
  limit: number,
  node: string,
  own: ReadonlyArray<P>,
  elsewhere: ReadonlyArray<Elsewhere>
): ReadonlyArray<P> =>
  own.filter(({ since }) => {
    let before = 0
    for (const place of own) if (place.since < since) before++
    for (const [other, others] of elsewhere) {
      for (const one of others) if (one < since || (one === since && other < node)) before++
    }
    return before >= limit
  })
