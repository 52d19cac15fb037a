import { Cause, Clock, Context, Effect, type Fiber, Latch, Layer, Metric, Option, Schedule, Schema } from "effect"
import { RunnerAddress } from "effect/cluster"
import type { Rendered } from "../messages/Message.ts"
import { Config } from "../platform/Config.ts"
import { nameOf } from "../cluster/NodeAddress.ts"
import { type Delivery, PeerForgot, Peers } from "../cluster/Peers.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { OncePerMinute } from "../platform/OncePerMinute.ts"
import { Readiness } from "../platform/Readiness.ts"
import type { Push } from "./LiveAgent.ts"
import { beyond, type Elsewhere, nextSince, type SocketPlace } from "./SocketPlaces.ts"

const CloseReasonSchema = Schema.Struct({ code: Schema.Literals([1001, 1008, 1009, 1011, 1013]), text: Schema.String })

/** A change of one agent that is applied on every node; nodes in reach have applied it when the caller goes on. */
const Notice = Schema.Union([
  /** Its account has changed: caches drop it. */
  Schema.TaggedStruct("Changed", { agentId: Schema.String }),
  /** The same, and its sockets are closed. */
  Schema.TaggedStruct("Disconnect", { agentId: Schema.String, reason: CloseReasonSchema }),
  /** One of its mutes was changed in storage. */
  Schema.TaggedStruct("MuteChanged", {
    agentId: Schema.String,
    kind: Schema.Literals(["agent", "conversation"]),
    targetId: Schema.String
  }),
  /** All mutes on this agent were deleted: it has ended. */
  Schema.TaggedStruct("Unmuted", { agentId: Schema.String })
])
export type Notice = typeof Notice.Type

const Index = Schema.Int
const About = Schema.Struct({ senderId: Schema.String, conversationId: Schema.String })

/**
 * A push on its way to a node. `rendered` and `frame` are indexes into the bundle's lists, as many pushes
 * share them.
 */
const PushOnWay = Schema.Union([
  Schema.TaggedStruct("Hint", {
    to: Schema.String,
    /** The `inboxNo` of the hint. */
    no: Schema.Int,
    messageId: Schema.String,
    senderId: Schema.String,
    rendered: Index
  }),
  Schema.TaggedStruct("Echo", {
    to: Schema.String,
    after: Schema.Int,
    before: Schema.NullOr(Schema.Int),
    messageId: Schema.String,
    rendered: Index
  }),
  Schema.TaggedStruct("Event", {
    to: Schema.String,
    frame: Index,
    about: Schema.optionalKey(About),
    after: Schema.optionalKey(Schema.Int)
  })
])

/** The body of one call to another node: what has gathered for it since the last call. */
const Bundle = Schema.Struct({
  /**
   * When each socket that an agent has on the sender was let in, in milliseconds; none once the last one
   * is gone.
   */
  sockets: Schema.Array(Schema.Tuple([Schema.String, Schema.Array(Schema.Int)])),
  /** The number of the sender's last question, which asks for the receiver's sockets; 0 before the first. */
  asks: Schema.Int,
  /** The receiver's last question that had arrived when this was made: the announcements up to here answer it. */
  answers: Schema.Int,
  rendered: Schema.Array(Schema.Struct({ conversationId: Schema.String, seq: Schema.Int, before: Schema.String, after: Schema.String })),
  frames: Schema.Array(Schema.String),
  pushes: Schema.Array(PushOnWay),
  notices: Schema.Array(Notice),
  /** Earlier pushes are lost; in the first bundle after a silence, notices too. */
  missed: Schema.Boolean
})
const encodeBundle = (bundle: typeof Bundle.Type): string => JSON.stringify(bundle)
const decodeBundle = Schema.decodeUnknownEffect(Schema.fromJsonString(Bundle))

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

