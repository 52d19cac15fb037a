import { keptMediaType, parseMediaType } from "#infrastructure/wire/MediaType"
import { WireError } from "#infrastructure/wire/WireError"

export const MAX_ATTACHMENT_BYTES = 26_214_400

/** The content types that a file may have (wire.md G.5). */
export const CONTENT_TYPES = [
  "image/png",
  "image/jpeg",
  "image/gif",
  "image/webp",
  "application/pdf",
  "application/json",
  "text/plain",
  "text/markdown",
  "text/csv",
  "audio/mpeg",
  "audio/wav",
  "audio/ogg",
  "video/mp4",
  "video/webm"
] as const

/** Returns the content type with which a file is stored, or undefined if files may not have this type. */
export const contentTypeOf = (text: string): string | undefined => {
  const given = parseMediaType(text)
  return given !== undefined && (CONTENT_TYPES as ReadonlyArray<string>).includes(given.type)
    ? keptMediaType(given)
    : undefined
}

/** The agents to whom a file may be sent: one agent, or the members of one group. */
export type AttachmentScope =
  | { readonly _tag: "Agent"; readonly agentId: string }
  | { readonly _tag: "Group"; readonly groupId: string }

export interface Attachment {
  readonly id: string
  readonly uploaderId: string
  readonly scope: AttachmentScope
  readonly filename: string
  readonly contentType: string
  readonly size: number
  readonly sha256: string
  readonly createdAt: number
  readonly storedAt: number | null
  readonly usedAt: number | null
}

/** Whether a file that was announced for `scope` may be sent to `target`. */
export const isWithin = (scope: AttachmentScope, target: AttachmentScope): boolean =>
  scope._tag === "Agent"
    ? target._tag === "Agent" && scope.agentId === target.agentId
    : target._tag === "Group" && scope.groupId === target.groupId

export class QuotaExceeded extends WireError<QuotaExceeded>()("QuotaExceeded", {
  code: "QUOTA_EXCEEDED",
  status: 413,
  message: "This file would take your attachments over your storage limit."
}) {}
