import { Redis } from "#infrastructure/platform/Redis"
import { Effect, Layer } from "effect"
import { eventuallyEffect } from "./Eventually.ts"

/** Waits until there is a connection: a process starts without one if Redis takes more than a second. */
export const untilConnected = Layer.effectDiscard(
  Effect.flatMap(Redis, (redis) => {
    const channel = redis.channel("connected")
    return eventuallyEffect(
      () => "a connection to Redis",
      Effect.sync(() => channel.unusable() === undefined || undefined)
    )
  })
)
