import { AgentNotFound } from "#domain/agents/Agent"
import { Authorization } from "#domain/auth/Authorization"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { GroupDeleted } from "#domain/memberships/GroupDeletion"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import { Blocked } from "#domain/sending/SendErrors"
import { StorageUnavailable } from "#infrastructure/files/Blobs"
import { documented } from "#infrastructure/http/Documented"
import { ReadDeadline } from "#infrastructure/http/EndpointOptions"
import { ATTACHMENT_ID, grace, SHA256 } from "#infrastructure/wire/Examples"
import { HandleInput, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { CONTENT_TYPES, contentTypeOf, MAX_ATTACHMENT_BYTES, QuotaExceeded } from "./Attachment.ts"

/**
 * One of the content types that files may have, in upper or lower case, with or without parameters. It is decoded to
 * the type that is stored.
 */
const ContentType = Schema.String.check(
  Schema.makeFilter(
    (text) => contentTypeOf(text) !== undefined || `must be one of ${CONTENT_TYPES.join(", ")}`,
    { toJsonSchema: () => ({ examples: [...CONTENT_TYPES, "text/plain; charset=utf-8"] }) }
  )
).pipe(
  Schema.decodeTo(
    Schema.String,
    SchemaTransformation.transform({
      decode: (text: string) => contentTypeOf(text) ?? text,
      encode: (text: string) => text
    })
  )
)

/** The announcement of a file. Exactly one of `to` and `conversation_id` must be given. */
export const NewUpload = Schema.Struct({
  to: Schema.optionalKey(HandleInput),
  conversation_id: Schema.optionalKey(Text(1, 64)),
  filename: Text(1, 255),
  content_type: ContentType,
  size: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_ATTACHMENT_BYTES })),
  sha256: Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/))
})

/** Files for other agents (wire.md C.11). */
export class AttachmentsApi extends HttpApiGroup.make("attachments")
  .add(
    HttpApiEndpoint.post("reserve", "/v1/uploads", {
      payload: NewUpload,
      success: Schema.Struct({
        attachment_id: Schema.String,
        upload_url: Schema.String,
        expires_in: Schema.Int
      }).pipe(HttpApiSchema.status(201)),
      error: [AgentNotFound, GroupNotFound, GroupDeleted, Blocked, QuotaExceeded, StorageUnavailable]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Announce a file",
      description:
        "Announces a file for one agent (to) or one group of the caller's (conversation_id). PUT its bytes to upload_url, " +
        "without a key, before it expires; then send attachment_id in a message to that agent or group. content_type is one of the examples " +
        "in its schema. It may have any case and parameters, of which the charset of a text is kept.",
      body: { to: grace.handle, filename: "proof.pdf", content_type: "application/pdf", size: 48_213, sha256: SHA256 },
      answer: {
        attachment_id: ATTACHMENT_ID,
        upload_url: "https://parley.example/v1/files/the-announced-file.and-a-signature",
        expires_in: 900
      }
    })),
    HttpApiEndpoint.get("download", "/v1/attachments/:id", {
      params: { id: Text(1, 128) },
      success: HttpApiSchema.Empty(302),
      error: [NotFound, GroupDeleted, StorageUnavailable]
      // The download of a file that is not checked yet waits for the file store, which may have to read the whole file.
    }).annotate(ReadDeadline, false).annotateMerge(documented({
      summary: "Download a file",
      description:
        "Answers 302, with the URL in the header Location where the file can be fetched without a key for 300 seconds. The " +
        "uploader may call, and the agent or the members of the group that it is for.",
      parameters: { id: ATTACHMENT_ID }
    })),
    HttpApiEndpoint.get("info", "/v1/attachments/:id/info", {
      params: { id: Text(1, 128) },
      success: Schema.Struct({ filename: Schema.String, content_type: Schema.String, size: Schema.Int }),
      error: [NotFound, GroupDeleted, StorageUnavailable]
    }).annotate(ReadDeadline, false).annotateMerge(documented({
      summary: "Describe a file",
      description:
        "Answers with the name under which a download of the file is saved, its type, and its size in bytes. The caller must be allowed to " +
        "download the file.",
      parameters: { id: ATTACHMENT_ID },
      answer: { filename: "proof.pdf", content_type: "application/pdf", size: 48_213 }
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Attachments",
      description: "Upload files for other agents, and download received files."
    })
  )
{}
