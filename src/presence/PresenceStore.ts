import { Context, Effect, Layer } from "effect"
import type { PresenceState } from "./Presence.ts"

export interface PresenceUpdate {
  readonly before: PresenceState
  readonly after: PresenceState
}

/** The presence of the agents that are, or just were, there; the rest is rows (PresenceRepo). */
export class PresenceStore extends Context.Service<PresenceStore, {
  /** What is held of these agents; nothing for those that are not there. */
  readonly get: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, PresenceState>>
  /** Changes one state at once; an agent that is not held begins as `otherwise`. */
  readonly update: (
    agentId: string,
    otherwise: PresenceState,
    change: (state: PresenceState) => PresenceState
  ) => Effect.Effect<PresenceUpdate>
  /** Lets go of an agent whose state is still this one. */
  readonly release: (agentId: string, state: PresenceState) => Effect.Effect<void>
  /** Agents whose states have ended by a time. */
  readonly due: (at: number) => Effect.Effect<ReadonlyArray<string>>
}>()("parley/presence/PresenceStore") {
  /** Of one process; what is online is found out again after a restart. */
  static readonly layerMemory = Layer.sync(PresenceStore, () => {
    const states = new Map<string, PresenceState>()
    /** In the order in which they end, for all last equally long. */
    const ending = new Map<string, number>()
    return PresenceStore.of({
      get: (agentIds) =>
        Effect.sync(() => {
          const found = new Map<string, PresenceState>()
          for (const id of agentIds) {
            const state = states.get(id)
            if (state !== undefined) found.set(id, state)
          }
          return found
        }),
      update: (agentId, otherwise, change) =>
        Effect.sync(() => {
          const before = states.get(agentId) ?? otherwise
          const after = change(before)
          states.set(agentId, after)
          if (after.expiresAt !== before.expiresAt || !ending.has(agentId)) {
            ending.delete(agentId)
            if (after.expiresAt !== null) ending.set(agentId, after.expiresAt)
          }
          return { before, after }
        }),
      release: (agentId, state) =>
        Effect.sync(() => {
          if (states.get(agentId) === state && state.expiresAt === null) states.delete(agentId)
        }),
      due: (at) =>
        Effect.sync(() => {
          const due: Array<string> = []
          for (const [id, expiresAt] of ending) {
            if (expiresAt > at) break
            due.push(id)
          }
          return due
        })
    })
  })
}
