import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { type Dependencies, WebhookActor } from "../../src/webhooks/WebhookActor.ts"
import type { Work } from "../../src/webhooks/WebhooksRepo.ts"

const HOUR_MS = 3_600_000

it.effect("a webhook remembers its failures for as long as it is there", () =>
  Effect.gen(function*() {
    const waiting = { deliveryNo: 1, event: "message.new", subject: "", createdAt: 0, attempts: 0, dueAt: 0, requestId: null } as const
    let work: Work | undefined = {
      agentId: "agt",
      url: "https://nowhere.example/",
      secret: "",
      pausedUntil: null,
      waiting: [waiting]
    }
    const dependencies: Dependencies = {
      now: () => 0,
      circuit: { inARow: 5, perMinute: 30, pauseMs: HOUR_MS },
      retryMs: [HOUR_MS],
      isLocal: () => true,
      work: () => Effect.sync(() => work),
      post: () => Effect.succeed({ _tag: "Failed", reason: "answered 500" }),
      delivered: () => Effect.void,
      failed: ({ dueAt }) =>
        Effect.sync(() => {
          work = work && { ...work, waiting: [{ ...waiting, attempts: 1, dueAt: dueAt ?? 0 }] }
        })
    }
    const actor = new WebhookActor("whk", dependencies)
    assert.isTrue(actor.wake())
    yield* actor.pass
    assert.isTrue(actor.remembers)
    actor.wake()
    yield* actor.pass
    assert.isTrue(actor.remembers)
    work = undefined
    actor.wake()
    yield* actor.pass
    assert.isFalse(actor.remembers)
  }))
