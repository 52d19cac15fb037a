import { Effect, Option } from "effect"
import { type Moves, type PlaceLimits, PostScheduler } from "./PostScheduler.ts"
import type { PostTarget, Standing } from "./TargetHealth.ts"

interface Waiter extends PostTarget {
  /** Ends the wait. `granted` is whether the post got a place. */
  go: (granted: boolean) => void
}

export interface PostQueue {
  /**
   * Runs the post when a place is free, and keeps the place until the post ends. Passes to the post whether it had to
   * wait. A wait can take many minutes. If too many posts wait, returns `None` and runs nothing.
   */
  readonly run: (
    target: PostTarget
  ) => <A, E, R>(post: (waited: boolean) => Effect.Effect<A, E, R>) => Effect.Effect<Option.Option<A>, E, R>
  readonly underWay: () => number
  readonly waiting: () => number
}

/** Makes a queue in which `PostScheduler` decides which post runs next. */
export const makePostQueue = (limits: PlaceLimits, standingOf: (target: PostTarget) => Standing): PostQueue => {
  const places = new PostScheduler<Waiter>(limits, standingOf)
  const tell = ({ granted, refused }: Moves<Waiter>): void => {
    for (const waiter of granted) waiter.go(true)
    for (const waiter of refused) waiter.go(false)
  }
  return {
    run: ({ agentId, host }) => (post) =>
      Effect.suspend(() => {
        const waiter: Waiter = { agentId, host, go: () => {} }
        let waited = false
        return Effect.callback<boolean>((resume) => {
          // Without the yield, posts that end immediately would start each other in one ever deeper call stack.
          waiter.go = (granted) => resume(Effect.as(Effect.yieldNow, granted))
          const moves = places.enter(waiter)
          waited = !moves.granted.includes(waiter)
          tell(moves)
        }).pipe(
          Effect.flatMap((granted) => granted ? Effect.asSome(post(waited)) : Effect.succeedNone),
          Effect.ensuring(Effect.sync(() => tell(places.leave(waiter))))
        )
      }),
    underWay: () => places.underWay,
    waiting: () => places.waiting
  }
}
