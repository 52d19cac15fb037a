import { Duration, Effect, Exit } from "effect"

/** How long a failure is kept, so that the requests of a busy server cause few attempts and few lines in the log. */
const RETRY_AFTER = "1 second"

/** Runs an effect once and keeps its success. Concurrent callers share a run. After a failure, a later call runs it again. */
export const keepSuccess = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<Effect.Effect<A, E, R>> =>
  Effect.cachedWithTTL(effect, (exit) => Exit.isSuccess(exit) ? Duration.infinity : RETRY_AFTER)

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
    Effect.catchCause(Effect.uninterruptible(load), (cause) =>
      Effect.andThen(
        Effect.logWarning(`${name} could not be loaded. The next use tries again`, cause),
        Effect.fail(failure())
      ))
  )
