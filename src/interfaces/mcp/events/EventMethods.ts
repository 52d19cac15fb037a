import { AgentSuspended } from "#domain/agents/Agent"
import { Conversations } from "#domain/conversations/Conversations"
import { standardKey } from "#domain/webhooks/Signature"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { iso, isoOrNull, isStorable } from "#infrastructure/wire/Text"
import type { RateLimited, Unauthorized, Unavailable } from "#infrastructure/wire/WireError"
import { TOO_MANY, type WaitRefusal } from "#interfaces/realtime/Listeners"
import { Waiters } from "#interfaces/realtime/Waiters"
import { Clock, Effect, Latch, Option, Result, Schedule } from "effect"
import type { ToolApi } from "../tools/Tool.ts"
import { Callbacks } from "./Callbacks.ts"
import {
  type EventRefusal,
  forbidden,
  invalidParams,
  resourceExhausted,
  unavailable,
  unsupported
} from "./EventErrors.ts"
import { EventFeed, type Look, POLL_READ, type Start } from "./EventFeed.ts"
import { EventSubscriptions } from "./EventSubscriptions.ts"
import { type EventType, eventTypeOf, listed } from "./EventTypes.ts"

/** The name of the extension in the capabilities of a server. */
export const EXTENSION = "io.modelcontextprotocol/events"
const SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

const POLL = { usual: 20, max: 100, everyMs: 10_000 }
/** How many events of a stream are read at once. */
const MAX_STREAMED = 100
/** The time between two heartbeats of a stream, in milliseconds. */
const HEARTBEAT_MS = 20_000
/** How long a stream waits before it reads again after a failure of the database, in milliseconds. */
const RETRY_MS = 1_000
/** The memory that the beginning of a stream takes before its first look. */
const LISTENING: LargeAnswer = { usual: 1, max: 1, bytes: 1_024 }
const MAX_URL = 2_048
/** How long a stream lasts that begins while the server is about to stop. */
const TURNED_AWAY = "1 second"
/** How often the access token of a stream is checked. */
const CHECK_INTERVAL = "5 seconds"

const COMPLETE = { resultType: "complete" } as const

/** The parameters of a request. They have not been checked. */
export type Params = Readonly<Record<string, unknown>>

type Account = Pick<ToolApi, "agent" | "principal">

/** Sends a notification on the stream of a request. */
type Notify = (method: string, params: object) => Effect.Effect<void>

const isWhole = (given: unknown, minimum: number): given is number =>
  Number.isSafeInteger(given) && Number(given) >= minimum

/** Returns a parameter that is a whole number, undefined if it is absent, or a refusal if it is invalid. */
const wholeOf = (params: Params, name: string, minimum: number): number | undefined | EventRefusal => {
  const given = params[name] ?? undefined
  return given === undefined || isWhole(given, minimum)
    ? given
    : invalidParams(`${name} must be a whole number of at least ${minimum}.`)
}

const failed = <A>(value: A | EventRefusal): value is EventRefusal =>
  typeof value === "object" && value !== null && "_tag" in value && value._tag === "EventRefusal"

/** Returns the value, or fails if it is a refusal. */
const valid = <A>(value: A | EventRefusal): Effect.Effect<A, EventRefusal> =>
  failed(value) ? Effect.fail(value) : Effect.succeed(value)

const lookRefused = (failure: RateLimited | Unavailable): EventRefusal =>
  failure._tag === "RateLimited" ? resourceExhausted("large answers under way", failure.details?.limit) : unavailable()

const refusalOf = (failure: WaitRefusal): EventRefusal => {
  switch (failure._tag) {
    case "Unauthorized":
    case "AgentSuspended":
      return forbidden(failure.code)
    case "RateLimited":
      return resourceExhausted("streams", failure.details?.limit)
    case "Unavailable":
      return unavailable()
  }
}

