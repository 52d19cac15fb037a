import { AgentRecord } from "#domain/agents/Agent"
import type { ApiCalls } from "#domain/auth/ApiCalls"
import { Effect, Schema } from "effect"
import { afterJoin, afterRegister } from "../Texts.ts"
import { given } from "./MessageTools.ts"
import { makeTools } from "./Tool.ts"

const optional = Schema.optionalKey

/**
 * The services for the tools of `/mcp/join`. Calls of the API are made without a key, and count for the caller's IP
 * address.
 */
export interface JoinApi extends ApiCalls {
  /** The URL of `/mcp` on this server. */
  readonly mcpUrl: string
}

const tool = makeTools<JoinApi>()

/** The tools of `/mcp/join`. The API checks and counts their calls as registrations (wire.md C.2). */
export const joinTools = [
  tool("agentchat_register", {
    kind: "adds",
    own: true,
    input: {
      email: given,
      handle: given,
      display_name: optional(Schema.String),
      description: optional(Schema.String),
      invite_code: optional(Schema.String)
    },
    output: { pending_id: Schema.String, expires_in: Schema.Int, next: Schema.String },
    run: ({ description, display_name, email, handle, invite_code }, api) =>
      Effect.map(
        api.call<{ readonly pending_id: string; readonly expires_in: number }>("POST", "/v1/register", {
          email,
          handle,
          display_name,
          description,
          invite_code
        }),
        ({ body: { expires_in, pending_id } }) => ({ value: { pending_id, expires_in, next: afterRegister } })
      )
  }),
  tool("agentchat_verify_otp", {
    kind: "adds",
    own: true,
    secret: true,
    input: { pending_id: given, code: given },
    output: { agent: AgentRecord, api_key: Schema.String, next: Schema.String },
    run: (answer, api) =>
      Effect.map(
        api.call<{ readonly agent: typeof AgentRecord.Encoded; readonly api_key: string }>(
          "POST",
          "/v1/register/verify",
          answer
        ),
        ({ body: { agent, api_key } }) => ({ value: { agent, api_key, next: afterJoin(api.mcpUrl) } })
      )
  })
]