/** A socket's place among those of its agent, taken before the socket is attached. */
export interface SocketSlot extends SocketPlace {
  /** Whether other nodes may be giving away the same place right now; `agreed` completes when that is decided. */
  readonly contested: boolean
  /** Called when sockets on other nodes turn out to come first; by then the place has been given back. */
  readonly displaced: () => void
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
            const delivery = yield* peers.deliver(line.node, encodeBundle(load.bundle), load.first)
            const atOnce = line.settle(load, delivery, now())
            if (load.first && delivery === "taken") listener?.missed()
            if (!atOnce) yield* Effect.sleep(AGAIN)
          }
        })

      const understand = (line: PushLine, { notice, parted: part, ...told }: RemoteListener, body: string, first: boolean) =>
        Effect.gen(function*() {
          let parted: ReadonlyArray<string> | undefined
          const { answers, asks, frames, missed, notices, pushes, rendered, sockets } = yield* decodeBundle(body)
          if (first) {
            const before = [...line.sockets.keys()]
            line.sockets.clear()
            // Notices that the node dropped before its first bundle arrived here are marked as missed.
            if (line.heard || missed) parted = before
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
              notUnderstood.updateUnsafe(1, Context.empty())
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
          line.end()
          listener?.parted([...line.sockets.keys()])
        },
        receive
      })
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
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
const PATIENCE_MS = 1_000
const INTRODUCTION = "3 seconds"
/**
 * The share of an agent's limit above which a new socket waits for the announcements of other nodes:
 * below it, two nodes at once cannot pass the limit.
 */
const NEAR = 0.5
/** How long a listed node may take no call before this node reports that it cannot reach it. */
const SILENT_MS = 20_000
/**
 * Bounds for one node: pushes that wait for it, and pushes and characters of one call. A call may have 16
 * MiB; a character takes six bytes at worst.
 */
const MAX_WAITING = 20_000
const MAX_AT_ONCE = 2_000
const MAX_CHARS = 2_000_000
/**
 * Notices that may wait for a node. With one more all of them are dropped, and the node reads the rows
 * they were about.
 */
const MAX_NOTICES = 10_000
/** Calls in which a notice is tried: a node that is gone has left the list before that many. */
const MAX_TRIES = 50

const pushed = Metric.counter("remote_pushes_total", {
  description: "Pushes to sockets on other nodes",
  incremental: true
})

const dropped = Metric.counter("remote_notices_dropped_total", {
  description: "Notices for other nodes that were dropped because too many waited",
  incremental: true
})
const notUnderstood = Metric.counter("remote_texts_not_understood_total", {
  description: "Texts of other nodes that this node did not understand",
  incremental: true
})

interface Sent {
  readonly notice: Notice
  readonly done: () => void
  tries: number
}

interface Load {
  readonly first: boolean
  readonly bundle: typeof Bundle.Type
  readonly notices: ReadonlyArray<Sent>
  readonly after: ReadonlyArray<() => void>
  /** How many notices were dropped since the last call. */
  readonly dropped: number
}

/** The queue of one other node, and what that node has announced. */
class PushLine {
  readonly node: string
  /** When each socket that an agent has on that node was let in, in milliseconds. */
  readonly sockets = new Map<string, ReadonlyArray<number>>()
  readonly work = Latch.makeUnsafe(false)
  fiber: Fiber.Fiber<void> | undefined
  /** When it last took a call, on the monotonic clock. */
  silentSince: number
  /** Whether it has sent anything yet. */
  heard = false
  /** Whether its last text with all announcements could not be decoded. */
  misunderstood = false
  /** Agents whose sockets here must be announced to the node again. */
  private changed = new Set<string>()
  private pushes: Array<readonly [string, Push]> = []
  private notices: Array<Sent> = []
  private after: Array<() => void> = []
  /** Whether the node took the last call, and so has all announcements. */
  knows = false
  private reached = true
  private missed = false
  /**
   * Notices that were dropped: the next call repeats all announcements, so that the node reads what the
   * notices were about.
   */
  private dropped = 0
  /** The number of the last question to the node, and the callers that wait for answers. */
  private asks = 0
  private asking: Array<{ readonly question: number; readonly done: () => void }> = []
  /** The number of its own last question. */
  private asked = 0

  constructor(node: string, now: number) {
    this.node = node
    this.silentSince = now
  }

  announce(agentId: string): void {
    this.changed.add(agentId)
    this.work.openUnsafe()
  }

  /**
   * Asks for the node's sockets, and calls back once it has answered with those it had when it received
   * all earlier announcements; at once if it is out of reach.
   */
  ask(time: number, done: () => void): void {
    if (!this.reached) return done()
    // Numbered by the time, so that an answer to an earlier process of this node answers nothing.
    this.asks = Math.max(this.asks + 1, time)
    // A node that receives but cannot send: callers from so long ago have timed out.
    while (this.asking[0] !== undefined && this.asking[0].question < time - 2 * PATIENCE_MS) this.asking.shift()
    this.asking.push({ question: this.asks, done })
    this.work.openUnsafe()
  }

  /** A bundle of the node has been taken: its last question, and the last question of this node that it answers. */
  heardOf(asks: number, answers: number): void {
    if (asks !== this.asked) {
      this.asked = asks
      this.work.openUnsafe()
    }
    while (this.asking[0] !== undefined && this.asking[0].question <= answers) this.asking.shift()?.done()
  }

