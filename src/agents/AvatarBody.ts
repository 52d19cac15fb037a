import { ByteSize, Effect } from "effect"
import { HttpIncomingMessage, type HttpServerRequest } from "effect/http"
import { PayloadTooLarge, ValidationFailed } from "../platform/WireError.ts"
import { toWireFailure } from "../platform/WireErrors.ts"
import { MAX_AVATAR_BYTES } from "./AvatarImage.ts"

/** The bytes of a picture, of any content-type; not read before it is run. */
export const avatarBody = (
  request: HttpServerRequest.HttpServerRequest
): Effect.Effect<Buffer, PayloadTooLarge | ValidationFailed> => {
  const tooLarge = new PayloadTooLarge({ message: "The picture is larger than 5 MiB." })
  if (Number(request.headers["content-length"]) > MAX_AVATAR_BYTES) return Effect.fail(tooLarge)
  return request.arrayBuffer.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(MAX_AVATAR_BYTES)),
    Effect.map((bytes) => Buffer.from(bytes)),
    Effect.mapError((error) =>
      toWireFailure(error)?.status === 413 ? tooLarge : new ValidationFailed({ message: "The body could not be read." })
    )
  )
}
