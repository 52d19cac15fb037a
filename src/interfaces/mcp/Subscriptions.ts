import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Waiters } from "#interfaces/realtime/Waiters"
import { createMcpHandler, InMemoryServerEventBus, type McpHttpHandler } from "@modelcontextprotocol/server"
import { Clock, Effect, FiberSet, Schedule } from "effect"
import { COMMENT_MS } from "./DeferredAnswer.ts"
import type { McpRequest } from "./McpRequest.ts"
import { makeServer } from "./McpServer.ts"
import { INBOX, named } from "./Resources.ts"
import type { ToolApi } from "./tools/Tool.ts"

/** How many resources one stream can subscribe to. */
const MAX_URIS = 100
/**
 * The shortest time between two notifications about one resource, in milliseconds. Many messages within this time cause
 * one notification.
 */
const INTERVAL_MS = 200
/** How often the access token of a stream is checked. */
const CHECK_INTERVAL = "5 seconds"

/**
 * A stream of `subscriptions/listen`. It collects changes until its scope closes, and begins before its acknowledgement
 * is sent.
 */
export interface Subscription {
  /** Responds to the request. The caller must first replace the filter in the request with `allowed`. */
  readonly handler: McpHttpHandler
  /** The requested URIs that the agent may subscribe to. */
  readonly allowed: ReadonlyArray<string>
}

/** Returns the URIs that a filter asks for, up to MAX_URIS. The library refuses a filter of another form. */
const askedFor = (notifications: unknown): ReadonlyArray<string> => {
  const uris = (notifications as { readonly resourceSubscriptions?: unknown } | null | undefined)?.resourceSubscriptions
  return Array.isArray(uris) ? uris.filter((uri) => typeof uri === "string").slice(0, MAX_URIS) : []
}

/** Makes a function that publishes changes of resources until the scope closes. */
const makePublish = Effect.fnUntraced(function*(bus: InMemoryServerEventBus, now: () => number) {
  const fork = yield* FiberSet.makeRuntime()
  const scheduled = new Set<string>()
  const publishedAt = new Map<string, number>()
  return (uri: string): void => {
    if (scheduled.has(uri)) return
    scheduled.add(uri)
    const wait = Math.max(0, (publishedAt.get(uri) ?? -INTERVAL_MS) + INTERVAL_MS - now())
    fork(Effect.map(Effect.sleep(wait), () => {
      scheduled.delete(uri)
      publishedAt.set(uri, now())
      bus.publish({ kind: "resource_updated", uri })
    }))
  }
})

/**
 * Opens streams of `subscriptions/listen`. The library acknowledges every URI, and publishes an event to all streams
 * that share a bus. So every stream gets its own bus, which carries only the events of one agent. Its filter contains
 * only the inbox and the conversations of that agent.
 */
export const makeSubscriptions = Effect.gen(function*() {
  const conversations = yield* Conversations
  const deliveries = yield* Deliveries
  const waiters = yield* Waiters
  const clock = yield* Clock.Clock
  const now = monotonicMillis(clock)

  const isOwn = (agentId: string, uri: string) => {
    const what = named(uri)
    if (what?._tag === "Inbox") return Effect.succeed(true)
    if (what?._tag !== "Conversation") return Effect.succeed(false)
    return Effect.match(conversations.participation(agentId, what.id), {
      onFailure: () => false,
      onSuccess: () => true
    })
  }

  return {
    open: Effect.fnUntraced(function*(filter: unknown, request: McpRequest, { principal }: ToolApi) {
      const { agentId } = principal
      const uris = [...new Set(askedFor(filter))]
      const own = yield* Effect.forEach(uris, (uri) => isOwn(agentId, uri), { concurrency: 4 })
      const allowed = uris.filter((_, i) => own[i])
      const bus = new InMemoryServerEventBus()
      const handler = createMcpHandler(() => makeServer("modern", request), {
        legacy: "reject",
        bus,
        keepAliveMs: COMMENT_MS
      })
      yield* Effect.addFinalizer(() => Effect.promise(() => handler.close()))
      const publish = yield* makePublish(bus, now)
      const byConversation = new Map<string, string>(
        allowed.flatMap((uri) => {
          const what = named(uri)
          return what?._tag === "Conversation" ? [[what.id, uri] as const] : []
        })
      )
      const inbox = allowed.includes(INBOX)
      if (allowed.length > 0) {
        const listener = yield* waiters.listen(principal, {
          message: (conversationId, own) => {
            if (inbox && !own) publish(INBOX)
            const uri = byConversation.get(conversationId)
            if (uri !== undefined) publish(uri)
          },
          missed: () => allowed.forEach(publish),
          ended: () => void handler.close()
        })
        if (principal.endsUnnoticed === true) {
          yield* Effect.catchTag(principal.check, "Unavailable", () => Effect.void).pipe(
            Effect.repeat(Schedule.spaced(CHECK_INTERVAL)),
            Effect.catchTag("Unauthorized", () => Effect.sync(() => void handler.close())),
            Effect.forkScoped
          )
        }
        // Messages from before the subscription cause no notification.
        const heads = yield* deliveries.heads([agentId])
        listener.reached = Math.max(listener.reached, heads.get(agentId) ?? 0)
      }
      return { handler, allowed } satisfies Subscription
    })
  }
})
