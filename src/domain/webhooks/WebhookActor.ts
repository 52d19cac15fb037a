import { webhookCircuits, webhookDead } from "#infrastructure/platform/Metrics"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Effect, Latch } from "effect"
import { afterFailure, afterSuccess, type Circuit, type CircuitRules, closed, stateAt } from "./Circuit.ts"
import type { Failure, Waiting, Work } from "./WebhooksRepo.ts"

export type Outcome =
  | { readonly _tag: "Delivered" }
  /** `status` is that of the answer, if there was one. */
  | { readonly _tag: "Failed"; readonly reason: string; readonly status?: number }

/**
 * `Unwanted`: when a place was free, the circuit had opened, the shard had moved, or the webhook or the delivery had
 * changed since it was read. `NoPlace`: too many posts wait for a place. `Held`: the event must not be posted for this
 * time. Nothing was posted in these cases.
 */
export type Posted =
  | Outcome
  | { readonly _tag: "Unwanted" }
  | { readonly _tag: "NoPlace" }
  | { readonly _tag: "Held"; readonly heldMs: number }

/** Attempts of a delivery to a webhook that follows an inbox. After the last one the webhook is suspended. */
const INBOX_ATTEMPTS = 6
/** The receiver wants no post again: the webhook is suspended. */
const GONE = 410
/** The receiver takes no event of this size: the event is left out. */
const TOO_LARGE = 413

/**
 * The consequence of a failed attempt. A webhook that follows an inbox leaves no event out, except one that is too
 * large: it is suspended until its client resumes it. Any other webhook loses a delivery after the last attempt.
 */
const afterFailed = (
  followsInbox: boolean,
  { attempts }: Pick<Waiting, "attempts">,
  status: number | undefined,
  retryMs: ReadonlyArray<number>
): { readonly waitMs: number } | "dead" | "suspended" => {
  const waitMs = retryMs[attempts]
  if (!followsInbox) return waitMs === undefined ? "dead" : { waitMs }
  if (status === TOO_LARGE) return "dead"
  return status === GONE || waitMs === undefined || attempts + 1 >= INBOX_ATTEMPTS ? "suspended" : { waitMs }
}

/** The functions and settings that a webhook uses. */
export interface Dependencies {
  readonly now: () => number
  readonly circuit: CircuitRules
  /** Milliseconds to wait after each failed attempt; a delivery that fails once more after the last wait is dead. */
  readonly retryMs: ReadonlyArray<number>
  /** Whether this node owns the webhook. */
  readonly isLocal: (id: string) => boolean
  readonly work: (id: string, limit: number) => Effect.Effect<Work | undefined, Unavailable>
  /**
   * Posts once, if `stillWanted` is true when a place is free, and if nothing changed in the outbox while the post
   * waited for the place.
   */
  readonly post: (
    id: string,
    work: Work,
    delivery: Waiting,
    stillWanted: () => boolean
  ) => Effect.Effect<Posted, Unavailable>
  readonly delivered: (id: string, deliveryNo: number, at: number, probe: boolean) => Effect.Effect<void, Unavailable>
  readonly failed: (failure: Failure) => Effect.Effect<void, Unavailable>
  readonly postponed: (id: string, deliveryNo: number, dueAt: number) => Effect.Effect<void, Unavailable>
  /**
   * Puts the next event of the inbox that the webhook follows into its outbox. Returns whether there may be one now, or
   * the time for which the next event is held back.
   */
  readonly fill: (id: string) => Effect.Effect<boolean | { readonly heldMs: number }, Unavailable>
}

/** Deliveries of one webhook that are posted at once. */
const MAX_CONCURRENT_POSTS = 4
/** Deliveries that are read from the outbox together. */
const PAGE = 32
/** A pass waits for a delivery that is due within this time. For later deliveries the sweep wakes the webhook. */
const SOON_MS = 60_000

/**
 * Whether a delivery is to be posted. A delivery that waits longer than its retry was scheduled before the clock was
 * set back.
 */
const isDue = (retryMs: ReadonlyArray<number>, { attempts, dueAt }: Waiting, now: number): boolean =>
  dueAt <= now || dueAt > now + (retryMs[attempts - 1] ?? 0) + SET_BACK_MS

/**
 * Posts the deliveries that the outbox holds for one webhook, roughly in the order in which they are due. One pass runs
 * at a time. It ends when nothing is due soon, or when a delivery got no place. Then the sweep begins the next pass.
 * When a delivery is not wanted any more, the pass reads the outbox again. Only the circuit's counts are kept in
 * memory.
 */
