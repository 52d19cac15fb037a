import { Cause, Clock, Context, Effect, Layer, Option, Schedule } from "effect"
import { RunnerAddress } from "effect/cluster"
import { Config } from "../platform/Config.ts"
import { nameOf } from "../cluster/NodeAddress.ts"
import { PeerForgot, Peers } from "../cluster/Peers.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { notUnderstood, pushedThere, remotePushQueue } from "../platform/Metrics.ts"
import { OncePerMinute } from "../platform/OncePerMinute.ts"
import { Readiness } from "../platform/Readiness.ts"
import { encodeBundle, type Notice } from "./Bundle.ts"
import type { Push } from "./LiveAgent.ts"
import { PATIENCE_MS, PushLine } from "./PushLine.ts"
import { type BundleNotUnderstood, readBundle } from "./ReadBundle.ts"
import { beyond, type Elsewhere, nextSince, type SocketSlot } from "./SocketPlaces.ts"

/** Handles on this node what other nodes send. */
export interface RemoteListener {
  readonly push: (agentId: string, push: Push) => void
  readonly notice: (notice: Notice) => Effect.Effect<void>
  /** Pushes for sockets here may have been lost: storage has what they hinted at. */
  readonly missed: () => void
  /**
   * A node is gone, or was out of touch, and these agents had sockets there. Its notices may be lost:
   * storage has what they were about.
   */
  readonly parted: (agentIds: ReadonlyArray<string>) => void
}

/**
 * A cache of the sockets that agents have on other nodes, and the limit on how many an agent may have
 * (AgentEntity documents what an agent owns of that). Each node announces to the others which agents have
 * sockets on it, so a push goes straight from the node that committed to the nodes that show it,
 * whichever node owns the agent: sockets stay when shards move. Pushes gather for each node while the
 * call before is under way, and are lost with a call that fails; the receiver is notified of the loss and
 * reads storage. It also reads storage when too many notices waited for it and were dropped, and when it
 * cannot decode a text.
 *
 * A place is given at once, from what this node knows. Nodes that give away the last places at the same
 * time have too many together. Once they have received each other's announcements, each closes its own
 * surplus, by an order that is the same on all nodes (SocketPlaces): the limit holds as soon as all
 * announcements have arrived, and no socket that was known before loses its place to a new one.
 */
