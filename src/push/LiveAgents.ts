import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Sharding } from "effect/cluster"
import type { ColdCapExceeded } from "../messages/SendErrors.ts"
import { type MuteKind, MuteSet } from "./MuteSet.ts"
import { ActiveMutes } from "./ActiveMutes.ts"
import * as Procedures from "../cluster/Procedures.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import type { Unavailable } from "../wire/WireError.ts"
import { type CloseReason, Sessions } from "../agents/Sessions.ts"
import { LiveAgent, type LiveSession, type Push } from "./LiveAgent.ts"
import { AgentEntity } from "./AgentEntity.ts"
import { Agents } from "../agents/Agents.ts"
import { ColdSlots } from "./ColdSlots.ts"
import { type SocketSlot, PushRouter } from "./PushRouter.ts"

/**
 * The agents that are active on this node, and calls to the others. An agent's cold
 * slots are counted where its shard is; its sockets are wherever they came in. What an
 * agent owns, and what of that is a cache here, AgentEntity says.
 */
export class LiveAgents extends Context.Service<LiveAgents, {
  /** Tells the agent's live sockets, if it has any: wakes nobody, waits for nobody. */
  readonly tell: (agentId: string, push: Push) => void
  /** Takes a cold slot, or says why not. */
  readonly reserveOutreach: (
    agentId: string,
    conversationId: string,
    at: number
  ) => Effect.Effect<void, ColdCapExceeded | Unavailable>
  /** Takes a place for one more socket, before it is attached: `PushRouter.enter`. */
  readonly enter: (agentId: string, displaced: () => void) => SocketSlot | undefined
  readonly leave: (place: SocketSlot) => void
  /** Completes once it is decided whether those that have places here keep them. */
  readonly agreed: Effect.Effect<void>
  readonly attach: (agentId: string, session: LiveSession) => LiveAgent
  readonly detach: (agentId: string, session: LiveSession) => void
  /** Closes the agent's sockets and forgets its account, on every node; those out of reach follow when they are back. */
  readonly disconnect: (agentId: string, reason: CloseReason) => Effect.Effect<void>
  /** Forgets its account as the caches of all nodes have it. */
  readonly changed: (agentId: string) => Effect.Effect<void>
  /** Whether it has a socket, here or elsewhere. */
  readonly isConnected: (agentId: string) => boolean
  /** Completes once what is committed on other nodes is told to the sockets that have places here by now. */
  readonly reachable: Effect.Effect<void>
  /** Called when hints for sockets here may have been lost. */
  readonly onMissed: (listener: () => void) => void
  /**
   * Called when a node is gone or was out of touch, with the agents that had sockets there: keys and
   * mutes of agents with sockets here may have changed unheard.
   */
  readonly onParted: (listener: (agentIds: ReadonlyArray<string>) => void) => void
  /** Reads again what the agents with sockets here have muted. */
  readonly reloadMutes: Effect.Effect<void, Unavailable>
  /** Reads what an agent has muted, unless that is known: to be done before a session of it starts. */
  readonly loadMutes: (actor: LiveAgent) => Effect.Effect<void, Unavailable>
  /** After a mute was changed in storage: the agent's sockets, wherever they are, follow it once this returns. */
  readonly muteChanged: (agentId: string, kind: MuteKind, targetId: string) => Effect.Effect<void>
  /** After all mutes on an agent were dropped for good: the same for everybody's sockets. */
  readonly unmuted: (agentId: string) => Effect.Effect<void>
  /** The agent's actor on this node, made if need be; for a socket that is about to be attached. */
  readonly here: (agentId: string) => LiveAgent
  /** The agent's actor if it has sockets here; wakes nobody. */
  readonly live: (agentId: string) => LiveAgent | undefined
  /** Takes the calls of other nodes to the agents of this one. */
  readonly entity: Layer.Layer<never, never, Sharding.Sharding>
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
      const actors = new Map<string, LiveAgent>()

      const here = (agentId: string): LiveAgent => {
        const known = actors.get(agentId)
        if (known !== undefined) return known
        const actor = new LiveAgent(agentId)
        actors.set(agentId, actor)
        return actor
      }

      const { client, entity } = yield* Procedures.make(AgentEntity, {
        ReserveOutreach: {
          run: (agentId, { at, conversationId }) => here(agentId).reserve(slots.reserve(agentId, conversationId, at))
        }
      })

      const readMutes = (actor: LiveAgent) =>
        Effect.map(unavailableOnSqlError(mutes.all(actor.id, now())), (rows) => {
          const set = new MuteSet(now)
          for (const row of rows) set.add(row.target_id, row.muted_until)
          actor.mutes = set
        })

