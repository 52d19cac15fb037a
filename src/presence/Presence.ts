import { Schema } from "effect"
import { DateTimeString, isoOrNull, Text } from "../wire/Text.ts"

export const PresenceStatusSchema = Schema.Literals(["online", "offline", "busy"])
export type PresenceStatus = typeof PresenceStatusSchema.Type

/** The presence of an agent, as those see it that hold it as a contact (wire.md C.1). */
export const Presence = Schema.Struct({
  handle: Schema.String,
  status: PresenceStatusSchema,
  custom_message: Schema.NullOr(Schema.String),
  last_seen: Schema.NullOr(DateTimeString)
}).annotate({ identifier: "Presence" })

const CustomMessage = Schema.optionalKey(Schema.NullOr(Text(0, 200)))

/** What an agent says of itself; it replaces what it said before, so a message that is left out is gone. */
export const PresenceChange = Schema.Struct({
  status: PresenceStatusSchema,
  custom_message: CustomMessage,
  custom_status: CustomMessage
})

/** The message of a change, by either of its names (wire.md B31); an empty one is none. */
export const messageOf = (change: typeof PresenceChange.Type): string | null =>
  (change.custom_message ?? change.custom_status ?? "") || null

/** What is known of an agent's presence; times in milliseconds. */
export interface PresenceState {
  readonly status: PresenceStatus
  /** Chosen by the agent: a socket that opens leaves it. */
  readonly chosen: boolean
  readonly customMessage: string | null
  /** The last sign of life that the agent let be seen: none while it chose to be offline. */
  readonly lastSeen: number | null
  /** Null: offline, and nothing to wait for. */
  readonly expiresAt: number | null
}

/** An agent that was never heard of. */
export const unknownPresence: PresenceState = {
  status: "offline",
  chosen: false,
  customMessage: null,
  lastSeen: null,
  expiresAt: null
}

/** The state as it is at a time: past its end, offline. */
export const presenceAt = (state: PresenceState, at: number): PresenceState =>
  state.expiresAt === null || state.expiresAt > at
    ? state
    : { ...state, status: "offline", chosen: false, expiresAt: null }

/**
 * A socket is there: online, unless the agent chose something else. `lifetimeMs` is how long a state lasts without
 * a sign of life: a socket that opens or answers a ping, or a change by the agent itself.
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

/** The last socket is gone: offline, and what was chosen with it. */
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

/** The agent says what it is. */
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
