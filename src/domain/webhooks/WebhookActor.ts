import { webhookCircuits, webhookDead } from "#infrastructure/platform/Metrics"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Effect, Latch } from "effect"
import { afterFailure, afterSuccess, type Circuit, type CircuitRules, closed, stateAt } from "./Circuit.ts"
import type { Failure, PendingDelivery, Work } from "./WebhooksRepo.ts"

export type Outcome =
  | { readonly _tag: "Delivered" }
  /** `status` is the status of the response, if there was one. */
  | { readonly _tag: "Failed"; readonly reason: string; readonly status?: number }

/**
 * The outcome of a post, or the reason why nothing was posted. `Unwanted`: before a place was free, the circuit opened,
 * the shard moved, or the webhook or the delivery changed. `NoPlace`: too many posts wait for a place. `Held`: the
 * event must not be posted before `heldMs` have passed.
 */
export type Posted =
  | Outcome
  | { readonly _tag: "Unwanted" }
  | { readonly _tag: "NoPlace" }
  | { readonly _tag: "Held"; readonly heldMs: number }

/**
 * How many attempts a delivery gets if its webhook follows an inbox. If the last one fails, the webhook is suspended.
 */
const INBOX_ATTEMPTS = 6
/** With this status the receiver asks for no further posts, so the webhook is suspended. */
const GONE = 410
/** With this status the receiver rejects the size of the event, so the event is skipped. */
const TOO_LARGE = 413

/**
 * Decides what follows a failed attempt. A webhook that follows an inbox skips no event, except one that is too large.
 * After the last attempt it is suspended until its client resumes it. For any other webhook, the delivery is dead after
 * the last attempt.
 */
const retryOf = (
  followsInbox: boolean,
  { attempts }: Pick<PendingDelivery, "attempts">,
  status: number | undefined,
  retryMs: ReadonlyArray<number>
): { readonly waitMs: number } | "dead" | "suspended" => {
  const waitMs = retryMs[attempts]
  if (!followsInbox) return waitMs === undefined ? "dead" : { waitMs }
  if (status === TOO_LARGE) return "dead"
  return status === GONE || waitMs === undefined || attempts + 1 >= INBOX_ATTEMPTS ? "suspended" : { waitMs }
}

/** The functions and settings that a webhook's actor uses. */
export interface Dependencies {
  readonly now: () => number
  readonly circuit: CircuitRules
  /**
   * How long to wait after each failed attempt, in milliseconds. A delivery that fails again after the last wait is
   * dead.
   */
  readonly retryMs: ReadonlyArray<number>
  /** Whether this node owns the webhook. */
  readonly isLocal: (id: string) => boolean
  readonly work: (id: string, limit: number) => Effect.Effect<Work | undefined, Unavailable>
  /**
   * Posts once when a place is free. Posts nothing if `stillWanted` is false by then, or if the delivery changed in the
   * outbox while the post waited for the place.
   */
  readonly post: (
    id: string,
    work: Work,
    delivery: PendingDelivery,
    stillWanted: () => boolean
  ) => Effect.Effect<Posted, Unavailable>
  readonly delivered: (id: string, deliveryNo: number, at: number, probe: boolean) => Effect.Effect<void, Unavailable>
  readonly failed: (failure: Failure) => Effect.Effect<void, Unavailable>
  readonly postponed: (id: string, deliveryNo: number, dueAt: number) => Effect.Effect<void, Unavailable>
  /**
   * Puts the next event of the inbox that the webhook follows into its outbox. Returns whether the outbox may contain
   * an event now, or how long the next event is held back.
   */
  readonly fill: (id: string) => Effect.Effect<boolean | { readonly heldMs: number }, Unavailable>
}

/** How many deliveries of one webhook are posted at the same time. */
const MAX_CONCURRENT_POSTS = 4
/** How many deliveries one read of the outbox takes. */
const PAGE_SIZE = 32
/** How long a pass waits for a delivery to become due. For later deliveries the sweep wakes the webhook. */
const RECHECK_DELAY_MS = 60_000

/**
 * Whether a delivery is to be posted now. If a delivery would wait longer than its retry delay, it was scheduled before
 * the clock was set back, and is due.
 */
const isDue = (retryMs: ReadonlyArray<number>, { attempts, dueAt }: PendingDelivery, now: number): boolean =>
  dueAt <= now || dueAt > now + (retryMs[attempts - 1] ?? 0) + SET_BACK_MS

/**
 * Posts the deliveries that the outbox contains for one webhook, roughly in the order in which they are due. Only one
 * pass runs at a time. A pass ends when nothing is due soon, or when a delivery got no place. After that, the next
 * signal or the sweep begins a pass. When a post returns `Unwanted`, the pass reads the outbox again. Only the counts
 * of the circuit breaker are kept in memory.
 */
export class WebhookActor {
  readonly id: string
  private readonly deps: Dependencies
  private readonly woken = Latch.makeUnsafe(false)
  private circuit: Circuit = closed
  running = false
  /** When a pass last read the outbox, in milliseconds. */
  lastUsed = 0

  constructor(id: string, deps: Dependencies) {
    this.id = id
    this.deps = deps
  }

  /** Whether the circuit breaker has counted failures that the next pass needs. */
  get remembers(): boolean {
    return this.circuit.inARow > 0
  }

  /** Signals that a delivery may be due. If it returns true, no pass is running, and the caller must run `pass`. */
  wake(): boolean {
    this.woken.openUnsafe()
    if (this.running) return false
    this.running = true
    return true
  }

  /** Posts deliveries until none is due soon. Run it only when `wake` has returned true. */
  readonly pass: Effect.Effect<void, Unavailable> = Effect.gen({ self: this }, function*() {
    while (this.deps.isLocal(this.id)) {
      this.woken.closeUnsafe()
      this.lastUsed = this.deps.now()
      const work = yield* this.deps.work(this.id, PAGE_SIZE)
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
        if (next - now <= RECHECK_DELAY_MS) {
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

  /**
   * Attempts a delivery. If it was not posted, returns the reason. The pass then posts no further delivery of this
   * page.
   */
  private readonly attempt = Effect.fnUntraced(
    { self: this },
    function*(work: Work, delivery: PendingDelivery, probe: boolean) {
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
    delivery: PendingDelivery,
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
    const next = retryOf(followsInbox, delivery, outcome.status, this.deps.retryMs)
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
