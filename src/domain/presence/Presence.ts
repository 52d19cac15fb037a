import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import { DateTimeString, isoOrNull, Text } from "#infrastructure/wire/Text"
import { Schema } from "effect"

export const PresenceStatusSchema = Schema.Literals(["online", "offline", "busy"])
export type PresenceStatus = typeof PresenceStatusSchema.Type

/** The presence of an agent, as shown to agents that have this agent as a contact (wire.md C.1). */
export const Presence = Schema.Struct({
  handle: Schema.String,
  status: PresenceStatusSchema,
  custom_message: Schema.NullOr(Schema.String),
  last_seen: Schema.NullOr(DateTimeString)
}).annotate({ identifier: "Presence" })

const CustomMessage = Schema.optionalKey(Schema.NullOr(Text(0, 200)))

/**
 * A presence that an agent sets for itself. It replaces the previous one. If it contains no message, the previous
 * message is removed.
 */
export const PresenceChange = Schema.Struct({
  status: PresenceStatusSchema,
  custom_message: CustomMessage,
  custom_status: CustomMessage
})

/** The message of a change, from either of its two fields (wire.md B31), or `null` if it is empty. */
export const messageOf = (change: typeof PresenceChange.Type): string | null =>
  (change.custom_message ?? change.custom_status ?? "") || null

/** The state of an agent's presence. Times are in milliseconds. */
export interface PresenceState {
  readonly status: PresenceStatus
  /** Whether the agent set the status itself. A socket that opens does not change such a status. */
  readonly chosen: boolean
  readonly customMessage: string | null
  /** The time of the last sign of life. It is not recorded while the agent has set itself offline. */
  readonly lastSeen: number | null
  /** When the state becomes offline by itself, or `null` if it is already offline. */
  readonly expiresAt: number | null
}

/** The state of an agent that has never been online. */
export const unknownPresence: PresenceState = {
  status: "offline",
  chosen: false,
  customMessage: null,
  lastSeen: null,
  expiresAt: null
}

/** The state at a time. After the state has expired, it is offline. */
export const presenceAt = (state: PresenceState, at: number): PresenceState =>
  state.expiresAt === null || state.expiresAt > at
    ? state
    : { ...state, status: "offline", chosen: false, expiresAt: null }

/**
 * Limits the rest of a state's lifetime to `lifetimeMs`. A state can last longer than that only because the clock was
 * set back.
 */
export const whenDue = (state: PresenceState, at: number, lifetimeMs: number): PresenceState =>
  state.expiresAt !== null && state.expiresAt > at + lifetimeMs + SET_BACK_MS
    ? { ...state, expiresAt: at + lifetimeMs }
    : presenceAt(state, at)

/**
 * The state after a sign of life: online, unless the agent has set another status. `lifetimeMs` is how long a state
 * lasts without a sign of life. A socket gives a sign of life when it opens or answers a ping. A change of presence by
 * the agent is one too.
 */
export const alive = (before: PresenceState, at: number, lifetimeMs: number): PresenceState => {
  const state = presenceAt(before, at)
  return {
    ...state,
    status: state.chosen ? state.status : "online",
    lastSeen: state.chosen && state.status === "offline" ? state.lastSeen : at,
    expiresAt: at + lifetimeMs
  }
}

/** The state after the last socket has closed: offline, even if the agent had set another status. */
export const gone = (before: PresenceState, at: number): PresenceState => {
  const state = presenceAt(before, at)
  return {
    ...state,
    status: "offline",
    chosen: false,
    lastSeen: state.status === "offline" ? state.lastSeen : at,
    expiresAt: null
  }
}

/** The state after the agent has set its own status and message. */
export const chosen = (
  before: PresenceState,
  status: PresenceStatus,
  customMessage: string | null,
  at: number,
  lifetimeMs: number
): PresenceState => ({
  status,
  chosen: true,
  customMessage,
  lastSeen: presenceAt(before, at).status === "offline" && status === "offline" ? before.lastSeen : at,
  expiresAt: at + lifetimeMs
})

export const toPresence = (handle: string, state: PresenceState): typeof Presence.Type => ({
  handle,
  status: state.status,
  custom_message: state.customMessage,
  last_seen: isoOrNull(state.lastSeen)
})
