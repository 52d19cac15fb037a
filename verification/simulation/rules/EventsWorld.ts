import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Mutes } from "#domain/mutes/Mutes"
import { Replies } from "#domain/replies/Replies"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { ChallengeClient, type Post, WebhookClient } from "#domain/webhooks/WebhookClient"
import { WebhooksRepo } from "#domain/webhooks/WebhooksRepo"
import { Database } from "#infrastructure/database/Sql"
import { NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { EventSubscriptions } from "#interfaces/mcp/events/EventSubscriptions"
import { type EventType, eventTypeOf } from "#interfaces/mcp/events/EventTypes"
import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as fc from "fast-check"
import type { TestDatabase } from "../../../test/support/Databases.ts"
import { leap } from "../../../test/support/Leap.ts"
import { draft, layerModules, newAgent } from "../../../test/support/Modules.ts"
import type { Reaches } from "../Search.ts"
import { check, Violation } from "../Violation.ts"

const SECOND = 1_000
const MINUTE = 60 * SECOND
const DAY = 24 * 60 * MINUTE
const SENDERS = 3
/** Rounds after which a webhook that always has something due is an endless loop. */
const MAX_ROUNDS = 200
/** Turns of the event loop without a statement, after which nothing is under way. */
const QUIET_TURNS = 6

/** The statements of a webhook that follows an inbox. A crash comes before or after one of them. */
const STATEMENTS = [
  "webhook_work",
  "event_subscription_of_webhook",
  "inbox_page",
  "step_of_webhook",
  "webhook_delivered",
  "webhook_failed",
  "webhook_postponed"
] as const

interface Crash {
  readonly statement: typeof STATEMENTS[number] | "post"
  readonly after: boolean
}

export type EventStep =
  | { readonly kind: "send"; readonly sender: number }
  | { readonly kind: "acknowledge"; readonly nth: number }
  | { readonly kind: "mute"; readonly sender: number }
  | { readonly kind: "lease"; readonly seconds: number }
  | { readonly kind: "receiver"; readonly status: number }
  | { readonly kind: "crash"; readonly crash: Crash }
  | { readonly kind: "refresh"; readonly ttlMs: number }
  | { readonly kind: "wait"; readonly ms: number }

const sender = fc.nat(SENDERS - 1)
const step: fc.Arbitrary<EventStep> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("send"), sender }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("acknowledge"), nth: fc.nat(20) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("mute"), sender }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("lease"), seconds: fc.constantFrom(0, 0, 10, 60, 300) }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant("receiver"), status: fc.constantFrom(200, 200, 500, 500, 410, 413) })
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("crash"),
      crash: fc.record({ statement: fc.constantFrom(...STATEMENTS, "post" as const), after: fc.boolean() })
    })
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("refresh"), ttlMs: fc.constantFrom(MINUTE, 10 * MINUTE, DAY, DAY) })
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant("wait"),
      ms: fc.constantFrom(5 * SECOND, 15 * SECOND, MINUTE, 5 * MINUTE, 16 * MINUTE)
    })
  }
)

/** The steps of one history. */
export const eventStepsOf = (seed: number, length: number): ReadonlyArray<EventStep> =>
  fc.sample(fc.noBias(fc.array(step, { minLength: length, maxLength: length + 10, size: "max" })), {
    numRuns: 1,
    seed
  })[0] ?? []

/** A message in the inbox of the subscriber, as the model knows it. */
interface Mail {
  /** The delivery id, which is the id of the event. */
  readonly id: string
  readonly no: number
  readonly sender: number
  delivered: boolean
  /** The receiver took the event, or refused it as too large. */
  finished: boolean
  /**
   * The subscription passed over the message while it was delivered or muted, so the message need not be reported any
   * more.
   */
  passed: boolean
}

/** What one history knows. The receiver compares each post with it. */
class Model {
  readonly inbox: Array<Mail> = []
  readonly muted = new Set<number>()
  readonly defers: boolean
  leasedUntil = 0
  expiresAt = 0
  status = 200
  crash: Crash | undefined
  broken: Violation | undefined
  private last: Mail | undefined
  /** Whether a crash may have lost the answer to the last post. */
  private mayRepeat = false
  /** Whether anything has crashed in this history. */
  hasCrashed = false

