/** The facts about a node from which membership is computed. */
export interface NodeView {
  /** RUNNER_HOST:RUNNER_PORT. */
  readonly address: string
  /** Whether the node owns shards. A gateway does not. */
  readonly ownsShards: boolean
  /** The node's position in the order in which nodes were listed. */
  readonly listed: number
  /**
   * Whether the lock of the node's address is held and its row is fresh. Otherwise the node's own reports do not count.
   */
  readonly isCurrent: boolean
  /**
   * Whether the node's row is older than three seconds, although another node has kept writing its own row all that
   * time.
   */
  readonly isSilent: boolean
  /** The addresses of the nodes from which the node gets responses. */
  readonly reaches: ReadonlySet<string>
}

/**
 * Returns the listed nodes that belong to the cluster. Every node computes them from the same rows.
 *
 * - While any two current owners of shards are not connected in both directions, the owner with the fewest two-way
 *   connections is excluded. If several owners have equally few, the owner that was listed last is excluded. As a
 *   result, a node that is cut off from the other nodes is excluded alone, whatever it reports. Of two nodes that are
 *   not connected, the node that was listed earlier stays.
 * - A gateway belongs if it is connected with every remaining owner in both directions. A gateway has no influence on
 *   owners.
 * - An owner that is silent is excluded, even if it responds to other nodes, because it cannot commit.
 * - Any other node that is not current belongs if more than half of the remaining owners are connected to it. Such a
 *   node has no influence.
 * - If no owner is current, all listed nodes belong, because missing reports do not prove that a node is dead.
 */
export const membersOf = (nodes: ReadonlyArray<NodeView>): ReadonlySet<string> => {
  const owners = connectedOwners(nodes.filter(({ isCurrent, ownsShards }) => isCurrent && ownsShards))
  if (owners.length === 0) return new Set(nodes.map(({ address }) => address))
  const belongs = (node: NodeView): boolean =>
    node.isCurrent
      ? node.ownsShards ? owners.includes(node) : contactsOf(node, owners) === owners.length
      : !(node.ownsShards && node.isSilent) &&
        owners.filter(({ reaches }) => reaches.has(node.address)).length * 2 > owners.length
  return new Set(nodes.filter(belongs).map(({ address }) => address))
}

/** Whether a node may be listed. This is the case if the node would belong to the cluster as the last listed node. */
export const mayJoin = (listed: ReadonlyArray<NodeView>, self: NodeView): boolean => {
  const others = listed.filter(({ address }) => address !== self.address)
  return membersOf([...others, { ...self, isCurrent: true, isSilent: false, listed: Number.POSITIVE_INFINITY }]).has(
    self.address
  )
}

/**
 * The owners whose database sessions this node may end. These are the excluded owners, if this node is a current owner
 * that remains in the cluster. Of two nodes, at most one may end the sessions of the other, because both compute this
 * from the same rows.
 */
export const endedBy = (self: string, nodes: ReadonlyArray<NodeView>): ReadonlyArray<NodeView> => {
  const members = membersOf(nodes)
  return nodes.some(({ address, isCurrent, ownsShards }) =>
      address === self && isCurrent && ownsShards && members.has(self)
    )
    ? nodes.filter(({ address, ownsShards }) => ownsShards && !members.has(address))
    : []
}

/**
 * Removes the least connected owner until all remaining owners are connected to each other. Each connection is counted
 * once, so that the time does not grow with the cube of the number of owners when many of them are cut off.
 */
const connectedOwners = (all: ReadonlyArray<NodeView>): Array<NodeView> => {
  const owners = [...all]
  const contacts = new Map(owners.map((owner) => [owner, contactsOf(owner, owners)]))
  for (;;) {
    const worst = leastConnected(owners, contacts)
    if (worst === undefined || contacts.get(worst) === owners.length - 1) return owners
    owners.splice(owners.indexOf(worst), 1)
    for (const other of owners) if (areConnected(worst, other)) contacts.set(other, contacts.get(other)! - 1)
  }
}

const areConnected = (one: NodeView, other: NodeView): boolean =>
  one !== other && one.reaches.has(other.address) && other.reaches.has(one.address)

const contactsOf = (node: NodeView, others: ReadonlyArray<NodeView>): number =>
  others.filter((other) => areConnected(node, other)).length

const leastConnected = (
  nodes: ReadonlyArray<NodeView>,
  contacts: ReadonlyMap<NodeView, number>
): NodeView | undefined => {
  let worst: NodeView | undefined
  let fewest = Number.POSITIVE_INFINITY
  for (const node of nodes) {
    const count = contacts.get(node)!
    if (count < fewest || (count === fewest && worst !== undefined && node.listed > worst.listed)) {
      worst = node
      fewest = count
    }
  }
  return worst
}

/** Whether two reads show the same nodes in the same state, so that the same nodes belong to the cluster. */
export const areAlike = (before: ReadonlyArray<NodeView>, after: ReadonlyArray<NodeView>): boolean =>
  before.length === after.length && before.every((one, i) => {
    const other = after[i]!
    return one.address === other.address && one.reaches === other.reaches && one.isCurrent === other.isCurrent &&
      one.isSilent === other.isSilent && one.listed === other.listed && one.ownsShards === other.ownsShards
  })
