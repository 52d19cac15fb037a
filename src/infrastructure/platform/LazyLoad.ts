import { Effect, Fiber } from "effect"

/** How long a failure is kept, so that the requests of a busy server cause few attempts and few lines in the log. */
const RETRY_AFTER = "1 second"

/**
 * Runs an effect once and keeps its success. Concurrent callers share a run, which goes on when they leave. After a
 * failure, a later call runs the effect again.
 */
export const keepSuccess = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<Effect.Effect<A, E, R>> =>
  Effect.sync(() => {
    let run: Fiber.Fiber<A, E> | undefined
    const forget = Effect.delay(
      Effect.sync(() => {
        run = undefined
      }),
      RETRY_AFTER
    )
    const once = Effect.tapCause(effect, () => Effect.forkDetach(forget))
    return Effect.flatMap(Effect.context<R>(), (context) => Fiber.join(run ??= Effect.runForkWith(context)(once)))
  })

/**
 * Loads a part of the program, `name`, when it is first needed, and keeps it. A load can fail because the process can
 * open no more files, or because another program is replacing the files. Every failure is logged and becomes `failure`,
 * and a later call loads again.
 */
export const loadOnce = <A, E, R>(
  name: string,
  load: Effect.Effect<A, unknown, R>,
  failure: () => E
): Effect.Effect<Effect.Effect<A, E, R>> =>
  keepSuccess(
    Effect.catchCause(load, (cause) =>
      Effect.andThen(
        Effect.logWarning(`${name} could not be loaded. The next use tries again`, cause),
        Effect.fail(failure())
      ))
  )