export class PushRouter extends Context.Service<PushRouter, {
  /** The number of an agent's sockets on other nodes, as far as those have announced them. */
  readonly count: (agentId: string) => number
  readonly tell: (agentId: string, push: Push) => void
  /**
   * Takes a place for one more socket of an agent on this node and announces it; undefined if none is
   * known to be free.
   */
  readonly enter: (agentId: string, displaced: () => void) => SocketSlot | undefined
  /** Gives the place back; idempotent. */
  readonly leave: (place: SocketSlot) => void
  /**
   * Completes once every node in reach has announced the sockets it had when it received the
   * announcements of this one: a place that is still held then is kept. Waits a second at most; costs one
   * text to each node and one back.
   */
  readonly agreed: Effect.Effect<void>
  /**
   * Completes once every node in reach has received the announcements made so far: it pushes here
   * whatever it commits later. Waits a second at most.
   */
  readonly announced: Effect.Effect<void>
  /**
   * Completes once all listed nodes have taken a call from this one, or after three seconds: before that
   * they push nothing to its sockets.
   */
  readonly introduced: Effect.Effect<void>
  /** Whether each listed node has sent something lately. Otherwise notices of a node may be missing here. */
  readonly hearsAll: () => boolean
  /** Applies a notice on the other nodes; waits a second at most, and keeps trying after that. */
  readonly everywhere: (notice: Notice) => Effect.Effect<void>
  readonly listen: (listener: RemoteListener) => void
}>()("parley/push/PushRouter") {
  static readonly layer = Layer.effect(
    PushRouter,
    Effect.gen(function*() {
      const peers = yield* Peers
      const runFork = Effect.runForkWith(yield* Effect.context<never>())
      const clock = yield* Clock.Clock
      const now = monotonicMillis(clock)
      const complaints = new OncePerMinute(now)
      const config = yield* Config
      const limit = config.LIMITS_SOCKETS_PER_AGENT
      /** This node's name, as the others know it. */
      const self = nameOf(RunnerAddress.make(config.RUNNER_HOST, config.RUNNER_PORT))
      const here = new Map<string, ReadonlyArray<SocketSlot>>()
      const lines = new Map<string, PushLine>()
      /** Nodes that have left: what they did until they come back, nobody told this one. */
      const strangers = new Set<string>()
      let listener: RemoteListener | undefined

      const elsewhere = (agentId: string): ReadonlyArray<Elsewhere> => {
        const found: Array<Elsewhere> = []
        for (const line of lines.values()) {
          const sockets = line.sockets.get(agentId)
          if (sockets !== undefined) found.push([line.node, sockets])
        }
        return found
      }
      const count = (agentId: string): number => {
        let sockets = 0
        for (const line of lines.values()) sockets += line.sockets.get(agentId)?.length ?? 0
        return sockets
      }

      const announce = (agentId: string, places: ReadonlyArray<SocketSlot>): void => {
        if (places.length > 0) here.set(agentId, places)
        else here.delete(agentId)
        for (const line of lines.values()) line.announce(agentId)
      }
      const leave = (place: SocketSlot): void => {
        const places = here.get(place.agentId)
        if (places?.includes(place) === true) announce(place.agentId, places.filter((other) => other !== place))
      }
      /** Closes surplus sockets here after other nodes have announced sockets of an agent. */
      const settle = (agentId: string): void => {
        const places = here.get(agentId)
        if (places === undefined || places.length + count(agentId) <= limit) return
        for (const place of beyond(limit, self, places, elsewhere(agentId))) {
          leave(place)
          place.displaced()
        }
      }

      const speak = (line: PushLine): Effect.Effect<void> =>
        Effect.gen(function*() {
          while (true) {
            yield* Effect.timeoutOption(line.work.await, BEAT)
            // Whatever the same turn of the event loop adds goes into this call.
            yield* Effect.yieldNow
            const load = line.take(here)
            if (load.dropped > 0) {
              yield* Effect.logWarning(
                `Node ${line.node} is too slow: ${load.dropped} notices for it are dropped; it reads the keys and mutes of its sockets again instead`
              )
            }
            const bundle = load.oldest === undefined
              ? load.bundle
              : { ...load.bundle, since: clock.currentTimeMillisUnsafe() - Math.round(performance.now() - load.oldest) }
            const delivery = yield* peers.deliver(line.node, encodeBundle(bundle), load.first)
            const atOnce = line.settle(load, delivery, now())
            if (load.first && delivery === "taken") listener?.missed()
            if (!atOnce) yield* Effect.sleep(AGAIN)
          }
        })

      const understand = (line: PushLine, { notice, parted: part, ...told }: RemoteListener, body: string, first: boolean) =>
        Effect.gen(function*() {
          let parted: ReadonlyArray<string> | undefined
          line.heardAt = now()
          const { answers, asks, frames, missed, notices, pushes, rendered, since, sockets } = yield* Effect.try({
            try: () => readBundle(body),
            catch: (error) => error as BundleNotUnderstood
          })
          if (first) {
            const before = [...line.sockets.keys()]
            line.sockets.clear()
            // Notices that the node dropped before its first bundle arrived here are marked as missed.
            const isBack = strangers.delete(line.node)
            if (line.heard || missed || isBack) parted = before
            line.heard = true
            line.misunderstood = false
          }
          for (const [agentId, since] of sockets) {
            if (since.length > 0) line.sockets.set(agentId, since)
            else line.sockets.delete(agentId)
          }
          for (const [agentId] of sockets) settle(agentId)
          line.heardOf(asks, answers)
          let lost = missed
          for (const { to, ...push } of pushes) {
            if (push._tag === "Event") {
              const frame = frames[push.frame]
              if (frame === undefined) lost = true
              else told.push(to, { ...push, frame })
            } else {
              const shown = rendered[push.rendered]
              if (shown === undefined) lost = true
              else if (push._tag === "Echo") told.push(to, { ...push, rendered: shown })
              else {
                const { no, ...hint } = push
                told.push(to, { ...hint, inboxNo: no, rendered: shown })
              }
            }
          }
          if (since !== undefined) pushedThere.millis(Math.max(0, clock.currentTimeMillisUnsafe() - since))
          if (lost) told.missed()
          if (parted !== undefined) part(parted)
          for (const one of notices) yield* notice(one)
        })

      /**
       * A text that cannot be decoded may have contained anything. PeerForgot makes its node send
       * everything again but the pushes, which it marks as missed; so it does for a text that comes before
       * there is a listener. If the repetition cannot be decoded either, sockets here are compared with
       * storage, and the text counts as taken: a node that is never understood must not seem out of reach.
       * The next text fails again then, as the announcements are still unknown.
       */
      const receive = (node: string, body: string, first: boolean): Effect.Effect<void, PeerForgot> =>
        Effect.suspend(() => {
          const line = lines.get(node)
          if (line === undefined || listener === undefined || (line.misunderstood && !first)) return Effect.fail(new PeerForgot())
          const { missed, parted } = listener
          return Effect.catchCause(understand(line, listener, body, first), (cause) =>
            Effect.gen(function*() {
              if (Cause.hasInterruptsOnly(cause)) return yield* Effect.interrupt
              notUnderstood.add()
              if (complaints.allows(node)) {
                yield* Effect.logWarning(`Node ${node} said what this node does not understand: do both run the same version of Parley?`, cause)
              }
              if (!first) return yield* new PeerForgot()
              line.misunderstood = true
              missed()
              parted([...line.sockets.keys()])
            }))
        })

      peers.listen({
        joined: (node) => {
          if (lines.has(node)) return
          const line = new PushLine(node, now())
          lines.set(node, line)
          line.fiber = runFork(speak(line))
        },
        left: (node) => {
          const line = lines.get(node)
          if (line === undefined) return
          lines.delete(node)
          if (strangers.size >= MAX_STRANGERS) strangers.clear()
          strangers.add(node)
          line.end()
          listener?.parted([...line.sockets.keys()])
        },
        receive
      })
      const ends = remotePushQueue.reads(() => lines.values().reduce((sum, { waiting }) => sum + waiting, 0))
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          ends()
          for (const line of lines.values()) line.end()
          lines.clear()
        }))

      // A dead node has left the list by then.
      Option.map(yield* Effect.serviceOption(Readiness), (readiness) =>
        readiness.check(() => {
          const away = [...lines.values()].filter(({ silentSince }) => now() - silentSince > SILENT_MS).map(({ node }) => node)
          return away.length === 0
            ? undefined
            : `This node cannot reach ${away.join(", ")}, which the database lists as alive: look at the network between them and at RUNNER_SECRET.`
        }))

      const onAll = (give: (line: PushLine, done: () => void) => void): Effect.Effect<void> =>
        Effect.callback<void>((resume) => {
          let waiting = lines.size
          if (waiting === 0) return resume(Effect.void)
          const done = () => {
            if (--waiting === 0) resume(Effect.void)
          }
          for (const line of lines.values()) give(line, done)
        }).pipe(Effect.timeoutOption(PATIENCE_MS), Effect.asVoid)

      return PushRouter.of({
        count,
        tell: (agentId, push) => {
          for (const line of lines.values()) if (line.sockets.has(agentId)) line.push(agentId, push)
        },
        enter: (agentId, displaced) => {
          const places = here.get(agentId) ?? []
          const known = places.length + count(agentId)
          if (known >= limit) return undefined
          const contested = lines.size > 0 && known + 1 > limit * NEAR
          // A contested place comes behind those that another node gives away uncontested meanwhile.
          const time = clock.currentTimeMillisUnsafe() + (contested ? PATIENCE_MS : 0)
          const place: SocketSlot = { agentId, since: nextSince(time, places, elsewhere(agentId)), contested, displaced }
          announce(agentId, [...places, place])
          return place
        },
        leave,
        agreed: onAll((line, done) => line.ask(clock.currentTimeMillisUnsafe(), done)),
        hearsAll: () => lines.values().every(({ heardAt }) => now() - heardAt < UNHEARD_MS),
        introduced: Effect.suspend(() =>
          [...lines.values()].every(({ knows }) => knows) ? Effect.void : Effect.fail("not yet")
        ).pipe(Effect.retry(Schedule.spaced("20 millis")), Effect.timeoutOption(INTRODUCTION), Effect.ignore),
        announced: onAll((line, done) => line.afterwards(done)),
        everywhere: (notice) => onAll((line, done) => line.notify(notice, done)),
        listen: (made) => {
          listener = made
        }
      })
    })
  )
}

/**
 * A call goes out at least this often, even if empty: its answer shows whether the node still has the
 * announcements.
 */
const BEAT = "1 second"
const AGAIN = "200 millis"
const INTRODUCTION = "3 seconds"
/**
 * The share of an agent's limit above which a new socket waits for the announcements of other nodes:
 * below it, two nodes at once cannot pass the limit.
 */
const NEAR = 0.5
/** How many nodes that have left are remembered. */
const MAX_STRANGERS = 1_000
/** How long a node may send nothing before its notices may be missing: more than two beats. */
const UNHEARD_MS = 2_500
/** How long a listed node may take no call before this node reports that it cannot reach it. */
const SILENT_MS = 20_000
