import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Authorization } from "../auth/Authorization.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { pageQuery } from "../wire/Page.ts"
import { Text } from "../wire/Text.ts"
import { NotFound } from "../wire/WireError.ts"
import { CreatedWebhook, Secret, TooManyWebhooks, Webhook, WebhookEventSchema } from "./Webhook.ts"

export const NewWebhook = Schema.Struct({
  url: Text(1, 2_048),
  events: Schema.Array(WebhookEventSchema).check(Schema.isMinLength(1)),
  secret: Schema.optionalKey(Schema.NullOr(Secret))
})

export const WebhookPage = Schema.Struct({
  webhooks: Schema.Array(Webhook),
  total: Schema.Int,
  limit: Schema.Int,
  offset: Schema.Int,
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "WebhookPage" })

const params = { id: Text(1, 128) }

/** Webhooks of the caller (wire.md C.12). */
export class WebhooksApi extends HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.post("create", "/v1/webhooks", {
      payload: NewWebhook,
      success: CreatedWebhook.pipe(HttpApiSchema.status(201)),
      error: TooManyWebhooks
    }).middleware(Idempotency).annotate(
      OpenApi.Description,
      "Posts these events to a URL, signed with the secret: the given one, or one made here. It is shown only in this answer."
    ),
    HttpApiEndpoint.get("list", "/v1/webhooks", { query: pageQuery, success: WebhookPage })
      .annotate(OpenApi.Description, "The own webhooks, oldest first."),
    HttpApiEndpoint.get("find", "/v1/webhooks/:id", { params, success: Webhook, error: NotFound })
      .annotate(OpenApi.Description, "One of the own webhooks; inactive after too many deliveries in a row that never arrived."),
    HttpApiEndpoint.delete("remove", "/v1/webhooks/:id", { params, success: Confirm, error: NotFound })
      .middleware(Idempotency)
      .annotate(OpenApi.Description, "Deletes a webhook, and what waits for it.")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Webhooks", description: "Where the caller's events are posted." }))
{}
