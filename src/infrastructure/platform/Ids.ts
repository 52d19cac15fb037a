import { Clock, Context, Effect, Layer } from "effect"
import { createHmac, hash, randomBytes } from "node:crypto"

/** The prefixes of ids. An id consists of a prefix, `_` and 16 URL-safe base64 characters (wire.md D). */
export type IdPrefix =
  | "agt"
  | "msg"
  | "grp"
  | "gri"
  | "att"
  | "whk"
  | "whd"
  | "rpt"
  | "pnd"
  | "req"
  | "con"
  | "ivt"
  | "ann"

/**
 * The source of ids, keys, codes and all other randomness, so that a simulation can seed all of them. An id begins with
 * its time in milliseconds, so rows that are created together are close together in an index.
 */
export class Ids extends Context.Service<Ids, {
  readonly make: (prefix: IdPrefix) => string
  /** Makes a key: `ac_` and 43 URL-safe base64 characters, which encode 256 random bits. */
  readonly apiKey: () => string
  /** Makes a code of six decimal digits, uniformly distributed. */
  readonly code: () => string
  readonly bytes: (n: number) => Buffer
}>()("parley/platform/Ids") {
  private static readonly make = (source: (n: number) => Buffer) =>
    Effect.map(Clock.Clock, (clock) =>
      Ids.of({
        make: (prefix) => {
          const raw = source(12)
          raw.writeUIntBE(clock.currentTimeMillisUnsafe(), 0, 6)
          return `${prefix}_${raw.toString("base64url")}`
        },
        apiKey: () => `ac_${source(32).toString("base64url")}`,
        code: () => {
          // 4_294_000_000 is the largest multiple of 1,000,000 below 2^32.
          let n: number
          do n = source(4).readUInt32BE(0)
          while (n >= 4_294_000_000)
          return String(n % 1_000_000).padStart(6, "0")
        },
        bytes: source
      }))

  /**
   * Uses random bytes of the operating system. They are read in blocks of 8 KiB, because a system call for each id
   * would cost more than the rest of the work.
   */
  static readonly layer = Layer.effect(
    Ids,
    Effect.suspend(() => {
      let pool = randomBytes(8192)
      let at = 0
      return Ids.make((n) => {
        if (n > pool.length) return randomBytes(n)
        if (at + n > pool.length) {
          pool = randomBytes(8192)
          at = 0
        }
        const piece = Buffer.from(pool.subarray(at, at + n))
        at += n
        return piece
      })
    })
  )

  /** Makes the same ids for the same seed, in tests and simulations. */
  static readonly layerSeeded = (seed: string) =>
    Layer.effect(
      Ids,
      Effect.suspend(() => {
        let counter = 0
        return Ids.make((n) => {
          const parts: Array<Buffer> = []
          for (let have = 0; have < n; have += 32) {
            parts.push(createHmac("sha256", seed).update(String(counter++)).digest())
          }
          return Buffer.concat(parts).subarray(0, n)
        })
      })
    )
}

/** Returns the digest that is stored in place of a key or a code. */
export const sha256 = (data: string | Buffer): Buffer => hash("sha256", data, "buffer")
