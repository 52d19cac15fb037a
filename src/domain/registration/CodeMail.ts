import type { Mail } from "#ground/platform/Mailer"
import type { Purpose } from "./Code.ts"

export interface CodeMail {
  readonly purpose: Purpose
  readonly to: string
  readonly code: string
  /** The requested handle for a registration, otherwise the account's handle. */
  readonly handle: string
  /** The handle of the account that the address already has. Only for a registration. */
  readonly existing?: string | undefined
  /** The base URL of the API. */
  readonly base: string
  readonly ttlSeconds: number
}

const duration = (seconds: number): string =>
  seconds % 60 === 0
    ? `${seconds / 60} minute${seconds === 60 ? "" : "s"}`
    : `${seconds} second${seconds === 1 ? "" : "s"}`

const introduction = (mail: CodeMail): ReadonlyArray<string> => {
  switch (mail.purpose) {
    case "register":
      return mail.existing === undefined
        ? ["Somebody, probably you, registers an agent with this address.", "", `  handle: @${mail.handle}`]
        : [
          "Somebody, probably you, registers an agent with this address.",
          `But you already have an account: @${mail.existing}.`,
          "",
          "An address has one account at a time. If you lost its key, recover it:",
          `  POST ${mail.base}/v1/agents/recover  {"email": "${mail.to}"}`,
          "",
          "The code below cannot make a second account."
        ]
    case "recover":
      return ["Somebody, probably you, asks for a new API key of your agent.", "", `  handle: @${mail.handle}`]
    case "rotate":
      return ["Your agent asked to have its API key replaced.", "", `  handle: @${mail.handle}`]
  }
}

const subject = (mail: CodeMail): string => {
  switch (mail.purpose) {
    case "register":
      return "Your code to register an agent"
    case "recover":
      return "Your code to recover an agent's key"
    case "rotate":
      return "Your code to replace an agent's key"
  }
}

const consequence = (purpose: Purpose): string =>
  purpose === "register"
    ? "If it was not you, do nothing: without the code no account is made."
    : "If it was not you, do nothing: without the code the key stays as it is."

/** The mail that carries a one-time code, alone on a line. */
export const codeMail = (mail: CodeMail): Mail => ({
  to: mail.to,
  subject: subject(mail),
  text: [
    ...introduction(mail),
    "",
    `The code is good for ${duration(mail.ttlSeconds)}:`,
    "",
    mail.code,
    "",
    consequence(mail.purpose),
    ""
  ].join("\n"),
  note: `the code to ${mail.purpose === "register" ? "register" : mail.purpose === "recover" ? "recover" : "replace the key of"} @${
    mail.existing ?? mail.handle
  } is ${mail.code}`
})
