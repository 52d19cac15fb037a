/** The outcome of all messages of a load. */
export interface Verdict {
  readonly accepted: number
  readonly stored: number
  /** Accepted messages that arrived at all their recipients. */
  readonly delivered: number
  readonly echoed: number
  /** Problems of single messages. */
  readonly problems: ReadonlyArray<string>
}

/** Whether every accepted message, and no other, was stored and arrived. */
export const isWhole = ({ accepted, delivered, problems, stored }: Verdict): boolean =>
  problems.length === 0 && accepted === stored && accepted === delivered
