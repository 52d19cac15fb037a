/** What is known of a node when it is decided who belongs to the cluster. */
export interface NodeSight {
  /** RUNNER_HOST:RUNNER_PORT. */
  readonly address: string
  /** Whether it takes shards; a gateway does not. */
  readonly ownsShards: boolean
  /** Its place in the order in which nodes were listed. */
  readonly listed: number
  /** Whether its lock lives and what it said is young; of any other node its own word does not count. */
  readonly isCurrent: boolean
  /** The nodes that answer it. */
  readonly reaches: ReadonlySet<string>
}

/**
 * Which of the listed nodes belong to the cluster. Every node computes this from the same rows.
 *
 * - While two owners of shards cannot talk both ways, the one that can talk with the fewest is left out; of equals, the
 *   one that was listed last. So a node that cannot talk with the others is left out alone, whatever it says of them,
 *   and of two that cannot talk with each other the one listed earlier stays.
 * - A gateway belongs if it can talk both ways with every owner that does; it never decides about an owner.
 * - A node that says nothing at the moment belongs if more than half of those owners reach it. It decides nothing.
 * - While no owner says anything, everybody stays: that is no sign that somebody is dead.
 */
export const membersOf = (nodes: ReadonlyArray<NodeSight>): ReadonlySet<string> => {
  const owners = nodes.filter(({ isCurrent, ownsShards }) => isCurrent && ownsShards)
  for (;;) {
    const worst = leastConnected(owners)
    if (worst === undefined || contactsOf(worst, owners) === owners.length - 1) break
    owners.splice(owners.indexOf(worst), 1)
  }
  if (owners.length === 0) return new Set(nodes.map(({ address }) => address))
  const belongs = (node: NodeSight): boolean =>
    node.isCurrent
      ? node.ownsShards ? owners.includes(node) : contactsOf(node, owners) === owners.length
      : owners.filter(({ reaches }) => reaches.has(node.address)).length * 2 > owners.length
  return new Set(nodes.filter(belongs).map(({ address }) => address))
}

/** Whether a node that is not listed yet may be: as the last in the list it would belong to the cluster. */
export const mayJoin = (listed: ReadonlyArray<NodeSight>, self: NodeSight): boolean => {
  const others = listed.filter(({ address }) => address !== self.address)
  return membersOf([...others, { ...self, isCurrent: true, listed: Number.POSITIVE_INFINITY }]).has(self.address)
}

const contactsOf = (node: NodeSight, others: ReadonlyArray<NodeSight>): number =>
  others.filter((other) => other !== node && node.reaches.has(other.address) && other.reaches.has(node.address)).length

const leastConnected = (nodes: ReadonlyArray<NodeSight>): NodeSight | undefined => {
  let worst: NodeSight | undefined
  let fewest = Number.POSITIVE_INFINITY
  for (const node of nodes) {
    const contacts = contactsOf(node, nodes)
    if (contacts < fewest || (contacts === fewest && worst !== undefined && node.listed > worst.listed)) {
      worst = node
      fewest = contacts
    }
  }
  return worst
}
