import { Agents } from "#domain/agents/Agents"
import { avatarKeyOf, avatarUrlOf, isAvatarKey } from "#domain/agents/AvatarUrl"
import { Sessions } from "#domain/agents/Sessions"
import { type Batch, batchUpTo } from "#infrastructure/cluster/Job"
import { Blobs, type StorageUnavailable } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { sha256 } from "#infrastructure/platform/Ids"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { NotFound, type RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { type ImageRefusal, makeAvatarImage } from "./AvatarImage.ts"
import { AvatarsRepo } from "./AvatarsRepo.ts"

const DAY_MS = 86_400_000
const SWEEP_ROWS = 100
/**
 * After which time the removal of a picture is retried, in milliseconds. The delay keeps the picture from delaying the
 * others.
 */
const RETRY_DELAY_MS = 600_000

const objectOf = (key: string) => `avatars/${key}`

export interface Avatar {
  /** The SHA-256 of the picture. */
  readonly key: string
  readonly url: string
}

/** How often an agent may set or remove avatars. */
export const AVATAR_WRITES: Rate = { name: "avatar_writes", setting: "LIMITS_AVATAR_WRITES_PER_MINUTE", ...MINUTE }

/**
 * Pictures of agents and groups. The key of a picture is the hash of its content. So its URL can be cached for ever,
 * and equal pictures are stored only once. Agents and groups refer to a picture by its key. The sweep checks each
 * picture once a day, and removes it if no agent and no group refers to it.
 */
export class Avatars extends Context.Service<Avatars, {
  /**
   * Counts a write against the agent's rate limit. A write sets or clears the picture of the agent or of a group. It is
   * counted before it begins. If it fails, it does not count.
   */
  readonly counted: <A, E, R>(agentId: string, write: Effect.Effect<A, E, R>) => Effect.Effect<A, E | RateLimited, R>
  /** Renders the picture as an avatar. Stores nothing. */
  readonly render: (bytes: Buffer) => Effect.Effect<Buffer, ImageRefusal | Unavailable>
  /** Stores a rendered picture. If no agent or group refers to the picture within a day, it is removed. */
  readonly store: (image: Buffer) => Effect.Effect<Avatar, StorageUnavailable | Unavailable>
  /** Keeps a picture on this server for another day, so that a group can refer to it. Ignores all other URLs. */
  readonly defer: (url: string) => Effect.Effect<void, Unavailable>
  readonly set: (
    agentId: string,
    bytes: Buffer
  ) => Effect.Effect<Avatar, ImageRefusal | RateLimited | StorageUnavailable | Unauthorized | Unavailable>
  readonly clear: (agentId: string) => Effect.Effect<void, NotFound | RateLimited | Unavailable>
  /** Returns the bytes of a picture (WebP). */
  readonly read: (key: string) => Effect.Effect<Buffer, NotFound | StorageUnavailable>
  /** Checks a batch of the pictures that are due, and removes those to which no agent and no group refers. */
  readonly sweep: Effect.Effect<Batch, Unavailable | StorageUnavailable>
}>()("parley/avatars/Avatars") {
  static readonly layer = Layer.effect(
    Avatars,
    Effect.gen(function*() {
      const agents = yield* Agents
      const sessions = yield* Sessions
      const blobs = yield* Blobs
      const clock = yield* Clock.Clock
      const config = yield* Config
      const limits = yield* RateLimits
      const repo = yield* AvatarsRepo
      const render = yield* makeAvatarImage
      const now = () => clock.currentTimeMillisUnsafe()
      const rate = ruleOf(config, AVATAR_WRITES)

      const counted = <A, E, R>(agentId: string, write: Effect.Effect<A, E, R>): Effect.Effect<A, E | RateLimited, R> =>
        Effect.flatMap(
          limits.take(rate, agentId),
          (place) => Effect.onError(write, () => Effect.sync(() => limits.refund(rate, agentId, place)))
        )

      const store = Effect.fn("Avatars.store")(function*(image: Buffer) {
        const key = sha256(image).toString("hex")
        if (!(yield* repo.keep(key, now() + DAY_MS))) return yield* new Unavailable()
        yield* blobs.putObject(objectOf(key), image, "image/webp")
        return { key, url: avatarUrlOf(config, key) }
      })

      const look = Effect.fnUntraced(function*(key: string) {
        if (!(yield* repo.condemn(key, now()))) return yield* repo.lookAgain(key, now() + DAY_MS)
        yield* blobs.removeObject(objectOf(key))
        yield* repo.remove(key)
      })
      const sweep = Effect.gen(function*() {
        const found = yield* repo.overdue(now(), SWEEP_ROWS)
        for (const key of found) {
          yield* Effect.tapError(look(key), () => Effect.ignore(repo.lookAgain(key, now() + RETRY_DELAY_MS)))
        }
        return batchUpTo(SWEEP_ROWS)(found.length)
      })

      return Avatars.of({
        counted,
        render,
        store,
        defer: Effect.fnUntraced(function*(url) {
          const key = avatarKeyOf(config, url)
          if (key !== null) yield* repo.defer(key, now() + DAY_MS)
        }),
        sweep,
        set: Effect.fn("Avatars.set")((agentId, bytes) =>
          counted(
            agentId,
            Effect.gen(function*() {
              const avatar = yield* store(yield* render(bytes))
              const done = yield* repo.set(agentId, avatar.key, now())
              agents.forget(agentId)
              yield* sessions.changed(agentId)
              return done ? avatar : yield* new Unauthorized()
            })
          )
        ),
        clear: Effect.fn("Avatars.clear")((agentId) =>
          counted(
            agentId,
            Effect.gen(function*() {
              const done = yield* repo.clear(agentId, now())
              if (!done) return yield* new NotFound({ message: "No avatar is set." })
              agents.forget(agentId)
              yield* sessions.changed(agentId)
            })
          )
        ),
        read: Effect.fn("Avatars.read")(function*(key) {
          const bytes = isAvatarKey(key) ? yield* blobs.getObject(objectOf(key)) : undefined
          return bytes ?? (yield* new NotFound({ message: "There is no such picture." }))
        })
      })
    })
  )
}
