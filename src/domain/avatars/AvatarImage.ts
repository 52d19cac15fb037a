import { Config } from "#infrastructure/platform/Config"
import { loadOnce } from "#infrastructure/platform/LazyLoad"
import { Unavailable, WireError } from "#infrastructure/wire/WireError"
import { Effect, Semaphore } from "effect"
import type { Sharp, SharpOptions } from "sharp"

export const MAX_AVATAR_BYTES = 5_242_880
const SIDE_PIXELS = 512
/**
 * How many pictures are rendered at the same time, each by one thread. `MAX_WAITING` bounds how many pictures are being
 * rendered or waiting.
 */
const MAX_CONCURRENT_DECODES = 2
const MAX_WAITING = 32
const TIMEOUT_SECONDS = 10

export class EmptyBody extends WireError<EmptyBody>()("EmptyBody", {
  code: "EMPTY_BODY",
  status: 400,
  message: "The body is empty: send the bytes of a picture."
}) {}

export class UnsupportedFormat extends WireError<UnsupportedFormat>()("UnsupportedFormat", {
  code: "UNSUPPORTED_FORMAT",
  status: 400,
  message: "The bytes are not a JPEG, PNG, WebP or GIF."
}) {}

export class DecodeFailed extends WireError<DecodeFailed>()("DecodeFailed", {
  code: "DECODE_FAILED",
  status: 400,
  message: "This picture cannot be read."
}) {}

export class ImageTooSmall extends WireError<ImageTooSmall>()("ImageTooSmall", {
  code: "IMAGE_TOO_SMALL",
  status: 400,
  message: "A side of the picture has too few pixels (the default minimum is 128)."
}) {}

export type ImageRefusal = EmptyBody | UnsupportedFormat | DecodeFailed | ImageTooSmall

type Format = "jpeg" | "png" | "webp" | "gif"

/** Returns the format of a picture according to its first bytes. The content-type is ignored. */
export const formatOf = (bytes: Buffer): Format | undefined => {
  const begins = (text: string, at = 0) => bytes.toString("latin1", at, at + text.length) === text
  if (begins("\xff\xd8\xff")) return "jpeg"
  if (begins("\x89PNG\r\n\x1a\n")) return "png"
  if (begins("RIFF") && begins("WEBP", 8)) return "webp"
  return begins("GIF87a") || begins("GIF89a") ? "gif" : undefined
}

/**
 * Decode only one frame. Read sequentially, because this needs less memory. Fail on decoding errors, but not on
 * warnings.
 */
const OPTIONS: SharpOptions = { sequentialRead: true, pages: 1, failOn: "error" }

/**
 * Loads the library when the first picture arrives, because the library is large and many servers get no picture for a
 * long time.
 */
const load = Effect.runSync(loadOnce(
  "The library for pictures",
  Effect.promise(async () => {
    const { default: sharp } = await import("sharp")
    sharp.cache(false)
    sharp.concurrency(1)
    return (bytes: Buffer, options?: SharpOptions): Sharp => sharp(bytes, { ...OPTIONS, ...options })
  }),
  () => new Unavailable()
))

/**
 * Renders a picture as an avatar: 512×512 WebP, upright, cropped to its middle, without metadata. Format and size are
 * read from the header first, so that a picture with too many pixels is never decoded. The work is done by threads of
 * the library.
 */
export const makeAvatarImage = Effect.gen(function*() {
  const { LIMITS_AVATAR_PIXELS: maxPixels, LIMITS_AVATAR_SIDE: minSide } = yield* Config
  const turn = yield* Semaphore.make(MAX_CONCURRENT_DECODES)
  let waiting = 0

  const render = Effect.fnUntraced(function*(bytes: Buffer): Effect.fn.Return<Buffer, ImageRefusal | Unavailable> {
    const open = yield* load
    const failed = () => new DecodeFailed()
    // Only the header is read here, so no limit on pixels is needed.
    const { height, width } = yield* Effect.tryPromise({
      try: () => open(bytes, { limitInputPixels: false }).metadata(),
      catch: failed
    })
    if (width * height > maxPixels) {
      return yield* new DecodeFailed({ message: `This picture has more than ${maxPixels} pixels.` })
    }
    if (width < minSide || height < minSide) {
      return yield* new ImageTooSmall({ message: `Both sides of a picture must have at least ${minSide} pixels.` })
    }
    return yield* Effect.tryPromise({
      try: () =>
        open(bytes, { limitInputPixels: maxPixels }).autoOrient().resize(SIDE_PIXELS, SIDE_PIXELS, {
          fit: "cover",
          position: "centre"
        })
          .webp({ quality: 82 }).timeout({ seconds: TIMEOUT_SECONDS }).toBuffer(),
      catch: failed
    })
  })

  return (bytes: Buffer): Effect.Effect<Buffer, ImageRefusal | Unavailable> =>
    Effect.suspend((): Effect.Effect<Buffer, ImageRefusal | Unavailable> => {
      if (bytes.length === 0) return Effect.fail(new EmptyBody())
      if (formatOf(bytes) === undefined) return Effect.fail(new UnsupportedFormat())
      if (waiting >= MAX_WAITING) return Effect.fail(new Unavailable())
      waiting++
      return Effect.ensuring(turn.withPermits(1)(render(bytes)), Effect.sync(() => waiting--))
    })
})
