import { CurrentAgent } from "#domain/auth/Authorization"
import { CurrentPrincipal } from "#domain/auth/Principal"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { confirm } from "#infrastructure/wire/Confirmation"
import { Effect } from "effect"
import { Callbacks } from "./Callbacks.ts"
import { EventSubscriptions } from "./EventSubscriptions.ts"
import { WakeWebhookApi, WebhookUnreachable } from "./WakeWebhookApi.ts"

export const WakeWebhookHttp = Endpoints.group(
  Endpoints.apiOf(WakeWebhookApi),
  "wake",
  Effect.fnUntraced(function*(handlers) {
    const callbacks = yield* Callbacks
    const subscriptions = yield* EventSubscriptions

    return handlers.handleAll({
      set: Effect.fnUntraced(function*({ payload: { secret, url } }) {
        const { handle, id } = yield* CurrentAgent
        const principal = yield* CurrentPrincipal
        yield* callbacks.check(url)
        yield* Effect.catchTag(
          subscriptions.setWake({ id, handle }, principal?.connectionId, { url, secret }),
          "ChallengeFailed",
          ({ reason }) => Effect.fail(new WebhookUnreachable({ details: { reason } }))
        )
        return { state: "active" } as const
      }),
      clear: Effect.fnUntraced(function*() {
        yield* subscriptions.clearWake((yield* CurrentAgent).id)
        return confirm("There is no wake webhook.")
      })
    })
  })
)
