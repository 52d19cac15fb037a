import { type Dependencies, type Posted, WebhookActor } from "#domain/webhooks/WebhookActor"
import type { Failure, PendingDelivery, Work } from "#domain/webhooks/WebhooksRepo"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"

const HOUR_MS = 3_600_000

const delivery = (deliveryNo: number): PendingDelivery => ({
  deliveryNo,
  event: "message.new",
  subject: "",
  createdAt: 0,
  attempts: 0,
  dueAt: 0,
  requestId: null
})

const outbox = (waiting: ReadonlyArray<PendingDelivery>, url = "https://nowhere.example/"): Work => ({
  agentId: "agt",
  url,
  secret: "",
  pausedUntil: null,
  followsInbox: false,
  hasNews: false,
  waiting
})

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

/** A webhook that follows an inbox with these events, whose posts end as the test says. */
const follower = (events: Array<number>, post: (deliveryNo: number) => Posted) => {
  const posted: Array<number> = []
  const failures: Array<Failure> = []
  let waits: PendingDelivery | undefined
  let suspended = false
  let time = 0
  const actor = webhook({
    now: () => time,
    circuit: { inARow: 100, perMinute: 100, pauseMs: HOUR_MS },
    retryMs: Array.from({ length: 8 }, () => 0),
    work: () =>
      Effect.sync(() =>
        suspended
          ? undefined
          : { ...outbox(waits === undefined ? [] : [waits]), followsInbox: true, hasNews: events.length > 0 }
      ),
    fill: () =>
      Effect.sync(() => {
        const next = events.shift()
        if (next !== undefined) waits = delivery(next)
        return next !== undefined
      }),
    post: (_id, _work, { deliveryNo }) =>
      Effect.sync(() => {
        posted.push(deliveryNo)
        return post(deliveryNo)
      }),
    delivered: () => Effect.sync(() => void (waits = undefined)),
    postponed: (_id, _no, dueAt) => Effect.sync(() => void (waits = { ...waits!, dueAt: time = dueAt })),
    failed: (failure) =>
      Effect.sync(() => {
        failures.push(failure)
        suspended = failure.suspends
        waits = failure.dueAt === null ? undefined : { ...waits!, attempts: waits!.attempts + 1, dueAt: failure.dueAt }
      })
  })
  const pass = Effect.suspend(() => {
    suspended = false
    assert.isTrue(actor.wake())
    return actor.pass
  })
  return { pass, posted, failures }
}

it.effect("a webhook that follows an inbox posts one event after the other, and takes the next one when the one before is done", () =>
  Effect.gen(function*() {
    const { pass, posted } = follower([1, 2, 3], () => ({ _tag: "Delivered" }))
    yield* pass
    assert.deepStrictEqual(posted, [1, 2, 3])
  }))

it.effect("a webhook that follows an inbox is suspended after six attempts, or at 410, and loses nothing", () =>
  Effect.gen(function*() {
    for (const [status, attempts] of [[500, 6], [undefined, 6], [410, 1]] as const) {
      let fails = true
      const { failures, pass, posted } = follower(
        [1, 2],
        () =>
          fails ? { _tag: "Failed", reason: "no", ...(status === undefined ? {} : { status }) } : { _tag: "Delivered" }
      )
      yield* pass
      assert.deepStrictEqual(posted, Array.from({ length: attempts }, () => 1))
      assert.deepStrictEqual(
        failures.map(({ suspends }) => suspends),
        Array.from({ length: attempts }, (_, i) => i === attempts - 1)
      )
      assert.isTrue(failures.every(({ dueAt }) => dueAt !== null), "the delivery waits until the webhook is resumed")
      fails = false
      yield* pass
      assert.deepStrictEqual(posted.slice(attempts), [1, 2])
    }
  }))

it.effect("a webhook that follows an inbox leaves out an event that is too large, and waits with one that is held back", () =>
  Effect.gen(function*() {
    let held = true
    const { failures, pass, posted } = follower([1, 2, 3], (deliveryNo) => {
      if (deliveryNo === 1) return { _tag: "Failed", reason: "answered 413", status: 413 }
      if (deliveryNo === 2 && held) {
        held = false
        return { _tag: "Held", heldMs: 5_000 }
      }
      return { _tag: "Delivered" }
    })
    yield* pass
    assert.deepStrictEqual(posted, [1, 2, 2, 3])
    assert.deepStrictEqual(failures.map(({ dueAt, suspends }) => [dueAt, suspends]), [[null, false]])
  }))

it.effect("any other webhook loses a delivery after its last attempt, whatever the status", () =>
  Effect.gen(function*() {
    const lost: Array<boolean> = []
    let work: Work | undefined = outbox([{ ...delivery(1), attempts: 1 }])
    const actor = webhook({
      work: () => Effect.sync(() => work),
      post: () => Effect.succeed({ _tag: "Failed", reason: "answered 410", status: 410 }),
      failed: ({ dueAt, suspends }) =>
        Effect.sync(() => {
          lost.push(dueAt === null && !suspends)
          work = undefined
        })
    })
    assert.isTrue(actor.wake())
    yield* actor.pass
    assert.deepStrictEqual(lost, [true])
  }))
