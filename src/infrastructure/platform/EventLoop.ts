import { Effect } from "effect"

/** Completes in the next tick of the event loop, so that other work that is due can run first. */
export const nextTick = Effect.callback<void>((resume) => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})
