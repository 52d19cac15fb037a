import { exchange, type ExchangeFailed, type GuardedRequest, textOf } from "#infrastructure/http/GuardedClient"
import { Context, Effect } from "effect"
import type { IncomingMessage } from "node:http"

export interface Post extends GuardedRequest {
  readonly body: string
}

/**
 * How much of a response's body is read, and for how long, before the connection is dropped. The content is ignored.
 */
const MAX_BODY_BYTES = 65_536
const MAX_BODY_TIME = "1 second"

const drained = (response: IncomingMessage): Effect.Effect<void> =>
  Effect.callback<void>((resume) => {
    let bytes = 0
    response.on("data", (part: Buffer) => {
      bytes += part.length
      if (bytes > MAX_BODY_BYTES) resume(Effect.void)
    })
    response.once("close", () => resume(Effect.void))
  }).pipe(Effect.timeoutOption(MAX_BODY_TIME), Effect.asVoid)

/**
 * Posts once, like `WebhookClient`, and also returns the body of the response. The text is undefined if the body is
 * longer than `most` bytes or incomplete.
 */
export const ChallengeClient = Context.Reference<
  (
    post: Post,
    most: number
  ) => Effect.Effect<{ readonly status: number; readonly text: string | undefined }, ExchangeFailed>
>("parley/webhooks/ChallengeClient", {
  defaultValue: () => (post, most) =>
    exchange(post, (response) =>
      Effect.map(
        Effect.orElseSucceed(textOf(response, most), () => undefined),
        (text) => ({ status: response.statusCode ?? 0, text })
      ))
})

/** Posts once and returns the status of the response. Tests replace this function. */
export const WebhookClient = Context.Reference<(post: Post) => Effect.Effect<number, ExchangeFailed>>(
  "parley/webhooks/WebhookClient",
  {
    defaultValue: () => (post) => exchange(post, (response) => Effect.as(drained(response), response.statusCode ?? 0))
  }
)