  push(agentId: string, push: Push): void {
    pushed.updateUnsafe(1, Context.empty())
    if (this.pushes.length >= MAX_WAITING) {
      this.pushes = []
      this.missed = true
    }
    this.pushes.push([agentId, push])
    this.work.openUnsafe()
  }

  notify(notice: Notice, done: () => void): void {
    this.notices.push({ notice, done, tries: 0 })
    if (this.notices.length > MAX_NOTICES) this.drop(this.notices.splice(0))
    this.work.openUnsafe()
  }

  /** Drops notices and releases their callers. */
  private drop(notices: ReadonlyArray<Sent>): void {
    if (notices.length === 0) return
    this.dropped += notices.length
    this.missed = true
    dropped.updateUnsafe(notices.length, Context.empty())
    for (const { done } of notices) done()
  }

  /** Calls back once everything queued before has arrived; at once if the node is out of reach. */
  afterwards(done: () => void): void {
    if (!this.reached) return done()
    this.after.push(done)
    this.work.openUnsafe()
  }

  take(here: ReadonlyMap<string, ReadonlyArray<SocketSlot>>): Load {
    const first = !this.knows || this.dropped > 0
    const notices = this.notices.splice(0, MAX_AT_ONCE)
    const pushes: Array<typeof PushOnWay.Type> = []
    const rendered: Array<Rendered> = []
    const frames: Array<string> = []
    const places = new Map<Rendered | string, number>()
    const place = <A extends Rendered | string>(list: Array<A>, value: A): number => {
      let at = places.get(value)
      if (at === undefined) places.set(value, at = list.push(value) - 1)
      return at
    }
    let chars = 0
    let taken = 0
    for (; taken < this.pushes.length && taken < MAX_AT_ONCE && chars < MAX_CHARS; taken++) {
      const [to, push] = this.pushes[taken]!
      const listed = rendered.length + frames.length
      if (push._tag === "Event") {
        pushes.push({ ...push, to, frame: place(frames, push.frame) })
        if (rendered.length + frames.length > listed) chars += push.frame.length
      } else {
        const at = place(rendered, push.rendered)
        if (push._tag === "Echo") pushes.push({ ...push, to, rendered: at })
        else {
          const { inboxNo, ...hint } = push
          pushes.push({ ...hint, no: inboxNo, to, rendered: at })
        }
        if (rendered.length + frames.length > listed) chars += push.rendered.before.length + push.rendered.after.length
      }
    }
    this.pushes.splice(0, taken)
    const load: Load = {
      first,
      bundle: {
        sockets: Array.from(first ? here.keys() : this.changed, (agentId) => [
          agentId,
          (here.get(agentId) ?? []).map(({ since }) => since)
        ]),
        asks: this.asks,
        answers: this.asked,
        rendered,
        frames,
        pushes,
        notices: notices.map(({ notice }) => notice),
        missed: this.missed
      },
      notices,
      after: this.after,
      dropped: this.dropped
    }
    this.changed = new Set()
    this.after = []
    this.missed = false
    this.dropped = 0
    if (this.pushes.length === 0 && this.notices.length === 0) this.work.closeUnsafe()
    return load
  }

  /** Returns whether the next call may follow at once. */
  settle({ after, bundle, notices }: Load, delivery: Delivery, now: number): boolean {
    if (delivery === "taken") this.silentSince = now
    this.knows = delivery === "taken"
    this.reached = delivery !== "unreachable"
    if (delivery === "taken") {
      for (const { done } of notices) done()
      for (const done of after) done()
      return true
    }
    this.missed ||= bundle.missed || bundle.pushes.length > 0
    const again = notices.filter((sent) => ++sent.tries < MAX_TRIES)
    this.drop(notices.filter((sent) => sent.tries >= MAX_TRIES))
    this.notices.unshift(...again)
    if (this.notices.length > MAX_NOTICES) this.drop(this.notices.splice(0))
    if (this.reached) this.after.unshift(...after)
    else {
      for (const done of [...after, ...this.after.splice(0)]) done()
      for (const { done } of this.asking.splice(0)) done()
    }
    this.work.openUnsafe()
    return false
  }

  end(): void {
    this.fiber?.interruptUnsafe()
    for (const { done } of this.notices.splice(0)) done()
    for (const done of this.after.splice(0)) done()
    for (const { done } of this.asking.splice(0)) done()
  }
}
