import type { StoredWebhook } from "./Webhook.ts"

/** Where the changes of a task of A2A are posted, and what its caller wants to recognise the posts by (wire.md N, Push). */
export interface TaskTarget {
  readonly url: string
  /** Sent with each post, and the key of its signature. */
  readonly token?: string
  readonly authentication?: { readonly scheme: string; readonly credentials: string }
}

/** A webhook for one task: it has no slot, so that it is none of those that the agent's limit counts and its list shows. */
export interface TaskWebhook extends Pick<StoredWebhook, "id"> {
  readonly target: TaskTarget
}

type Credentials = Omit<TaskTarget, "url">

/** What the webhook's row keeps as its secret; it is cleared with the others. */
export const encodeCredentials = ({ authentication, token }: TaskTarget): string =>
  JSON.stringify({ token, authentication } satisfies { [K in keyof Credentials]: Credentials[K] | undefined })

export const decodeCredentials = (secret: string): Credentials => JSON.parse(secret) as Credentials

/** The protocol's headers of a post (the specification, 4.3.3). */
export const headersOf = ({ authentication, token }: Credentials): Readonly<Record<string, string>> => ({
  "content-type": "application/a2a+json",
  ...(token === undefined ? {} : { "X-A2A-Notification-Token": token }),
  ...(authentication === undefined ? {} : { authorization: `${authentication.scheme} ${authentication.credentials}`.trim() })
})