  private readonly heard: (post: Heard) => void

  constructor(defers: boolean, heard: (post: Heard) => void) {
    this.defers = defers
    this.heard = heard
  }

  readonly waits = ({ delivered, sender }: Mail): boolean => !delivered && !this.muted.has(sender)

  /** The number of the last event that the receiver took: where its client begins again. */
  get reached(): number {
    return this.inbox.findLast(({ finished }) => finished)?.no ?? SENDERS
  }

  /** Messages that must still be reported. */
  get due(): ReadonlyArray<Mail> {
    return this.inbox.filter((mail) => this.waits(mail) && !mail.finished && !mail.passed)
  }

  /** A new subscription begins where the client left off. It may report again what the one before could not deliver. */
  began(): void {
    this.last = undefined
  }

  crashed(): void {
    this.crash = undefined
    this.mayRepeat = true
    this.hasCrashed = true
  }

  /** Compares a post with the rules, and returns the status of the receiver's answer. */
  posted({ body, headers }: Post, now: number): number {
    const { data, eventId } = JSON.parse(body) as {
      readonly data: { readonly delivery_id: string }
      readonly eventId: string
    }
    const mail = this.inbox.find(({ id }) => id === data.delivery_id)
    const rule = (holds: boolean, what: string): void =>
      check("eventPosts", holds, () => `message ${mail?.no}: ${what}`)
    rule(mail !== undefined, "it is no message to the subscriber")
    if (mail === undefined) return 500
    rule(eventId === mail?.id && headers["webhook-id"] === eventId, `it has the event id ${eventId}`)
    rule(!mail.delivered, "it was delivered when it was reported")
    rule(!this.muted.has(mail.sender), "it was muted when it was reported")
    rule(!this.defers || now >= this.leasedUntil, "a lease stood when it was reported")
    rule(now < this.expiresAt, "the subscription had expired when it was reported")
    rule(this.last === undefined || mail.no >= this.last.no, `it came after message ${this.last?.no}`)
    rule(!mail.finished || (mail === this.last && this.mayRepeat), "it was reported twice")
    const skipped = this.due.find(({ no }) => no < mail.no)
    rule(skipped === undefined, `message ${skipped?.no} was skipped`)
    this.heard({ no: mail.no, at: now, status: this.status })
    this.last = mail
    this.mayRepeat = false
    if (this.status === 200 || this.status === 413) mail.finished = true
    return this.status
  }
}

/** The current history, and what is under way in the database. */
interface Watch {
  model: Model | undefined
  statements: number
  underWay: number
}

class Watched extends Context.Service<Watched, Watch>()("parley/simulation/Watched") {}

const crash = Effect.die(new Error("a crash of the test"))

/** A database that counts its statements, and crashes the caller at the statement that the history names. */
const layerWatched = (database: TestDatabase) =>
  Layer.effectContext(Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const real = yield* Database
    const watch = yield* Watched
    const watched = <A, E>(name: string, statement: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      Effect.suspend(() => {
        watch.statements++
        const { model } = watch
        const planned = model?.crash?.statement === name ? model.crash : undefined
        if (planned !== undefined) model?.crashed()
        if (planned?.after === false) return crash
        watch.underWay++
        const counted = Effect.ensuring(statement, Effect.sync(() => watch.underWay--))
        return planned === undefined ? counted : Effect.andThen(counted, crash)
      })
    const prepared: typeof real.prepared = <Row extends object>(name: string, text: string) => {
      const run = real.prepared<Row>(name, text)
      return (params) => watched(name, run(params))
    }
    return Context.make(SqlClient.SqlClient, sql).pipe(Context.add(Database, { ...real, prepared }))
  })).pipe(Layer.provide(database))

