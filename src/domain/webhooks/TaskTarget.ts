import type { StoredWebhook } from "./Webhook.ts"

/**
 * Where the changes of an A2A task are posted, and the credentials by which the receiver recognises the posts (wire.md
 * N, Push).
 */
export interface TaskTarget {
  readonly url: string
  /** Sent with each post. It is also the key of the post's signature. */
  readonly token?: string
  readonly authentication?: { readonly scheme: string; readonly credentials: string }
}

/**
 * A webhook for one task. It has no slot, so the agent's limit does not count it and the agent's list does not show it.
 */
export interface TaskWebhook extends Pick<StoredWebhook, "id"> {
  readonly target: TaskTarget
}

type Credentials = Omit<TaskTarget, "url">

/** The text that the webhook's row has as its secret. A deleted webhook has none. */
export const encodeCredentials = ({ authentication, token }: TaskTarget): string =>
  JSON.stringify({ token, authentication } satisfies { [K in keyof Credentials]: Credentials[K] | undefined })

export const decodeCredentials = (secret: string): Credentials => JSON.parse(secret) as Credentials

/** The protocol's headers of a post (the specification, 4.3.3). */
export const headersOf = ({ authentication, token }: Credentials): Readonly<Record<string, string>> => ({
  "content-type": "application/a2a+json",
  ...(token === undefined ? {} : { "X-A2A-Notification-Token": token }),
  ...(authentication === undefined
    ? {}
    : { authorization: `${authentication.scheme} ${authentication.credentials}`.trim() })
})
