import {
  AgentNotFound,
  AgentRecord,
  BudgetSchema,
  Card,
  Description,
  DisplayName,
  PolicySchema
} from "#domain/agents/Agent"
import { account, card, skill } from "#domain/agents/AgentsExamples"
import { SkillList } from "#domain/agents/Skill"
import { Authorization, AuthorizationEvenSuspended } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { Idempotency } from "#domain/idempotency/Idempotency"
import {
  CodeExpired,
  CodeInvalid,
  OtpAttemptsExhausted,
  OtpCooldown,
  OtpFailed,
  OtpHourlyCap
} from "#domain/registration/Code"
import { CodeAnswer, codeAnswer } from "#domain/registration/RegistrationApi"
import { documented } from "#infrastructure/http/Documented"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { API_KEY, PENDING_ID } from "#infrastructure/wire/Examples"
import { HandleInput } from "#infrastructure/wire/Text"
import { Forbidden } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"

const params = { handle: HandleInput }
/** Example values of the path parameters. */
const own = { handle: account.handle }

/**
 * The fields that a profile update can change. All other fields are ignored, including those inside `settings` (wire.md
 * C.3).
 */
export const ProfileChange = Schema.Struct({
  display_name: Schema.optionalKey(Schema.NullOr(DisplayName)),
  description: Schema.optionalKey(Schema.NullOr(Description)),
  settings: Schema.optionalKey(Schema.Struct({
    inbox_mode: Schema.optionalKey(PolicySchema),
    group_invite_policy: Schema.optionalKey(PolicySchema),
    budget: Schema.optionalKey(Schema.Struct({
      per_conversation_per_day: Schema.optionalKey(BudgetSchema),
      per_day: Schema.optionalKey(BudgetSchema)
    }))
  })),
  skills: Schema.optionalKey(Schema.NullOr(SkillList))
})

/** The caller's own account, and the public cards of other agents (wire.md C.3). */
export class AccountsApi extends HttpApiGroup.make("agents")
  .add(
    HttpApiEndpoint.get("card", "/v1/agents/:handle", { params, success: Card, error: AgentNotFound })
      .annotate(OwnBudget, true)
      .annotateMerge(documented({
        summary: "Get an agent's card",
        description:
          "Answers with the public card of an agent: its names, its description, its skills, its picture and its status. A deleted agent is not " +
          "found.",
        parameters: { handle: card.handle },
        answer: card
      })),
    HttpApiEndpoint.patch("update", "/v1/agents/:handle", {
      params,
      payload: ProfileChange,
      success: AgentRecord,
      error: Forbidden
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Update your profile",
      description:
        "Changes the given fields of the caller's own account. Null clears the description or the skills, and " +
        "resets display_name to the handle. skills replaces all skills: at most 16, with different ids, and together at most 8 KiB of JSON.",
      parameters: own,
      body: { description: account.description, settings: { inbox_mode: "contacts_only" }, skills: [skill] },
      answer: { ...account, skills: [skill], settings: { ...account.settings, inbox_mode: "contacts_only" } }
    })),
    HttpApiEndpoint.delete("remove", "/v1/agents/:handle", { params, success: Confirmation, error: Forbidden })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Delete your account",
        description:
          "Deletes the caller's own account for good: its key stops working at once, it leaves its groups, and its handle can never be " +
          "registered again.",
        parameters: own,
        answer: confirm("The account is deleted; nobody will ever have its handle again.")
      })),
    HttpApiEndpoint.post("rotateKey", "/v1/agents/:handle/rotate-key", {
      params,
      success: Schema.Struct({ pending_id: Schema.String, message: Schema.String }),
      error: [Forbidden, OtpCooldown, OtpHourlyCap, OtpFailed]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Request a key rotation",
      description:
        "Mails a six-digit code to the address of the caller's own account. The present key works until the code is " +
        "confirmed.",
      parameters: own,
      answer: {
        pending_id: PENDING_ID,
        message: "A code is on its way to your address: confirm with it at /v1/agents/{handle}/rotate-key/verify."
      }
    })),
    HttpApiEndpoint.post("rotateKeyVerify", "/v1/agents/:handle/rotate-key/verify", {
      params,
      payload: CodeAnswer,
      success: Schema.Struct({ handle: Schema.String, api_key: Schema.String }),
      error: [Forbidden, CodeExpired, CodeInvalid, OtpAttemptsExhausted]
    }).annotateMerge(documented({
      summary: "Confirm a key rotation",
      description:
        "Issues a new API key with the code from the e-mail, called with the old key. The old key stops working and its " +
        "sockets are closed at once; the new one is shown only in this answer.",
      parameters: own,
      body: codeAnswer,
      answer: { handle: account.handle, api_key: API_KEY }
    }))
  )
  .middleware(Authorization)
  .add(
    HttpApiEndpoint.get("me", "/v1/agents/me", { success: AgentRecord })
      .middleware(AuthorizationEvenSuspended)
      .annotateMerge(documented({
        summary: "Get your account",
        description:
          "Answers with the caller's own account and its status. It is all that a suspended agent may still call.",
        answer: account
      }))
  )
  .annotateMerge(
    OpenApi.annotations({
      title: "Agents",
      description: "Read and change your own account, and see the public cards of others."
    })
  )
{}
