/** The place of one socket among all sockets of its agent on all nodes. */
export interface SocketPlace {
  readonly agentId: string
  /**
   * When the socket was accepted, in milliseconds, plus a second if the place was contested. It is later than the
   * `since` of every socket of the agent that the node knew then.
   */
  readonly since: number
}

/** The node, and the `since` of each socket that an agent has there. */
export type Elsewhere = readonly [node: string, since: ReadonlyArray<number>]

/** A place that is taken for a socket before the socket is attached. */
export interface SocketSlot extends SocketPlace {
  /**
   * Whether other nodes may be assigning the same place at the same time. When `PushRouter.reachable` completes, it is
   * decided which socket keeps the place.
   */
  readonly contested: boolean
  /**
   * Called if sockets on other nodes come first and leave no place for this one. The place has been released by then.
   */
  readonly displaced: () => void
}

/**
 * Returns the `since` of the next socket. It is later than that of all known sockets, even if the clocks of nodes
 * differ.
 */
export const nextSince = (now: number, own: ReadonlyArray<SocketPlace>, elsewhere: Iterable<Elsewhere>): number => {
  let since = now
  for (const place of own) since = Math.max(since, place.since + 1)
  for (const [, others] of elsewhere) for (const other of others) since = Math.max(since, other + 1)
  return since
}

/**
 * Returns the sockets of an agent on `node` that exceed the limit. All known sockets are ordered by time and then by
 * node, and the first ones stay. Each node decides only about its own sockets, in this order. So nodes that know the
 * same sockets together keep exactly as many as the limit allows.
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
