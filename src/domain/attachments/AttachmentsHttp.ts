import { CurrentAgent } from "#domain/auth/Authorization"
import { savedAs } from "#infrastructure/files/Blobs"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { exactSize } from "#infrastructure/wire/Size"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { Attachments, type NewUpload as Announced } from "./Attachments.ts"
import { AttachmentsApi, NewUpload } from "./AttachmentsApi.ts"

const targetOf = (payload: typeof NewUpload.Type): Effect.Effect<Announced["to"], ValidationFailed> => {
  const { conversation_id, to } = payload
  if (to !== undefined && conversation_id !== undefined) {
    return Effect.fail(ValidationFailed.field("to", "cannot be combined with conversation_id: name one of them"))
  }
  if (to !== undefined) return Effect.succeed({ _tag: "Handle", handle: to })
  return conversation_id === undefined
    ? Effect.fail(ValidationFailed.field("to", "name the handle that the file is for, or a group's conversation_id"))
    : Effect.succeed({ _tag: "Group", groupId: conversation_id })
}

export const AttachmentsHttp = Endpoints.group(
  Endpoints.apiOf(AttachmentsApi),
  "attachments",
  Effect.fnUntraced(function*(handlers) {
    const attachments = yield* Attachments
    const config = yield* Config
    return handlers.handleAll({
      reserve: Effect.fnUntraced(function*({ payload }) {
        const agent = yield* CurrentAgent
        if (payload.size > config.LIMITS_ATTACHMENT_BYTES) {
          return yield* ValidationFailed.field("size", `may be at most ${exactSize(config.LIMITS_ATTACHMENT_BYTES)}`)
        }
        const { id, uploadUrl } = yield* attachments.reserve(agent.id, {
          to: yield* targetOf(payload),
          filename: payload.filename,
          contentType: payload.content_type,
          size: payload.size,
          sha256: payload.sha256
        })
        return { attachment_id: id, upload_url: uploadUrl, expires_in: config.UPLOADS_URL_SECONDS }
      }),
      download: Effect.fnUntraced(function*({ params }) {
        const agent = yield* CurrentAgent
        const location = yield* attachments.downloadUrl(agent.id, params.id)
        return HttpServerResponse.empty({ status: 302, headers: { location, "cache-control": "no-store" } })
      }),
      info: Effect.fnUntraced(function*({ params }) {
        const { contentType, filename, size } = yield* attachments.describe((yield* CurrentAgent).id, params.id)
        return { filename: savedAs(filename), content_type: contentType, size }
      })
    })
  })
)
