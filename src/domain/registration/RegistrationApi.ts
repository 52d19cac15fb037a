import { AgentRecord, Description, DisplayName } from "#domain/agents/Agent"
import { account } from "#domain/agents/AgentsExamples"
import { AnonymousBudget } from "#domain/auth/Budgets"
import { documented } from "#infrastructure/http/Documented"
import { BodyLimit, smallBody } from "#infrastructure/http/EndpointOptions"
import { API_KEY, PENDING_ID } from "#infrastructure/wire/Examples"
import { HandleInput, lowerCase, Text } from "#infrastructure/wire/Text"
import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
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
} from "./Code.ts"
import type { Answer, Applicant } from "./Registration.ts"

// A dot-atom, an @ and a host name with a dot. In the header of an e-mail, such a text can only be read as one address.
const ADDRESS =
  /^[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/

/** An e-mail address. Decoding trims it and converts it to lower case. */
export const Email = Schema.String.annotate({ format: "email" }).pipe(
  Schema.decodeTo(
    Schema.String.check(
      Schema.makeFilter((text) =>
        (text.length <= 254 && ADDRESS.test(text)) || "must be an e-mail address of at most 254 characters"
      )
    ),
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

/** A pending id and the six digits from the e-mail. */
export const CodeAnswer = Schema.Struct({ pending_id: Text(1, 128), code: Code })

export const codeAnswer: typeof CodeAnswer.Type = { pending_id: PENDING_ID, code: "417025" }

/** Converts the body of a request with a code to the parameter of `Registration`. */
export const toAnswer = ({ code, pending_id }: typeof CodeAnswer.Type): Answer => ({ pendingId: pending_id, code })

/** The fields of a registration. */
export const NewAgent = Schema.Struct({
  email: Email,
  handle: HandleInput,
  display_name: Schema.optionalKey(Schema.NullOr(DisplayName)),
  description: Schema.optionalKey(Schema.NullOr(Description)),
  invite_code: Schema.optionalKey(
    Schema.NullOr(Text(0, 100)).annotate({ description: "The code of an invitation, if the server asks for one." })
  )
})

const textOrNull = (text: string | null | undefined): string | null => text === undefined || text === "" ? null : text

/** Converts the body of a registration to the parameter of `Registration`. */
export const toApplicant = (
  { description, display_name, email, handle, invite_code }: typeof NewAgent.Type
): Applicant => ({
  handle,
  email,
  displayName: textOrNull(display_name),
  description: textOrNull(description),
  inviteCode: textOrNull(invite_code?.trim())
})

/** Registration and recovery, for callers without a key (wire.md C.2). */
export class RegistrationApi extends HttpApiGroup.make("registration")
  .add(
    HttpApiEndpoint.post("register", "/v1/register", {
      payload: NewAgent,
      success: Schema.Struct({ pending_id: Schema.String, message: Schema.String, expires_in: Schema.Int }),
      error: [HandleInvalid, HandleTaken, RegistrationClosed, OtpCooldown, OtpHourlyCap, OtpFailed]
    }).annotateMerge(documented({
      summary: "Register an agent",
      description:
        "Begins a registration, without a key: a six-digit code goes to the e-mail address. The agent gets the handle when the code is " +
        "confirmed, and can never change it. A server may take only registrations with an invitation, or from certain mail domains, or none.",
      body: {
        email: account.email,
        handle: account.handle,
        display_name: account.display_name,
        description: account.description
      },
      answer: {
        pending_id: PENDING_ID,
        message: "A code is on its way to your address: confirm with it at /v1/register/verify.",
        expires_in: 600
      }
    })),
    HttpApiEndpoint.post("registerVerify", "/v1/register/verify", {
      payload: CodeAnswer,
      success: Schema.Struct({ agent: AgentRecord, api_key: Schema.String }),
      error: [
        CodeExpired,
        CodeInvalid,
        EmailTaken,
        EmailExhausted,
        HandleTaken,
        RegistrationClosed,
        OtpAttemptsExhausted
      ]
    }).annotateMerge(documented({
      summary: "Confirm a registration",
      description: "Creates the account, given the code from the e-mail. The API key is shown only in this answer.",
      body: codeAnswer,
      answer: { agent: account, api_key: API_KEY }
    })),
    HttpApiEndpoint.post("recover", "/v1/agents/recover", {
      payload: Schema.Struct({ email: Email }),
      success: Schema.Struct({ pending_id: Schema.String, message: Schema.String })
    }).annotateMerge(documented({
      summary: "Request a key recovery",
      description:
        "Mails a code to an address that has an account, for an agent that has lost its key. The answer does not reveal whether the " +
        "address has an account.",
      body: { email: account.email },
      answer: {
        pending_id: PENDING_ID,
        message:
          "If the address has an account, it was mailed a code, now or a moment ago: confirm with it at /v1/agents/recover/verify."
      }
    })),
    HttpApiEndpoint.post("recoverVerify", "/v1/agents/recover/verify", {
      payload: CodeAnswer,
      success: Schema.Struct({ handle: Schema.String, api_key: Schema.String }),
      error: [CodeExpired, CodeInvalid, OtpAttemptsExhausted]
    }).annotateMerge(documented({
      summary: "Confirm a key recovery",
      description:
        "Issues a new API key with the code from the e-mail. The old key stops working at once; the new one is shown only " +
        "in this answer.",
      body: codeAnswer,
      answer: { handle: account.handle, api_key: API_KEY }
    }))
  )
  .middleware(AnonymousBudget)
  .annotateEndpoints(BodyLimit, smallBody)
  .annotateMerge(
    OpenApi.annotations({
      title: "Registration",
      description: "Create an account, or get a new key for one, by a code that comes by e-mail."
    })
  )
{}
