import { Effect, Latch } from "effect"
import type { SqlError } from "effect/sql"
import type { Unavailable } from "../wire/WireError.ts"
import { afterFailure, afterSuccess, type Circuit, type CircuitRules, closed, stateAt } from "./Circuit.ts"
import type { Failure, Waiting, Work } from "./WebhooksRepo.ts"

/** What came of an attempt. */
export type Outcome =
  | { readonly _tag: "Delivered" }
  | { readonly _tag: "Failed"; readonly reason: string }

/** What a webhook depends on. */
export interface Dependencies {
  readonly now: () => number
  readonly circuit: CircuitRules
  /** Milliseconds from each failed attempt to the next; what fails once more is dead. */
  readonly retryMs: ReadonlyArray<number>
  /** Whether this runner holds the webhook's shard. */
  readonly isLocal: (id: string) => boolean
  readonly work: (id: string, limit: number) => Effect.Effect<Work | undefined, SqlError.SqlError>
  /** Posts once; asks `stillWanted` when its turn has come. Undefined: it was not wanted any more. */
  readonly post: (
    id: string,
    work: Work,
    delivery: Waiting,
    stillWanted: () => boolean
  ) => Effect.Effect<Outcome | undefined, Unavailable>
  readonly delivered: (id: string, no: number, at: number, probe: boolean) => Effect.Effect<void, SqlError.SqlError>
  readonly failed: (failure: Failure) => Effect.Effect<void, SqlError.SqlError>
}

/** Deliveries of one webhook that are posted at once. */
const AT_ONCE = 4
/** Deliveries that are read from the outbox together. */
const PAGE = 32
/** A webhook waits in memory for what is due so soon; for the rest the sweep wakes it. */
const SOON_MS = 60_000

/**
 * Posts what the outbox holds for one webhook: in the order in which it is due, which
 * is no promise. One pass at a time; ends when nothing is due soon. In memory only
 * what its circuit counts.
 */
export class WebhookActor {
  readonly id: string
  private readonly deps: Dependencies
  private readonly woken = Latch.makeUnsafe(false)
  private circuit: Circuit = closed
  running = false
  /** When it last did something. */
  lastUsed = 0

  constructor(id: string, deps: Dependencies) {
    this.id = id
    this.deps = deps
  }

  /** Whether it counts failures that another pass needs. */
  get remembers(): boolean {
    return this.circuit.inARow > 0
  }

  /** Something may be due. True if the caller is to run `pass`. */
  wake(): boolean {
    this.woken.openUnsafe()
    if (this.running) return false
    this.running = true
    return true
  }

  /** Posts until nothing is due soon; for the one whom `wake` told to. */
  readonly pass: Effect.Effect<void, SqlError.SqlError | Unavailable> = Effect.gen({ self: this }, function*() {
    while (this.deps.isLocal(this.id)) {
      this.woken.closeUnsafe()
      this.lastUsed = this.deps.now()
      const work = yield* this.deps.work(this.id, PAGE)
      if (work === undefined) return
      this.circuit = { ...this.circuit, pausedUntil: work.pausedUntil }
      const now = this.deps.now()
      const state = stateAt(this.circuit, now)
      const due = work.waiting.filter(({ dueAt }) => dueAt <= now)
      if (state === "Pause" || due.length === 0) {
        const next = Math.max(work.waiting[0]?.dueAt ?? Number.POSITIVE_INFINITY, work.pausedUntil ?? 0)
        if (next - now <= SOON_MS) {
          yield* Effect.timeoutOption(this.woken.await, Math.max(next - now, 1))
        } else if (!this.woken.isOpen() || state === "Pause") return
        continue
      }
      yield* Effect.forEach(
        state === "Probe" ? due.slice(0, 1) : due,
        (delivery) => this.attempt(work, delivery, state === "Probe"),
        { concurrency: AT_ONCE, discard: true }
      )
    }
  }).pipe(Effect.ensuring(Effect.sync(() => {
    this.running = false
  })))

  private attempt(work: Work, delivery: Waiting, probe: boolean): Effect.Effect<void, SqlError.SqlError | Unavailable> {
    const wanted = () => probe || stateAt(this.circuit, this.deps.now()) === "Closed"
    return Effect.flatMap(this.deps.post(this.id, work, delivery, wanted), (outcome) => {
      if (outcome === undefined) return Effect.void
      const at = this.deps.now()
      if (outcome._tag === "Delivered") {
        this.circuit = afterSuccess(this.circuit, at)
        return this.deps.delivered(this.id, delivery.no, at, probe)
      }
      this.circuit = afterFailure(this.deps.circuit, this.circuit, at)
      const wait = this.deps.retryMs[delivery.attempts]
      return this.deps.failed({
        webhookId: this.id,
        no: delivery.no,
        at,
        reason: outcome.reason,
        dueAt: wait === undefined ? null : at + wait,
        pausedUntil: this.circuit.pausedUntil
      })
    })
  }
}
