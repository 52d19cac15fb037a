import { type Fiber, Latch } from "effect"
import type { Delivery } from "../cluster/Peers.ts"
import type { Rendered } from "../messages/Message.ts"
import { noticesDropped, remotePushes } from "../platform/Metrics.ts"
import type { Bundle, Notice, PushOnWay } from "./Bundle.ts"
import type { Push } from "./LiveAgent.ts"
import type { SocketSlot } from "./SocketPlaces.ts"

/** How long callers wait for other nodes, in milliseconds. */
export const PATIENCE_MS = 1_000
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

interface Sent {
  readonly notice: Notice
  readonly done: () => void
  tries: number
}

export interface Load {
  readonly first: boolean
  readonly bundle: typeof Bundle.Type
  readonly notices: ReadonlyArray<Sent>
  readonly after: ReadonlyArray<() => void>
  /** How many notices were dropped since the last call. */
  readonly dropped: number
  /** When the oldest of its messages was committed here, as `performance.now()`. */
  readonly oldest: number | undefined
}

/** The queue of one other node, and what that node has announced. */
export class PushLine {
  readonly node: string
  /** When each socket that an agent has on that node was let in, in milliseconds. */
  readonly sockets = new Map<string, ReadonlyArray<number>>()
  readonly work = Latch.makeUnsafe(false)
  fiber: Fiber.Fiber<void> | undefined
  /** When it last took a call, on the monotonic clock. */
  silentSince: number
  /** Whether the node has sent anything yet, and when it last sent something, on the monotonic clock. */
  heard = false
  heardAt = Number.NEGATIVE_INFINITY
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

  /** Pushes that wait for the next call. */
  get waiting(): number {
    return this.pushes.length
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
    remotePushes.add()
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
    noticesDropped.add(notices.length)
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
    let oldest: number | undefined
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
          const { committedAt, inboxNo, ...hint } = push
          if (committedAt !== undefined) oldest ??= committedAt
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
      dropped: this.dropped,
      oldest
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
