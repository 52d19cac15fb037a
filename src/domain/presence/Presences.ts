import { Agents } from "#domain/agents/Agents"
import { LiveAgents } from "#domain/push/LiveAgents"
import { PresencePosts } from "#domain/webhooks/PresencePosts"
import { Config } from "#infrastructure/platform/Config"
import { nextTick } from "#infrastructure/platform/EventLoop"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Latch, Layer, Schedule } from "effect"
import {
  alive,
  chosen,
  gone,
  messageOf,
  type Presence,
  presenceAt,
  type PresenceChange,
  type PresenceState,
  toPresence,
  unknownPresence,
  whenDue
} from "./Presence.ts"
import { type KeptPresence, PresenceRepo, type VisiblePresence } from "./PresenceRepo.ts"
import { PresenceStore } from "./PresenceStore.ts"

/** How many holders (agents that have the changed agent as a contact) are notified in one tick of the event loop. */
const BATCH_SIZE = 100
/**
 * The pause between slices. Because of it, an agent with many holders that changes constantly does not use all
 * processor time.
 */
const BATCH_PAUSE = "1 millis"
/** How many rows one statement writes. */
const KEEP_ROWS = 500
const SWEEP_INTERVAL = "1 second"

/**
 * Keeps the presence of agents (wire.md G.14). The states of live agents are in the store. The message and the last
 * sign of life are also written to the database at most a second later, so that they survive a restart. A crash loses
 * the connects, closes and changes of at most that second. Events go to the holders: the agents that have the changed
 * agent as a contact. One fiber notifies the holders in slices, with pauses in between. So an agent with ten thousand
 * holders delays the sends of other agents by one slice, and the presence events of other agents by about 200 ms. If an
 * agent changes again before its holders are notified, they are notified only once, with the latest state.
 */
