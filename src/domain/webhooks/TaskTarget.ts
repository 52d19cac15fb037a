import type { StoredWebhook } from "./Webhook.ts"

/**
 * The URL to which the changes of an A2A task are posted, and the credentials with which the receiver recognises the
 * posts (wire.md N, Push).
 */
export interface TaskTarget {
  readonly url: string
  /** The token is sent with each post. It is also the key of the post's signature. */
  readonly token?: string
  readonly authentication?: { readonly scheme: string; readonly credentials: string }
}

/**
 * A webhook for one task. It has no slot, so it does not count towards the agent's limit and is not in the agent's
 * list.
 */
export interface TaskWebhook extends Pick<StoredWebhook, "id"> {
  readonly target: TaskTarget
}

type Credentials = Omit<TaskTarget, "url">

/** The text in the column `secret` of the webhook's row. The column is empty after the webhook was deleted. */
export const encodeCredentials = ({ authentication, token }: TaskTarget): string =>
  JSON.stringify({ token, authentication } satisfies { [K in keyof Credentials]: Credentials[K] | undefined })

export const decodeCredentials = (secret: string): Credentials => JSON.parse(secret) as Credentials

/** The headers that the A2A protocol requires of a post (specification, 4.3.3). */
export const headersOf = ({ authentication, token }: Credentials): Readonly<Record<string, string>> => ({
  "content-type": "application/a2a+json",
  ...(token === undefined ? {} : { "X-A2A-Notification-Token": token }),
  ...(authentication === undefined
    ? {}
    : { authorization: `${authentication.scheme} ${authentication.credentials}`.trim() })
})