const internet = Layer.mergeAll(
  Layer.succeed(NameLookup, () => Effect.succeed(["93.184.216.34"])),
  Layer.succeed(ChallengeClient, ({ body }) => Effect.succeed({ status: 200, text: body })),
  Layer.effect(
    WebhookClient,
    Effect.map(Watched, (watch) => (post: Post) =>
      Effect.suspend(() => {
        const { model } = watch
        if (model === undefined) return Effect.succeed(200)
        if (model.crash?.statement === "post" && !model.crash.after)
          return Effect.andThen(Effect.sync(() => model.crashed()), crash)
        return Effect.flatMap(Clock.currentTimeMillis, (now) => {
          try {
            const status = model.posted(post, now)
            if (model.crash?.statement !== "post")
              return Effect.succeed(status)
            model.crashed()
            return crash
          } catch (error) {
            if (!(error instanceof Violation))
              throw error
            model.broken ??= error
            return Effect.succeed(200)
          }
        })
      }))
  )
)

export const layerEvents = (database: TestDatabase) =>
  layerModules(layerWatched(database) as unknown as TestDatabase).pipe(
    Layer.provideMerge(internet),
    Layer.provideMerge(Layer.sync(Watched, (): Watch => ({ model: undefined, statements: 0, underWay: 0 })))
  )

const turn = Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))

let serial = 0

/** A post that the receiver got: its message, the milliseconds since the history began, and the answer. */
export interface Heard {
  readonly no: number
  readonly at: number
  readonly status: number
}

/**
 * Runs histories of a subscriber to `message.received`, whose receiver fails, whose server crashes, and who is busy
 * elsewhere at times. `heard` gets each post. The messages of a history have the numbers from 1.
 */
