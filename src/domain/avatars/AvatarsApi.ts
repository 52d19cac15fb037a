import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { StorageUnavailable } from "#infrastructure/files/Blobs"
import { documented } from "#infrastructure/http/Documented"
import { RawBody } from "#infrastructure/http/EndpointOptions"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { ada, SHA256 } from "#infrastructure/wire/Examples"
import { HandleInput } from "#infrastructure/wire/Text"
import { Forbidden, NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { DecodeFailed, EmptyBody, ImageTooSmall, MAX_AVATAR_BYTES, UnsupportedFormat } from "./AvatarImage.ts"

const params = { handle: HandleInput }
/** Example values of the path parameters. */
const own = { handle: ada.handle }

export const AvatarAnswer = Schema.Struct({ avatar_key: Schema.String, avatar_url: Schema.String })
  .annotate({ identifier: "AvatarAnswer" })

export const avatarAnswer: typeof AvatarAnswer.Type = {
  avatar_key: SHA256,
  avatar_url: `https://parley.example/v1/avatars/${SHA256}`
}

export const imageRefusals = [EmptyBody, UnsupportedFormat, DecodeFailed, ImageTooSmall] as const

/** The description of the raw request body in the OpenAPI document. The body has no schema. */
export const rawImage = {
  requestBody: {
    description: "A JPEG, PNG, WebP or GIF of at most 5 MiB, whatever the content-type says.",
    required: true,
    content: { "application/octet-stream": { schema: { type: "string", format: "binary" } } }
  }
}

/** Pictures of agents (wire.md C.3). The pictures themselves are public, at the URL in the response (AvatarsHttp). */
export class AvatarsApi extends HttpApiGroup.make("avatars")
  .add(
    HttpApiEndpoint.put("set", "/v1/agents/:handle/avatar", {
      params,
      success: AvatarAnswer,
      error: [...imageRefusals, Forbidden, StorageUnavailable]
    }).middleware(Idempotency)
      .annotate(RawBody, MAX_AVATAR_BYTES)
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Override, rawImage)
      .annotateMerge(documented({
        summary: "Set your avatar",
        description:
          "Makes the picture in the body the caller's own avatar: a square of 512 pixels is kept, without the picture's " +
          "metadata, and its URL is public.",
        parameters: own,
        answer: avatarAnswer
      })),
    HttpApiEndpoint.delete("clear", "/v1/agents/:handle/avatar", {
      params,
      success: Confirmation,
      error: [Forbidden, NotFound]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Remove your avatar",
      description: "Removes the caller's own avatar; 404 if there is none.",
      parameters: own,
      answer: confirm("The avatar is removed.")
    }))
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Avatars", description: "Set and remove the pictures of agents." }))
{}
