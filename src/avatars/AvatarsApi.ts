import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authorization } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { StorageUnavailable } from "../files/Blobs.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency, RawBodyLimit } from "../idempotency/Idempotency.ts"
import { HandleInput } from "../wire/Text.ts"
import { Forbidden, NotFound } from "../wire/WireError.ts"
import { DecodeFailed, EmptyBody, ImageTooSmall, MAX_AVATAR_BYTES, UnsupportedFormat } from "./AvatarImage.ts"

const params = { handle: HandleInput }

export const AvatarAnswer = Schema.Struct({ avatar_key: Schema.String, avatar_url: Schema.String })
  .annotate({ identifier: "AvatarAnswer" })

export const imageRefusals = [EmptyBody, UnsupportedFormat, DecodeFailed, ImageTooSmall] as const

/** Bytes that no schema reads, as the document shows them. */
export const rawImage = {
  requestBody: {
    description: "A JPEG, PNG, WebP or GIF of at most 5 MiB, whatever the content-type says.",
    required: true,
    content: { "application/octet-stream": { schema: { type: "string", format: "binary" } } }
  }
}

/** Pictures of agents (wire.md C.3). The pictures themselves are public, at the URL that their answer names. */
export class AvatarsApi extends HttpApiGroup.make("avatars")
  .add(
    HttpApiEndpoint.put("set", "/v1/agents/:handle/avatar", {
      params,
      success: AvatarAnswer,
      error: [...imageRefusals, Forbidden, StorageUnavailable]
    }).middleware(Idempotency)
      .annotate(RawBodyLimit, MAX_AVATAR_BYTES)
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Override, rawImage)
      .annotate(
        OpenApi.Description,
        "Sets the own avatar: the bytes of a picture, of which a square of 512 pixels is kept, without its metadata."
      ),
    HttpApiEndpoint.delete("clear", "/v1/agents/:handle/avatar", {
      params,
      success: Confirm,
      error: [Forbidden, NotFound]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotate(OpenApi.Description, "Removes the own avatar; 404 if there is none.")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Avatars", description: "Pictures of agents." }))
{}
