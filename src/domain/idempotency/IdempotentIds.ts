import { type IdPrefix, Ids } from "#infrastructure/platform/Ids"
import { Context, Effect, Layer } from "effect"
import { hash } from "node:crypto"

/** The request with an Idempotency-Key for which a fiber works. */
export interface Attempt {
  readonly agentId: string
  readonly key: string
  /** When the first attempt with this key began, in milliseconds. */
  readonly createdAt: number
}

/** The attempt for which a fiber works. Undefined if the request has no Idempotency-Key. */
export const CurrentAttempt = Context.Reference<Attempt | undefined>(
  "parley/idempotency/IdempotentIds/CurrentAttempt",
  {
    defaultValue: () => undefined
  }
)

/**
 * Ids for the rows that a request creates. With an Idempotency-Key, the ids are derived from the agent, the key and the
 * time of the first attempt, so that a second attempt after a crash finds the rows of the first. Insert such rows with
 * `ON CONFLICT (id) DO NOTHING`. Without a key, the ids are random. After the row of the key was removed, the same key
 * gives other ids.
 *
 * Only the request's own fiber and its children know the key. So make ids there and pass them to entities.
 */
export class IdempotentIds extends Context.Service<IdempotentIds, {
  /** `which` distinguishes several ids with the same prefix in one request. Without it, they would be equal. */
  readonly make: (prefix: IdPrefix, which?: string | number) => Effect.Effect<string>
}>()("parley/idempotency/IdempotentIds") {
  static readonly layer = Layer.effect(
    IdempotentIds,
    Effect.map(Ids, (ids) =>
      IdempotentIds.of({
        make: (prefix, which = "") =>
          Effect.withFiber((fiber) => {
            const attempt = fiber.getRef(CurrentAttempt)
            return Effect.succeed(attempt === undefined ? ids.make(prefix) : derive(attempt, prefix, which))
          })
      }))
  )
}

/**
 * Makes an id in the usual form: 48 bits of time in milliseconds, then 48 bits of a hash. The hashes of different
 * requests are equal only by chance.
 */
const derive = (attempt: Attempt, prefix: IdPrefix, which: string | number): string => {
  const raw = Buffer.alloc(12)
  raw.writeUIntBE(attempt.createdAt, 0, 6)
  hash("sha256", [attempt.agentId, attempt.key, prefix, which].join("\0"), "buffer").copy(raw, 6, 0, 6)
  return `${prefix}_${raw.toString("base64url")}`
}
