import { type WebhookEvent, webhookEvents } from "#domain/messages/Outbox"
import { DateTimeString, iso, Text } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

/** A webhook as stored. Times are in milliseconds. */
export interface StoredWebhook {
  readonly id: string
  readonly agentId: string
  readonly url: string
  readonly events: ReadonlyArray<WebhookEvent>
  readonly active: boolean
  readonly createdAt: number
}

export const WebhookEventSchema = Schema.Literals(webhookEvents)

/** The secret of a webhook. Its UTF-8 bytes, without decoding, are the key of the signatures. */
export const Secret = Text(16, 128)

const fields = {
  id: Schema.String,
  url: Schema.String,
  events: Schema.Array(WebhookEventSchema),
  active: Schema.Boolean,
  created_at: DateTimeString
}

/** A webhook as its owner sees it (wire.md C.1). */
export const Webhook = Schema.Struct(fields).annotate({ identifier: "Webhook" })

/** A new webhook, with its secret, which is shown only at creation. */
export const CreatedWebhook = Schema.Struct({ ...fields, secret: Schema.String }).annotate({
  identifier: "CreatedWebhook"
})

export const toWebhook = (webhook: StoredWebhook): typeof Webhook.Type => ({
  id: webhook.id,
  url: webhook.url,
  events: webhook.events,
  active: webhook.active,
  created_at: iso(webhook.createdAt)
})

export class TooManyWebhooks extends WireError<TooManyWebhooks>()("TooManyWebhooks", {
  code: "LIMIT_REACHED",
  status: 400,
  message: "You have reached the limit on webhooks: delete one first."
}) {}