export const makeEventsWorld = Effect.fnUntraced(function*(heard: (post: Heard) => void = () => {}) {
  const actors = yield* WebhookActors
  const conversations = yield* Conversations
  const deliveries = yield* Deliveries
  const mutes = yield* Mutes
  const replies = yield* Replies
  const repo = yield* WebhooksRepo
  const sql = yield* SqlClient.SqlClient
  const subscriptions = yield* EventSubscriptions
  const watch = yield* Watched

  /** Completes once nothing runs, or a rule is broken. Fibers that sleep on the test's clock do not run. */
  const idle = Effect.gen(function*() {
    for (let turns = 0, seen = -1; turns < QUIET_TURNS && watch.model?.broken === undefined; turns++) {
      yield* turn
      if (watch.underWay > 0 || watch.statements !== seen) turns = 0
      seen = watch.statements
    }
  })

  return Effect.fnUntraced(function*(steps: ReadonlyArray<EventStep>, reaches: Reaches = () => {}, defers?: boolean) {
    const name = `events${serial++}`
    const began = yield* Clock.currentTimeMillis
    const model = new Model(
      defers ?? serial % 2 === 0,
      ({ at, no, status }) => heard({ no: no - SENDERS, at: at - began, status })
    )
    const type = eventTypeOf("message.received", { defer_if_active: model.defers }) as EventType
    const bob = yield* newAgent(`${name}-bob`)
    const senders = yield* Effect.forEach(
      Array.from({ length: SENDERS }, (_, i) => i),
      (i) => newAgent(`${name}-s${i}`)
    )
    let sent = 0
    const send = (from: typeof bob, to: typeof bob) =>
      conversations.send(from, { _tag: "Direct", handle: to.handle }, draft(`${name}-${sent++}`))
    for (const other of senders) yield* Effect.andThen(send(other, bob), send(bob, other))
    yield* deliveries.closeAll(bob.id, 1)
    const webhook = Effect.map(
      sql<{
        id: string
        active: boolean
        paused_until: number | null
        look_at: number | null
        inbox_no: number
        waits: boolean
      }>`
        SELECT id, active, paused_until, look_at, inbox_no, EXISTS (SELECT FROM webhook_deliveries WHERE webhook_id = webhooks.id AND due_at IS NOT NULL) AS waits
        FROM webhooks WHERE agent_id = ${bob.id} AND inbox_no IS NOT NULL AND deleted_at IS NULL`,
      ([row]) => row!
    )
    const url = `https://${name}.example.com/`
    const refresh = Effect.fnUntraced(function*(ttlMs: number) {
      const start = { position: { no: model.reached, reportedAt: null }, truncated: false }
      const { expiresAt, position, status } = yield* subscriptions.subscribe(
        bob,
        undefined,
        type,
        { url, secret: `whsec_${"a".repeat(32)}` },
        start,
        ttlMs
      )
      model.expiresAt = expiresAt
      if (status === undefined) model.began()
      const before = model.due.find(({ no }) => no <= position.no)
      check(
        "eventsAll",
        before === undefined,
        () => `a client that begins again after ${position.no} misses message ${before?.no}`
      )
    })
    yield* refresh(DAY)

    const settle = Effect.gen(function*() {
      for (let rounds = 0;; rounds++) {
        yield* actors.wakeDue
        yield* idle
        if (model.broken !== undefined) return yield* Effect.die(model.broken)
        const now = yield* Clock.currentTimeMillis
        if (now >= model.expiresAt) return yield* subscriptions.sweep
        const { id } = yield* webhook
        if (!(yield* repo.due("", now, 10_000)).some((one) => one.id === id && one.due)) break
        check("eventPosts", rounds < MAX_ROUNDS, () => "there is always something due")
      }
      const { active, inbox_no, look_at, paused_until, waits } = yield* webhook
      for (const mail of model.inbox) if (!model.waits(mail) && mail.no <= inbox_no) mail.passed = true
      const now = yield* Clock.currentTimeMillis
      const leased = model.defers && now < model.leasedUntil
      // After a crash, the sweep leaves a webhook alone until the pause of its circuit ends.
      const paused = paused_until !== null && now < paused_until
      // If the end of a lease meets a crash, what the lease held back comes when it is looked at again.
      const held = model.hasCrashed && look_at !== null && now < look_at
      if (active && !waits && !leased && !paused && !held)
        check("eventsAll", model.due.length === 0, () => `message ${model.due[0]?.no} was not reported`)
    })

    const run = (given: EventStep) =>
      Effect.gen(function*() {
        switch (given.kind) {
          case "send": {
            const from = senders[given.sender]!
            const no = SENDERS + model.inbox.length + 1
            // The event may be posted before the send is answered.
            model.inbox.push({
              id: deliveries.ids.encode(bob.id, no),
              no,
              sender: given.sender,
              delivered: false,
              finished: false,
              passed: false
            })
            return yield* send(from, bob)
          }
          case "acknowledge": {
            const mail = model.inbox[given.nth]
            if (mail === undefined) return
            deliveries.acknowledge(bob.id, mail.no)
            mail.delivered = true
            return yield* deliveries.settled
          }
          case "mute": {
            const { handle } = senders[given.sender]!
            if (model.muted.delete(given.sender)) return yield* mutes.lift(bob.id, { kind: "agent", handle })
            model.muted.add(given.sender)
            return yield* mutes.mute(bob.id, { kind: "agent", handle }, null)
          }
          case "lease": {
            model.leasedUntil = (yield* Clock.currentTimeMillis) + given.seconds * SECOND
            return yield* given.seconds === 0
              ? replies.end(bob.id, null)
              : replies.begin(bob.id, null, given.seconds * SECOND)
          }
          case "receiver":
            model.status = given.status
            return
          case "crash":
            model.crash = given.crash
            return
          case "refresh":
            return yield* refresh(given.ttlMs)
          case "wait":
            return yield* leap(given.ms)
        }
      })

    watch.model = model
    yield* Effect.gen(function*() {
      for (const [i, given] of steps.entries()) {
        reaches(i)
        yield* run(given)
        yield* settle
      }
      reaches(steps.length)
      model.crash = undefined
      yield* run({ kind: "lease", seconds: 0 })
      yield* run({ kind: "receiver", status: 200 })
      yield* run({ kind: "refresh", ttlMs: DAY })
      for (let i = 0; i < 2; i++) {
        yield* run({ kind: "wait", ms: 16 * MINUTE })
        yield* settle
      }
      check("eventsAll", model.due.length === 0, () => `message ${model.due[0]?.no} was never reported`)
    }).pipe(Effect.ensuring(Effect.suspend(() => {
      watch.model = undefined
      // Otherwise the next history would get its posts.
      return Effect.orDie(subscriptions.unsubscribe(bob.id, url, type))
    })))
  })
})
