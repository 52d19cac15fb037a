import { Predicate } from "effect"
import { CONTENT_TYPES, contentTypeOf } from "#domain/attachments/Attachment"
import type { StoredMessage } from "#domain/messages/Message"
import { ValidationFailed } from "#ground/wire/WireError"
import { A2aFailure } from "./Failure.ts"
import { type Json, listOf, objectOf, textOf } from "./Fields.ts"

export interface RawFile {
  readonly bytes: Buffer
  readonly filename: string
  readonly contentType: string
}

/** A message of the protocol, split into the fields of a message of this server (wire.md N, SendMessage). */
export interface Incoming {
  readonly messageId: string
  readonly contextId: string | undefined
  readonly taskId: string | undefined
  readonly text: string | undefined
  readonly data: Json | undefined
  readonly file: RawFile | undefined
  /** Fields that are stored under `metadata.a2a`. */
  readonly a2a: Json
}

const KINDS = ["text", "raw", "url", "data"] as const
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/

const fileOf = (part: Json): RawFile => {
  const raw = part["raw"]
  if (typeof raw !== "string" || !BASE64.test(raw)) throw ValidationFailed.field("parts", "raw must be base64")
  const contentType = contentTypeOf(textOf(part, "mediaType") ?? "")
  if (contentType === undefined) {
    throw new A2aFailure("CONTENT_TYPE_NOT_SUPPORTED", `A raw part needs a mediaType out of these: ${CONTENT_TYPES.join(", ")}.`)
  }
  return { bytes: Buffer.from(raw, "base64"), filename: textOf(part, "filename") ?? "file", contentType }
}

/** Reads a message of the protocol. Throws ValidationFailed or A2aFailure. */
export const incoming = (message: Json, metadata: Json | undefined): Incoming => {
  const messageId = textOf(message, "messageId")
  if (messageId === undefined || messageId.length > 256) {
    throw ValidationFailed.field("message.messageId", "is required, with at most 256 characters")
  }
  const role = message["role"]
  if (role !== "ROLE_USER" && role !== 1) throw ValidationFailed.field("message.role", "must be ROLE_USER")
  const parts = listOf(message, "parts")
  if (parts.length === 0) throw ValidationFailed.field("message.parts", "needs at least one part")
  const texts: Array<string> = []
  const files: Array<RawFile> = []
  const others: Array<Json> = []
  for (const part of parts) {
    if (!Predicate.isObject(part)) throw ValidationFailed.field("message.parts", "must hold parts")
    const given = KINDS.filter((kind) => Object.hasOwn(part, kind))
    const [kind] = given
    if (kind === undefined || given.length > 1) {
      throw ValidationFailed.field("message.parts", "each must have exactly one of text, raw, url and data")
    }
    if (kind === "text") {
      if (typeof part["text"] !== "string") throw ValidationFailed.field("message.parts", "text must be a text")
      texts.push(part["text"])
    } else if (kind === "raw") files.push(fileOf(part))
    else {
      if (kind === "url" && typeof part["url"] !== "string") throw ValidationFailed.field("message.parts", "url must be a text")
      others.push(part)
    }
  }
  if (files.length > 1) {
    throw new A2aFailure("CONTENT_TYPE_NOT_SUPPORTED", "A message carries one raw part at most: send the others in messages of their own.")
  }
  const [only] = others
  const isPlain = others.length === 1 && only !== undefined && Predicate.isObject(only["data"])
  const extensions = listOf(message, "extensions")
  const references = listOf(message, "referenceTaskIds")
  const own = objectOf(message, "metadata")
  return {
    messageId,
    contextId: textOf(message, "contextId"),
    taskId: textOf(message, "taskId"),
    text: texts.length === 0 ? undefined : texts.join("\n"),
    data: others.length === 0 ? undefined : isPlain ? only["data"] as Json : { parts: others },
    file: files[0],
    a2a: {
      message_id: messageId,
      ...(others.length > 0 && !isPlain ? { parts: true } : {}),
      ...(own === undefined || Object.keys(own).length === 0 ? {} : { metadata: own }),
      ...(metadata === undefined || Object.keys(metadata).length === 0 ? {} : { request_metadata: metadata }),
      ...(extensions.length === 0 ? {} : { extensions }),
      ...(references.length === 0 ? {} : { reference_task_ids: references })
    }
  }
}

/** A file of a message, as a part. */
export interface FilePart {
  readonly url: string
  readonly filename: string
  readonly mediaType: string
}

interface Content {
  readonly text?: string
  readonly data?: Json
  readonly attachment_id?: string
}

export const contentOf = (message: StoredMessage): Content => JSON.parse(message.content) as Content

/** The parts of a stored message. `file` is its attachment, undefined if there is none or if the file no longer exists. */
export const partsOf = (message: StoredMessage, file: FilePart | undefined): ReadonlyArray<object> => {
  const { attachment_id, data, text } = contentOf(message)
  const { a2a } = JSON.parse(message.metadata) as { readonly a2a?: Json }
  const kept = a2a?.["parts"] === true && Array.isArray(data?.["parts"]) ? data["parts"] as ReadonlyArray<object> : undefined
  const parts = [
    ...(text === undefined ? [] : [{ text }]),
    ...(data === undefined ? [] : kept ?? [{ data, mediaType: "application/json" }]),
    ...(file === undefined ? attachment_id === undefined ? [] : [{ text: "(This file no longer exists.)" }] : [file])
  ]
  return parts.length === 0 ? [{ text: "" }] : parts
}

/** The other fields of a message of the protocol, besides its parts. */
export const extrasOf = (message: StoredMessage, fromCaller: boolean): { readonly messageId: string } & Json => {
  const { a2a, reply_to: _, ...rest } = JSON.parse(message.metadata) as { readonly a2a?: Json; readonly reply_to?: unknown } & Json
  const sent = Predicate.isObject(a2a) ? a2a : {}
  const metadata = fromCaller && Predicate.isObject(sent["metadata"]) ? { ...rest, ...sent["metadata"] } : rest
  return {
    messageId: fromCaller && typeof sent["message_id"] === "string" ? sent["message_id"] : message.id,
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
    ...(fromCaller && Array.isArray(sent["extensions"]) ? { extensions: sent["extensions"] } : {}),
    ...(fromCaller && Array.isArray(sent["reference_task_ids"]) ? { referenceTaskIds: sent["reference_task_ids"] } : {})
  }
}
