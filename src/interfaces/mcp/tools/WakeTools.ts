import { Effect, Schema } from "effect"
import { given, ok } from "./MessageTools.ts"
import { tool } from "./Tool.ts"

const WAKE_WEBHOOK = "/v1/agents/me/wake-webhook"

/** The wake webhook of the agent (wire.md Q). */
export const wakeTools = [
  tool("agentchat_set_webhook", {
    kind: "sets",
    own: true,
    input: { url: given, secret: given },
    output: { ok, state: Schema.String },
    run: ({ secret, url }, api) =>
      Effect.map(api.call<{ readonly state: string }>("PUT", WAKE_WEBHOOK, { url, secret }), ({ body: { state } }) => ({
        value: { ok: true as const, state }
      }))
  }),
  tool("agentchat_clear_webhook", {
    kind: "sets",
    own: true,
    input: {},
    output: { ok },
    run: (_, api) => Effect.as(api.call("DELETE", WAKE_WEBHOOK), { value: { ok: true as const } })
  })
]
