import type { INBOX_EVENT, TASK_EVENT } from "#domain/messages/Outbox"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A webhook without a slot, and the delivery to render. */
export interface Rendering {
  readonly webhookId: string
  /** The text that the webhook's row has as its secret. */
  readonly secret: string
  /** Of the outbox row. */
  readonly subject: string
  readonly createdAt: number
}

/** One attempt of a delivery. */
export interface Attempt {
  readonly deliveryId: string
  /** Seconds. */
  readonly at: number
  /** Null if no request caused the event. */
  readonly requestId: string | null
}

export interface Rendered {
  readonly body: string
  readonly headers: (attempt: Attempt) => Readonly<Record<string, string>>
}

/** The event must not be posted for this time. No attempt is counted. */
export interface Deferral {
  readonly heldMs: number
}

/** Another module, whose events are posted to webhooks without a slot. */
export interface PostSource {
  /** Undefined if nothing is left to post. */
  readonly render: (rendering: Rendering) => Effect.Effect<Rendered | Deferral | undefined, Unavailable>
  /**
   * Only for webhooks that follow an inbox, and only while no delivery waits: puts the next event into the outbox.
   * Returns whether there may be one now, or the time for which the next event is held back.
   */
  readonly fill: (webhookId: string) => Effect.Effect<boolean | Deferral, Unavailable>
}

type SourceEvent = typeof TASK_EVENT | typeof INBOX_EVENT

/** The sources of posts in modules that import this module. Each module registers its own. */
export class PostSources extends Context.Service<PostSources, {
  readonly of: (event: SourceEvent) => PostSource
  readonly register: (event: SourceEvent, source: PostSource) => void
}>()("parley/webhooks/PostSources") {
  static readonly layer = Layer.sync(PostSources, () => {
    const known = new Map<SourceEvent, PostSource>()
    // A post that comes before its source fails and is retried.
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
