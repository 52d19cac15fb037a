import type { INBOX_EVENT, TASK_EVENT } from "#domain/messages/Outbox"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A delivery to render, of a webhook without a slot. */
export interface Rendering {
  readonly webhookId: string
  /** The text in the column `secret` of the webhook's row. */
  readonly secret: string
  /** The subject in the outbox row. */
  readonly subject: string
  readonly createdAt: number
}

/** One attempt of a delivery. */
export interface Attempt {
  readonly deliveryId: string
  /** When the attempt is made, in seconds. */
  readonly at: number
  /** The request that caused the event; `null` if no request did. */
  readonly requestId: string | null
}

export interface Rendered {
  readonly body: string
  readonly headers: (attempt: Attempt) => Readonly<Record<string, string>>
}

/** Says that the event must not be posted before `heldMs` have passed. This does not count as an attempt. */
export interface Deferral {
  readonly heldMs: number
}

/** What another module provides so that its events are posted to webhooks without a slot. */
export interface PostSource {
  /** Returns undefined if there is nothing left to post. */
  readonly render: (rendering: Rendering) => Effect.Effect<Rendered | Deferral | undefined, Unavailable>
  /**
   * Puts the next event of the inbox into the outbox. Called only for webhooks that follow an inbox, and only while
   * none of their deliveries waits. Returns whether the outbox may contain an event now, or how long the next event is
   * held back.
   */
  readonly fill: (webhookId: string) => Effect.Effect<boolean | Deferral, Unavailable>
}

type SourceEvent = typeof TASK_EVENT | typeof INBOX_EVENT

/** The sources of posts in modules that import this one. Each of those modules registers its own source. */
export class PostSources extends Context.Service<PostSources, {
  readonly of: (event: SourceEvent) => PostSource
  readonly register: (event: SourceEvent, source: PostSource) => void
}>()("parley/webhooks/PostSources") {
  static readonly layer = Layer.sync(PostSources, () => {
    const known = new Map<SourceEvent, PostSource>()
    // A post that is attempted before its source is registered fails and is retried.
    const missing: PostSource = {
      render: () => Effect.fail(new Unavailable()),
      fill: () => Effect.fail(new Unavailable())
    }
    return PostSources.of({
      of: (event) => known.get(event) ?? missing,
      register: (event, source) => {
        known.set(event, source)
      }
    })
  })
}
