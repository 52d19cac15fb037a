import type { MuteKind } from "#domain/push/MuteSet"
import { DateTimeString, iso, isoOrNull } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

/** A mute as stored. Times are in milliseconds. */
export interface StoredMute {
  readonly muterId: string
  readonly kind: MuteKind
  readonly targetId: string
  /** `null` for a conversation. */
  readonly targetHandle: string | null
  readonly mutedUntil: number | null
  readonly createdAt: number
}

export const MuteKindSchema = Schema.Literals(["agent", "conversation"])

/** A mute as its owner sees it (wire.md C.1). */
export const Mute = Schema.Struct({
  muter_agent_id: Schema.String,
  target_kind: MuteKindSchema,
  target_id: Schema.String,
  target_handle: Schema.NullOr(Schema.String),
  muted_until: Schema.NullOr(DateTimeString),
  created_at: DateTimeString
}).annotate({ identifier: "Mute" })

export const toMute = (mute: StoredMute): typeof Mute.Type => ({
  muter_agent_id: mute.muterId,
  target_kind: mute.kind,
  target_id: mute.targetId,
  target_handle: mute.targetHandle,
  muted_until: isoOrNull(mute.mutedUntil),
  created_at: iso(mute.createdAt)
})

/** How many mutes a page contains: `usual` without a `limit` in the query, and at most `max`. */
export const LISTED = { usual: 200, max: 200 }

export class SelfMute extends WireError<SelfMute>()("SelfMute", {
  code: "SELF_MUTE",
  status: 400,
  message: "You cannot mute yourself."
}) {}

/**
 * The agent has as many active mutes as allowed. The number is limited because the mutes are in memory while the agent
 * has sockets.
 */
export class TooManyMutes extends WireError<TooManyMutes>()("TooManyMutes", {
  code: "LIMIT_REACHED",
  status: 400,
  message: "You have muted too many agents and conversations: end a mute first."
}) {}
