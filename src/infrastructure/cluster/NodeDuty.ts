import { Context, Effect, Exit, Latch, Layer } from "effect"
import type { RunnerStorage } from "effect/cluster"

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

/**
 * How long the first attempt to release all shards may take. After an outage of the database the storage may wait for a
 * connection that is not being opened. An attempt that times out makes the storage open a connection.
 */
const FIRST_RELEASE = "500 millis"

/**
 * Wraps the list of nodes so that this node is listed only while it can serve shards at once.
 *
 * - It is not registered before the whole process is built, because until then nothing would serve its shards.
 * - After a failed renewal of its locks it first stops the entities that ran under them, which may take as long as
 *   hanging statements. Until then it neither renews its registration nor registers again.
 */
export const registerOnceServing = Effect.fnUntraced(function*(storage: RunnerStorage.RunnerStorage["Service"]) {
  const complete = yield* Complete
  const unharmed = Latch.makeUnsafe(true)
  const register: typeof storage.register = (runner, healthy) =>
    complete.await.pipe(Effect.andThen(unharmed.await), Effect.andThen(storage.register(runner, healthy)))
  const refresh: typeof storage.refresh = (address, shards) => {
    const held = [...shards]
    // Without shards the call only tests whether the database is back.
    return held.length === 0
      ? Effect.suspend(() => unharmed.isOpen() ? storage.refresh(address, held) : Effect.as(storage.getRunners, []))
      : Effect.onExit(storage.refresh(address, held), (exit) => Exit.isSuccess(exit) ? unharmed.open : unharmed.close)
  }
  const releaseAll: typeof storage.releaseAll = (address) =>
    Effect.timeout(storage.releaseAll(address), FIRST_RELEASE).pipe(
      Effect.catch(() => storage.releaseAll(address)),
      Effect.tap(() => unharmed.open)
    )
  return { ...storage, register, refresh, releaseAll }
})