      const muteChangedHere = (agentId: string, kind: MuteKind, targetId: string) =>
        Effect.suspend(() => {
          const actor = actors.get(agentId)
          if (actor === undefined) return Effect.void
          // Storage is asked rather than the caller, so that two changes at once end as they do there.
          return actor.muting.withPermits(1)(Effect.suspend(() =>
            actor.mutes === undefined ? Effect.void : Effect.match(mutes.one(agentId, kind, targetId, now()), {
              onFailure: () => {
                // What cannot be read again is not kept: the sockets come back, and it is read whole.
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
          [...actors.values()].filter((actor) => actor.mutes !== undefined),
          // What is being read at the moment may have been read before.
          (actor) => actor.muting.withPermits(1)(Effect.sync(() => actor.mutes?.remove(agentId))),
          { concurrency: "unbounded", discard: true }
        )

      let missed = (): void => {}
      let parted = (_agentIds: ReadonlyArray<string>): void => {}
      remote.listen({
        push: (agentId, push) => actors.get(agentId)?.tell(push),
        notice: (notice) =>
          Effect.suspend(() => {
            if (notice._tag === "Unmuted") return unmutedHere(notice.agentId)
            if (notice._tag === "MuteChanged") return muteChangedHere(notice.agentId, notice.kind, notice.targetId)
            agents.forget(notice.agentId)
            if (notice._tag === "Disconnect") actors.get(notice.agentId)?.disconnect(notice.reason)
            return Effect.void
          }),
        missed: () => missed(),
        parted: (agentIds) => parted(agentIds)
      })

      // Sessions keep an actor; without any it holds nothing that is not in storage.
      yield* Effect.sync(() => {
        for (const [id, actor] of actors) if (actor.idle) actors.delete(id)
      }).pipe(Effect.repeat(Schedule.spaced("1 minute")), Effect.delay("1 minute"), Effect.forkScoped)

      return LiveAgents.of({
        tell: (agentId, push) => {
          actors.get(agentId)?.tell(push)
          remote.tell(agentId, push)
        },
        reserveOutreach: (agentId, conversationId, at) => client.ReserveOutreach(agentId, { conversationId, at }),
        enter: remote.enter,
        leave: remote.leave,
        agreed: remote.agreed,
        attach: (agentId, session) => {
          const actor = here(agentId)
          actor.sessions.add(session)
          return actor
        },
        detach: (agentId, session) => {
          const actor = actors.get(agentId)
          if (actor?.sessions.delete(session) !== true) return
          if (actor.sessions.size === 0) actor.mutes = undefined
        },
        disconnect: (agentId, reason) =>
          Effect.suspend(() => {
            actors.get(agentId)?.disconnect(reason)
            return remote.everywhere({ _tag: "Disconnect", agentId, reason })
          }),
        changed: (agentId) =>
          Effect.suspend(() => {
            agents.forget(agentId)
            return remote.everywhere({ _tag: "Changed", agentId })
          }),
        isConnected: (agentId) => (actors.get(agentId)?.sessions.size ?? 0) > 0 || remote.count(agentId) > 0,
        reachable: remote.announced,
        onMissed: (listener) => {
          missed = listener
        },
        onParted: (listener) => {
          parted = listener
        },
        reloadMutes: Effect.suspend(() =>
          Effect.forEach(actors.values(), (actor) =>
            actor.muting.withPermits(1)(Effect.suspend(() => actor.mutes === undefined ? Effect.void : readMutes(actor))), {
            concurrency: 8,
            discard: true
          })),
        loadMutes: (actor) =>
          actor.muting.withPermits(1)(Effect.suspend(() =>
            actor.mutes !== undefined ? Effect.void : readMutes(actor)
          )),
        muteChanged: (agentId, kind, targetId) =>
          Effect.andThen(
            muteChangedHere(agentId, kind, targetId),
            remote.everywhere({ _tag: "MuteChanged", agentId, kind, targetId })
          ),
        unmuted: (agentId) =>
          Effect.andThen(
            Effect.suspend(() => unmutedHere(agentId)),
            remote.everywhere({ _tag: "Unmuted", agentId })
          ),
        here,
        entity,
        live: (agentId) => {
          const actor = actors.get(agentId)
          return actor === undefined || actor.sessions.size === 0 ? undefined : actor
        }
      })
    })
  )
}

/** What is done to an agent wherever its sockets are. */
export const SessionsLive = Layer.effect(
  Sessions,
  Effect.map(LiveAgents, (actors) => Sessions.of({ disconnect: actors.disconnect, changed: actors.changed }))
)

