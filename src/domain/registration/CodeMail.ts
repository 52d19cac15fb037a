import type { Mail } from "#infrastructure/platform/Mailer"
import type { Purpose } from "./Code.ts"

export interface CodeMail {
  readonly purpose: Purpose
  readonly to: string
  readonly code: string
  /** The requested handle for a registration, otherwise the account's handle. */
  readonly handle: string
  /** The handle of the account that already uses the address. Only for a registration. */
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
    case "sign_in":
      return [
        "Somebody, probably you, signs in to connect a program to your agent.",
        "",
        `  handle: @${mail.handle}`,
        "",
        `Enter the code only on a page of ${mail.base}. Nobody will ask you for it elsewhere.`
      ]
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
    case "sign_in":
      return "Your code to sign in"
  }
}

const consequences: Readonly<Record<Purpose, string>> = {
  register: "no account is made",
  recover: "the key stays as it is",
  rotate: "the key stays as it is",
  sign_in: "nobody is signed in"
}

/** The use of the code, for the log of a server that prints its e-mails instead of sending them. */
const uses: Readonly<Record<Purpose, string>> = {
  register: "register",
  recover: "recover",
  rotate: "replace the key of",
  sign_in: "sign in as"
}

/** The e-mail with a one-time code. The code stands alone on a line. */
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
    `If it was not you, do nothing: without the code ${consequences[mail.purpose]}.`,
    ""
  ].join("\n"),
  note: `the code to ${uses[mail.purpose]} @${mail.existing ?? mail.handle} is ${mail.code}`
})
