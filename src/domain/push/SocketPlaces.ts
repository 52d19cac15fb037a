/** The place of one socket among those of its agent on all nodes. */
export interface SocketPlace {
  readonly agentId: string
  /**
   * When the socket was accepted, in milliseconds, plus a second if the place was contested. Later than that of every
   * socket that the node knew at the time.
   */
  readonly since: number
}

/** The node, and the `since` of each socket that an agent has there. */
export type Elsewhere = readonly [node: string, since: ReadonlyArray<number>]

/** A socket's place among those of its agent, taken before the socket is attached. */
export interface SocketSlot extends SocketPlace {
  /**
   * Whether other nodes may be assigning the same place now. `PushRouter.reachable` completes when it is decided which
   * socket keeps it.
   */
  readonly contested: boolean
  /** Called if sockets on other nodes turn out to come first. The place has been released by then. */
  readonly displaced: () => void
}

/** The time of the next socket. It is later than that of all known ones, even if clocks differ. */
export const nextSince = (now: number, own: ReadonlyArray<SocketPlace>, elsewhere: Iterable<Elsewhere>): number => {
  let since = now
  for (const place of own) since = Math.max(since, place.since + 1)
  for (const [, others] of elsewhere) for (const other of others) since = Math.max(since, other + 1)
  return since
}

/**
 * Returns the sockets of an agent on `node` that exceed the limit. Of all known sockets the first ones stay, ordered by
 * time and then by node. Each node decides about its own sockets, by the same order. So nodes that know the same
 * sockets keep exactly as many as the limit.
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
