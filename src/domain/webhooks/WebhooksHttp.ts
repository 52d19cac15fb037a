import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { confirm } from "#infrastructure/wire/Confirmation"
import { figuresOf } from "#infrastructure/wire/Page"
import { Effect } from "effect"
import { toWebhook } from "./Webhook.ts"
import { Webhooks } from "./Webhooks.ts"
import { WebhooksApi } from "./WebhooksApi.ts"

export const WebhooksHttp = Endpoints.group(
  Endpoints.apiOf(WebhooksApi),
  "webhooks",
  Effect.fnUntraced(function*(handlers) {
    const webhooks = yield* Webhooks
    return handlers.handleAll({
      create: Effect.fnUntraced(function*({ payload }) {
        const { id } = yield* CurrentAgent
        const made = yield* webhooks.create(id, payload.url, payload.events, payload.secret ?? undefined)
        return { ...toWebhook(made.webhook), secret: made.secret }
      }),
      list: Effect.fnUntraced(function*({ query }) {
        const { id } = yield* CurrentAgent
        const page = yield* webhooks.list(id, query)
        return { webhooks: page.items.map(toWebhook), ...figuresOf(page) }
      }),
      find: Effect.fnUntraced(function*({ params }) {
        return toWebhook(yield* webhooks.find((yield* CurrentAgent).id, params.id))
      }),
      remove: Effect.fnUntraced(function*({ params }) {
        yield* webhooks.remove((yield* CurrentAgent).id, params.id)
        return confirm("The webhook is deleted.")
      })
    })
  })
)
