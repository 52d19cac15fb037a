import type { Draft } from "#domain/messages/Message"
import { TooManyHops } from "#domain/sending/SendErrors"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Limits } from "#infrastructure/rates/Limits"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"

/** For how long a message can be the cause of another one, in milliseconds. */
const CAUSE_MS = 86_400_000

/** The message `$1`, if the agent `$2` has sent or received it after the time `$3`. */
const CAUSE = `
SELECT m.metadata FROM messages m
WHERE m.id = $1 AND m.created_at > $3
  AND (
    m.sender_id = $2
    OR EXISTS (
      SELECT FROM envelopes e
      WHERE e.recipient_id = $2 AND e.conversation_id = m.conversation_id AND e.seq = m.seq
    )
  )`

type Metadata = Readonly<Record<string, unknown>>

const causeOf = (metadata: Metadata): string | undefined =>
  typeof metadata["caused_by"] === "string" ? metadata["caused_by"] : undefined

/**
 * The hops of a stored message. Beside a `caused_by`, `hops` is always the server's own. In all other metadata it is an
 * ordinary key of the sender.
 */
const hopsOf = (metadata: Metadata): number =>
  causeOf(metadata) !== undefined && typeof metadata["hops"] === "number" ? metadata["hops"] : 0

/**
 * Counts how many messages caused each other before a send (wire.md G.19, Causes). The count is stored in the metadata
 * of the message, so that a send without a cause stores, reads and carries nothing more.
 */
export const makeCauses = Effect.gen(function*() {
  const { prepared } = yield* Database
  const config = yield* Config
  const limits = yield* Limits
  const find = prepared<{ readonly metadata: string }>("cause", CAUSE)

  const counted = Effect.fnUntraced(function*(senderId: string, draft: Draft, metadata: Metadata, cause: string) {
    const now = yield* Clock.currentTimeMillis
    const [found] = yield* find([cause, senderId, now - CAUSE_MS])
    const { hops: _, ...own } = metadata
    if (found === undefined) return { ...draft, metadata: JSON.stringify(own) }
    const hops = hopsOf(JSON.parse(found.metadata) as Metadata) + 1
    const limit = limits.of("LIMITS_HOPS", config.LIMITS_HOPS, senderId)
    if (limit !== 0 && hops > limit) return yield* TooManyHops.beyond(limit, hops)
    return { ...draft, metadata: JSON.stringify({ ...own, hops }) }
  })

  /**
   * Returns the draft with its hops. A cause that is unknown, a day old, or that the sender has neither sent nor
   * received counts as no cause.
   */
  return (senderId: string, draft: Draft): Effect.Effect<Draft, TooManyHops | Unavailable> => {
    if (!draft.metadata.includes(`"caused_by"`)) return Effect.succeed(draft)
    const metadata = JSON.parse(draft.metadata) as Metadata
    const cause = causeOf(metadata)
    return cause === undefined ? Effect.succeed(draft) : counted(senderId, draft, metadata, cause)
  }
})
