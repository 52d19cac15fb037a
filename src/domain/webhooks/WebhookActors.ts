import { INBOX_EVENT, type WebhookEvent } from "#domain/messages/Outbox"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { type Batch, batchUpTo } from "#infrastructure/cluster/Job"
import { makeActors } from "#infrastructure/platform/Actors"
import { Config } from "#infrastructure/platform/Config"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, FiberSet, Layer } from "effect"
import { EntityId, Sharding } from "effect/cluster"
import { makePosting } from "./Posting.ts"
import { PostSources } from "./PostSources.ts"
import { type Dependencies, WebhookActor } from "./WebhookActor.ts"
import { WebhookEntity } from "./WebhookEntity.ts"
import { type SignedTarget, WebhooksRepo } from "./WebhooksRepo.ts"

const BATCH_SIZE = 200
const RETENTION_ROWS = 500
/** How long a statement that began before a webhook was deleted may still write deliveries for it. */
const LATE_WRITES_MS = 60_000
const IDLE_MS = 300_000

/**
 * The webhooks that post from this node. The owner of a webhook makes its posts. A signal wakes the owner after an
 * event is committed to the outbox. If that signal is lost, or the node crashes before the post, the sweep of the
 * outbox (`wakeDue`) wakes the owner. If the node crashes after a post but before the outbox records it, the post is
 * repeated with the same delivery id.
 */
export class WebhookActors extends Context.Service<WebhookActors, {
  /** Wakes a webhook on the node that owns it, because a delivery may be due. */
  readonly wake: (id: string) => void
  /**
   * Tries once, from this node, to post an event that is not in the outbox. Ignores failures. Drops the event if too
   * many wait.
   */
  readonly postOnce: (target: SignedTarget, event: WebhookEvent, deliveryId: string, data: string) => void
  /**
   * The sweep of the outbox: reads the next slice of webhooks and wakes those that have a delivery due, each on its
   * owner.
   */
  readonly wakeDue: Effect.Effect<Batch, Unavailable>
  /** Marks a batch of the deliveries that wait for deactivated webhooks as dead. */
  readonly abandon: Effect.Effect<Batch, Unavailable>
  /** Removes a batch of the deliveries of deleted webhooks, and the deleted webhooks that have no deliveries left. */
  readonly sweepDeleted: Effect.Effect<Batch, Unavailable>
}>()("parley/webhooks/WebhookActors") {
  static readonly layer = Layer.effect(
    WebhookActors,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const config = yield* Config
      const repo = yield* WebhooksRepo
      const sharding = yield* Sharding.Sharding
      const signals = yield* WebhookSignals
      const sources = yield* PostSources
      const { post, postOnce } = yield* makePosting
      const fork = yield* FiberSet.makeRuntime<never, void, never>()
      const now = () => clock.currentTimeMillisUnsafe()
      const isLocal = (id: string): boolean =>
        sharding.hasShardId(sharding.getShardId(EntityId.make(id), WebhookEntity.getShardGroup(EntityId.make(id))))

      const deps: Dependencies = {
        now,
        circuit: {
          inARow: config.WEBHOOK_CIRCUIT_IN_A_ROW,
          perMinute: config.WEBHOOK_CIRCUIT_PER_MINUTE,
          pauseMs: config.WEBHOOK_CIRCUIT_PAUSE_SECONDS * 1_000
        },
        retryMs: config.WEBHOOK_RETRY_SECONDS.map((seconds) => seconds * 1_000),
        isLocal,
        work: repo.work,
        post,
        delivered: repo.delivered,
        failed: (failure) => repo.failed(failure, config.WEBHOOK_DEAD_IN_A_ROW),
        postponed: repo.postponed,
        fill: (id) => sources.of(INBOX_EVENT).fill(id)
      }

      const actors = yield* makeActors("webhook", (id) => new WebhookActor(id, deps), (actor, id) => {
        if (actor.running || actor.lastUsed >= now() - IDLE_MS) return false
        if (!actor.remembers || !isLocal(id)) return true
        // Wake an actor that remembers failures, because its pass clears them if the webhook was deleted or
        // deactivated.
        wakeHere(id)
        return false
      })
      const wakeHere = (id: string): void => {
        const actor = actors.of(id)
        if (actor.wake()) {
          fork(
            Effect.catchCause(
              actor.pass,
              (cause) => Effect.logWarning("A webhook stopped posting; the next sweep will start it again", cause)
            )
          )
        }
      }
      const client = yield* EntityRpc.make(WebhookEntity, {
        Wake: { run: (id) => Effect.sync(() => wakeHere(id)) }
      })
      const wake = (id: string): void => {
        if (isLocal(id)) wakeHere(id)
        else fork(Effect.ignore(client.Wake(id)))
      }

      /** Agents whose webhooks may have new deliveries since the last query for the webhooks' ids. */
      const raised = new Set<string>()
      let asking = false
      const ask = Effect.gen(function*() {
        // A message to many agents adds all of them in one tick of the event loop, so one query serves all of them.
        yield* Effect.yieldNow
        while (raised.size > 0) {
          const agentIds = [...raised]
          raised.clear()
          for (const id of yield* repo.activeOf(agentIds)) wake(id)
        }
      }).pipe(
        Effect.catchCause((cause) =>
          Effect.logWarning("Webhooks could not be notified; the next sweep will notify them", cause)
        ),
        Effect.ensuring(Effect.sync(() => {
          asking = false
        }))
      )
      signals.listen((agentId) => {
        raised.add(agentId)
        if (asking) return
        asking = true
        fork(ask)
      })

      // The webhook id after which the next slice begins. The id is only in memory, so the sweep starts over when its
      // job moves to another process.
      let above = ""
      const wakeDue = Effect.gen(function*() {
        const slice = yield* repo.due(above, now(), BATCH_SIZE)
        const due = slice.filter((one) => one.due)
        for (const { id } of due) wake(id)
        above = slice.length < BATCH_SIZE ? "" : slice.at(-1)!.id
        return { rows: due.length, more: above !== "" }
      })

      return WebhookActors.of({
        wakeDue,
        abandon: Effect.map(Effect.suspend(() => repo.abandon(now(), RETENTION_ROWS)), batchUpTo(RETENTION_ROWS)),
        // A webhook's row is removed one batch after its last deliveries, so only an empty batch ends the sweep.
        sweepDeleted: Effect.map(
          Effect.suspend(() => repo.sweepDeleted(now() - LATE_WRITES_MS, RETENTION_ROWS)),
          (rows) => ({ rows, more: rows > 0 })
        ),
        wake,
        postOnce: (target, event, id, rendered) => {
          fork(
            Effect.catchCause(
              postOnce(target, event, id, rendered),
              (cause) => Effect.logWarning("A best-effort post to a webhook failed", cause)
            )
          )
        }
      })
    })
  )
}
