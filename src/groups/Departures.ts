import { Context, Effect, Latch, Layer } from "effect"

/**
 * Wakes whoever takes deleted accounts out of their groups. Who they are is in
 * storage, written with the deletion itself: a call that is lost only costs time.
 */
export class Departures extends Context.Service<Departures, {
  readonly announce: Effect.Effect<void>
  /** Waits for an announcement since the last one was waited for. */
  readonly awaited: Effect.Effect<void>
}>()("parley/groups/Departures") {
  static readonly layer = Layer.sync(Departures, () => {
    const latch = Latch.makeUnsafe()
    return Departures.of({
      announce: Effect.asVoid(latch.open),
      awaited: Effect.andThen(latch.await, Effect.asVoid(latch.close))
    })
  })
}
