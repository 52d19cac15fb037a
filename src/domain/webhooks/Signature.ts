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

/** The id of a delivery, the same for all its attempts: a keyed hash of its number in the outbox. */
export const deliveryId = (key: Buffer, deliveryNo: number): string =>
  `whd_${hmac(key, `whd ${deliveryNo}`).toString("base64url", 0, 12)}`
