import { Conversations } from "#domain/conversations/Conversations"
import { eventBit, type WebhookEvent } from "#domain/messages/Outbox"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Reactions } from "#domain/reactions/Reactions"
import { ReactionsRepo } from "#domain/reactions/ReactionsRepo"
import { Database } from "#infrastructure/database/Sql"
import { CALLER_TIMEOUT_MS } from "#infrastructure/wire/WireError"
import { assert, it, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, layerModules, newAgent } from "../support/Modules.ts"

layer(layerModules(layerPgliteTest))((it) => {
  it.effect("a reaction wakes only the webhooks that get it", () =>
    Effect.gen(function*() {
      const [alice, bob] = [yield* newAgent("reactions-a"), yield* newAgent("reactions-b")]
      const sent = yield* (yield* Conversations).send(alice, { _tag: "Direct", handle: bob.handle }, draft("first"))
      const { id } = JSON.parse(sent.body) as { readonly id: string }
      const sql = yield* SqlClient.SqlClient
      const woken: Array<string> = []
      ;(yield* WebhookSignals).listen((agentId) => woken.push(agentId))
      const reactions = yield* Reactions
      const hears = (...events: ReadonlyArray<WebhookEvent>) =>
        sql`UPDATE agents SET webhook_events = ${
          events.reduce((bits, event) => bits | eventBit(event), 0)
        } WHERE id = ${alice.id}`
      yield* hears("message.new")
      yield* reactions.add(bob, id, "seen")
      assert.deepStrictEqual(woken, [])
      yield* hears("message.new", "message.reaction")
      yield* reactions.add(bob, id, "thanks")
      yield* reactions.remove(bob, id, "seen")
      assert.deepStrictEqual(woken, [alice.id, alice.id])
      yield* reactions.add(alice, id, "done")
      assert.deepStrictEqual(woken, [alice.id, alice.id], "one's own reaction is not posted")
    }))
})

it.effect("changes behind a database that hangs are refused in time, those that wait for their turn too", () =>
  Effect.gen(function*() {
    const reactions = yield* Reactions
    const agent = { id: "agt_1", handle: "ada" }
    const fibers = yield* Effect.forEach(
      [1, 2, 3],
      (n) => Effect.forkChild(Effect.flip(reactions.add(agent, `msg_${n}`, "seen")))
    )
    yield* TestClock.adjust(CALLER_TIMEOUT_MS - 1)
    assert.deepStrictEqual(fibers.map((fiber) => fiber.pollUnsafe()), [undefined, undefined, undefined])
    yield* TestClock.adjust(1)
    const refused = yield* Fiber.joinAll(fibers)
    assert.deepStrictEqual(refused.map(({ _tag }) => _tag), ["Unavailable", "Unavailable", "Unavailable"])
  }).pipe(Effect.provide(
    Reactions.layer.pipe(Layer.provide(Layer.mergeAll(
      Layer.mock(ReactionsRepo)({ find: () => Effect.never }),
      Layer.succeed(LiveAgents, {} as never),
      Layer.succeed(Database, { transaction: <A>(change: A) => change } as never),
      WebhookSignals.layer
    )))
  )))
