import { Agents } from "#domain/agents/Agents"
import { type CloseReason, Sessions } from "#domain/agents/Sessions"
import type { ColdCapExceeded } from "#domain/sending/SendErrors"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { makeActors } from "#infrastructure/platform/Actors"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { ActiveMutes } from "./ActiveMutes.ts"
import { AgentEntity } from "./AgentEntity.ts"
import { ColdSlots } from "./ColdSlots.ts"
import { LiveAgent, type LiveSession, type Push } from "./LiveAgent.ts"
import { type MuteKind, MuteSet } from "./MuteSet.ts"
import { PushRouter } from "./PushRouter.ts"
import type { SocketSlot } from "./SocketPlaces.ts"

/**
 * The agents that are active on this node, and calls to agents on other nodes. The node that owns an agent's shard
 * counts the agent's cold slots. Each socket is on the node that accepted it. AgentEntity documents what an agent owns
 * and what a node only caches.
 */
export class LiveAgents extends Context.Service<LiveAgents, {
  /** Pushes to the agent's live sockets on all nodes, if it has any. Creates no actor and returns immediately. */
  readonly push: (agentId: string, push: Push) => void
  /** Reserves a cold slot, or fails with the reason. */
  readonly reserveOutreach: (
    agentId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<void, ColdCapExceeded | Unavailable>
  /** Takes a place for one more socket. Call it before the socket is attached: see `PushRouter.enter`. */
  readonly enter: (agentId: string, displaced: () => void) => SocketSlot | undefined
  readonly leave: (place: SocketSlot) => void
  readonly attach: (agentId: string, session: LiveSession) => LiveAgent
  readonly detach: (agentId: string, session: LiveSession) => void
  /**
   * Closes the agent's sockets and drops its cached account, on every node. A node that is unreachable now does the
   * same after it is reachable again.
   */
  readonly disconnect: (agentId: string, reason: CloseReason) => Effect.Effect<void>
  /** Drops the agent's account from the caches of all nodes. */
  readonly changed: (agentId: string) => Effect.Effect<void>
  /** Whether the agent has a socket, on any node. */
  readonly isConnected: (agentId: string) => boolean
  /**
   * Completes when other nodes push to the sockets that already have places on this node, and when it is decided which
   * of these places are kept: see `PushRouter.reachable`.
   */
  readonly reachable: Effect.Effect<void>
  /** Whether this node receives the notices of all other nodes: see `PushRouter.hearsAll`. */
  readonly hearsAll: () => boolean
  /** Registers a listener that is called when hints for sockets on this node may have been lost. */
  readonly onMissed: (listener: () => void) => void
  /**
   * Registers a listener that is called with the agents that had sockets on a node, when this node is gone or was
   * unreachable. Notices of that node may be lost, so keys and mutes of agents with sockets on this node may have
   * changed.
   */
  readonly onParted: (listener: (agentIds: ReadonlyArray<string>) => void) => void
  /** Reloads the mutes of all agents with sockets on this node. */
  readonly reloadMutes: Effect.Effect<void, Unavailable>
  /** Reads an agent's mutes if they are not in memory yet. Call it before a session of the agent starts. */
  readonly loadMutes: (actor: LiveAgent) => Effect.Effect<void, Unavailable>
  /**
   * Call it after a mute was changed in storage. When it completes, the agent's sockets on all reachable nodes apply
   * the change.
   */
  readonly muteChanged: (agentId: string, kind: MuteKind, targetId: string) => Effect.Effect<void>
  /**
   * Call it after all mutes of which an agent is the target were deleted for good. When it completes, the sockets of
   * all agents on all reachable nodes apply this.
   */
  readonly unmuted: (agentId: string) => Effect.Effect<void>
  /**
   * Returns the agent's actor on this node, and creates it if there is none. For a socket that is about to be attached.
   */
  readonly here: (agentId: string) => LiveAgent
  /** Returns the agent's actor if the agent has sockets on this node. Creates none. */
  readonly live: (agentId: string) => LiveAgent | undefined
}>()("parley/push/LiveAgents") {
  static readonly layer = Layer.effect(
    LiveAgents,
    Effect.gen(function*() {
      const agents = yield* Agents
      const remote = yield* PushRouter
      const slots = yield* ColdSlots
      const mutes = yield* ActiveMutes
      const clock = yield* Clock.Clock
      const now = () => clock.currentTimeMillisUnsafe()
      // Sessions and reservations keep an actor in memory. Without them, all of its data is in storage.
      const actors = yield* makeActors("agent", (id) => new LiveAgent(id), (actor) => actor.idle)

      const client = yield* EntityRpc.make(AgentEntity, {
        ReserveOutreach: {
          run: (agentId, { at, conversationId }) =>
            actors.of(agentId).reserve(slots.reserve(agentId, conversationId, at))
        }
      })

      const readMutes = (actor: LiveAgent) =>
        Effect.map(mutes.all(actor.id, now()), (rows) => {
          const set = new MuteSet(now)
          for (const row of rows) set.add(row.target_id, row.muted_until)
          actor.mutes = set
        })

      const muteChangedHere = (agentId: string, kind: MuteKind, targetId: string) =>
        Effect.suspend(() => {
          const actor = actors.find(agentId)
          if (actor === undefined) return Effect.void
          // Read the mute from storage, so that two concurrent changes end with the same state here as in storage.
          return actor.muting.withPermits(1)(Effect.suspend(() =>
            actor.mutes === undefined ? Effect.void : Effect.match(mutes.one(agentId, kind, targetId, now()), {
              onFailure: () => {
                // A mute that cannot be read invalidates all of them. The sockets are closed. When they reconnect, the
                // mutes are read again.
                actor.mutes = undefined
                actor.disconnect({ code: 1011, text: "the mutes cannot be read right now" })
              },
              onSuccess: (mute) => {
                if (mute === undefined) actor.mutes?.remove(targetId)
                else actor.mutes?.add(targetId, mute.muted_until)
              }
            })
          ))
        })

      const unmutedHere = (agentId: string) =>
        Effect.forEach(
          [...actors.all()].filter((actor) => actor.mutes !== undefined),
          // A read that is under way may have read the mute before its deletion, so wait for it.
          (actor) => actor.muting.withPermits(1)(Effect.sync(() => actor.mutes?.remove(agentId))),
          { concurrency: "unbounded", discard: true }
        )

      const missed: Array<() => void> = []
      let parted = (_agentIds: ReadonlyArray<string>): void => {}
      remote.listen({
        push: (agentId, push) => actors.find(agentId)?.push(push),
        notice: (notice) =>
          Effect.suspend(() => {
            if (notice._tag === "Unmuted") return unmutedHere(notice.agentId)
            if (notice._tag === "MuteChanged") return muteChangedHere(notice.agentId, notice.kind, notice.targetId)
            agents.forget(notice.agentId)
            if (notice._tag === "Disconnect") actors.find(notice.agentId)?.disconnect(notice.reason)
            return Effect.void
          }),
        missed: () => missed.forEach((listener) => listener()),
        parted: (agentIds) => parted(agentIds)
      })

      return LiveAgents.of({
        push: (agentId, push) => {
          actors.find(agentId)?.push(push)
          remote.push(agentId, push)
        },
        reserveOutreach: (agentId, conversationId, at) => client.ReserveOutreach(agentId, { conversationId, at }),
        enter: remote.enter,
        leave: remote.leave,
        attach: (agentId, session) => {
          const actor = actors.of(agentId)
          actor.sessions.add(session)
          return actor
        },
        detach: (agentId, session) => {
          const actor = actors.find(agentId)
          if (actor?.sessions.delete(session) !== true) return
          if (actor.sessions.size === 0) actor.mutes = undefined
        },
        disconnect: (agentId, reason) =>
          Effect.suspend(() => {
            agents.forget(agentId)
            actors.find(agentId)?.disconnect(reason)
            return remote.onOthers({ _tag: "Disconnect", agentId, reason })
          }),
        changed: (agentId) =>
          Effect.suspend(() => {
            agents.forget(agentId)
            return remote.onOthers({ _tag: "Changed", agentId })
          }),
        isConnected: (agentId) => (actors.find(agentId)?.sessions.size ?? 0) > 0 || remote.count(agentId) > 0,
        reachable: remote.reachable,
        hearsAll: remote.hearsAll,
        onMissed: (listener) => void missed.push(listener),
        onParted: (listener) => {
          parted = listener
        },
        reloadMutes: Effect.suspend(() =>
          Effect.forEach(
            actors.all(),
            (actor) =>
              actor.muting.withPermits(1)(
                Effect.suspend(() => actor.mutes === undefined ? Effect.void : readMutes(actor))
              ),
            {
              concurrency: 8,
              discard: true
            }
          )
        ),
        loadMutes: (actor) =>
          actor.muting.withPermits(1)(Effect.suspend(() => actor.mutes !== undefined ? Effect.void : readMutes(actor))),
        muteChanged: (agentId, kind, targetId) =>
          Effect.andThen(
            muteChangedHere(agentId, kind, targetId),
            remote.onOthers({ _tag: "MuteChanged", agentId, kind, targetId })
          ),
        unmuted: (agentId) =>
          Effect.andThen(
            Effect.suspend(() => unmutedHere(agentId)),
            remote.onOthers({ _tag: "Unmuted", agentId })
          ),
        here: actors.of,
        live: (agentId) => {
          const actor = actors.find(agentId)
          return actor === undefined || actor.sessions.size === 0 ? undefined : actor
        }
      })
    })
  )
}

/** Implements `Sessions` with the live agents of all nodes. */
export const SessionsLive = Layer.effect(
  Sessions,
  Effect.map(LiveAgents, (actors) => Sessions.of({ disconnect: actors.disconnect, changed: actors.changed }))
)
