import { type Dependencies, WebhookActor } from "#domain/webhooks/WebhookActor"
import { WebhooksRepo } from "#domain/webhooks/WebhooksRepo"
import { Config } from "#infrastructure/platform/Config"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { eachDatabase } from "../support/Databases.ts"

const HOUR_MS = 3_600_000
const AT = 1_700_000_000_000

/** Inserts an agent and its webhook. `due` says whether the webhook has a delivery that is due at a time. */
const made = Effect.fnUntraced(function*(name: string) {
  const sql = yield* SqlClient.SqlClient
  const repo = yield* WebhooksRepo
  const [id, agentId] = [`whk_${name}`, `agt_${name}`]
  yield* sql`INSERT INTO agents (id, handle, email, created_at, updated_at) VALUES (${agentId}, ${name}, ${`${name}@example.com`}, 0, 0)`
  yield* repo.create({
    id,
    agentId,
    url: "https://nowhere.example/",
    events: ["message.new"],
    secret: "",
    bits: 1,
    at: AT
  }, 5)
  const due = (at: number) => Effect.map(repo.due("", at, 10), (rows) => rows.find((row) => row.id === id)?.due)
  return { sql, repo, due }
})

eachDatabase((database) => {
  layer(WebhooksRepo.layer.pipe(Layer.provide(Config.layerTest()), Layer.provideMerge(database)))((it) => {
    it.effect("after the clock is set back by an hour, neither a pause nor a retry lasts an hour", () =>
      Effect.gen(function*() {
        const { due, repo, sql } = yield* made("back")
        yield* sql`
          INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, due_at) VALUES ('whk_back', 'message.new', '{}', ${AT}, ${AT})`
        const delivery = (yield* repo.work("whk_back", 1))!.waiting[0]!
        const fail = (at: number, waitMs: number) =>
          repo.failed({
            webhookId: "whk_back",
            deliveryNo: delivery.deliveryNo,
            at,
            reason: "500",
            dueAt: at + waitMs,
            pausedUntil: at + 60_000,
            suspends: false
          }, 99)
        const state = (at: number) =>
          Effect.all({
            due: due(at),
            targeted: Effect.map(repo.targets(["agt_back"], "message.new", at), (rows) => rows.length > 0)
          })
        yield* fail(AT, 10_000)
        assert.deepStrictEqual(yield* state(AT), { due: false, targeted: false })
        const after = AT - HOUR_MS
        assert.deepStrictEqual(yield* state(after), { due: true, targeted: true })

        const posted: Array<number> = []
        const dependencies: Dependencies = {
          now: () => after,
          circuit: { inARow: 5, perMinute: 30, pauseMs: 60_000 },
          retryMs: [10_000, 30_000],
          isLocal: () => true,
          work: repo.work,
          post: (_, __, { deliveryNo }) =>
            Effect.sync(() => (posted.push(deliveryNo), { _tag: "Failed", reason: "answered 500" })),
          delivered: () => Effect.void,
          failed: (failure) => Effect.andThen(repo.failed(failure, 99), Effect.sync(() => (local = false))),
          postponed: () => Effect.void,
          fill: () => Effect.succeed(false)
        }
        let local = true
        const actor = new WebhookActor("whk_back", { ...dependencies, isLocal: () => local })
        assert.isTrue(actor.wake())
        yield* actor.pass
        assert.deepStrictEqual(posted, [delivery.deliveryNo])
        // The pause that the probe began is a minute long, and what is to be retried waits for it.
        assert.deepStrictEqual(yield* state(after + 59_000), { due: false, targeted: false })
        assert.deepStrictEqual(yield* state(after + 60_000 + HOUR_MS), { due: true, targeted: true })
        assert.deepStrictEqual(yield* state(after + 60_000), { due: true, targeted: true })
      }))

    it.effect("after the clock is set back by an hour, a retry that is due later does not hide a delivery from before", () =>
      Effect.gen(function*() {
        const { due, sql } = yield* made("hidden")
        const after = AT - HOUR_MS
        const deliver = (attempts: number, dueAt: number) =>
          sql`
          INSERT INTO webhook_deliveries (webhook_id, event, subject, created_at, attempts, due_at)
          VALUES ('whk_hidden', 'message.new', '{}', ${after}, ${attempts}, ${dueAt})`
        assert.isFalse(yield* due(after))
        yield* deliver(1, after + 5_000)
        assert.isFalse(yield* due(after))
        yield* deliver(0, AT)
        assert.isTrue(yield* due(after))
      }))
  })
})
