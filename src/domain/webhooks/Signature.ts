import { createHmac } from "node:crypto"

const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest()

/** The headers that every post has. */
const POSTED = { "content-type": "application/json", "user-agent": "Parley-Webhooks" }

/** The beginning of a secret of Standard Webhooks. The key is what follows, in base64. */
const STANDARD = "whsec_"

/**
 * The key of a secret that begins as those of Standard Webhooks; undefined for any other text, and if no base64
 * follows.
 */
const decodedKey = (secret: string): Buffer | undefined => {
  const encoded = secret.slice(STANDARD.length)
  const key = Buffer.from(encoded, "base64")
  const isWhole = secret.startsWith(STANDARD) &&
    key.toString("base64").replace(/=+$/, "") === encoded.replace(/=+$/, "")
  return isWhole && key.length > 0 ? key : undefined
}

/** The key of a secret of Standard Webhooks; undefined for any other text. A key has 24 to 64 bytes. */
export const standardKey = (secret: string): Buffer | undefined => {
  const key = decodedKey(secret)
  return key !== undefined && key.length >= 24 && key.length <= 64 ? key : undefined
}

/** A message of Standard Webhooks. */
interface Message {
  readonly body: string
  /** The id of the message, the same in all attempts. */
  readonly id: string
  /** Seconds. */
  readonly at: number
}

/** The three headers of Standard Webhooks, with a signature for each of the keys. */
const standardSigned = ({ at, body, id }: Message, keys: ReadonlyArray<Buffer>): Readonly<Record<string, string>> => ({
  "webhook-id": id,
  "webhook-timestamp": String(at),
  "webhook-signature": keys.map((key) => `v1,${hmac(key, `${id}.${at}.${body}`).toString("base64")}`).join(" ")
})

/**
 * The headers of one attempt (wire.md C.12). If there is a secret, they are signed in both forms of AgentChat, whose
 * key is the secret as UTF-8 text, and in the form of Standard Webhooks, whose key is what a `whsec_` secret encodes,
 * or else the same text.
 */
export const signedHeaders = (options: {
  readonly secret: string | undefined
  readonly body: string
  readonly event: string
  readonly deliveryId: string
  /** Seconds. */
  readonly at: number
  /** Null if no request caused the event. The header is then left out. */
  readonly requestId: string | null
}): Readonly<Record<string, string>> => {
  const { at, body, deliveryId, event, requestId, secret } = options
  return {
    ...POSTED,
    ...(secret === undefined ? {} : {
      "Agentchat-Signature": `t=${at},v1=${hmac(secret, `${at}.${body}`).toString("hex")}`,
      "X-AgentChat-Signature": hmac(secret, body).toString("hex"),
      ...standardSigned({ at, body, id: deliveryId }, [decodedKey(secret) ?? Buffer.from(secret)])
    }),
    "X-AgentChat-Event": event,
    "X-AgentChat-Delivery": deliveryId,
    ...(requestId === null ? {} : { "X-Request-Id": requestId })
  }
}

/** The headers of one attempt by Standard Webhooks alone, with a signature for each of the secrets. */
export const standardHeaders = (
  options: Message & { readonly secrets: ReadonlyArray<string> }
): Readonly<Record<string, string>> => ({
  ...POSTED,
  ...standardSigned(options, options.secrets.flatMap((secret) => standardKey(secret) ?? []))
})

/** The id of a delivery, the same for all its attempts: a keyed hash of its number in the outbox. */
export const deliveryId = (key: Buffer, deliveryNo: number): string =>
  `whd_${hmac(key, `whd ${deliveryNo}`).toString("base64url", 0, 12)}`
