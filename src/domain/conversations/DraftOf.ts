import { ContentTooLarge, type Draft } from "#domain/messages/Message"
import { isStorable } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import type { SendBody } from "./MessagesApi.ts"

/**
 * The message that is answered comes first, where the index for threads finds it (`HistoryRepo`). In an object, keys that
 * are numbers would come before it.
 */
const metadataText = (metadata: Readonly<Record<string, unknown>>): string => {
  const { reply_to, ...more } = metadata
  if (typeof reply_to !== "string") return JSON.stringify(metadata)
  const first = `{"reply_to":${JSON.stringify(reply_to)}`
  return Object.keys(more).length === 0 ? `${first}}` : `${first},${JSON.stringify(more).slice(1)}`
}

/**
 * Encodes content and metadata for storage. Fails if the content is empty, or if content and metadata together are too
 * large (wire.md C.6).
 */
export const draftOf = (
  body: Pick<typeof SendBody.Type, "client_msg_id" | "type" | "content" | "metadata">,
  maxBytes: number
): Effect.Effect<Draft, ValidationFailed | ContentTooLarge> => {
  const { attachment_id, data, text } = body.content
  if (text !== undefined && !isStorable(text)) {
    return Effect.fail(ValidationFailed.field("content.text", "must contain no NUL and no lone surrogate"))
  }
  if ((text === undefined || text === "") && data === undefined && attachment_id === undefined) {
    return Effect.fail(ValidationFailed.field("content", "needs a non-empty text, data or an attachment_id"))
  }
  const content = JSON.stringify(body.content)
  const metadata = body.metadata === undefined ? "{}" : metadataText(body.metadata)
  if (Buffer.byteLength(content) + Buffer.byteLength(metadata) > maxBytes) {
    return Effect.fail(ContentTooLarge.than(maxBytes))
  }
  return Effect.succeed({
    clientMsgId: body.client_msg_id,
    type: body.type ?? "text",
    content,
    metadata,
    attachmentId: attachment_id
  })
}
