import { IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { eventBit, type WebhookEvent } from "#domain/messages/Outbox"
import { checkedAddresses, NameLookup, parseTarget } from "#infrastructure/http/PrivateAddressGuard"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { Limits } from "#infrastructure/rates/Limits"
import { type Page, pageOf, type PageQuery, TimePosition } from "#infrastructure/wire/Page"
import { NotFound, Unauthorized, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { decodeCredentials, encodeCredentials, type TaskTarget, type TaskWebhook } from "./TaskTarget.ts"
import { type StoredWebhook, TooManyWebhooks } from "./Webhook.ts"
import { type InboxStep, WebhooksRepo } from "./WebhooksRepo.ts"

const LIMIT = 50
const MAX_LISTED = 200
/** The time-out of the DNS look-up when a webhook is created. Each post resolves the name again. */
const LOOKUP_TIMEOUT = "3 seconds"
const MAX_ATTEMPTS = 20

/** The webhooks of agents (wire.md C.12). A webhook of another agent gives `NotFound`, as if it did not exist. */
export class Webhooks extends Context.Service<Webhooks, {
  /** Creates a webhook. Only this call returns the secret, which is generated if none is given. */
  readonly create: (
    agentId: string,
    url: string,
    events: ReadonlyArray<WebhookEvent>,
    secret: string | undefined
  ) => Effect.Effect<
    { readonly webhook: StoredWebhook; readonly secret: string },
    ValidationFailed | TooManyWebhooks | Unauthorized | Unavailable
  >
  readonly list: (
    agentId: string,
    query: PageQuery
  ) => Effect.Effect<Page<StoredWebhook>, ValidationFailed | Unavailable>
  readonly find: (agentId: string, id: string) => Effect.Effect<StoredWebhook, NotFound | Unavailable>
  /** Removes a webhook. Posts that are under way still finish. No further posts begin. */
  readonly remove: (agentId: string, id: string) => Effect.Effect<void, NotFound | Unavailable>
  /** Refuses a URL that no webhook may have. */
  readonly check: (url: string) => Effect.Effect<void, ValidationFailed>
  /**
   * Locks the agent's row until the transaction ends, so that the agent's webhooks for tasks are created one at a time.
   */
  readonly holdOwner: (agentId: string) => Effect.Effect<void, Unauthorized | Unavailable>
  /**
   * Creates a webhook for one task of an agent and returns its id, which rows of the outbox refer to. The caller must
   * have checked the URL.
   */
  readonly createForTask: (agentId: string, target: TaskTarget) => Effect.Effect<string, Unauthorized | Unavailable>
  /** Returns the webhooks with these ids that exist. */
  readonly forTasks: (ids: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<TaskWebhook>, Unavailable>
  /** Returns the webhooks with these ids that exist, and whether a delivery of each waits to be posted. */
  readonly waitingForTasks: (
    ids: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyArray<{ readonly id: string; readonly waiting: boolean }>, Unavailable>
  /** Changes the target of a webhook. PendingDelivery deliveries go to the new URL. */
  readonly changeForTask: (id: string, target: TaskTarget) => Effect.Effect<void, Unavailable>
  /**
   * Creates a webhook that follows the inbox of an agent after `inboxNo`, and returns its id. The caller must have
   * checked the URL.
   */
  readonly createForInbox: (
    agentId: string,
    target: { readonly url: string; readonly secret: string; readonly inboxNo: number }
  ) => Effect.Effect<string, Unauthorized | Unavailable>
  /**
   * Ends the suspension of a webhook that follows an inbox, and changes its secret. With `afresh`, the attempts of its
   * waiting delivery are counted from zero again.
   */
  readonly resume: (id: string, secret: string, afresh: boolean) => Effect.Effect<void, Unavailable>
  /** Records how far a webhook has followed its inbox, and puts its next event, if there is one, into the outbox. */
  readonly step: (step: InboxStep) => Effect.Effect<void, Unavailable>
  /** Removes webhooks without a slot. */
  readonly removeUnlisted: (ids: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>
  /** Removes those of these webhooks that have no deliveries, neither waiting nor finished. */
  readonly removeIdle: (ids: ReadonlyArray<string>) => Effect.Effect<void, Unavailable>
  /** Removes the webhooks of a deleted agent (wire.md G.12). Idempotent. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/webhooks/Webhooks") {
  static readonly layer = Layer.effect(
    Webhooks,
    Effect.gen(function*() {
      const config = yield* Config
      const limits = yield* Limits
      const ids = yield* Ids
      const idempotentIds = yield* IdempotentIds
      const names = yield* NameLookup
      const repo = yield* WebhooksRepo

      const unknown = () => new NotFound({ message: "You have no such webhook." })

      /** If the look-up fails or times out, the URL is accepted, because each post resolves the name again. */
      const checkUrl = (text: string): Effect.Effect<void, ValidationFailed> =>
        Effect.flatMap(parseTarget(text), (url) => checkedAddresses(url, config.WEBHOOK_ALLOW_PRIVATE)).pipe(
          Effect.timeoutOption(LOOKUP_TIMEOUT),
          Effect.provideService(NameLookup, names),
          Effect.catchTags({
            LookupFailed: () => Effect.void,
            TargetRefused: ({ reason }) => Effect.fail(ValidationFailed.field("url", reason))
          }),
          Effect.asVoid
        )

      return Webhooks.of({
        create: Effect.fn("Webhooks.create")(function*(agentId, url, events, given) {
          yield* checkUrl(url)
          const secret = given ?? ids.bytes(32).toString("hex")
          const asked = [...new Set(events)]
          const most = limits.of("LIMITS_WEBHOOKS_PER_AGENT", config.LIMITS_WEBHOOKS_PER_AGENT, agentId)
          const id = yield* idempotentIds.make("whk")
          for (let tries = 0; tries < MAX_ATTEMPTS; tries++) {
            const webhook = yield* repo.create({
              id,
              agentId,
              url,
              events: asked,
              secret,
              bits: asked.reduce((bits, event) => bits | eventBit(event), 0),
              at: yield* Clock.currentTimeMillis
            }, most)
            if (webhook !== undefined) return { webhook, secret }
            // An earlier attempt of this request may have created the webhook, with its response lost.
            const made = yield* repo.made(agentId, id)
            if (made !== undefined) return made
            if ((yield* repo.count(agentId)) >= most) return yield* new TooManyWebhooks()
            if (!(yield* repo.hasOwner(agentId))) return yield* new Unauthorized()
            // A concurrent creation took the slot.
          }
          return yield* new Unavailable()
        }),
        list: Effect.fn("Webhooks.list")((agentId, query) =>
          pageOf(query, {
            usual: LIMIT,
            max: MAX_LISTED,
            position: TimePosition,
            rows: (range) => repo.list(agentId, range),
            total: repo.count(agentId),
            positionOf: ({ createdAt, id }) => ({ createdAt, id }),
            show: Effect.succeed
          })
        ),
        find: Effect.fn("Webhooks.find")(function*(agentId, id) {
          return (yield* repo.find(agentId, id)) ?? (yield* unknown())
        }),
        remove: Effect.fn("Webhooks.remove")(function*(agentId, id) {
          const done = yield* repo.remove(agentId, id, yield* Clock.currentTimeMillis)
          if (!done) return yield* unknown()
        }),
        check: checkUrl,
        holdOwner: Effect.fn("Webhooks.holdOwner")(function*(agentId) {
          if (!(yield* repo.holdOwner(agentId))) return yield* new Unauthorized()
        }),
        createForTask: Effect.fn("Webhooks.createForTask")(function*(agentId, target) {
          const id = ids.make("whk")
          const at = yield* Clock.currentTimeMillis
          const made = yield* repo.createForTask(id, agentId, target.url, encodeCredentials(target), at)
          return made ? id : yield* new Unauthorized()
        }),
        forTasks: (ids) =>
          Effect.map(
            repo.forTasks(ids),
            (rows) => rows.map(({ id, secret, url }) => ({ id, target: { url, ...decodeCredentials(secret) } }))
          ),
        waitingForTasks: repo.waitingForTasks,
        changeForTask: (id, target) => repo.changeForTask(id, target.url, encodeCredentials(target)),
        createForInbox: Effect.fn("Webhooks.createForInbox")(function*(agentId, target) {
          const id = ids.make("whk")
          const made = yield* repo.createForInbox({ id, agentId, ...target }, yield* Clock.currentTimeMillis)
          return made ? id : yield* new Unauthorized()
        }),
        resume: Effect.fn("Webhooks.resume")(function*(id, secret, afresh) {
          yield* repo.resume(id, secret, yield* Clock.currentTimeMillis, afresh)
        }),
        step: repo.step,
        removeUnlisted: Effect.fn("Webhooks.removeUnlisted")(function*(ids) {
          yield* repo.removeUnlisted(ids, yield* Clock.currentTimeMillis, false)
        }),
        removeIdle: Effect.fn("Webhooks.removeIdle")(function*(ids) {
          yield* repo.removeUnlisted(ids, yield* Clock.currentTimeMillis, true)
        }),
        removeAgent: Effect.fn("Webhooks.removeAgent")(function*(agentId) {
          yield* repo.removeAll(agentId, yield* Clock.currentTimeMillis)
        })
      })
    })
  )
}
