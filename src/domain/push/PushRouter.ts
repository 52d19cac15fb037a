import { Members } from "#infrastructure/cluster/Members"
import { type Answer, NodeCalls } from "#infrastructure/cluster/NodeCalls"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { Config } from "#infrastructure/platform/Config"
import { pushedThere, remotePushQueue } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Clock, Context, Deferred, Effect, Layer, Schedule, Schema } from "effect"
import { AgentChanged } from "./AgentChanged.ts"
import type { Push } from "./LiveAgent.ts"
import { PushQueue, pushTo, readPush, readSockets } from "./PushQueue.ts"
import { RemoteSockets } from "./RemoteSockets.ts"
import { beyond, type Elsewhere, nextSince, type SocketSlot } from "./SocketPlaces.ts"

/** Handles the pushes and notices that other nodes send to this node. */
export interface RemoteListener {
  readonly push: (agentId: string, push: Push) => void
  readonly notice: (notice: AgentChanged) => Effect.Effect<void>
  /** Called when pushes for sockets on this node may have been lost. The messages are in storage. */
  readonly missed: () => void
  /**
   * Called when a node is gone, or was unreachable, with the agents that had sockets on it. Notices of that node may be
   * lost. The changes are in storage.
   */
  readonly parted: (agentIds: ReadonlyArray<string>) => void
}

/**
 * Caches the sockets that agents have on other nodes, and enforces the limit of sockets for each agent. AgentEntity
 * documents what an agent owns. Each node announces to the others which agents have sockets on it. So a push goes
 * directly from the node that committed the message to the nodes with the sockets, whichever node owns the agent, and
 * sockets stay when shards move. Announcements, pushes and calls to a node are in one order (PeerConnection.ts), and
 * all of them are lost when the connection to that node breaks. When a connection begins, each side announces all its
 * sockets. After the other side has received them, the announcing side reads from storage what it may have missed:
 * messages, keys and mutes.
 *
 * A node assigns a place immediately, based on the sockets that it knows. If several nodes assign the last places at
 * the same time, they exceed the limit together. When they have received each other's announcements, each closes its
 * own surplus sockets, in an order that is the same on all nodes (SocketPlaces). The limit holds as soon as all
 * announcements have arrived. No socket that was known before loses its place to a new socket.
 */