export class WebhookActor {
  readonly id: string
  private readonly deps: Dependencies
  private readonly woken = Latch.makeUnsafe(false)
  private circuit: Circuit = closed
  running = false
  /** When a pass last read the outbox; milliseconds. */
  lastUsed = 0

  constructor(id: string, deps: Dependencies) {
    this.id = id
    this.deps = deps
  }

  /** Whether the circuit has counted failures that the next pass needs. */
  get remembers(): boolean {
    return this.circuit.inARow > 0
  }

  /** Signals that something may be due. If it returns true, no pass is running, and the caller must run `pass`. */
  wake(): boolean {
    this.woken.openUnsafe()
    if (this.running) return false
    this.running = true
    return true
  }

  /** Posts until nothing is due soon. Run it only when `wake` has returned true. */
  readonly pass: Effect.Effect<void, Unavailable> = Effect.gen({ self: this }, function*() {
    while (this.deps.isLocal(this.id)) {
      this.woken.closeUnsafe()
      this.lastUsed = this.deps.now()
      const work = yield* this.deps.work(this.id, PAGE)
      if (work === undefined) {
        this.circuit = closed
        return
      }
      this.circuit = { ...this.circuit, pausedUntil: work.pausedUntil }
      const filled = work.hasNews && work.waiting.length === 0 ? yield* this.deps.fill(this.id) : false
      if (filled === true) continue
      const now = this.deps.now()
      const state = stateAt(this.deps.circuit, this.circuit, now)
      const due = work.waiting.filter((delivery) => isDue(this.deps.retryMs, delivery, now))
      if (state === "Pause" || due.length === 0) {
        const held = filled === false ? Number.POSITIVE_INFINITY : now + filled.heldMs
        const next = Math.max(work.waiting[0]?.dueAt ?? held, work.pausedUntil ?? 0)
        if (next - now <= SOON_MS) {
          yield* Effect.timeoutOption(this.woken.await, Math.max(next - now, 1))
        } else if (!this.woken.isOpen() || state === "Pause") return
        continue
      }
      const stopped = new Set<Posted["_tag"]>()
      yield* Effect.forEach(
        state === "Probe" ? due.slice(0, 1) : due,
        (delivery) =>
          stopped.size > 0 ? Effect.void : Effect.map(this.attempt(work, delivery, state === "Probe"), (reason) => {
            if (reason !== undefined) stopped.add(reason)
          }),
        { concurrency: MAX_CONCURRENT_POSTS, discard: true }
      )
      if (stopped.has("NoPlace")) return
    }
  }).pipe(Effect.ensuring(Effect.sync(() => {
    this.running = false
  })))

  /** Attempts a delivery. If it was not posted, returns the reason, and no further delivery of this page is posted. */
  private readonly attempt = Effect.fnUntraced(
    { self: this },
    function*(work: Work, delivery: Waiting, probe: boolean) {
      const wanted = () =>
        this.deps.isLocal(this.id) && (probe || stateAt(this.deps.circuit, this.circuit, this.deps.now()) === "Closed")
      const posted = yield* this.deps.post(this.id, work, delivery, wanted)
      if (posted._tag === "NoPlace" || posted._tag === "Unwanted") return posted._tag
      if (posted._tag === "Held")
        yield* this.deps.postponed(
          this.id,
          delivery.deliveryNo,
          this.deps.now() + posted.heldMs
        )
      else yield* this.store(work, delivery, probe, posted)
      return undefined
    }
  )

  private store(
    { followsInbox }: Work,
    delivery: Waiting,
    probe: boolean,
    outcome: Outcome
  ): Effect.Effect<void, Unavailable> {
    const at = this.deps.now()
    if (outcome._tag === "Delivered") {
      const { pausedUntil } = this.circuit
      this.circuit = afterSuccess(this.deps.circuit, this.circuit, at)
      if (pausedUntil !== null && this.circuit.pausedUntil === null) webhookCircuits.at("closed").add()
      return this.deps.delivered(this.id, delivery.deliveryNo, at, probe)
    }
    const { pausedUntil } = this.circuit
    this.circuit = afterFailure(this.deps.circuit, this.circuit, at)
    if (pausedUntil === null && this.circuit.pausedUntil !== null) webhookCircuits.at("opened").add()
    const next = afterFailed(followsInbox, delivery, outcome.status, this.deps.retryMs)
    if (next === "dead") webhookDead.add()
    return this.deps.failed({
      webhookId: this.id,
      deliveryNo: delivery.deliveryNo,
      at,
      reason: outcome.reason,
      dueAt: next === "dead" ? null : next === "suspended" ? at : at + next.waitMs,
      pausedUntil: this.circuit.pausedUntil,
      suspends: next === "suspended"
    })
  }
}
