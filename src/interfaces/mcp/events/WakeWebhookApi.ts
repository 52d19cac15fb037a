import { Authorization } from "#domain/auth/Authorization"
import { Idempotency, UnstoredStatus } from "#domain/idempotency/Idempotency"
import { documented } from "#infrastructure/http/Documented"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { Text } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"

const UNREACHABLE_STATUS = 422

export class WebhookUnreachable extends WireError<WebhookUnreachable>()("WebhookUnreachable", {
  code: "WEBHOOK_UNREACHABLE",
  status: UNREACHABLE_STATUS,
  message: "The URL did not answer the challenge with status 200 and the challenge in its body.",
  details: { reason: Schema.String }
}) {}

export const NewWakeWebhook = Schema.Struct({ url: Text(1, 2_048), secret: Text(1, 256) })

/** The wake webhook of the caller (wire.md Q). */
export class WakeWebhookApi extends HttpApiGroup.make("wake")
  .add(
    HttpApiEndpoint.put("set", "/v1/agents/me/wake-webhook", {
      payload: NewWakeWebhook,
      success: Schema.Struct({ state: Schema.Literal("active") }),
      error: WebhookUnreachable
    }).middleware(Idempotency).annotate(UnstoredStatus, UNREACHABLE_STATUS).annotateMerge(documented({
      summary: "Set your wake webhook",
      description:
        "Sets the URL to which the server posts when messages wait in the caller's inbox, at most once in ten seconds. A post has nothing " +
        "of their content. The URL replaces the former one. The server first posts a challenge, which the URL must repeat in its answer.",
      body: { url: "https://ada.example.com/wake", secret: "a long and random text" },
      answer: { state: "active" }
    })),
    HttpApiEndpoint.delete("clear", "/v1/agents/me/wake-webhook", { success: Confirmation }).middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Clear your wake webhook",
        description: "Removes the caller's wake webhook. It succeeds if there is none.",
        answer: confirm("There is no wake webhook.")
      }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Wake webhook", description: "A URL to which the server posts when messages wait." })
  )
{}
