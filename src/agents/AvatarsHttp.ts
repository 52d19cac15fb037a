import { ByteSize, Effect, Layer } from "effect"
import { HttpIncomingMessage, HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../Api.ts"
import { CurrentAgent } from "../auth/Authorization.ts"
import { Budgets } from "../auth/Budgets.ts"
import { confirm } from "../platform/Confirm.ts"
import { Forbidden, PayloadTooLarge, ValidationFailed } from "../platform/WireError.ts"
import { toWireFailure } from "../platform/WireErrors.ts"
import { MAX_AVATAR_BYTES } from "./AvatarImage.ts"
import { Avatars } from "./Avatars.ts"

/** The bytes of a picture, of any content-type. */
const imageOf = (
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

const own = Effect.fnUntraced(function*(handle: string) {
  const caller = yield* CurrentAgent
  return caller.handle === handle
    ? caller.id
    : yield* new Forbidden({ message: "Only the own account can be changed." })
})

const handlers = HttpApiBuilder.group(
  Api,
  "avatars",
  Effect.fnUntraced(function*(handlers) {
    const avatars = yield* Avatars
    return handlers.handleAll({
      set: Effect.fnUntraced(function*({ params, request }) {
        const id = yield* own(params.handle)
        const { key, url } = yield* avatars.set(id, yield* imageOf(request))
        return { avatar_key: key, avatar_url: url }
      }),
      clear: Effect.fnUntraced(function*({ params }) {
        yield* avatars.clear(yield* own(params.handle))
        return confirm("The avatar is removed.")
      })
    })
  })
)

/** Anybody may look at a picture and keep it for ever: another one has another URL. */
const pictures = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const avatars = yield* Avatars
    const budgets = yield* Budgets
    yield* router.add(
      "GET",
      "/v1/avatars/:key",
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* budgets.ofAddress(request)
        const key = request.url.replace(/[?#].*$/s, "").replace(/^.*\//s, "")
        const headers = {
          "cache-control": "public, max-age=31536000, immutable",
          "etag": `"${key}"`,
          "x-content-type-options": "nosniff",
          "content-security-policy": "default-src 'none'; sandbox",
          "cross-origin-resource-policy": "cross-origin"
        }
        const bytes = yield* avatars.read(key)
        return request.headers["if-none-match"] === `"${key}"`
          ? HttpServerResponse.empty({ status: 304, headers })
          : HttpServerResponse.uint8Array(bytes, { contentType: "image/webp", headers })
      })
    )
  })
)

export const AvatarsHttp = Layer.mergeAll(handlers, pictures)