/**
 * The methods of MCP Events (wire.md Q). The server stores nothing for a poll or a stream. Like a stream of
 * `subscriptions/listen`, a stream takes a place among the agent's sockets and counts for the agent's presence.
 * Subscriptions by webhook are rows (EventSubscriptions.ts).
 */
export const makeEventMethods = Effect.gen(function*() {
  const conversations = yield* Conversations
  const callbacks = yield* Callbacks
  const feed = yield* EventFeed
  const reads = yield* LargeReads
  const subscriptions = yield* EventSubscriptions
  const waiters = yield* Waiters
  const clock = yield* Clock.Clock
  const monotonic = monotonicMillis(clock)

  /** Reads the type of a subscription, and checks that the agent may subscribe to it. */
  const typeOf = Effect.fnUntraced(function*({ agent }: Account, params: Params) {
    if (agent.status === "suspended") return yield* forbidden(new AgentSuspended().code)
    const type = yield* valid(eventTypeOf(params["name"], params["arguments"]))
    const { conversationId } = type.arguments
    if (conversationId !== undefined) {
      yield* Effect.mapError(
        conversations.participation(agent.id, conversationId),
        (failure) =>
          failure._tag === "Unavailable" ? unavailable() : forbidden("You take no part in this conversation.")
      )
    }
    return type
  })

  /** Returns where a subscription begins, and the time before which messages are left out. */
  const startOf = Effect.fnUntraced(function*({ agent }: Account, type: EventType, params: Params) {
    const cursor = params["cursor"] ?? null
    if (cursor !== null && typeof cursor !== "string") return yield* invalidParams("cursor must be a text or null.")
    const maxAgeMs = yield* valid(wholeOf(params, "maxAgeMs", 0))
    const start = yield* Effect.mapError(feed.start(agent, type, cursor), unavailable)
    if (start === undefined) return yield* invalidParams("cursor is not a cursor of this agent.")
    return {
      ...start,
      notBefore: maxAgeMs === undefined || cursor === null ? 0 : clock.currentTimeMillisUnsafe() - maxAgeMs
    }
  })

  /**
   * Returns where a subscription begins if its client wants no messages from before a time. For event types other than
   * `message.received`, returns `start` unchanged.
   */
  const notBefore = Effect.fnUntraced(
    function*({ agent }: Account, type: EventType, start: Start & { readonly notBefore: number }) {
      if (start.notBefore === 0 || type.name !== "message.received") return start
      const { position, reported: [first], skipped } = yield* Effect.mapError(
        reads.ofAgent(agent.id, POLL_READ, feed.look(agent, type, type.canonical, start.position, 1, start.notBefore)),
        lookRefused
      )
      return skipped
        ? { position: first === undefined ? position : { no: first.after.no - 1, reportedAt: null }, truncated: true }
        : start
    }
  )

  const list = (params: Params) =>
    (params["cursor"] ?? "") === ""
      ? Effect.succeed({ ...COMPLETE, events: listed })
      : Effect.fail(invalidParams("The list has one page."))

  const poll = Effect.fn("EventMethods.poll")(function*(account: Account, params: Params) {
    const { agent } = account
    const type = yield* typeOf(account, params)
    const limit = Math.min((yield* valid(wholeOf(params, "maxEvents", 1))) ?? POLL.usual, POLL.max)
    const { notBefore, position: from, truncated } = yield* startOf(account, type, params)
    const { heldMs, more, position, reported, skipped } = yield* Effect.mapError(
      reads.ofAgent(agent.id, POLL_READ, feed.look(agent, type, type.canonical, from, limit, notBefore)),
      lookRefused
    )
    return {
      ...COMPLETE,
      events: reported.map(({ occurrence }) => occurrence),
      cursor: feed.cursorOf(agent, position),
      truncated: truncated || skipped,
      hasMore: more,
      nextPollMs: heldMs ?? POLL.everyMs
    }
  })

  const stream = Effect.fn("EventMethods.stream")(
    function*(account: Account, params: Params, id: string | number, notify: Notify) {
      const { agent, principal } = account
      const type = yield* typeOf(account, params)
      const news = Latch.makeUnsafe(false)
      const over = Latch.makeUnsafe(false)
      const state = { isOver: false, isCrowded: false }
      const end = (isCrowded = false): void => {
        Object.assign(state, { isOver: true, isCrowded })
        news.openUnsafe()
        over.openUnsafe()
      }
      /** Runs the effect in a slot, so that an agent that opens streams again and again has to wait. */
      const inSlot = <A, R>(size: LargeAnswer, effect: Effect.Effect<A, EventRefusal | Unavailable, R>) =>
        Effect.mapError(
          reads.during(agent.id, size, effect),
          (failure) => failure._tag === "EventRefusal" ? failure : lookRefused(failure)
        )
      /** Returns undefined if the stream ends before the effect. */
      const untilOver = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.raceFirst(Effect.as(over.await, undefined), effect)

      const listener = yield* inSlot(
        LISTENING,
        Effect.mapError(
          waiters.listen(principal, {
            message: (_conversationId, own) => own ? undefined : news.openUnsafe(),
            missed: () => news.openUnsafe(),
            ended: (reason) => end(reason?.text === TOO_MANY)
          }),
          refusalOf
        )
      )
      // A stream that begins while the server is about to stop is ended by nobody else.
      if (waiters.isLeaving()) yield* Effect.forkScoped(Effect.andThen(Effect.sleep(TURNED_AWAY), Effect.sync(end)))
      if (principal.endsUnnoticed === true) {
        yield* Effect.catchTag(principal.check, "Unavailable", () => Effect.void).pipe(
          Effect.repeat(Schedule.spaced(CHECK_INTERVAL)),
          Effect.catchTag("Unauthorized", () => Effect.sync(end)),
          Effect.forkScoped
        )
      }
      const _meta = { [SUBSCRIPTION_ID]: id }
      const tell = (what: "active" | "event" | "heartbeat" | "error" | "terminated", params: object) =>
        notify(`notifications/events/${what}`, { ...params, _meta })
      const errorOf = ({ code, data, message }: EventRefusal) => ({
        error: { code, message, ...(data === undefined ? {} : { data }) }
      })

      const lookFrom = (position: Start["position"], notBefore: number) =>
        feed.look(agent, type, type.canonical, position, MAX_STREAMED, notBefore)
      const opened = yield* untilOver(inSlot(
        POLL_READ,
        Effect.gen(function*() {
          const { notBefore, position, truncated } = yield* startOf(account, type, params)
          yield* tell("active", { cursor: feed.cursorOf(agent, position), truncated })
          const looked = yield* Effect.result(lookFrom(position, notBefore))
          return { notBefore, position, looked: Result.mapError(looked, lookRefused) }
        })
      ))
      if (opened !== undefined) {
        const { notBefore } = opened
        let position = opened.position
        let looked: Result.Result<Look, EventRefusal> | undefined = opened.looked
        let beatAt = monotonic() + HEARTBEAT_MS
        while (looked !== undefined && !state.isOver) {
          if (Result.isFailure(looked)) yield* tell("error", errorOf(looked.failure))
          const look = Option.getOrUndefined(Result.getSuccess(looked))
          if (look?.skipped === true)
            yield* tell("active", { cursor: feed.cursorOf(agent, look.position), truncated: true })
          for (const { after, occurrence } of look?.reported ?? []) {
            yield* tell("event", { ...occurrence, cursor: feed.cursorOf(agent, after) })
          }
          position = look?.position ?? position
          listener.reached = Math.max(listener.reached, position.no)
          if (look?.more !== true) {
            const heldMs = look === undefined ? RETRY_MS : look.heldMs
            yield* Effect.timeoutOption(news.await, Math.max(1, Math.min(beatAt - monotonic(), heldMs ?? HEARTBEAT_MS)))
            if (monotonic() >= beatAt) {
              yield* tell("heartbeat", { cursor: feed.cursorOf(agent, position) })
              beatAt = monotonic() + HEARTBEAT_MS
            }
          }
          news.closeUnsafe()
          looked = yield* untilOver(Effect.result(inSlot(POLL_READ, lookFrom(position, notBefore))))
        }
      }
      const why = state.isCrowded ? resourceExhausted("streams") : yield* ending(principal.check)
      if (why !== undefined) yield* tell("terminated", errorOf(why))
      return { ...COMPLETE, _meta }
    },
    Effect.scoped
  )

  /** Returns the URL in the `delivery` of a request, or a refusal. */
  const urlOf = (params: Params): string | EventRefusal => {
    const { url } = deliveryOf(params)
    return typeof url === "string" && url.length <= MAX_URL && callbacks.isSecure(url)
      ? url
      : invalidParams(`delivery.url must be an https URL of at most ${MAX_URL} characters.`)
  }

  const subscribe = Effect.fn("EventMethods.subscribe")(function*(account: Account, params: Params) {
    const { agent, principal } = account
    const type = yield* typeOf(account, params)
    const { mode, secret } = deliveryOf(params)
    if ((mode ?? "webhook") !== "webhook") return yield* unsupported("deliveryMode", String(mode).slice(0, 40))
    const url = yield* valid(urlOf(params))
    if (typeof secret !== "string" || standardKey(secret) === undefined) {
      return yield* invalidParams("delivery.secret must be whsec_ and the base64 of 24 to 64 bytes.")
    }
    const ttlMs = yield* valid(wholeOf(params, "ttlMs", 0))
    yield* Effect.mapError(callbacks.check(url), ({ message }) => invalidParams(`delivery.url: ${message}`))
    const start = yield* startOf(account, type, params)
    const begun = yield* notBefore(account, type, start)
    const { expiresAt, id, position, status } = yield* subscriptions.subscribe(
      agent,
      principal.connectionId,
      type,
      { url, secret },
      begun,
      ttlMs
    )
    return {
      ...COMPLETE,
      id,
      refreshBefore: iso(expiresAt),
      cursor: feed.cursorOf(agent, position),
      truncated: status === undefined && begun.truncated,
      ...(status === undefined
        ? {}
        : {
          deliveryStatus: {
            active: status.active,
            lastDeliveryAt: isoOrNull(status.lastDeliveryAt),
            lastError: status.lastError
          }
        })
    }
  })

  const unsubscribe = Effect.fn("EventMethods.unsubscribe")(function*({ agent }: Account, params: Params) {
    const type = yield* valid(eventTypeOf(params["name"], params["arguments"]))
    const { url } = deliveryOf(params)
    if (typeof url !== "string" || !isStorable(url)) return yield* invalidParams("delivery.url must be a URL.")
    yield* Effect.mapError(subscriptions.unsubscribe(agent.id, url, type), unavailable)
    return COMPLETE
  })

  return { list, poll, stream, subscribe, unsubscribe }
})

/** Returns the fields of the `delivery` of a request. They have not been checked. */
const deliveryOf = (params: Params): { readonly mode?: unknown; readonly url?: unknown; readonly secret?: unknown } => {
  const given = params["delivery"]
  return typeof given === "object" && given !== null ? given : {}
}

/**
 * Returns why a stream ended, if the agent may no longer have it. Returns undefined if the client can open the stream
 * again, for example at another node.
 */
const ending = (check: ToolApi["principal"]["check"]): Effect.Effect<EventRefusal | undefined> =>
  Effect.match(check, {
    onFailure: (failure: Unauthorized | { readonly _tag: "Unavailable" }) =>
      failure._tag === "Unauthorized" ? forbidden(failure.code) : undefined,
    onSuccess: ({ status }) => status === "suspended" ? forbidden(new AgentSuspended().code) : undefined
  })

/** The methods of MCP Events. */
export type EventMethods = Effect.Success<typeof makeEventMethods>
