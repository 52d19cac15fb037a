import { Clock, Effect, Option } from "effect"
import { type Claim, type Failure, ParleyApi } from "./ParleyApi.ts"

/** How often the claims of a run are renewed. A claim lasts 600 s (wire.md L). */
const RENEW_MS = 60_000
const CLAIM_MS = 600_000

/** The claims of one connector, so that no other process of the agent answers the same messages. */
export const makeClaims = Effect.fnUntraced(function*(holder: string) {
  const api = yield* ParleyApi
  /** When the claims of this process end, for each conversation. */
  const until = new Map<string, number>()

  const call = Effect.fnUntraced(function*(conversation: string, ids: ReadonlyArray<string>, defer: boolean) {
    const claim = yield* api.claim(ids, holder, defer)
    if (claim.count > 0) until.set(conversation, (yield* Clock.currentTimeMillis) + CLAIM_MS)
    return claim
  })

  /** Claims messages for a new run, unless a live session of the agent has a lease. */
  const first = (conversation: string, ids: ReadonlyArray<string>): Effect.Effect<Claim, Failure> =>
    call(conversation, ids, true)

  /**
   * Claims the messages of a run again before something is sent for them. If the claims may have ended, a live session
   * has precedence.
   */
  const again = (conversation: string, ids: ReadonlyArray<string>): Effect.Effect<Claim, Failure> =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => call(conversation, ids, now > (until.get(conversation) ?? 0)))

  /**
   * Renews the claims of a run. Returns once they are lost: another process has them, or they ended while the server
   * did not answer.
   */
  const untilLost = Effect.fnUntraced(function*(conversation: string, ids: ReadonlyArray<string>) {
    for (;;) {
      yield* Effect.sleep(RENEW_MS)
      const claim = yield* Effect.option(call(conversation, ids, false))
      const now = yield* Clock.currentTimeMillis
      if (Option.isSome(claim) ? claim.value.count < ids.length : now > (until.get(conversation) ?? 0))
        return { _tag: "Lost" } as const
    }
  })

  return { first, again, untilLost }
})
