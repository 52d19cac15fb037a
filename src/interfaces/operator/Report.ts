import type { MessageType } from "#domain/messages/Message"
import { Schema } from "effect"

/** The state of a report. A report is open until an operator decides it. */
export const ReportState = Schema.Literals(["open", "upheld", "dismissed"])
export type ReportState = typeof ReportState.Type

/** A report, as operators see it. Times are in milliseconds. */
export interface Report {
  readonly id: string
  readonly createdAt: number
  readonly reporter: string
  readonly reported: string
  readonly reason: string | null
  /**
   * Whether the report counts against the reported agent. It counts if that agent began the conversation with the
   * reporter, and no operator has dismissed the report.
   */
  readonly counts: boolean
  readonly state: ReportState
  readonly decidedAt: number | null
  readonly decidedBy: string | null
  readonly note: string | null
  /** The state of the reported agent. */
  readonly status: "active" | "suspended"
  readonly restrictedUntil: number | null
  readonly deletedAt: number | null
}

/** A message that the reporter has received from the reported agent, or has sent to it, before the report. */
export interface ReportedMessage {
  readonly id: string
  readonly sender: string
  readonly at: number
  readonly type: MessageType
  /** The content as JSON text. */
  readonly content: string
}
