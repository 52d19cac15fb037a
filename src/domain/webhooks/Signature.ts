import { createHmac } from "node:crypto"

const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest()

/** The headers of every post. */
const POSTED = { "content-type": "application/json", "user-agent": "Parley-Webhooks" }

/** The prefix of a secret of Standard Webhooks. The base64 text after it encodes the key. */
const STANDARD = "whsec_"

/** Without the look-behind, the pattern would read a run of `=` once for each of its characters. */
const withoutPadding = (base64: string): string => base64.replace(/(?<!=)=+$/, "")

/**
 * Returns the key of a secret with the prefix of Standard Webhooks. Returns undefined if the prefix is missing or no
 * base64 follows it.
 */
const decodedKey = (secret: string): Buffer | undefined => {
  const encoded = secret.slice(STANDARD.length)
  const key = Buffer.from(encoded, "base64")
  const isWhole = secret.startsWith(STANDARD) &&
    withoutPadding(key.toString("base64")) === withoutPadding(encoded)
  return isWhole && key.length > 0 ? key : undefined
}

/** Returns the key of a secret of Standard Webhooks, which has 24 to 64 bytes. Returns undefined for any other text. */
export const standardKey = (secret: string): Buffer | undefined => {
  const key = decodedKey(secret)
  return key !== undefined && key.length >= 24 && key.length <= 64 ? key : undefined
}

/** A message as Standard Webhooks defines it. */
interface Message {
  readonly body: string
  /** The id of the message. It is the same in all attempts. */
  readonly id: string
  /** The time of the attempt, in seconds. */
  readonly at: number
}

/** The three headers of Standard Webhooks, with one signature for each key. */
const standardSigned = ({ at, body, id }: Message, keys: ReadonlyArray<Buffer>): Readonly<Record<string, string>> => ({
  "webhook-id": id,
  "webhook-timestamp": String(at),
  "webhook-signature": keys.map((key) => `v1,${hmac(key, `${id}.${at}.${body}`).toString("base64")}`).join(" ")
})

/**
 * The headers of one attempt (wire.md C.12). If there is a secret, the headers contain three signatures: two in the
 * forms of AgentChat and one in that of Standard Webhooks. The key of the AgentChat signatures is the secret as UTF-8
 * text. The key of the third is what a `whsec_` secret encodes; for any other secret it is the same text.
 */
export const signedHeaders = (options: {
  readonly secret: string | undefined
  readonly body: string
  readonly event: string
  readonly deliveryId: string
  /** The time of the attempt, in seconds. */
  readonly at: number
  /** The request that caused the event. `null` if no request did; the header is then omitted. */
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

/**
 * The headers of one attempt that is signed only in the form of Standard Webhooks, with one signature for each secret.
 */
export const standardHeaders = (
  options: Message & { readonly secrets: ReadonlyArray<string> }
): Readonly<Record<string, string>> => ({
  ...POSTED,
  ...standardSigned(options, options.secrets.flatMap((secret) => standardKey(secret) ?? []))
})

/** The id of a delivery: a keyed hash of its number in the outbox. It is the same for all attempts of the delivery. */
export const deliveryId = (key: Buffer, deliveryNo: number): string =>
  `whd_${hmac(key, `whd ${deliveryNo}`).toString("base64url", 0, 12)}`
