import { Effect, Schedule } from "effect"
import { actors as gauge } from "./Metrics.ts"

/** The actors of one kind in this node's memory. */
export interface Actors<Actor> {
  /** Returns the actor with this id, and creates it if it is not in memory. */
  readonly of: (id: string) => Actor
  /** Returns undefined if the actor is not in memory. */
  readonly find: (id: string) => Actor | undefined
  readonly all: () => Iterable<Actor>
}

/**
 * Makes the registry of one kind of actor. Once a minute, `isIdle` decides for each actor whether it can leave memory.
 * An actor can leave if creating it again neither loses anything nor does anything twice.
 */
export const makeActors = Effect.fnUntraced(function*<Actor>(
  kind: "agent" | "conversation" | "group" | "webhook",
  make: (id: string) => Actor,
  isIdle: (actor: Actor, id: string) => boolean
) {
  const actors = new Map<string, Actor>()
  yield* gauge.at(kind).readsIn(() => actors.size)
  yield* Effect.sync(() => {
    for (const [id, actor] of actors) if (isIdle(actor, id)) actors.delete(id)
  }).pipe(Effect.repeat(Schedule.spaced("1 minute")), Effect.delay("1 minute"), Effect.forkScoped)

  const made: Actors<Actor> = {
    of: (id) => {
      const known = actors.get(id)
      if (known !== undefined) return known
      const actor = make(id)
      actors.set(id, actor)
      return actor
    },
    find: (id) => actors.get(id),
    all: () => actors.values()
  }
  return made
})
