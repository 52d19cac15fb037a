import { createHmac } from "node:crypto"

const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest()

/** The headers of one attempt, signed in both forms if there is a secret (wire.md C.12). */
export const signedHeaders = (options: {
  readonly secret: string | undefined
  readonly body: string
  readonly event: string
  readonly deliveryId: string
  /** Seconds. */
  readonly at: number
  /** Null if no request caused the event. The header is then left out. */
  readonly requestId: string | null
}): Readonly<Record<string, string>> => ({
  "content-type": "application/json",
  "user-agent": "Parley-Webhooks",
  ...(options.secret === undefined ? {} : {
    "Agentchat-Signature": `t=${options.at},v1=${hmac(options.secret, `${options.at}.${options.body}`).toString("hex")}`,
    "X-AgentChat-Signature": hmac(options.secret, options.body).toString("hex")
  }),
  "X-AgentChat-Event": options.event,
  "X-AgentChat-Delivery": options.deliveryId,
  ...(options.requestId === null ? {} : { "X-Request-Id": options.requestId })
})

/** The beginning of a secret of Standard Webhooks. The key is what follows, in base64. */
const STANDARD = "whsec_"

/** The key of a secret of Standard Webhooks; undefined for any other text. A key has 24 to 64 bytes. */
export const standardKey = (secret: string): Buffer | undefined => {
  const encoded = secret.slice(STANDARD.length)
  const key = Buffer.from(encoded, "base64")
  const isWhole = secret.startsWith(STANDARD) && key.toString("base64").replace(/=+$/, "") === encoded.replace(/=+$/, "")
  return isWhole && key.length >= 24 && key.length <= 64 ? key : undefined
}

/** The headers of one attempt by Standard Webhooks, with a signature for each of the secrets. */
export const standardHeaders = (options: {
  readonly secrets: ReadonlyArray<string>
  readonly body: string
  /** The id of the message, the same in all attempts. */
  readonly id: string
  /** Seconds. */
  readonly at: number
}): Readonly<Record<string, string>> => ({
  "content-type": "application/json",
  "user-agent": "Parley-Webhooks",
  "webhook-id": options.id,
  "webhook-timestamp": String(options.at),
  "webhook-signature": options.secrets.flatMap((secret) => {
    const key = standardKey(secret)
    return key === undefined ? [] : `v1,${hmac(key, `${options.id}.${options.at}.${options.body}`).toString("base64")}`
  }).join(" ")
})

/** The id of a delivery, the same for all its attempts: a keyed hash of its number in the outbox. */
export const deliveryId = (key: Buffer, deliveryNo: number): string =>
  `whd_${hmac(key, `whd ${deliveryNo}`).toString("base64url", 0, 12)}`
