import { isAvatarKey } from "#domain/agents/AvatarUrl"
import { CurrentAgent } from "#domain/auth/Authorization"
import { Budgets } from "#domain/auth/Budgets"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { isKnown, namesTag } from "#infrastructure/wire/Conditional"
import { confirm } from "#infrastructure/wire/Confirmation"
import { Forbidden } from "#infrastructure/wire/WireError"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { avatarBody } from "./AvatarBody.ts"
import { Avatars } from "./Avatars.ts"
import { AvatarsApi } from "./AvatarsApi.ts"

const own = Effect.fnUntraced(function*(handle: string) {
  const caller = yield* CurrentAgent
  return caller.handle === handle
    ? caller.id
    : yield* new Forbidden({ message: "An agent can change only its own account." })
})

const handlers = Endpoints.group(
  Endpoints.apiOf(AvatarsApi),
  "avatars",
  Effect.fnUntraced(function*(handlers) {
    const avatars = yield* Avatars
    const config = yield* Config
    return handlers.handleAll({
      set: Effect.fnUntraced(function*({ params, request }) {
        const id = yield* own(params.handle)
        const { key, url } = yield* avatars.set(id, yield* avatarBody(request, config.LIMITS_AVATAR_BYTES))
        return { avatar_key: key, avatar_url: url }
      }),
      clear: Effect.fnUntraced(function*({ params }) {
        yield* avatars.clear(yield* own(params.handle))
        return confirm("The avatar is removed.")
      })
    })
  })
)

/** Pictures are public and can be cached for ever, because a different picture has a different URL. */
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
        const notModified = HttpServerResponse.empty({ status: 304, headers })
        const known = request.headers["if-none-match"]
        // The key is the hash of the picture. A client that sends it already has the right picture, so nothing is read.
        if (isAvatarKey(key) && namesTag(known, headers.etag)) return notModified
        const bytes = yield* avatars.read(key)
        return isKnown(known, headers.etag)
          ? notModified
          : HttpServerResponse.uint8Array(bytes, { contentType: "image/webp", headers })
      })
    )
  })
)

export const AvatarsHttp = Layer.mergeAll(handlers, pictures)
