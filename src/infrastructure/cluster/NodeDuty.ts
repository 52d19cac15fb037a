import { Context, Effect, Latch, Layer } from "effect"

/** A latch that opens once the whole process is built. */
export const Complete = Context.Reference<Latch.Latch>("parley/cluster/NodeDuty/Complete", {
  defaultValue: () => Latch.makeUnsafe(true)
})

const notDrained = () => ({ drained: false, joined: false, nodes: new Set<string>() })

/**
 * The nodes that own no shards but still belong to the cluster: nodes that were drained, are stopping, or have just
 * joined.
 */
export class NodeDrain extends Context.Reference<{
  /** Whether this node was drained by an operator (wire.md O), or is stopping. Lost on restart. */
  drained: boolean
  /** Whether this node has been listed. */
  joined: boolean
  /** All nodes that own no shards, as far as this one has read. */
  nodes: ReadonlySet<string>
}>("parley/cluster/NodeDuty/NodeDrain", { defaultValue: notDrained }) {
  static readonly layer = Layer.sync(NodeDrain, notDrained)
}

/** Opens the latch, so that this node can be listed and get shards. */
export const complete: Effect.Effect<void> = Effect.flatMap(Complete, (latch) => Effect.asVoid(latch.open))
