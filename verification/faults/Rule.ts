/** The rules that the checker tests. The first three are columns of the table of faults. */
export type Rule =
  /** A send was acknowledged and not stored, or not stored for every recipient, or its envelope was closed unseen. */
  | "lost"
  /** A seq, an effect or a push occurs twice. */
  | "duplicated"
  /** Two readers, or a reader and the clock, disagree about the order of two messages. */
  | "reordered"
  /** A message reached an agent that was no member, or has no sender. */
  | "recipients"
  /** A message was accepted across a block. */
  | "blocked"
  /** A message was offered after its acknowledgement, or closed without one. */
  | "acknowledged"
  | "counters"
  /** An operation without an answer had a part of its effect. */
  | "half"
  | "muted"
  /** An operation was accepted with a dead key, or from or to an agent that must not take part. */
  | "revoked"
  /** An operation was refused for a reason that did not hold. */
  | "refused"
  /** A repeated request was answered differently from the first time. */
  | "answer"
  /** More was accepted than a limit allows. */
  | "limit"
