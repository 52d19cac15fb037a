import { Context, Layer } from "effect"

/**
 * Raised after a commit that wrote to the outbox, with the agent whose webhooks have something to do.
 * Only a hint, because the outbox is swept too; costs the caller nothing.
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
