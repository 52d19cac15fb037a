import { AgentStatusSchema } from "#domain/agents/Agent"
import { AnonymousBudget } from "#domain/auth/Budgets"
import { SCOPES } from "#domain/oauth/Scopes"
import {
  CodeExpired,
  CodeInvalid,
  EmailExhausted,
  EmailTaken,
  HandleInvalid,
  HandleTaken,
  OtpAttemptsExhausted,
  OtpCooldown,
  OtpFailed,
  OtpHourlyCap,
  RegistrationClosed
} from "#domain/registration/Code"
import { CodeAnswer, Email, NewAgent } from "#domain/registration/RegistrationApi"
import { DateTimeString } from "#infrastructure/wire/Text"
import { UncachedErrors } from "#infrastructure/wire/Uncached"
import { RateLimited, Unauthorized } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { FromPage } from "./FromPage.ts"

const ScopeSchema = Schema.Literals(SCOPES)

const shown = {
  client: Schema.Struct({
    /** The name that the client gives itself. */
    name: Schema.NullOr(Schema.String),
    /**
     * The host of the client's own metadata document; null for a registered client. Nobody has checked the name of a
     * registered client.
     */
    host: Schema.NullOr(Schema.String)
  }),
  redirect: Schema.Struct({ kind: Schema.Literals(["https", "loopback", "private"]), shown: Schema.String }),
  /** The rights that the client asks for. */
  scopes: Schema.Array(ScopeSchema),
  expires_at: DateTimeString,
  /** The agent that has signed in on the page; null before the sign-in. */
  agent: Schema.NullOr(Schema.Struct({
    handle: Schema.String,
    display_name: Schema.NullOr(Schema.String),
    email_masked: Schema.String,
    status: AgentStatusSchema
  }))
}

/** An authorization request, as the sign-in page shows it. */
export const SignInRequest = Schema.Struct(shown)

const Pending = Schema.Struct({ pending_id: Schema.String, message: Schema.String, expires_in: Schema.Int })
const Leaving = Schema.Struct({ redirect_to: Schema.String })

const at = <const Path extends string>(path: Path) => `/oauth/requests/:id${path}` as const

/** The endpoints for the sign-in page (wire.md P, Page API). */
class RequestsGroup extends HttpApiGroup.make("requests")
  .add(
    HttpApiEndpoint.get("show", at(""), { success: SignInRequest }),
    HttpApiEndpoint.post("key", at("/key"), {
      payload: Schema.Struct({ api_key: Schema.String }),
      success: SignInRequest,
      error: [Unauthorized, RateLimited]
    }),
    HttpApiEndpoint.post("code", at("/code"), {
      payload: Schema.Struct({ email: Email }),
      success: Pending,
      error: RateLimited
    }),
    HttpApiEndpoint.post("codeVerify", at("/code/verify"), {
      payload: CodeAnswer,
      success: SignInRequest,
      error: [CodeExpired, CodeInvalid, OtpAttemptsExhausted]
    }),
    HttpApiEndpoint.post("register", at("/register"), {
      payload: NewAgent,
      success: Pending,
      error: [HandleInvalid, HandleTaken, RegistrationClosed, OtpCooldown, OtpHourlyCap, OtpFailed]
    }),
    HttpApiEndpoint.post("registerVerify", at("/register/verify"), {
      payload: CodeAnswer,
      success: Schema.Struct({ ...shown, api_key: Schema.String }),
      error: [
        CodeExpired,
        CodeInvalid,
        EmailTaken,
        EmailExhausted,
        HandleTaken,
        RegistrationClosed,
        OtpAttemptsExhausted
      ]
    }),
    HttpApiEndpoint.post("allow", at("/allow"), {
      payload: Schema.Struct({ scopes: Schema.optionalKey(Schema.Array(ScopeSchema)) }),
      success: Leaving,
      error: Unauthorized
    }),
    HttpApiEndpoint.post("deny", at("/deny"), { payload: Schema.Struct({}), success: Leaving })
  )
  .middleware(FromPage)
  .middleware(AnonymousBudget)
{}

/** The API of the sign-in page. It is not in the public OpenAPI document, because it may change with the page. */
export class RequestsApi extends HttpApi.make("parley-oauth").add(RequestsGroup).middleware(UncachedErrors) {}