export class Presences extends Context.Service<Presences, {
  /** Returns the presence of the viewer or of one of its contacts. Fails with NotFound for any other agent. */
  readonly get: (viewerId: string, handle: string) => Effect.Effect<typeof Presence.Type, NotFound | Unavailable>
  /** Returns the presences in the order of the handles. Leaves out agents that the viewer may not see. */
  readonly getMany: (
    viewerId: string,
    handles: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<typeof Presence.Type>, Unavailable>
  /** Sets the agent's own presence, and notifies its holders even if nothing changed. */
  readonly put: (
    agent: { readonly id: string; readonly handle: string },
    change: typeof PresenceChange.Type
  ) => Effect.Effect<typeof Presence.Type, Unavailable>
  /**
   * Updates the state after a socket of the agent opened, closed or answered a ping. Takes the agent's sockets on all
   * nodes into account.
   */
  readonly sockets: (agentId: string) => Effect.Effect<void, Unavailable>
  /**
   * Sets a deleted account offline and removes its stored presence (wire.md G.12). Idempotent. When this completes, the
   * account's holders have been notified.
   */
  readonly end: (agentId: string) => Effect.Effect<void, Unavailable>
  /** Completes when no notifications are waiting. */
  readonly told: Effect.Effect<void>
}>()("parley/presence/Presences") {
  static readonly layer = Layer.effect(
    Presences,
    Effect.gen(function*() {
      const liveAgents = yield* LiveAgents
      const agents = yield* Agents
      const clock = yield* Clock.Clock
      const lifetimeMs = (yield* Config).PRESENCE_LIFETIME_SECONDS * 1_000
      const posts = yield* PresencePosts
      const repo = yield* PresenceRepo
      const store = yield* PresenceStore
      const now = () => clock.currentTimeMillisUnsafe()

      /** Agents whose rows must be written because their states are newer. */
      const unkept = new Set<string>()
      /** Agents whose holders must still be notified. */
      const untold = new Set<string>()
      /** The agent whose holders are being notified right now. */
      let notifying: string | undefined
      const telling = yield* Latch.make()
      const idle = yield* Latch.make(true)

      const announce = (agentId: string): void => {
        untold.add(agentId)
        idle.closeUnsafe()
        telling.openUnsafe()
      }

      const stored = (kept: KeptPresence | undefined): PresenceState =>
        kept === undefined ? unknownPresence : { ...unknownPresence, ...kept }

      const loaded = Effect.fnUntraced(function*(agentId: string) {
        const known = (yield* store.get([agentId])).get(agentId)
        return known ?? stored(yield* repo.kept(agentId))
      })

      const change = Effect.fnUntraced(function*(
        agentId: string,
        to: (state: PresenceState, at: number) => PresenceState,
        always: boolean
      ) {
        const otherwise = yield* loaded(agentId)
        const { after, before } = yield* store.update(agentId, otherwise, (state) => to(state, now()))
        const changed = always || before.status !== after.status
        if (changed) announce(agentId)
        if (changed || after.expiresAt === null) unkept.add(agentId)
        return after
      })

      /**
       * `isConnected` is read when the change is applied, because a socket may have closed since the change was
       * requested.
       */
      const sockets = (agentId: string) =>
        change(
          agentId,
          (state, at) => liveAgents.isConnected(agentId) ? alive(state, at, lifetimeMs) : gone(state, at),
          false
        )

      const seen = Effect.fnUntraced(function*(rows: ReadonlyArray<VisiblePresence>) {
        const held = yield* store.get(rows.map((row) => row.agentId))
        const at = now()
        return new Map(rows.map(({ agentId, customMessage, handle, lastSeen }) => {
          const state = held.get(agentId) ?? stored({ customMessage, lastSeen })
          return [handle, toPresence(handle, presenceAt(state, at))] as const
        }))
      })

      const visible = (viewerId: string, handles: ReadonlyArray<string>) =>
        Effect.flatMap(repo.visible(viewerId, handles), seen)

      const tell = Effect.fnUntraced(function*(agentId: string): Effect.fn.Return<void, Unavailable> {
        const agent = (yield* agents.byIds([agentId])).get(agentId)
        if (agent === undefined) return
        const state = presenceAt(yield* loaded(agentId), now())
        const payload = JSON.stringify(toPresence(agent.handle, state))
        const frame = `{"type":"presence.update","payload":${payload}}`
        for (let above = "";;) {
          const slice = yield* repo.holders(agentId, above, BATCH_SIZE)
          for (const { blocked, holder } of slice) {
            if (!blocked) liveAgents.push(holder, { _tag: "Event", frame })
          }
          const hooked = slice.flatMap(({ blocked, holder, hooked }) => hooked && !blocked ? [holder] : [])
          if (hooked.length > 0) posts.post(hooked, agent.handle, payload)
          if (slice.length < BATCH_SIZE) return
          above = slice.at(-1)!.holder
          yield* Effect.sleep(BATCH_PAUSE)
        }
      })

      yield* Effect.gen(function*() {
        yield* telling.await
        telling.closeUnsafe()
        for (const agentId of untold) {
          untold.delete(agentId)
          notifying = agentId
          yield* Effect.catchCause(
            tell(agentId),
            (cause) => Effect.logWarning("A change of presence was not pushed", cause)
          )
          notifying = undefined
          yield* nextTick
        }
        if (untold.size === 0) idle.openUnsafe()
      }).pipe(Effect.forever, Effect.forkScoped)

      /** Writes the rows of changed states, and removes the agents that are offline from the store. */
      const keep = Effect.gen(function*() {
        while (unkept.size > 0) {
          const ids = [...unkept.keys().take(KEEP_ROWS)]
          for (const id of ids) unkept.delete(id)
          const states = yield* store.get(ids)
          const rows = Array.from(
            states,
            ([agentId, { customMessage, lastSeen }]) => ({ agentId, customMessage, lastSeen })
          )
          yield* repo.keep(rows).pipe(
            Effect.onError(() => Effect.sync(() => ids.forEach((id) => unkept.add(id))))
          )
          for (const [id, state] of states) yield* store.release(id, state)
        }
      }).pipe(Effect.catchCause((cause) => Effect.logWarning("Presence could not be written to the database", cause)))

      const sweep = Effect.gen(function*() {
        for (const id of yield* store.due(now(), lifetimeMs))
          yield* change(id, (state, at) => whenDue(state, at, lifetimeMs), false)
      }).pipe(Effect.catchCause((cause) => Effect.logWarning("Expired presence could not be set offline", cause)))

      yield* Effect.addFinalizer(() => keep)
      yield* Effect.andThen(sweep, keep).pipe(
        Effect.repeat(Schedule.spaced(SWEEP_INTERVAL)),
        Effect.delay(SWEEP_INTERVAL),
        Effect.forkScoped
      )

      return Presences.of({
        get: Effect.fn("Presences.get")(function*(viewerId, handle) {
          const found = (yield* visible(viewerId, [handle])).get(handle)
          return found ?? (yield* new NotFound({ message: "The presence of this agent is not visible to you." }))
        }),
        getMany: Effect.fn("Presences.getMany")(function*(viewerId, handles) {
          const found = yield* visible(viewerId, handles)
          return handles.flatMap((handle) => found.get(handle) ?? [])
        }),
        put: Effect.fn("Presences.put")(function*(agent, { status, ...rest }) {
          const message = messageOf({ status, ...rest })
          const state = yield* change(agent.id, (before, at) => chosen(before, status, message, at, lifetimeMs), true)
          return toPresence(agent.handle, state)
        }),
        sockets: (agentId) => Effect.asVoid(sockets(agentId)),
        end: Effect.fn("Presences.end")(function*(agentId) {
          yield* Effect.gen(function*() {
            const otherwise = yield* loaded(agentId)
            const { after, before } = yield* store.update(agentId, otherwise, (state) => gone(state, now()))
            // Notify the holders here, because the fiber above might read them only after the deletion has removed the
            // contacts.
            if (before.status !== after.status || untold.delete(agentId) || notifying === agentId) yield* tell(agentId)
            unkept.delete(agentId)
            yield* repo.remove(agentId)
            yield* store.release(agentId, after)
          })
        }),
        told: idle.await
      })
    })
  )
}
