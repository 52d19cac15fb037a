import type { MessageType } from "#domain/messages/Message"
import { CursorId } from "#infrastructure/wire/Page"
import { Schema } from "effect"

const LABELS: Readonly<Record<MessageType, string>> = {
  text: "Message",
  structured: "Structured message",
  file: "File",
  system: "System message"
}

const PREVIEW_LENGTH = 140

/** Rules of the conversation list (wire.md C.7). */
export const Listing = {
  LIMIT: 50,
  MAX: 200,
  /** The end of a page: the activity time and the id of its last row. */
  Position: Schema.Struct({ activityAt: Schema.Int, id: CursorId }),
  /**
   * The text of a text message or an announcement with white space collapsed, up to 140 characters. For all others, a
   * label.
   */
  preview: (type: MessageType, content: string): string => {
    if (type !== "text" && type !== "system") return LABELS[type]
    const { text } = JSON.parse(content) as { readonly text?: string }
    if (text === undefined || text.trim() === "") return LABELS[type]
    const collapsed = text.trim().replace(/\s+/g, " ")
    const points = Array.from(collapsed.slice(0, PREVIEW_LENGTH * 2 + 1))
    return points.length > PREVIEW_LENGTH ? `${points.slice(0, PREVIEW_LENGTH - 1).join("")}…` : collapsed
  }
}
