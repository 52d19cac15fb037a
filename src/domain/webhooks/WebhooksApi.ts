import { Authorization } from "#domain/auth/Authorization"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { documented } from "#infrastructure/http/Documented"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { SHA256, WEBHOOK_ID, wholeList } from "#infrastructure/wire/Examples"
import { pageQuery } from "#infrastructure/wire/Page"
import { Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
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

const webhook: typeof Webhook.Type = {
  id: WEBHOOK_ID,
  url: "https://ada.example.com/parley",
  events: ["message.new", "group.invite.received"],
  active: true,
  created_at: "2026-10-05T08:10:00.000Z"
}

const params = { id: Text(1, 128) }
/** Example values of the path parameters. */
const parameters = { id: WEBHOOK_ID }

/** Webhooks of the caller (wire.md C.12). */
export class WebhooksApi extends HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.post("create", "/v1/webhooks", {
      payload: NewWebhook,
      success: CreatedWebhook.pipe(HttpApiSchema.status(201)),
      error: TooManyWebhooks
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Create a webhook",
      description:
        "Posts the caller's events of these kinds to a URL, signed with the given secret or with a generated one. Only this answer " +
        "shows the secret.",
      body: { url: webhook.url, events: webhook.events },
      answer: { ...webhook, secret: SHA256 }
    })),
    HttpApiEndpoint.get("list", "/v1/webhooks", { query: pageQuery, success: WebhookPage })
      .annotateMerge(documented({
        summary: "List your webhooks",
        description: "Lists the caller's webhooks, oldest first, without their secrets.",
        answer: { webhooks: [webhook], ...wholeList(1) }
      })),
    HttpApiEndpoint.get("find", "/v1/webhooks/:id", { params, success: Webhook, error: NotFound })
      .annotateMerge(documented({
        summary: "Get a webhook",
        description:
          "Answers with one of the caller's webhooks. If too many deliveries in a row have failed, active is false: create the webhook " +
          "again.",
        parameters,
        answer: webhook
      })),
    HttpApiEndpoint.delete("remove", "/v1/webhooks/:id", { params, success: Confirmation, error: NotFound })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Delete a webhook",
        description: "Deletes one of the caller's webhooks, and the deliveries that wait for it.",
        parameters,
        answer: confirm("The webhook is deleted.")
      }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Webhooks", description: "Receive events at a URL, besides or instead of a socket." })
  )
{}
