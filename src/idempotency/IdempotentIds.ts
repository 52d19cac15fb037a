import { Context, Effect, Layer } from "effect"
import { hash } from "node:crypto"
import { type IdPrefix, Ids } from "../platform/Ids.ts"

/** The attempt at a request with an Idempotency-Key that a fiber works for. */
export interface Attempt {
  readonly agentId: string
  readonly key: string
  /** When the first attempt with this key began. */
  readonly createdAt: number
}

/** Undefined where no Idempotency-Key came. */
export const CurrentAttempt = Context.Reference<Attempt | undefined>("parley/idempotency/IdempotentIds/CurrentAttempt", {
  defaultValue: () => undefined
})

/**
 * Ids for what a request creates. With an Idempotency-Key they derive from the
 * agent and the key, so that another attempt at the same request, after a crash,
 * meets the row of the first: insert it `ON CONFLICT (id) DO NOTHING`. Without one
 * they are fresh. Once a key has been forgotten, the same key gives others.
 *
 * Only the request's own fiber and its children know of the key: make ids there,
 * and hand them to entities.
 */
export class IdempotentIds extends Context.Service<IdempotentIds, {
  /** `which` tells apart several of a kind in one request; without it, two of them would be equal. */
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

/** In the form of every id: a millisecond, then 48 bits that nobody else's request has but by chance. */
const derive = (attempt: Attempt, prefix: IdPrefix, which: string | number): string => {
  const raw = Buffer.alloc(12)
  raw.writeUIntBE(attempt.createdAt, 0, 6)
  hash("sha256", [attempt.agentId, attempt.key, prefix, which].join("\0"), "buffer").copy(raw, 6, 0, 6)
  return `${prefix}_${raw.toString("base64url")}`
}
