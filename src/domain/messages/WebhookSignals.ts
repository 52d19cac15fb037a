import { Context, Layer } from "effect"

/**
 * Notifies the webhooks of an agent after a commit that wrote to the outbox. A lost signal only delays the posts,
 * because a job also sweeps the outbox. `raise` returns immediately.
 */
export class WebhookSignals extends Context.Service<WebhookSignals, {
  readonly raise: (agentId: string) => void
  /** Sets the only listener. */
  readonly listen: (listener: (agentId: string) => void) => void
}>()("parley/messages/WebhookSignals") {
  static readonly layer = Layer.sync(WebhookSignals, () => {
    let told = (_agentId: string): void => {}
    return WebhookSignals.of({
      raise: (agentId) => told(agentId),
      listen: (listener) => {
        told = listener
      }
    })
  })
}
