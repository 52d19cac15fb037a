import { Clock, Effect, Option } from "effect"
import { type Claim, type Failure, ParleyApi } from "./ParleyApi.ts"

/** How often the claims of a run are renewed, in milliseconds. A claim lasts 600 s (wire.md L). */
const RENEW_MS = 60_000
const CLAIM_MS = 600_000

/** The claims of one connector. They prevent other processes of the agent from answering the same messages. */
export const makeClaims = Effect.fnUntraced(function*(holder: string) {
  const api = yield* ParleyApi
  /** When this process's claims in each conversation end. */
  const until = new Map<string, number>()

  const call = Effect.fnUntraced(function*(conversation: string, ids: ReadonlyArray<string>, defer: boolean) {
    const claim = yield* api.claim(ids, holder, defer)
    if (claim.count > 0) until.set(conversation, (yield* Clock.currentTimeMillis) + CLAIM_MS)
    return claim
  })

  /** Claims messages for a new run, unless a live session of the agent holds a lease. */
  const first = (conversation: string, ids: ReadonlyArray<string>): Effect.Effect<Claim, Failure> =>
    call(conversation, ids, true)

  /**
   * Claims the messages of a run again before anything is sent in reply. If the claims may have expired, a live session
   * of the agent takes precedence.
   */
  const again = (conversation: string, ids: ReadonlyArray<string>): Effect.Effect<Claim, Failure> =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => call(conversation, ids, now > (until.get(conversation) ?? 0)))

  /**
   * Renews the claims of a run until they are lost, and then returns. Claims are lost if another process has claimed
   * the messages, or if they have expired while the server did not respond.
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
