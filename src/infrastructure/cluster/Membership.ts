/** The facts about a node from which membership is computed. */
export interface NodeView {
  /** RUNNER_HOST:RUNNER_PORT. */
  readonly address: string
  /** Whether it owns shards; a gateway does not. */
  readonly ownsShards: boolean
  /** Its place in the order in which nodes were listed. */
  readonly listed: number
  /** Whether its address lock is held and its row is fresh. Otherwise its own reports do not count. */
  readonly isCurrent: boolean
  /** Whether its row is older than three seconds, although another owner has written its own row all that time. */
  readonly isSilent: boolean
  /** The addresses of the nodes that answer it. */
  readonly reaches: ReadonlySet<string>
}

/**
 * The listed nodes that belong to the cluster. Every node computes them from the same rows.
 *
 * - While any two current owners of shards do not reach each other both ways, the owner with the fewest two-way
 *   contacts is excluded, and of equal owners the one listed last. So a node that is cut off from the others is
 *   excluded alone, whatever it reports. Of two nodes that do not reach each other, the one listed earlier stays.
 * - A gateway belongs if it and every remaining owner reach each other. It has no influence on owners.
 * - An owner that is silent is excluded, even if it answers other nodes, because it cannot commit.
 * - Any other node that is not current belongs if more than half of the remaining owners reach it. It has no influence.
 * - If no owner is current, all listed nodes belong, because missing reports do not prove that a node is dead.
 */
export const membersOf = (nodes: ReadonlyArray<NodeView>): ReadonlySet<string> => {
  const owners = nodes.filter(({ isCurrent, ownsShards }) => isCurrent && ownsShards)
  for (;;) {
    const worst = leastConnected(owners)
    if (worst === undefined || contactsOf(worst, owners) === owners.length - 1) break
    owners.splice(owners.indexOf(worst), 1)
  }
  if (owners.length === 0) return new Set(nodes.map(({ address }) => address))
  const belongs = (node: NodeView): boolean =>
    node.isCurrent
      ? node.ownsShards ? owners.includes(node) : contactsOf(node, owners) === owners.length
      : !(node.ownsShards && node.isSilent) &&
        owners.filter(({ reaches }) => reaches.has(node.address)).length * 2 > owners.length
  return new Set(nodes.filter(belongs).map(({ address }) => address))
}

/** Whether a node may be listed. It may if it would belong to the cluster as the last one listed. */
export const mayJoin = (listed: ReadonlyArray<NodeView>, self: NodeView): boolean => {
  const others = listed.filter(({ address }) => address !== self.address)
  return membersOf([...others, { ...self, isCurrent: true, isSilent: false, listed: Number.POSITIVE_INFINITY }]).has(
    self.address
  )
}

/**
 * The owners whose database sessions this node may end: the excluded owners, if this node is current and remains. Of
 * two nodes only one may end the sessions of the other, because both compute this from the same rows.
 */
export const endedBy = (self: string, nodes: ReadonlyArray<NodeView>): ReadonlyArray<NodeView> => {
  const members = membersOf(nodes)
  return nodes.some(({ address, isCurrent, ownsShards }) =>
      address === self && isCurrent && ownsShards && members.has(self)
    )
    ? nodes.filter(({ address, ownsShards }) => ownsShards && !members.has(address))
    : []
}

const contactsOf = (node: NodeView, others: ReadonlyArray<NodeView>): number =>
  others.filter((other) => other !== node && node.reaches.has(other.address) && other.reaches.has(node.address)).length

const leastConnected = (nodes: ReadonlyArray<NodeView>): NodeView | undefined => {
  let worst: NodeView | undefined
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
