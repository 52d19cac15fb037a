import { Context, Effect, Exit, Latch } from "effect"
import type { RunnerStorage } from "effect/cluster"

/** Open once all of this process is built. */
export const Complete = Context.Reference<Latch.Latch>("parley/cluster/NodeDuty/Complete", {
  defaultValue: () => Latch.makeUnsafe(true)
})

/** Says that this node can do the work of its shards: they come from now on. */
export const complete: Effect.Effect<void> = Effect.flatMap(Complete, (latch) => Effect.asVoid(latch.open))

/**
 * The list of nodes for one that is only in it while it can do what the others hand over to it at once.
 *
 * - It is not listed before all of it is built: until then its shards would be nobody's.
 * - One that has lost its locks stops what it did under them before it takes any again, which may take as long as
 *   statements hang. Until then it does not say that it lives and is not listed anew.
 */
export const whileAble = Effect.fnUntraced(function*(storage: RunnerStorage.RunnerStorage["Service"]) {
  const complete = yield* Complete
  const unharmed = Latch.makeUnsafe(true)
  const register: typeof storage.register = (runner, healthy) =>
    complete.await.pipe(Effect.andThen(unharmed.await), Effect.andThen(storage.register(runner, healthy)))
  const refresh: typeof storage.refresh = (address, shards) => {
    const held = [...shards]
    // Without shards it is the question whether the database is back.
    return held.length === 0
      ? Effect.suspend(() => unharmed.isOpen() ? storage.refresh(address, held) : Effect.as(storage.getRunners, []))
      : Effect.onExit(storage.refresh(address, held), (exit) => Exit.isSuccess(exit) ? unharmed.open : unharmed.close)
  }
  const releaseAll: typeof storage.releaseAll = (address) => Effect.tap(storage.releaseAll(address), () => unharmed.open)
  return { ...storage, register, refresh, releaseAll }
})
