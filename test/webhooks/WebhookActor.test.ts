import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { type Dependencies, WebhookActor } from "#domain/webhooks/WebhookActor"
import type { Waiting, Work } from "#domain/webhooks/WebhooksRepo"

const HOUR_MS = 3_600_000

const delivery = (deliveryNo: number): Waiting =>
  ({ deliveryNo, event: "message.new", subject: "", createdAt: 0, attempts: 0, dueAt: 0, requestId: null })

const outbox = (waiting: ReadonlyArray<Waiting>, url = "https://nowhere.example/"): Work =>
  ({ agentId: "agt", url, secret: "", pausedUntil: null, followsInbox: false, waiting })

/** Ten deliveries that are due. */
const waiting = Array.from({ length: 10 }, (_, i) => delivery(i))

/** A webhook of this node at time 0, with an outbox and posts of the test. */
const webhook = (own: Pick<Dependencies, "work" | "post"> & Partial<Dependencies>): WebhookActor =>
  new WebhookActor("whk", {
    now: () => 0,
    circuit: { inARow: 5, perMinute: 30, pauseMs: HOUR_MS },
    retryMs: [HOUR_MS],
    isLocal: () => true,
    delivered: () => Effect.void,
    failed: () => Effect.die("no attempt failed"),
    postponed: () => Effect.die("no event was held back"),
    fill: () => Effect.succeed(false),
    ...own
  })

it.effect("a webhook remembers its failures for as long as it is there", () =>
  Effect.gen(function*() {
    let work: Work | undefined = outbox([delivery(1)])
    const actor = webhook({
      work: () => Effect.sync(() => work),
      post: () => Effect.succeed({ _tag: "Failed", reason: "answered 500" }),
      failed: ({ dueAt }) =>
        Effect.sync(() => {
          work = work && outbox([{ ...delivery(1), attempts: 1, dueAt: dueAt ?? 0 }])
        })
    })
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

it.effect("a delivery without a place ends the pass, stays in the outbox, and is posted when the webhook is woken again", () =>
  Effect.gen(function*() {
    const done: Array<number> = []
    const tried: Array<number> = []
    let places = 3
    const actor = webhook({
      work: () => Effect.sync(() => outbox(waiting.filter(({ deliveryNo }) => !done.includes(deliveryNo)))),
      post: (_id, _work, { deliveryNo }) =>
        Effect.sync(() => {
          tried.push(deliveryNo)
          return places-- > 0 ? { _tag: "Delivered" } as const : { _tag: "NoPlace" } as const
        }),
      delivered: (_id, deliveryNo) => Effect.sync(() => void done.push(deliveryNo))
    })
    assert.isTrue(actor.wake())
    yield* actor.pass
    assert.deepStrictEqual(done, [0, 1, 2])
    assert.isBelow(tried.length, 10, "a full queue is not asked again and again")
    assert.isFalse(actor.remembers)
    places = 100
    assert.isTrue(actor.wake())
    yield* actor.pass
    assert.deepStrictEqual(done.toSorted((a, b) => a - b), waiting.map(({ deliveryNo }) => deliveryNo))
  }))

it.effect("a delivery whose place comes after the shard has moved is not wanted, and the pass ends", () =>
  Effect.gen(function*() {
    let local = true
    const posted: Array<number> = []
    const actor = webhook({
      isLocal: () => local,
      work: () => Effect.succeed(outbox(waiting)),
      post: (_id, _work, { deliveryNo }, stillWanted) =>
        Effect.sync(() => {
          if (deliveryNo === 2) local = false
          if (!stillWanted()) return { _tag: "Unwanted" } as const
          posted.push(deliveryNo)
          return { _tag: "Delivered" } as const
        })
    })
    assert.isTrue(actor.wake())
    yield* actor.pass
    assert.deepStrictEqual(posted, [0, 1])
  }))

it.effect("after a delivery that is not wanted any more, the outbox is read again before anything else is posted", () =>
  Effect.gen(function*() {
    let url = "https://old.example/"
    const posted: Array<string> = []
    const done = new Set<number>()
    const actor = webhook({
      work: () => Effect.sync(() => outbox(waiting.filter(({ deliveryNo }) => !done.has(deliveryNo)), url)),
      post: (_id, work, { deliveryNo }) =>
        Effect.sync(() => {
          if (deliveryNo === 2 && work.url === "https://old.example/") {
            url = "https://new.example/"
            return { _tag: "Unwanted" } as const
          }
          posted.push(work.url)
          return { _tag: "Delivered" } as const
        }),
      delivered: (_id, deliveryNo) => Effect.sync(() => void done.add(deliveryNo))
    })
    assert.isTrue(actor.wake())
    yield* actor.pass
    assert.strictEqual(done.size, 10)
    assert.deepStrictEqual(posted.filter((one) => one === "https://old.example/").length, 2)
  }))
