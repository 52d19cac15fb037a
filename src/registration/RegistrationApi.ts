import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { AgentRecord, Description, DisplayName } from "../agents/Agent.ts"
import { AnonymousBudget } from "../auth/Budgets.ts"
import { HandleInput, lowerCase, Text } from "../wire/Text.ts"
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
  OtpHourlyCap
} from "./Code.ts"

// A dot-atom and a host name with a dot: nothing that could be more than one address, or more than an address, in a header.
const ADDRESS =
  /^[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/** An e-mail address as callers write it; trimmed and lower-cased. */
export const Email = Schema.String.annotate({ format: "email" }).pipe(
  Schema.decodeTo(
    Schema.String.check(Schema.makeFilter((text) =>
      (text.length <= 254 && ADDRESS.test(text)) || "must be an e-mail address of at most 254 characters"
    )),
    SchemaTransformation.transform({
      decode: (text: string) => text.length > 1_000 ? text : lowerCase(text.trim()),
      encode: (text: string) => text
    })
  )
)

const Code = Schema.String.annotate({ description: "Six digits." }).pipe(
  Schema.decodeTo(
    Schema.String.check(Schema.makeFilter((text) => /^\d{6}$/.test(text) || "must be the six digits that were mailed")),
    SchemaTransformation.transform({ decode: (text: string) => text.trim(), encode: (text: string) => text })
  )
)

/** A pending id and the six digits that were mailed. */
export const CodeAnswer = Schema.Struct({ pending_id: Text(1, 128), code: Code })

/** Onboarding and recovery, without a key (wire.md C.2). */
export class RegistrationApi extends HttpApiGroup.make("registration")
  .add(
    HttpApiEndpoint.post("register", "/v1/register", {
      payload: Schema.Struct({
        email: Email,
        handle: HandleInput,
        display_name: Schema.optionalKey(Schema.NullOr(DisplayName)),
        description: Schema.optionalKey(Schema.NullOr(Description))
      }),
      success: Schema.Struct({ pending_id: Schema.String, message: Schema.String, expires_in: Schema.Int }),
      error: [HandleInvalid, HandleTaken, OtpCooldown, OtpHourlyCap, OtpFailed]
    }).annotate(OpenApi.Description, "Begins a registration: a six-digit code goes to the address."),
    HttpApiEndpoint.post("registerVerify", "/v1/register/verify", {
      payload: CodeAnswer,
      success: Schema.Struct({ agent: AgentRecord, api_key: Schema.String }),
      error: [CodeExpired, CodeInvalid, EmailTaken, EmailExhausted, HandleTaken, OtpAttemptsExhausted]
    }).annotate(OpenApi.Description, "Confirms a registration with the mailed code; the API key is shown only here."),
    HttpApiEndpoint.post("recover", "/v1/agents/recover", {
      payload: Schema.Struct({ email: Email }),
      success: Schema.Struct({ pending_id: Schema.String, message: Schema.String })
    }).annotate(OpenApi.Description, "Mails a recovery code if the address has an account; the answer never tells."),
    HttpApiEndpoint.post("recoverVerify", "/v1/agents/recover/verify", {
      payload: CodeAnswer,
      success: Schema.Struct({ handle: Schema.String, api_key: Schema.String }),
      error: [CodeExpired, CodeInvalid, OtpAttemptsExhausted]
    }).annotate(OpenApi.Description, "Issues a new API key; the old one is dead at once.")
  )
  .middleware(AnonymousBudget)
  .annotateMerge(OpenApi.annotations({ title: "Registration", description: "Onboarding and key recovery by e-mail code." }))
{}
