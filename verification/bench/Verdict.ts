/** What became of all messages of a load. */
export interface Verdict {
  readonly accepted: number
  readonly stored: number
  /** To all recipients. */
  readonly delivered: number
  readonly echoed: number
  /** What is wrong with single messages. */
  readonly problems: ReadonlyArray<string>
}

/** Whether what was accepted is what is stored and what arrived. */
export const isWhole = ({ accepted, delivered, problems, stored }: Verdict): boolean =>
  problems.length === 0 && accepted === stored && accepted === delivered
