import { makeActors } from "#infrastructure/platform/Actors"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { CALLER_TIMEOUT_MS } from "#infrastructure/wire/WireError"
import { Clock, Effect, Schedule } from "effect"
import type { SendTypes } from "./SendKind.ts"
import type { SendQueue } from "./SendQueue.ts"

/** How long an actor stays in memory after its last command, in milliseconds. */
const IDLE_MS = 300_000

/**
 * Makes the registry of the conversations of one kind. A check once a second ends the wait of callers that have waited
 * for `CALLER_TIMEOUT_MS`.
 */
export const makeSendQueues = Effect.fnUntraced(
  function*<Actor extends Pick<SendQueue<SendTypes>, "idle" | "lastUsed" | "timeOutCallers">>(
    kind: "conversation" | "group",
    make: (id: string) => Actor
  ) {
    const clock = yield* Clock.Clock
    const monotonic = monotonicMillis(clock)
    const actors = yield* makeActors(
      kind,
      make,
      ({ idle, lastUsed }) => idle && lastUsed < clock.currentTimeMillisUnsafe() - IDLE_MS
    )
    yield* Effect.sync(() => {
      const before = monotonic() - CALLER_TIMEOUT_MS
      for (const actor of actors.all())
        if (!actor.idle)
          actor.timeOutCallers(before)
    }).pipe(Effect.repeat(Schedule.spaced("1 second")), Effect.delay("1 second"), Effect.forkScoped)
    return actors
  }
)
