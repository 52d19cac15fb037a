import { path } from "#domain/auth/ApiCalls"
import { exactSize } from "#infrastructure/wire/Size"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect, Schema } from "effect"
import { hash } from "node:crypto"
import { howToUpload, unsentFile } from "../Texts.ts"
import { given, send, Sent, targetOf } from "./MessageTools.ts"
import { tool } from "./Tool.ts"

/**
 * How many bytes a file that is part of a call or its result may have. Larger files are uploaded and downloaded by URL.
 */
export const MAX_INLINE = 1_048_576

const optional = Schema.optionalKey
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/

/** Decodes a base64 text. Returns undefined if the text is not valid base64. */
const bytesOf = (base64: string): Buffer | undefined => {
  const text = base64.replace(/\s+/g, "")
  return text.length % 4 === 0 && BASE64.test(text) ? Buffer.from(text, "base64") : undefined
}

interface Reserved {
  readonly attachment_id: string
  readonly upload_url: string
  readonly expires_in: number
}

export const fileTools = [
  tool("agentchat_send_file", {
    kind: "adds",
    own: true,
    input: {
      to: given,
      filename: optional(given),
      content_type: optional(given),
      data: optional(Schema.String),
      size: optional(Schema.Int),
      sha256: optional(Schema.String),
      attachment_id: optional(given),
      text: optional(Schema.String),
      client_msg_id: optional(Schema.String)
    },
    output: {
      sent: Schema.Boolean,
      attachment_id: Schema.String,
      message: Schema.NullOr(Schema.Struct(Sent)),
      upload: Schema.NullOr(Schema.Struct({ upload_url: Schema.String, expires_in: Schema.Int, next: Schema.String }))
    },
    run: Effect.fnUntraced(function*(args, api) {
      const { attachment_id, client_msg_id, content_type, data, filename, sha256, size, text, to } = args
      const deliver = (id: string) =>
        Effect.map(
          send(api, to, client_msg_id, "file", {
            attachment_id: id,
            ...(text === undefined || text === "" ? {} : { text })
          }),
          ({ warning, ...message }) => ({
            value: {
              sent: warning === undefined,
              attachment_id: id,
              message: warning === undefined ? message : { ...message, warning: `${warning} ${unsentFile(id)}` },
              upload: null
            }
          })
        )
      if (attachment_id !== undefined) return yield* deliver(attachment_id)
      const bytes = data === undefined ? undefined : bytesOf(data)
      if (data !== undefined && bytes === undefined) return yield* ValidationFailed.field("data", "must be base64")
      if (bytes !== undefined && bytes.length > MAX_INLINE) {
        return yield* ValidationFailed.field(
          "data",
          `may hold at most ${exactSize(MAX_INLINE)}: leave it out and give size and sha256`
        )
      }
      const { body } = yield* api.call<Reserved>("POST", "/v1/uploads", {
        ...targetOf(to),
        filename,
        content_type,
        size: bytes?.length ?? size,
        sha256: bytes === undefined ? sha256 : hash("sha256", bytes, "hex")
      })
      if (bytes === undefined) {
        const { attachment_id: id, expires_in, upload_url } = body
        return {
          value: {
            sent: false,
            attachment_id: id,
            message: null,
            upload: { upload_url, expires_in, next: howToUpload(id, expires_in) }
          }
        }
      }
      yield* api.fill(body.attachment_id, bytes)
      return yield* deliver(body.attachment_id)
    })
  }),
  tool("agentchat_get_file", {
    kind: "reads",
    input: { attachment_id: given },
    output: {
      attachment_id: Schema.String,
      filename: Schema.String,
      content_type: Schema.String,
      size: Schema.Int,
      inline: Schema.Boolean,
      download_url: Schema.NullOr(Schema.String)
    },
    run: Effect.fnUntraced(function*({ attachment_id }, api) {
      const { headers } = yield* api.call("GET", path`/v1/attachments/${attachment_id}`)
      const { bytes, contentType, filename, size } = yield* api.open(attachment_id)
      const url = headers["location"] ?? ""
      const value = {
        attachment_id,
        filename,
        content_type: contentType,
        size,
        inline: bytes !== undefined,
        download_url: bytes === undefined ? url : null
      }
      return bytes === undefined
        ? { value, link: { uri: url, name: attachment_id, mimeType: contentType, size } }
        : { value, file: { uri: `parley://attachments/${attachment_id}`, mimeType: contentType, bytes } }
    })
  })
]
