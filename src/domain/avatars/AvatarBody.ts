import { exactSize } from "#infrastructure/wire/Size"
import { PayloadTooLarge, ValidationFailed } from "#infrastructure/wire/WireError"
import { toWireFailure } from "#infrastructure/wire/WireErrors"
import { ByteSize, Effect } from "effect"
import { HttpIncomingMessage, type HttpServerRequest } from "effect/http"

/** Reads the picture in a request's body and ignores the content-type. Reading begins when the effect runs. */
export const avatarBody = (
  request: HttpServerRequest.HttpServerRequest,
  maxBytes: number
): Effect.Effect<Buffer, PayloadTooLarge | ValidationFailed> => {
  const tooLarge = new PayloadTooLarge({ message: `The picture is larger than ${exactSize(maxBytes)}.` })
  if (Number(request.headers["content-length"]) > maxBytes) return Effect.fail(tooLarge)
  return request.arrayBuffer.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxBytes)),
    Effect.map((bytes) => Buffer.from(bytes)),
    Effect.mapError((error) =>
      toWireFailure(error)?.status === 413 ? tooLarge : new ValidationFailed({ message: "The body could not be read." })
    )
  )
}
