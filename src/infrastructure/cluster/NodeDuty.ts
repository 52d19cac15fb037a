import { Context, Effect, Latch, Layer } from "effect"

/** A latch that opens after the whole process has been built. */
export const Complete = Context.Reference<Latch.Latch>("parley/cluster/NodeDuty/Complete", {
  defaultValue: () => Latch.makeUnsafe(true)
})

const notDrained = () => ({ drained: false, joined: false, nodes: new Set<string>() })

/**
 * The nodes that own no shards but still belong to the cluster: nodes that were drained, are stopping, or have just
 * joined.
 */
export class NodeDrain extends Context.Reference<{
  /** Whether an operator has drained this node (wire.md O), or the node is stopping. The value is lost on restart. */
  drained: boolean
  /** Whether this node has been listed. */
  joined: boolean
  /** All nodes that own no shards, according to the last read of this node. */
  nodes: ReadonlySet<string>
}>("parley/cluster/NodeDuty/NodeDrain", { defaultValue: notDrained }) {
  static readonly layer = Layer.sync(NodeDrain, notDrained)
}

/** Opens `Complete`, so that this node can be listed and get shards. */
export const complete: Effect.Effect<void> = Effect.flatMap(Complete, (latch) => Effect.asVoid(latch.open))
