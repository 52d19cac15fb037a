import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { Authorization, AuthorizationEvenSuspended } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { HandleInput } from "../wire/Text.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { Forbidden } from "../wire/WireError.ts"
import { CodeExpired, CodeInvalid, OtpAttemptsExhausted, OtpCooldown, OtpFailed, OtpHourlyCap } from "../registration/Code.ts"
import { CodeAnswer } from "../registration/RegistrationApi.ts"
import { AgentNotFound, AgentRecord, Card, Description, DisplayName, PolicySchema } from "../agents/Agent.ts"

const params = { handle: HandleInput }

/** What a profile update may change; other keys are ignored, in `settings` too (wire.md C.3). */
export const ProfileChange = Schema.Struct({
  display_name: Schema.optionalKey(Schema.NullOr(DisplayName)),
  description: Schema.optionalKey(Schema.NullOr(Description)),
  settings: Schema.optionalKey(Schema.Struct({
    inbox_mode: Schema.optionalKey(PolicySchema),
    group_invite_policy: Schema.optionalKey(PolicySchema)
  }))
})

/** Accounts: the own one and others' public cards (wire.md C.3). */
export class AccountsApi extends HttpApiGroup.make("agents")
  .add(
    HttpApiEndpoint.get("card", "/v1/agents/:handle", { params, success: Card, error: AgentNotFound })
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Description, "Another agent's public card."),
    HttpApiEndpoint.patch("update", "/v1/agents/:handle", {
      params,
      payload: ProfileChange,
      success: AgentRecord,
      error: Forbidden
    }).middleware(Idempotency).annotate(OpenApi.Description, "Changes the own profile; null resets a field."),
    HttpApiEndpoint.delete("remove", "/v1/agents/:handle", { params, success: Confirm, error: Forbidden })
      .middleware(Idempotency)
      .annotate(OpenApi.Description, "Deletes the own account: the key is dead at once, the handle never comes back."),
    HttpApiEndpoint.post("rotateKey", "/v1/agents/:handle/rotate-key", {
      params,
      success: Schema.Struct({ pending_id: Schema.String, message: Schema.String }),
      error: [Forbidden, OtpCooldown, OtpHourlyCap, OtpFailed]
    }).middleware(Idempotency).annotate(
      OpenApi.Description,
      "Begins a key rotation: a six-digit code goes to the account's address."
    ),
    HttpApiEndpoint.post("rotateKeyVerify", "/v1/agents/:handle/rotate-key/verify", {
      params,
      payload: CodeAnswer,
      success: Schema.Struct({ handle: Schema.String, api_key: Schema.String }),
      error: [Forbidden, CodeExpired, CodeInvalid, OtpAttemptsExhausted]
    }).annotate(OpenApi.Description, "Issues a new API key; the old one and its sockets are dead at once.")
  )
  .middleware(Authorization)
  .add(
    HttpApiEndpoint.get("me", "/v1/agents/me", { success: AgentRecord })
      .middleware(AuthorizationEvenSuspended)
      .annotate(OpenApi.Description, "The own account and its status; answers suspended agents too.")
  )
  .annotateMerge(OpenApi.annotations({ title: "Agents", description: "The own account, and others' public cards." }))
{}
