import { Context, Data, Effect } from "effect"
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http"
import { Agent as HttpsAgent, request as requestHttps } from "node:https"
import { isIPv6, type LookupFunction } from "node:net"
import { hostOf } from "./PrivateAddressGuard.ts"

/** There was no valid HTTP answer: the connection failed or broke, or the answer was not HTTP. */
export class PostFailed extends Data.TaggedError("PostFailed")<{ readonly reason: string }> {
  static of(error: Error): PostFailed {
    const code = "code" in error && typeof error.code === "string" ? error.code : ""
    return new PostFailed({ reason: error.message === "" ? code : error.message })
  }

  /** Whether the TLS connection could not be made. */
  get isOfTls(): boolean {
    return /\b(?:TLS|SSL|certificate|EPROTO|CERT)\b|certificate|self[- ]signed|altnames/i.test(this.reason)
  }
}

export interface Post {
  readonly url: URL
  /** The only addresses that may be dialled. */
  readonly addresses: ReadonlyArray<string>
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** How much of an answer's body is read, and for how long, before the connection is dropped; the content is ignored. */
const MAX_BODY_BYTES = 65_536
const MAX_BODY_TIME = "1 second"

// Separate HTTP agents, because a connection serves one post, goes to addresses that were checked for it, and uses no
// proxy.
const plain = new HttpAgent({ keepAlive: false })
const secure = new HttpsAgent({ keepAlive: false })

/** A DNS look-up that gives these addresses for every name. */
export const onlyThese = (addresses: ReadonlyArray<string>): LookupFunction => (_hostname, options, callback) => {
  const found = addresses.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }))
  const first = found[0]
  if (first === undefined) callback(new Error("no address"), "", 0)
  else if (options.all === true) callback(null, found)
  else callback(null, first.address, first.family)
}

const drained = (response: IncomingMessage): Effect.Effect<void> =>
  Effect.callback<void>((resume) => {
    let bytes = 0
    response.on("data", (part: Buffer) => {
      bytes += part.length
      if (bytes > MAX_BODY_BYTES) resume(Effect.void)
    })
    response.once("close", () => resume(Effect.void))
  }).pipe(Effect.timeoutOption(MAX_BODY_TIME), Effect.asVoid, Effect.ensuring(Effect.sync(() => response.destroy())))

const answer = ({ addresses, body, headers, url }: Post): Effect.Effect<IncomingMessage, PostFailed> =>
  Effect.callback<IncomingMessage, PostFailed>((resume) => {
    const options = {
      method: "POST",
      hostname: hostOf(url),
      port: url.port,
      path: url.pathname + url.search,
      headers: { ...headers, "content-length": String(Buffer.byteLength(body)) },
      lookup: onlyThese(addresses)
    }
    const request = url.protocol === "https:"
      ? requestHttps({ ...options, agent: secure })
      : requestHttp({ ...options, agent: plain })
    request.on("error", (error) => resume(Effect.fail(PostFailed.of(error))))
    request.on("response", (response) => resume(Effect.succeed(response)))
    request.end(body)
    return Effect.sync(() => request.destroy())
  })

/** The text of an answer's body; undefined if the body has more than `most` bytes, or breaks off. */
const textOf = (response: IncomingMessage, most: number): Effect.Effect<string | undefined> =>
  Effect.callback<string | undefined>((resume) => {
    const parts: Array<Buffer> = []
    let bytes = 0
    response.on("data", (part: Buffer) => {
      bytes += part.length
      if (bytes > most) resume(Effect.succeed(undefined))
      else parts.push(part)
    })
    response.once(
      "close",
      () => resume(Effect.succeed(response.complete ? Buffer.concat(parts).toString() : undefined))
    )
  }).pipe(Effect.ensuring(Effect.sync(() => response.destroy())))

/** Posts once, like `WebhookClient`, and returns the answer's body too, up to a number of bytes. */
export const ChallengeClient = Context.Reference<
  (
    post: Post,
    most: number
  ) => Effect.Effect<{ readonly status: number; readonly text: string | undefined }, PostFailed>
>("parley/webhooks/ChallengeClient", {
  defaultValue: () => (post, most) =>
    Effect.flatMap(
      answer(post),
      (response) => Effect.map(textOf(response, most), (text) => ({ status: response.statusCode ?? 0, text }))
    )
})

/**
 * Posts once and returns the status of the answer. Redirects are not followed. The host name of the URL is used for the
 * Host header and TLS. The connection goes to `addresses` only. Interruption drops the connection. Tests replace it.
 */
export const WebhookClient = Context.Reference<(post: Post) => Effect.Effect<number, PostFailed>>(
  "parley/webhooks/WebhookClient",
  {
    defaultValue: () => (post) =>
      Effect.flatMap(answer(post), (response) => Effect.as(drained(response), response.statusCode ?? 0))
  }
)
