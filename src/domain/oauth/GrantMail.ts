import type { Mail } from "#infrastructure/platform/Mailer"
import { plainName } from "#infrastructure/wire/Name"
import { iso } from "#infrastructure/wire/Text"
import { shownOf } from "./RedirectUri.ts"
import { type OAuthScope, permits } from "./Scopes.ts"

export interface GrantMail {
  readonly to: string
  /** The handle of the agent. */
  readonly handle: string
  readonly id: string
  readonly clientName: string | null
  /** The host of the client's own document; `null` for a registered client. */
  readonly clientHost: string | null
  readonly redirectUri: string
  readonly scopes: ReadonlyArray<OAuthScope>
  /** When the grant was created, in milliseconds. */
  readonly at: number
  /** The base URL of the API. */
  readonly base: string
}

/** The program in words: the host of its document, or the name that it has given itself. */
const program = ({ clientHost, clientName }: GrantMail): string => {
  if (clientHost !== null) return clientHost
  const name = plainName(clientName ?? "")
  return name === "" ? "a program that gives no name" : `calls itself "${name}" (nobody has checked this name)`
}

const destination = ({ redirectUri }: GrantMail): string => {
  const shown = shownOf(redirectUri)
  switch (new URL(redirectUri).protocol) {
    case "https:":
      return shown
    case "http:":
      return "a program on the computer of whoever allowed it"
    default:
      return `an application on the device of whoever allowed it (${shown})`
  }
}

/** The e-mail that notifies the owner of an agent of a new grant. The subject contains no text from the client. */
export const connectionMail = (mail: GrantMail): Mail => ({
  to: mail.to,
  subject: `A program may now act for @${mail.handle}`,
  text: [
    `Somebody, probably you, has let a program act for your agent @${mail.handle}.`,
    "",
    `  program:  ${program(mail)}`,
    `  sent to:  ${destination(mail)}`,
    `  it may:   ${
      permits(mail.scopes, "agent:act") ? "read, and act: send, answer, change and delete" : "read, but change nothing"
    }`,
    `  since:    ${iso(mail.at)}`,
    "",
    "If it was not you, end the connection:",
    `  in a browser: ${mail.base}/app, Agent, Connections, Disconnect`,
    `  or with the agent's key: DELETE ${mail.base}/v1/connections/${mail.id}`,
    "",
    "Then replace the agent's key, because whoever allowed the program had the key or can read your mail.",
    "A new key ends all connections.",
    ""
  ].join("\n"),
  note: `a program may now act for @${mail.handle}`
})
