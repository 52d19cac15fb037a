import { CONTENT_TYPES, contentTypeOf } from "#domain/attachments/Attachment"
import type { StoredMessage } from "#domain/messages/Message"
import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Predicate } from "effect"
import { A2aFailure, isThrown } from "./Failure.ts"
import { type Json, listOf, objectOf, textOf } from "./Fields.ts"

export interface RawFile {
  readonly bytes: Buffer
  readonly filename: string
  readonly contentType: string
}

/** An A2A message, split into the fields of a message of this server (wire.md N, SendMessage). */
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

/** A part of an A2A message. Exactly one of text, raw, url and data is set. */
interface Part {
  readonly text?: string
  /** Bytes in base64. */
  readonly raw?: string
  readonly url?: string
  readonly data?: unknown
  readonly filename?: string
  readonly mediaType?: string
  readonly metadata?: Json
}

const KINDS = ["text", "raw", "url", "data"] as const
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/

/** Reads a part. Drops fields that A2A does not define. Throws ValidationFailed. */
const partOf = (given: unknown): Part => {
  const refuse = (why: string): never => {
    throw ValidationFailed.field("message.parts", why)
  }
  if (!Predicate.isObject(given)) return refuse("must hold parts")
  const part: Json = given
  // Null means that a field is absent. Only `data` may have the value null.
  const set = KINDS.filter((kind) => (part[kind] ?? undefined) !== undefined)
  const [kind = Object.hasOwn(part, "data") ? "data" : undefined, ...others] = set
  if (kind === undefined || others.length > 0) return refuse("each must have exactly one of text, raw, url and data")
  const value = part[kind]
  if (kind !== "data" && typeof value !== "string") return refuse(`${kind} must be a text`)
  if (kind === "raw" && !BASE64.test(String(value))) return refuse("raw must be base64")
  if (kind === "url" && absoluteUrl(String(value)) === undefined) {
    return refuse("url must be an absolute URL, written as scheme://host, without a user")
  }
  const filename = textOf(part, "filename", "message.parts")
  const mediaType = textOf(part, "mediaType", "message.parts")
  const metadata = objectOf(part, "metadata", "message.parts")
  return {
    [kind]: kind === "raw" ? Buffer.from(String(value), "base64").toString("base64") : value,
    ...(filename === undefined ? {} : { filename }),
    ...(mediaType === undefined ? {} : { mediaType }),
    ...(metadata === undefined ? {} : { metadata })
  }
}

const fileOf = ({ filename = "file", mediaType = "" }: Part, raw: string): RawFile => {
  const contentType = contentTypeOf(mediaType)
  if (contentType === undefined) {
    throw new A2aFailure(
      "CONTENT_TYPE_NOT_SUPPORTED",
      `A raw part needs a mediaType out of these: ${CONTENT_TYPES.join(", ")}.`
    )
  }
  return { bytes: Buffer.from(raw, "base64"), filename, contentType }
}

/** Reads an A2A message. Throws ValidationFailed or A2aFailure. */
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
  const others: Array<Part> = []
  for (const given of parts) {
    const part = partOf(given)
    if (part.text !== undefined) texts.push(part.text)
    else if (part.raw !== undefined) files.push(fileOf(part, part.raw))
    else others.push(part)
  }
  if (files.length > 1) {
    throw new A2aFailure(
      "CONTENT_TYPE_NOT_SUPPORTED",
      "A message carries one raw part at most: send the others in messages of their own."
    )
  }
  const [only] = others
  const isPlain = others.length === 1 && only !== undefined && Predicate.isObject(only.data)
  const extensions = listOf(message, "extensions")
  const references = listOf(message, "referenceTaskIds")
  const own = objectOf(message, "metadata")
  return {
    messageId,
    contextId: textOf(message, "contextId"),
    taskId: textOf(message, "taskId"),
    text: texts.length === 0 ? undefined : texts.join("\n"),
    data: others.length === 0 ? undefined : isPlain ? only.data as Json : { parts: others },
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

/** The attachment of a message, as it is shown in a part. */
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

export const contentOf = (message: Pick<StoredMessage, "content">): Content => JSON.parse(message.content) as Content

/**
 * The parts in the data of a message. Data of the form `{parts: […]}` with only valid parts become these parts. Any
 * other data become one part. `onePart` is true if the sender gave the data as one part.
 */
const partsIn = (data: Json, onePart: boolean): ReadonlyArray<Part> => {
  const whole: ReadonlyArray<Part> = [{ data, mediaType: "application/json" }]
  const { parts, ...rest } = data
  if (onePart || !Array.isArray(parts) || parts.length === 0 || Object.keys(rest).length > 0) return whole
  try {
    return parts.map(partOf)
  } catch (error) {
    if (isThrown(error)) return whole
    throw error
  }
}

/** The parts of a stored message. `file` is its attachment; undefined if there is none or if it no longer exists. */
export const partsOf = (
  message: Pick<StoredMessage, "content" | "metadata">,
  file: FilePart | undefined
): ReadonlyArray<object> => {
  const { attachment_id, data, text } = contentOf(message)
  const { a2a, removed } = JSON.parse(message.metadata) as { readonly a2a?: Json; readonly removed?: Json }
  // `incoming` sets `parts` on a message if it has stored several parts as the message's data.
  const onePart = typeof a2a?.["message_id"] === "string" && a2a["parts"] !== true
  const parts = [
    ...(text === undefined ? [] : [{ text }]),
    ...(data === undefined ? [] : partsIn(data, onePart)),
    ...(file === undefined ? attachment_id === undefined ? [] : [{ text: "(This file no longer exists.)" }] : [file])
  ]
  return parts.length > 0 ? parts : [{ text: removed === undefined ? "" : "(An operator removed this message.)" }]
}

/** The fields of an A2A message other than its parts. */
export const extrasOf = (message: StoredMessage, fromCaller: boolean): { readonly messageId: string } & Json => {
  const { a2a, reply_to: _, ...rest } = JSON.parse(message.metadata) as {
    readonly a2a?: Json
    readonly reply_to?: unknown
  } & Json
  const sent = Predicate.isObject(a2a) ? a2a : {}
  const metadata = fromCaller && Predicate.isObject(sent["metadata"]) ? { ...rest, ...sent["metadata"] } : rest
  return {
    messageId: fromCaller && typeof sent["message_id"] === "string" ? sent["message_id"] : message.id,
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
    ...(fromCaller && Array.isArray(sent["extensions"]) ? { extensions: sent["extensions"] } : {}),
    ...(fromCaller && Array.isArray(sent["reference_task_ids"]) ? { referenceTaskIds: sent["reference_task_ids"] } : {})
  }
}