export class PushRouter extends Context.Service<PushRouter, {
  /** The number of an agent's sockets that other nodes have announced. */
  readonly count: (agentId: string) => number
  readonly push: (agentId: string, push: Push) => void
  /**
   * Takes a place for one more socket of an agent on this node and announces it. Returns undefined if, as far as this
   * node knows, the agent has no free place.
   */
  readonly enter: (agentId: string, displaced: () => void) => SocketSlot | undefined
  /** Releases the place. Idempotent. */
  readonly leave: (place: SocketSlot) => void
  /**
   * Completes when every reachable node has received the announcements of this node, and this node has received those
   * that the other nodes had made by then. From then on, the other nodes push to this node, and a place that is still
   * assigned is kept. Waits for at most a second.
   */
  readonly reachable: Effect.Effect<void>
  /**
   * Completes when all listed nodes are connected and have received the announcements of this node, or after three
   * seconds. Until then, other nodes may push nothing to this node's sockets.
   */
  readonly introduced: Effect.Effect<void>
  /**
   * Whether this node has recently received something from each listed node. If not, notices of a node may be missing.
   */
  readonly hearsAll: () => boolean
  /**
   * Applies a notice on the other nodes. If a listed node does not confirm, waits until a second has passed, because
   * the caches of that node have expired by then. When that node connects again, it reads keys and mutes from storage.
   */
  readonly onOthers: (notice: AgentChanged) => Effect.Effect<void>
  readonly listen: (listener: RemoteListener) => void
}>()("parley/push/PushRouter") {
  static readonly layer = Layer.effect(
    PushRouter,
    Effect.gen(function*() {
      const members = yield* Members
      const lines = yield* PeerConnections
      const calls = yield* NodeCalls
      const clock = yield* Clock.Clock
      const now = monotonicMillis(clock)
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const limit = (yield* Config).LIMITS_SOCKETS_PER_AGENT
      const here = new Map<string, ReadonlyArray<SocketSlot>>()
      const queues = new Map<string, PushQueue>()
      /** The queues by the numbers of their nodes. The first item is never used. */
      const numbered: Array<PushQueue | undefined> = [undefined]
      const known = new RemoteSockets()
      let listener: RemoteListener | undefined

      const elsewhere = (agentId: string): ReadonlyArray<Elsewhere> => {
        const found: Array<Elsewhere> = []
        known.visit(agentId, (no, since) => {
          const queue = numbered[no]
          if (queue !== undefined) found.push([queue.line.node, [since]])
        })
        return found
      }
      const count = (agentId: string): number => {
        let sockets = 0
        known.visit(agentId, () => sockets++)
        return sockets
      }

      /** Agents whose sockets on this node have changed since the last announcement. */
      const changed = new Set<string>()
      /** Wakes the callers of `reachable` that wait for the next announcement. */
      let waiting: Array<Effect.Effect<unknown>> = []
      /** Functions that respond to the nodes which called `node/reach` before the changes were announced. */
      let answers: Array<() => void> = []
      let isSpeaking = false
      let spokeAt = Number.NEGATIVE_INFINITY
      const pauseLeft = (): number => spokeAt + Math.max(0, queues.size - MAX_CONCURRENT_NODES) * PAUSE_MS - now()
      const announceChanged = (): void => {
        spokeAt = now()
        for (const agentId of changed) for (const queue of queues.values()) queue.announce(agentId, here)
        changed.clear()
        for (const answer of answers) answer()
        answers = []
      }
      const speak = Effect.suspend(() => {
        isSpeaking = false
        announceChanged()
        const waited = waiting
        waiting = []
        return waited.length === 0
          ? Effect.void
          : Effect.andThen(onAll("node/reach", null), Effect.all(waited, { discard: true }))
      })
      /**
       * Each announcement costs a frame to each other node, and so does each call that asks whether it has arrived.
       * Therefore all announcements of one tick of the event loop are sent together. With many nodes, a pause follows,
       * and the announcements of the pause are sent together too. So making them uses at most 5 % of a node's CPU.
       * Sending and reading the frames is not included.
       */
      const speakSoon = (): void => {
        if (isSpeaking) return
        isSpeaking = true
        const pause = pauseLeft()
        fork(Effect.andThen(pause > 0 ? Effect.sleep(pause) : Effect.yieldNow, speak))
      }

      const announce = (agentId: string, places: ReadonlyArray<SocketSlot>): void => {
        if (places.length > 0) here.set(agentId, places)
        else here.delete(agentId)
        if (queues.size === 0) return
        changed.add(agentId)
        // Announce immediately if no pause is left. Sends that this node accepts later follow on the same connection,
        // so that the socket gets their echoes.
        if (pauseLeft() > 0) speakSoon()
        else announceChanged()
      }
      const leave = (place: SocketSlot): void => {
        const places = here.get(place.agentId)
        if (places?.includes(place) === true) announce(place.agentId, places.filter((other) => other !== place))
      }
      /** Closes surplus sockets on this node after other nodes have announced sockets of an agent. */
      const settle = (agentId: string): void => {
        const places = here.get(agentId)
        if (places === undefined || places.length + count(agentId) <= limit) return
        for (const place of beyond(limit, lines.self, places, elsewhere(agentId))) {
          leave(place)
          place.displaced()
        }
      }

      /** Ends a queue, and returns the agents that had sockets on its node. */
      const end = (queue: PushQueue): ReadonlyArray<string> => {
        queues.delete(queue.line.node)
        numbered[queue.no] = undefined
        return known.removeNode(queue.no)
      }
      lines.watch({
        began: (line) => {
          const former = queues.get(line.node)
          if (former !== undefined) end(former)
          const free = numbered.indexOf(undefined, 1)
          const queue = new PushQueue(line, free < 0 ? numbered.length : free)
          numbered[queue.no] = queue
          queues.set(line.node, queue)
          for (const agentId of here.keys()) queue.announce(agentId, here)
          // Read storage after the node has received the announcements, because until then it pushes nothing to this
          // node.
          fork(Effect.map(calls.call(line.node, "node/reach", "", null), () => {
            listener?.missed()
            listener?.parted([])
          }))
        },
        ended: (line) => {
          const queue = queues.get(line.node)
          if (queue?.line !== line) return
          listener?.parted(end(queue))
        }
      })
      lines.handle("sockets", (line, entry) => {
        const queue = queues.get(line.node)
        if (queue === undefined) return
        const sockets = readSockets(entry)
        for (const [agentId, since] of sockets) known.set(agentId, queue.no, since)
        for (const [agentId] of sockets) settle(agentId)
      })
      for (const topic of ["hint", "echo", "event"] as const) {
        lines.handle(topic, (_, entry) => {
          const { committedAt, push, to } = readPush(entry)
          if (committedAt !== null) pushedThere.millis(Math.max(0, clock.currentTimeMillisUnsafe() - committedAt))
          for (const [agentId, no] of to) listener?.push(agentId, pushTo(push, no))
        })
      }
      lines.handle("missed", () => listener?.missed())
      // The response follows the announcement of all places that were assigned before it. So the calling node knows
      // these places when it continues.
      yield* calls.serve(
        "node/reach",
        () =>
          Effect.suspend(() =>
            changed.size === 0 ? Effect.succeed(DONE) : Effect.callback<Answer>((resume) => {
              answers.push(() => resume(Effect.succeed(DONE)))
            })
          )
      )
      yield* calls.serve(
        "node/notice",
        (_, notice) => Effect.suspend(() => Effect.as(listener?.notice(decodeNotice(notice)) ?? Effect.void, DONE))
      )
      yield* remotePushQueue.readsIn(() => queues.values().reduce((sum, { waiting }) => sum + waiting, 0))
      yield* lines.start

      /**
       * Calls a procedure on all reachable nodes and returns the nodes that have executed it. Waits for at most a
       * second.
       */
      const onAll = (procedure: string, payload: unknown): Effect.Effect<ReadonlySet<string>> =>
        Effect.suspend(() => {
          const until = now() + ANNOUNCE_TIMEOUT_MS
          const done = new Set<string>()
          return Effect.as(
            Effect.forEach(queues.values(), ({ line }) =>
              Effect.map(calls.call(line.node, procedure, "", payload, until), (answer) => {
                if (typeof answer === "string")
                  return
                if (answer.ending === "done")
                  done.add(line.node)
                // The node accepts no more calls. After it connects again, it reads from storage what it has missed.
                else line.end("silence", new Error(`it did not take ${procedure}`))
              }), { concurrency: "unbounded", discard: true }),
            done
          )
        })

      return PushRouter.of({
        count,
        push: (agentId, push) => {
          const nodes: Array<number> = []
          known.visit(agentId, (no) => {
            if (!nodes.includes(no)) nodes.push(no)
          })
          for (const no of nodes) numbered[no]?.push(agentId, push)
        },
        enter: (agentId, displaced) => {
          const places = here.get(agentId) ?? []
          const sockets = places.length + count(agentId)
          if (sockets >= limit) return undefined
          const contested = queues.size > 0 && sockets + 1 > limit * NEAR
          // A contested place is ordered after the uncontested places that other nodes assign in the meantime.
          const time = clock.currentTimeMillisUnsafe() + (contested ? ANNOUNCE_TIMEOUT_MS : 0)
          const place: SocketSlot = {
            agentId,
            since: nextSince(time, places, elsewhere(agentId)),
            contested,
            displaced
          }
          announce(agentId, [...places, place])
          return place
        },
        leave,
        reachable: Effect.flatMap(Deferred.make<void>(), (heard) =>
          Effect.suspend(() => {
            if (queues.size === 0) return Effect.void
            waiting.push(Deferred.succeed(heard, undefined))
            speakSoon()
            return Deferred.await(heard)
          })),
        hearsAll: () =>
          [...members.others()].every((node) =>
            now() - (lines.to(node)?.receivedAt ?? Number.NEGATIVE_INFINITY) < UNHEARD_TIMEOUT_MS
          ),
        introduced: Effect.suspend(() => {
          const others = [...members.others()]
          return others.every((node) => queues.has(node))
            ? Effect.asVoid(onAll("node/reach", null))
            : Effect.fail("not yet")
        }).pipe(Effect.retry(Schedule.spaced("20 millis")), Effect.timeoutOption(INTRODUCTION_TIMEOUT), Effect.ignore),
        onOthers: (notice) =>
          Effect.suspend(() => {
            const until = now() + ANNOUNCE_TIMEOUT_MS
            return Effect.flatMap(onAll("node/notice", notice), (done) =>
              [...members.others()].every((node) =>
                  done.has(node)
                )
                ? Effect.void
                : Effect.sleep(Math.max(0, until - now())))
          }),
        listen: (made) => {
          listener = made
        }
      })
    })
  )
}

const DONE: Answer = { ending: "done", value: null }
const decodeNotice = Schema.decodeUnknownSync(AgentChanged)
/** How long callers wait for other nodes, in milliseconds. */
const ANNOUNCE_TIMEOUT_MS = 1_000
const INTRODUCTION_TIMEOUT = "3 seconds"
/**
 * If there are more other nodes than this, a pause follows each announcement. It has PAUSE_MS for each further node.
 */
const MAX_CONCURRENT_NODES = 2
const PAUSE_MS = 0.5
/**
 * The share of an agent's limit above which a new socket waits for the announcements of other nodes. Below it, two
 * nodes that accept sockets at the same time cannot exceed the limit.
 */
const NEAR = 0.5
/**
 * How long a node may send nothing before its notices may be missing on this node, in milliseconds. A node sends
 * something twice a second.
 */
const UNHEARD_TIMEOUT_MS = 1_500
