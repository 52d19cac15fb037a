import { rateDetails, WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

export type Purpose = "register" | "recover" | "rotate" | "sign_in"

export class HandleInvalid extends WireError<HandleInvalid>()("HandleInvalid", {
  code: "INVALID_HANDLE",
  status: 400,
  message:
    "A handle has 3 to 30 of a-z, 0-9 and hyphen, begins with a letter, has no trailing or doubled hyphen, and is not a reserved word."
}) {}

export class RegistrationClosed extends WireError<RegistrationClosed>()("RegistrationClosed", {
  code: "REGISTRATION_CLOSED",
  status: 403,
  message: "This server does not accept this registration: ask its operators for an invitation or an account."
}) {}

export class HandleTaken extends WireError<HandleTaken>()("HandleTaken", {
  code: "HANDLE_TAKEN",
  status: 409,
  message: "This handle is or was taken: choose another."
}) {}

export class EmailTaken extends WireError<EmailTaken>()("EmailTaken", {
  code: "EMAIL_TAKEN",
  status: 409,
  message: "This e-mail address has an account already: recover its key instead."
}) {}

export class EmailExhausted extends WireError<EmailExhausted>()("EmailExhausted", {
  code: "EMAIL_EXHAUSTED",
  status: 409,
  message: "This e-mail address has reached the limit on accounts, deleted ones included."
}) {}

export class CodeExpired extends WireError<CodeExpired>()("CodeExpired", {
  code: "EXPIRED",
  status: 400,
  message: "This code is unknown, used or too old: request a new code."
}) {}

export class CodeInvalid extends WireError<CodeInvalid>()("CodeInvalid", {
  code: "INVALID_CODE",
  status: 400,
  message: "This is not the code that was sent.",
  details: { attempts_remaining: Schema.Int }
}) {}

export class OtpAttemptsExhausted extends WireError<OtpAttemptsExhausted>()("OtpAttemptsExhausted", {
  code: "OTP_ATTEMPTS_EXHAUSTED",
  status: 429,
  message: "Too many wrong codes: request a new code."
}) {}

export class OtpCooldown extends WireError<OtpCooldown>()("OtpCooldown", {
  code: "OTP_COOLDOWN",
  status: 429,
  message: "A code was sent a moment ago: wait before you request another code.",
  details: rateDetails
}) {}

export class OtpHourlyCap extends WireError<OtpHourlyCap>()("OtpHourlyCap", {
  code: "OTP_HOURLY_CAP",
  status: 429,
  message: "Too many codes were sent to this address within an hour.",
  details: rateDetails
}) {}

export class OtpFailed extends WireError<OtpFailed>()("OtpFailed", {
  code: "OTP_FAILED",
  status: 500,
  message: "The mail with the code could not be sent: try again later."
}) {}
